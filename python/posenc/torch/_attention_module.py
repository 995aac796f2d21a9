# SPDX-License-Identifier: Apache-2.0
"""Attention as a module: what the encodings learn are its parameters, by the registry's names or given ones."""
from __future__ import annotations

import copy
import difflib
import inspect
import math
from typing import TYPE_CHECKING, Any, Iterable, Mapping

import torch

from .. import _posenc
from .._verbs import _family
from . import _checks
from ._attention import _positions, _texts, attend
from ._polar import polar

if TYPE_CHECKING:
    from torch import Tensor

    from .._types import EncodingLike

_WHO = "torch Attention"
# Options of attend that a module may hold, and those of them that are arrays of a call.
_OPTIONS = tuple(n for n, p in inspect.signature(attend).parameters.items() if p.kind is p.KEYWORD_ONLY and n != "parameters")
_ARRAYS = ("inputs", *(n for n in _OPTIONS if n.endswith(("_positions", "_length", "_visible", "_document", "_cu_seqlens", "_factor"))),
           "visible", "bias", "sink", "head_scale")
# What transformers calls the same array of the same shape in a module of its own.
_TRANSFORMERS = {
    ("t5", "table"): "relative_attention_bias.weight",
    ("swin", "table"): "relative_position_bias_table",
    ("shaw", "table_k"): "distance_embedding.weight",
    ("prophetnet", "bias_weight"): "relative_pos_embeddings.weight",
    ("prophetnet", "bias_bias"): "relative_pos_embeddings.bias",
    ("xlnet", "w_kr"): "r",
    ("xlnet", "u"): "r_w_bias",
    ("xlnet", "v_bias"): "r_r_bias",
    ("conformer", "u"): "pos_bias_u",
    ("conformer", "v_bias"): "pos_bias_v",
    ("conformer", "w_kr"): "linear_pos.weight",
    ("levit", "table"): "attention_biases",
}


