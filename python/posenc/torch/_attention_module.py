# SPDX-License-Identifier: Apache-2.0
"""Attention as a module: what the encodings learn are its parameters, by the registry's names or given ones."""
from __future__ import annotations

import difflib
import inspect
from typing import TYPE_CHECKING, Any, Iterable, Mapping

import torch

from .. import _posenc
from . import _checks
from ._attention import _texts, attend

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
    """Attention of q, k and v that are handed in, with what the encodings add, rotate and learn.

    heads, head_dim and key_heads (0: as many as heads) must be those of every call. Encodings and options are checked here.
    Parameters start as published, drawn with torch's generator. names: what they are called in the state_dict,
    by the names of `posenc.score_parameters`; transformers' own where it has such an array. What is said to `attend`
    beyond q, k, v and parameters is said here once, or at a call.

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
        self.encodings = tuple(_texts(encodings))
        self.heads, self.head_dim, self.key_heads = heads, head_dim, key_heads
        self._check_sizes()
        self._check_options(options)
        self.options = options
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

    def _listed(self) -> list[tuple[str, tuple[int, ...]]]:
        listed: list[tuple[str, tuple[int, ...]]] = _posenc.score_parameters(
            self.encodings, heads=self.heads, head_dim=self.head_dim, key_heads=self.key_heads)
        return listed

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
        for name, x, heads in (("q", q, self.heads), ("k", k, key_heads), ("v", v, key_heads)):
            if not isinstance(x, torch.Tensor) or x.dim() != len(axes) or axes not in _checks.LAYOUTS:
                continue  # attend refuses it
            at = axes.index("h")
            word = "heads" if name == "q" else "key_heads"
            _checks.size(_WHO, f"axis {at} of {name} must be the {word} of the module, {heads}, in the order {axes}", x.shape[at], (heads,))
            if name != "v":
                at = axes.index("d")
                _checks.size(_WHO, f"axis {at} of {name} must be the head_dim of the module, {self.head_dim}, in the order {axes}", x.shape[at], (self.head_dim,))

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
        start = _posenc.score_initial(self.encodings, heads=self.heads, head_dim=self.head_dim, seed=seed,
                                      key_heads=self.key_heads)
        with torch.no_grad():
            for name, x in self.named_arrays().items():
                x.copy_(torch.from_numpy(start[name]))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        """`attend` with the module's encodings and parameters."""
        given = {**self.options, **options}
        self._check_call(q, k, v, given.get("order"))
        return attend(self.encodings, q, k, v, parameters=self.named_arrays(), **given)

    def extra_repr(self) -> str:
        return f"{' | '.join(self.encodings)!r}, heads={self.heads}, head_dim={self.head_dim}"
