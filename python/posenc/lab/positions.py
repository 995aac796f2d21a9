# SPDX-License-Identifier: Apache-2.0
"""Where the parts of a scheme act in the lab's models: at the input, on q and k, on the score.

A scheme is SCHEME text, a class of one's own ("my.py:Name"), or several of them joined by " | ". Fields that follow from
the model (sizes, rows) and from the trained length (T5's buckets, FIRE's threshold) are filled in here.
"""
from __future__ import annotations

import importlib.util
import inspect
import os
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any, Iterable, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import posenc
import posenc.torch

from .errors import LabError

# What a class of one's own may have; attend gets the call of the other parts.
HOOKS = ("embed", "rotate", "bias", "attend")
# Inputs of schemes that the layer makes: from its hidden states, or because every token of the lab is of one class.
_MADE = ("log_gate", "hidden", "query_class", "key_class", "query_segment", "key_segment")
# Schemes that one axis of positions does not determine, and what they need in its place.
_NEEDS = {
    **dict.fromkeys(("swin", "swin_v2", "beit", "levit", "irpe", "decomposed", "cape2d", "local_window"), "the grid of an image"),
    **dict.fromkeys(("mrope", "axial", "mixed_axes", "sinusoidal_nd", "learned_axes"), "several axes of positions"),
    **dict.fromkeys(("layoutlm", "udop", "bros", "boxes"), "boxes on a page"),
    **dict.fromkeys(("modality_pairs", "crossmodal"), "modalities of tokens"),
    "longt5": "global tokens", "indexed": "an index of pairs", "complex_order": "word ids at the input, for which posenc.torch has no module",
    **dict.fromkeys(("convolutional", "distance_offset"), "a module at the input, which posenc.torch does not have"), "paragraph_offset": "paragraphs",
    "segatron_xl": "paragraphs and sentences", "hierarchy": "several levels of a text",
}


@dataclass(frozen=True)
class Sizes:
    """What fields of a scheme follow from. rows: the longest text that is read; trained: the longest that is trained."""

    width: int
    heads: int
    rows: int
    trained: int
    causal: bool

    @property
    def head_dim(self) -> int:
        return self.width // self.heads


@lru_cache(maxsize=None)
def _listed(name: str) -> dict[str, Any]:
    listed = cast("list[dict[str, Any]]", posenc.schemes()["schemes"])
    found = next((s for s in listed if s["name"] == name), None)
    if found is None:
        posenc.parse(name)  # names the scheme that was meant
        raise LabError(f'scheme must be one of `posenc list`, got "{name}"')
    return found


