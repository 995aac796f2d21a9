# SPDX-License-Identifier: Apache-2.0
"""Attention as a module: what the encodings learn are its parameters, by the registry's names or given ones."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Mapping

import torch

from .. import _posenc
from ._attention import _texts, attend

if TYPE_CHECKING:
    from torch import Tensor

    from .._types import EncodingLike

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
        return attend(self.encodings, q, k, v, parameters=self.named_arrays(), **{**self.options, **options})

    def extra_repr(self) -> str:
        return f"{' | '.join(self.encodings)!r}, heads={self.heads}, head_dim={self.head_dim}"