class Attention(torch.nn.Module):
    """Attention of q, k and v as a module that holds the learned parameters of the encodings.

    heads, head_dim and key_heads (0: as many as heads) must be those of every call. Encodings and options are checked here.
    Parameters start as published, drawn with torch's generator. names: what they are called in the state_dict,
    by the names of `posenc.score_parameters`; transformers' own where it has such an array. What is said to `attend`
    beyond q, k, v and parameters is said here once, or at a call. Fields that follow from heads, head_dim and causal
    may be missing in a text (`posenc.complete`). length: the length for which scalings are resolved. PoPE, which doubles
    the channels of q and k, learns `phase_bias` [key heads, head_dim] and scales q.k by head_dim^-1/2.

    >>> import torch, posenc, posenc.torch
    >>> t5 = posenc.torch.Attention(posenc.T5(bidirectional=False), heads=4, head_dim=16, order="bhtd", causal=True)
    >>> {name: tuple(x.shape) for name, x in t5.state_dict().items()}
    {'relative_attention_bias.weight': (32, 4)}
    >>> t5(*torch.randn(3, 1, 4, 6, 16)).shape
    torch.Size([1, 4, 6, 16])
    """

    def __init__(self, encodings: EncodingLike | Iterable[EncodingLike] | None, *, heads: int, head_dim: int,
                 key_heads: int = 0, names: Mapping[str, str] | None = None, dtype: torch.dtype | None = None,
                 **options: Any) -> None:
        super().__init__()
        self.heads, self.head_dim, self.key_heads = heads, head_dim, key_heads
        self._check_sizes()
        self._check_options(options)
        self.options = options
        self.encodings = self._completed(encodings)
        own = {n: n for n, _ in self._listed()}
        if len(self.encodings) == 1:
            word = self.encodings[0].split()[0]
            own.update((n, _TRANSFORMERS[word, n]) for n in own if (word, n) in _TRANSFORMERS)
        for name, path in (names or {}).items():
            if name not in own:
                raise ValueError(f'[torch Attention] names must be of {", ".join(own) or "nothing"}, got "{name}"')
            own[name] = path
        self.names = own
        for name, shape in self._listed():
            where, last = self._place(own[name], make=True)
            where.register_parameter(last, torch.nn.Parameter(torch.empty(shape, dtype=dtype)))
        self.reset_parameters()

    def _completed(self, encodings: Any) -> tuple[str, ...]:
        causal = self.options.get("causal")
        return tuple(_posenc.complete_text(text, heads=self.heads, head_dim=self.head_dim, width=None, rows=None, causal=causal)
                     for text in _texts(encodings))

    @property
    def _polar(self) -> str | None:
        return next((text for text in self.encodings if text.split()[0] == "pope"), None)

    def _of_score(self) -> dict[str, Any]:
        """What the functions of the score are asked about: the encodings beside PoPE, and the size of their heads."""
        if self._polar is None:
            return {"encoding": self.encodings, "heads": self.heads, "head_dim": self.head_dim, "key_heads": self.key_heads}
        others = [text for text in self.encodings if text != self._polar]
        for text in others:
            if _family(text) in ("rotary", "polar"):
                raise ValueError(f'[torch Attention] only one encoding may act on q and k; besides pope there is "{text}"')
        return {"encoding": others, "heads": self.heads, "head_dim": 2 * self.head_dim, "key_heads": self.key_heads}

    def _listed(self) -> list[tuple[str, tuple[int, ...]]]:
        listed: list[tuple[str, tuple[int, ...]]] = _posenc.score_parameters(**self._of_score())
        return listed if self._polar is None else [("phase_bias", (self.key_heads or self.heads, self.head_dim)), *listed]

    def _check_sizes(self) -> None:
        for name, least in (("heads", 1), ("head_dim", 1), ("key_heads", 0)):
            n = getattr(self, name)
            if isinstance(n, bool) or not isinstance(n, int) or n < least:
                _checks.refuse(_WHO, f"{name} must be a whole number of {least} or more", n)

    def _check_options(self, options: Mapping[str, Any]) -> None:
        """Names, and values by a call of one token; tensors belong to calls of their own size."""
        for name in options:
            if name not in _OPTIONS:
                near = difflib.get_close_matches(name, _OPTIONS, 1)
                hint = f" (did you mean {near[0]}?)" if near else ""
                _checks.refuse(_WHO, f"options must be of {', '.join(_OPTIONS)}{hint}", name)
        order = options.get("order") or "thd"
        if order not in _checks.LAYOUTS:
            _checks.refuse(_WHO, f"order must be {', '.join(_checks.LAYOUTS)}", order)
        sizes = {"h": self.heads, "d": self.head_dim}
        q = torch.zeros([sizes.get(axis, 1) for axis in order], device="cpu")
        tried = {n: x for n, x in options.items() if n not in _ARRAYS and not isinstance(x, torch.Tensor)}
        if isinstance(tried.get("offset"), int):
            tried["offset"] = 0  # any is right for some length
        with torch.no_grad():
            attend(None, q, q, q, **tried)

    def _check_call(self, q: Tensor, k: Tensor, v: Tensor, order: str | None) -> None:
        """Sizes of a call, without which other numbers would be computed: slopes and tables go by the heads."""
        axes = order or "thd"
        key_heads = self.key_heads or self.heads
        if self._fits(q, axes, self.heads) and self._fits(k, axes, key_heads) and self._fits(v, axes, key_heads, False):
            return
        for name, x, heads in (("q", q, self.heads), ("k", k, key_heads), ("v", v, key_heads)):
            if not isinstance(x, torch.Tensor) or x.dim() != len(axes) or axes not in _checks.LAYOUTS:
                continue  # attend refuses it
            at = axes.index("h")
            word = "heads" if name == "q" else "key_heads"
            _checks.size(_WHO, f"axis {at} of {name} must be the {word} of the module, {heads}, in the order {axes}", x.shape[at], (heads,))
            if name != "v":
                at = axes.index("d")
                _checks.size(_WHO, f"axis {at} of {name} must be the head_dim of the module, {self.head_dim}, in the order {axes}", x.shape[at], (self.head_dim,))

    def _fits(self, x: Any, axes: str, heads: int, with_channels: bool = True) -> bool:
        if not isinstance(x, torch.Tensor) or axes not in _checks.LAYOUTS or x.dim() != len(axes):
            return False
        shape = x.shape
        return shape[axes.index("h")] == heads and (not with_channels or shape[axes.index("d")] == self.head_dim)

    def _place(self, path: str, make: bool = False) -> tuple[torch.nn.Module, str]:
        where: torch.nn.Module = self
        *folders, last = path.split(".")
        for folder in folders:
            if make and folder not in where._modules:
                where.add_module(folder, torch.nn.Module())
            where = where._modules[folder]  # type: ignore[assignment]
        return where, last

    def named_arrays(self) -> dict[str, torch.nn.Parameter]:
        """The parameters by the names of `posenc.score_parameters`."""
        found = {name: self._place(path) for name, path in self.names.items()}
        return {name: where._parameters[last] for name, (where, last) in found.items()}  # type: ignore[misc]

    def reset_parameters(self) -> None:
        """As published. torch.manual_seed says which numbers are drawn."""
        seed = int(torch.randint(2 ** 62, (), device="cpu"))  # under torch.device("meta") too
        start = _posenc.score_initial(**self._of_score(), seed=seed)
        with torch.no_grad():
            for name, x in self.named_arrays().items():
                if name in start:
                    x.copy_(torch.from_numpy(start[name]))
                else:  # PoPE's phases: within the range to which they are clamped, whose ends have no gradient
                    x.uniform_(-2 * math.pi, 0)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        """`attend` with the module's encodings and parameters."""
        return attend(**self._call(q, k, v, options))

    def _call(self, q: Tensor, k: Tensor, v: Tensor, options: Mapping[str, Any]) -> dict[str, Any]:
        self._check_call(q, k, v, options.get("order", self.options.get("order")))
        call = {**self.options, **options, "parameters": self.named_arrays(), "encodings": self.encodings, "q": q, "k": k, "v": v}
        encoding = self._polar
        return call if encoding is None else self._with_polar(encoding, call)

    def _with_polar(self, encoding: str, call: dict[str, Any]) -> dict[str, Any]:
        """PoPE is no term of the score: q and k are made of its points before it."""
        parameters, q, k, order, context = call["parameters"], call["q"], call["k"], call.get("order"), call.get("length")
        others = self._of_score()["encoding"]
        if call.get("scale") is None:
            if others:
                raise ValueError("[torch Attention] scale must be given if pope is combined with another encoding: "
                                 "pope uses head_dim^-1/2, and the other may require its own")
            call["scale"] = self.head_dim ** -0.5
        if call.get("query_cu_seqlens") is not None and call.get("query_positions") is None:
            raise ValueError("[torch Attention] query_positions must be given for pope with packed sequences")
        axis = (order or "thd").index("t")
        queries, keys = q.shape[axis], k.shape[axis]
        offset = call.get("offset")
        first = keys - queries if offset in (None, "end") else 0 if offset == "start" else offset
        places = {}
        for name, begin, count in (("query_positions", first, queries), ("key_positions", 0, keys)):
            given = _positions(call.get(name))
            places[name] = torch.arange(begin, begin + count, device=q.device) if given is None else given
        bias = parameters.pop("phase_bias")
        call["q"] = polar(encoding, q, positions=places["query_positions"], layout=order, context=context)
        call["k"] = polar(encoding, k, positions=places["key_positions"], bias=bias, layout=order, context=context)
        return {**call, "encodings": others}

    def _seen(self, q: Tensor, k: Tensor, v: Tensor | None, options: Mapping[str, Any]) -> _posenc.Attention:
        """The call without a graph, as `posenc.attend` has it."""
        from .._attention import attend as plain

        with torch.no_grad():
            call = self._call(q, k, k if v is None else v, options)
        call.pop("log_sum_exp", None)
        call["parameters"] = {n: x.detach().double() for n, x in call["parameters"].items()}
        call["inputs"] = {n: x.detach() for n, x in (call.get("inputs") or {}).items()}
        call = {n: x.detach() if isinstance(x, torch.Tensor) else x for n, x in call.items()}
        return plain(call.pop("encodings"), call.pop("q"), call.pop("k"), call.pop("v"), **call)

    def probabilities(self, q: Tensor, k: Tensor, v: Tensor | None = None, **options: Any) -> Tensor:
        """What each key contributes to a query, float64 [batch, heads, queries, keys], without a gradient; v only where a
        scheme reads it."""
        return torch.from_numpy(self._seen(q, k, v, options).probabilities)

    def locality(self, q: Tensor, k: Tensor, v: Tensor | None = None, **options: Any) -> tuple[Tensor, Tensor]:
        """The distances, query - key, and the share of the attention at each, float64 [heads, distances]: the mean over
        the queries that see a key."""
        distance, mass = self._seen(q, k, v, options).locality()
        return torch.from_numpy(distance), torch.from_numpy(mass)

    def rescaled(self, encodings: EncodingLike | Iterable[EncodingLike], **options: Any) -> Attention:
        """A module that shares these parameters, with other encodings that learn the same: a further scaling, to run at a
        greater length. options replace those of this module, such as `length`.

        >>> import torch, posenc, posenc.torch
        >>> rope = posenc.torch.Attention("rope pairing=half_split", heads=4, head_dim=16, causal=True)
        >>> longer = rope.rescaled("rope pairing=half_split + yarn factor=4 original_context=4096")
        >>> longer.encodings
        ('rope head_dim=16 pairing=half_split + yarn factor=4 original_context=4096',)
        """
        other = copy.copy(self)
        # Parameters are shared; tables of names, and hooks, are its own.
        other.__dict__ = {name: copy.copy(x) if isinstance(x, dict) else x for name, x in self.__dict__.items()}
        self._check_options(options)
        other.options = {**self.options, **options}
        other.encodings = other._completed(encodings)
        if other._listed() != self._listed():
            raise ValueError(f"[torch Attention] rescaled encodings must learn what those of the module learn, {self._listed()}, "
                             f"got {other._listed()}")
        return other

    def extra_repr(self) -> str:
        return f"{' | '.join(self.encodings)!r}, heads={self.heads}, head_dim={self.head_dim}"