def _followed(name: str, n: Sizes) -> dict[str, Any]:
    """Fields that follow from the trained length, by scheme; what their papers set for their own length."""
    t = n.trained
    table = {"num_buckets": max(4, min(32, t) // 2 * 2), "max_distance": max(8, t)}  # even, for those with buckets on both sides
    followed: dict[str, dict[str, Any]] = {
        "t5": table, "wavlm": table, "prophetnet": table, "cpmant": table,
        "tupe": {"positions": n.rows, "reset": "false"},
        "fire": {"initial_length": t},
        "xpos": {"center": t // 2, "scale_base": max(1, t // 2)},
        "clipped": {"clip": t},
        "shaw": {"left": min(16, t)},
        "deberta": {"position_buckets": max(4, min(32, t)), "max_relative_positions": max(8, t)},
        "relative_projection": {"max_distance": t},
        "dynamic_position_bias": {"width": max(8, n.width // 2)},
        "sinusoidal": {"input_gain": f"{n.width ** 0.5:.6g}"},  # Vaswani et al., sec. 3.4: embeddings times the root of the width
        "cope": {"positions": max(8, t)}, "learnable_fourier": {"features": n.width, "hidden": n.width}, "continuous_axial": {"hidden": n.width},
    }
    return followed.get(name, {})


def complete(text: str, sizes: Sizes) -> str:
    """SCHEME text with every field that follows from the model or the trained length."""
    first, *scalings = text.split(" + ")
    name, *words = first.split() or [""]
    fields = {f["name"] for f in _listed(name)["fields"]}
    if name in _NEEDS:
        raise LabError(f"scheme {name} needs {_NEEDS[name]}; the lab's models have one axis of positions")
    given = {w.split("=", 1)[0] for w in words}
    if "preset" not in given:
        follow = {"pairing": "half_split", "axes": 1, **_followed(name, sizes)}
        words += [f"{field}={value}" for field, value in follow.items() if field in fields and field not in given]
    filled = posenc.complete(" + ".join([" ".join([name, *words]), *scalings]), heads=sizes.heads, head_dim=sizes.head_dim,
                             width=sizes.width, rows=sizes.rows, causal=sizes.causal)
    return str(filled)


def load(reference: str, what: str) -> type[Any]:
    """The class of "FILE.py:Name"."""
    path, _, name = reference.rpartition(":")
    if not path.endswith(".py") or not name.isidentifier():
        raise LabError(f'{what} of your own must be FILE.py:Name, got "{reference}"')
    if not os.path.isfile(path):
        raise LabError(f'{what} must name a file that exists, got "{path}"')
    found = getattr(_module(os.path.abspath(path)), name, None)
    if not inspect.isclass(found):
        raise LabError(f'{what} must name a class of {path}, got "{name}"')
    return found


@lru_cache(maxsize=None)
def _module(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"posenc_lab_{os.path.basename(path)[:-3]}", path)
    if spec is None or spec.loader is None:
        raise LabError(f'a file of Python must be readable, got "{path}"')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _is_own(part: str) -> bool:
    return ".py:" in part


class Scheme:
    """The parts of a scheme by where they act. text: what ran, complete."""

    def __init__(self, scheme: str, sizes: Sizes) -> None:
        parts = [part.strip() for part in scheme.split("|")]
        if not all(parts):
            raise LabError(f'scheme must be SCHEME texts joined by " | ", got "{scheme}"')
        self.sizes = sizes
        self.own = [load(part, "scheme") for part in parts if _is_own(part)]
        for kind in self.own:
            if not issubclass(kind, nn.Module) or not any(hasattr(kind, hook) for hook in HOOKS):
                raise LabError(f"scheme of your own must be a torch.nn.Module with {', '.join(HOOKS)}, or some of them; got {kind.__name__}")
        filled = [part if _is_own(part) else complete(part, sizes) for part in parts]
        self.text = " | ".join(filled)
        texts = [text for text in filled if not _is_own(text)]
        family = {text: _listed(text.split()[0])["family"] for text in texts}
        self.input = [text for text in texts if family[text] == "absolute"]
        self.attention = [text for text in texts if family[text] != "absolute" and text != "nope"]
        self.rotary = [text for text in self.attention if family[text] == "rotary"]
        for name in self.wanted(self.attention):
            if name.split(".")[-1] not in _MADE:
                raise LabError(f"scheme {self.text} needs the input {name}, which the lab's layers do not make")

    def wanted(self, texts: Iterable[str]) -> list[str]:
        """Inputs that a call of these encodings must have. PoPE acts on q and k, not on the score."""
        score = [text for text in texts if text.split()[0] != "pope"]
        listed = posenc.score_inputs(score, heads=self.sizes.heads, head_dim=self.sizes.head_dim)
        return [name for name, _, _, optional in listed if not optional]

    def own_module(self, kind: type[Any]) -> nn.Module:
        """One's own module, given those of width, heads, head_dim, rows, trained, causal that its constructor takes."""
        n = self.sizes
        offered = {"width": n.width, "heads": n.heads, "head_dim": n.head_dim, "rows": n.rows, "trained": n.trained, "causal": n.causal}
        taken = {} if kind.__init__ is nn.Module.__init__ else inspect.signature(kind).parameters
        every = any(p.kind is p.VAR_KEYWORD for p in taken.values())
        made: nn.Module = kind(**{name: value for name, value in offered.items() if every or name in taken})
        return made


class InputParts(nn.Module):
    """What acts on the embeddings, [batch, tokens, width]. Channels that a scheme appends are mapped back to the width."""

    def __init__(self, scheme: Scheme) -> None:
        super().__init__()
        self.back: nn.Linear | None = None
        self.texts = nn.ModuleList(posenc.torch.InputPositions(text) for text in scheme.input)
        self.own = nn.ModuleList(scheme.own_module(kind) for kind in scheme.own if hasattr(kind, "embed"))
        width = scheme.sizes.width
        with torch.no_grad():
            channels = self._texts(torch.zeros(1, 2, width), torch.arange(2)).shape[-1]
        if channels != width:
            self.back = nn.Linear(channels, width)

    def _texts(self, x: Tensor, positions: Tensor) -> Tensor:
        for part in self.texts:
            x = part(x, positions)
        return x if self.back is None else self.back(x)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        x = self._texts(x, positions)
        for part in self.own:
            x = _alike("embed", part.embed(x, positions), x)  # type: ignore[operator]
        return x


class AttentionParts(nn.Module):
    """Attention of one layer with all that acts on q, k and the score. q, k, v: [batch, tokens, heads, head_dim]."""

    def __init__(self, scheme: Scheme, *, causal: bool, without: Iterable[str] = (), **options: Any) -> None:
        super().__init__()
        n = scheme.sizes
        texts = [text for text in scheme.attention if text not in without]
        self.attention = posenc.torch.Attention(texts, heads=n.heads, head_dim=n.head_dim, order="bthd", causal=causal, **options)
        self.wanted = {name: name.split(".")[-1] for name in scheme.wanted(texts)}
        self.gate = nn.Linear(n.width, n.heads) if "log_gate" in self.wanted.values() else None
        self.own = nn.ModuleList(scheme.own_module(kind) for kind in scheme.own
                                 if any(hasattr(kind, hook) for hook in ("rotate", "bias", "attend")))

    def gates(self, hidden: Tensor) -> Tensor | None:
        """The log_gate of each key, if a scheme reads it."""
        return None if self.gate is None else F.logsigmoid(self.gate(hidden))

    def _inputs(self, hidden: Tensor, keys: int | None = None, gates: Tensor | None = None) -> dict[str, Tensor]:
        """Inputs of the schemes. hidden: of the queries; keys and gates: how many keys there are and their log_gate, by default those of hidden."""
        made: dict[str, Tensor] = {}
        for name, kind in self.wanted.items():
            if kind == "hidden":
                made[name] = hidden
            elif kind == "log_gate":
                found = self.gates(hidden) if gates is None else gates
                assert found is not None
                made[name] = found
            else:  # one class, one segment
                tokens = hidden.shape[1] if keys is None or kind.startswith("query") else keys
                made[name] = torch.zeros((hidden.shape[0], tokens), dtype=torch.int64)
        return made

    def forward(self, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor, positions: Tensor | None = None, **options: Any) -> Tensor:
        options |= self.placed(q.shape[1], positions)
        q, k = self.rotated(q, k, torch.arange(q.shape[1]) if positions is None else positions)
        return self.attended(q, k, v, self._inputs(hidden), **options)

    def placed(self, tokens: int, positions: Tensor | None) -> dict[str, Any]:
        """What a call says of its positions, and for scalings of its length, as transformers counts it."""
        options: dict[str, Any] = {} if positions is None else {"query_positions": positions, "key_positions": positions}
        if any(" + " in text for text in self.attention.encodings):
            options["length"] = tokens if positions is None else int(positions.max()) + 1
        return options

    def rotated(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """q and k after the rotations of one's own."""
        for part in self.own:
            if hasattr(part, "rotate"):
                made = part.rotate(q, k, positions)  # type: ignore[operator]
                if not isinstance(made, tuple) or len(made) != 2:
                    raise LabError(f"rotate of your own must return q and k, got {type(made).__name__}")
                q, k = _alike("rotate", made[0], q), _alike("rotate", made[1], k)
        return q, k

    def attended(self, q: Tensor, k: Tensor, v: Tensor, inputs: dict[str, Tensor], **options: Any) -> Tensor:
        """Attention of rotated q and k. There may be more keys than queries; options then have the positions of both."""
        if inputs:
            options["inputs"] = inputs
        biases = [part.bias for part in self.own if hasattr(part, "bias")]
        if biases:
            options["own_bias"] = biases
        call: Any = self._library
        for part in self.own:
            if hasattr(part, "attend"):
                call = _wrapped(part, call)
        out: Tensor = call(q, k, v, **options)
        return out

    def _library(self, q: Tensor, k: Tensor, v: Tensor, own_bias: Iterable[Any] = (), **options: Any) -> Tensor:
        """posenc.torch's attention; biases of one's own are tables by distance, which take O(n) memory."""
        biases = list(own_bias)
        if not biases:
            return self.attention(q, k, v, **options)  # type: ignore[no-any-return]
        tables = [posenc.torch.distance_bias(_by_rows(bias, q.shape[2]), longest=k.shape[1] - 1, heads=None) for bias in biases]
        encodings = [*self.attention.encodings, *(encoding for encoding, _ in tables)]
        names = [name for name, _ in posenc.score_parameters(encodings, heads=q.shape[2], head_dim=q.shape[3])]
        values = [*self.attention.named_arrays().values(), *(given["table"] for _, given in tables)]  # in the order of the encodings
        parameters = dict(zip(names, values))
        return posenc.torch.attend(encodings, q, k, v, parameters=parameters, **{**self.attention.options, **options})  # type: ignore[no-any-return]

    def rescale(self, texts: Iterable[str]) -> None:
        """Other scalings for the weights that are there."""
        self.attention = self.attention.rescaled(list(texts))


def _wrapped(part: nn.Module, inner: Any) -> Any:
    def call(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        return _alike("attend", part.attend(q, k, v, lambda *a, **changed: inner(*a, **{**options, **changed})), v, q.shape[1])  # type: ignore[operator]
    return call


def _by_rows(bias: Any, heads: int) -> Any:
    def table(distances: Tensor) -> Tensor:
        return _shaped("bias", bias(distances), [len(distances), heads], ", [distances, heads]")
    return table


def _alike(hook: str, made: Any, x: Tensor, tokens: int | None = None) -> Tensor:
    return _shaped(hook, made, [x.shape[0], x.shape[1] if tokens is None else tokens, *x.shape[2:]])


def _shaped(hook: str, made: Any, shape: list[int], axes: str = "") -> Tensor:
    if not isinstance(made, Tensor) or list(made.shape) != shape:
        found = list(made.shape) if isinstance(made, Tensor) else type(made).__name__
        raise LabError(f"{hook} of your own must return {shape}{axes}, got {found}")
    return made
