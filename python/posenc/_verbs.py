# SPDX-License-Identifier: Apache-2.0
"""What the command line's verbs do, as functions."""
from __future__ import annotations

import os

from . import _posenc
from ._call import Call
from ._model import Finding, Model, read_model

TYPE_CHECKING = False  # the module typing is not imported for its names
if TYPE_CHECKING:
    from typing import Any, Iterable, Mapping, Union

    from ._types import EncodingLike, PositionsLike

    Subject = Union[EncodingLike, Model, "os.PathLike[str]"]


class Picture:
    """A picture: `svg` is its text; notebooks show it."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the .svg, or a .png by the program rsvg-convert (librsvg2-bin)."""
        if os.fspath(path).endswith(".png"):
            with open(path, "wb") as image:
                image.write(_posenc.png_of_svg(self.svg))
            return
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg)


def explain(path: str | os.PathLike[str] | Model, *, layer: int | None = None) -> str:
    """A text on the positions of a model and where each value comes from; `read_model` returns objects."""
    return _model(path).explain(layer=layer)


def doctor(path: str | os.PathLike[str] | Model) -> list[Finding]:
    """What is wrong, risky or ambiguous in a model's positions."""
    return _model(path).doctor()


def _model(path: str | os.PathLike[str] | Model) -> Model:
    return path if isinstance(path, Model) else read_model(path)


def table(
    subject: Subject,
    *,
    what: str | None = None,
    positions: PositionsLike | str | None = None,
    layout: str | None = None,
    precision: str | None = None,
    dtype: str | None = None,
    grid: str | None = None,
    heads: int | None = None,
    input: int | None = None,
    context: int | None = None,
    layer: int | None = None,
    tower: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    start: int | None = None,
) -> Any:
    """A table as `posenc table` makes it: inv_freq, turns, angles, cos, sin, cos_sin, bias or rows.

    >>> import posenc
    >>> x = posenc.Rope(head_dim=8, pairing="half_split")
    >>> posenc.table(x, what="cos_sin", positions=range(4)).shape
    (4, 8)
    """
    with Call("table") as call:
        call.subject(subject)
        call.positions("positions", positions)
        call.options({"what": what or ("inv_freq" if positions is None else None), "layout": layout,
                      "precision": precision, "dtype": dtype, "grid": grid, "heads": heads, "input": input,
                      "context": context, "layer": layer, "tower": tower, "start": start})
        call.arrays("arrays", parameters)
        return _only(call.tensors())


def bias(
    subject: Subject | Iterable[EncodingLike],
    *,
    heads: int,
    positions: PositionsLike | str,
    key_positions: PositionsLike | str | None = None,
    head_dim: int | None = None,
    parameters: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    by_distance: bool = False,
    context: int | None = None,
    layer: int | None = None,
    tower: str | None = None,
    start: int | None = None,
) -> Any:
    """The part of the score that reads neither query nor key: [heads, queries, keys], or [heads, distances].

    subject: one encoding, several, or a model, whose learned arrays lie beside its config. parameters: what the
    encodings learn, by the names of `score_parameters`; start: draws them as before training, from a seed.
    `bias_gradient` has its gradient; `posenc.torch.bias` records it.

    >>> import posenc
    >>> posenc.bias(posenc.Alibi(), heads=2, positions=[0, 1, 2], by_distance=True)[0].tolist()
    [0.0, -0.0625, -0.125]
    """
    if _is_encoding(subject):
        for name, value in (("context", context), ("layer", layer), ("tower", tower)):
            if value is not None:
                raise ValueError(f"[bias] {name} goes with a model; an encoding has none, got {value}")
        return _posenc.score_bias(*_bias_call(subject, heads, head_dim, positions, key_positions, parameters, inputs, by_distance, start))
    with Call("bias") as call:
        call.subject(subject)
        call.positions("positions", positions)
        call.positions("key_positions", key_positions)
        call.options({"heads": heads, "head_dim": head_dim, "by_distance": by_distance, "context": context,
                      "layer": layer, "tower": tower, "start": start})
        call.arrays("params", parameters)
        call.inputs(inputs)
        return _only(call.tensors())


def bias_gradient(
    encodings: EncodingLike | Iterable[EncodingLike],
    d_bias: Any,
    *,
    heads: int,
    positions: PositionsLike | str,
    key_positions: PositionsLike | str | None = None,
    head_dim: int | None = None,
    parameters: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    by_distance: bool = False,
) -> dict[str, dict[str, Any]]:
    """The gradient of sum(bias * d_bias), float64, by name under `parameters` and `inputs`; arguments as in `bias`.

    >>> import numpy, posenc
    >>> table = numpy.zeros((32, 2))
    >>> call = {"heads": 2, "positions": range(4), "parameters": {"table": table}}
    >>> made = posenc.bias("t5 bidirectional=false", **call)
    >>> found = posenc.bias_gradient("t5 bidirectional=false", numpy.ones_like(made), **call)
    >>> found["parameters"]["table"][:4, 0].tolist()
    [10.0, 3.0, 2.0, 1.0]
    """
    texts, *more = _bias_call(encodings, heads, head_dim, positions, key_positions, parameters, inputs, by_distance, None)
    return _posenc.score_bias_gradient(texts, d_bias, *more)


def _is_encoding(subject: Any) -> bool:
    """An encoding, the text of one, or several; not a model or its file."""
    if hasattr(subject, "_words") or hasattr(subject, "__fspath__"):
        return False
    if not isinstance(subject, str):
        return hasattr(subject, "_text") or hasattr(subject, "__iter__")
    word = subject.split(" ", 1)[0]
    return not os.path.exists(subject) and "/" not in word and not word.endswith((".json", ".gguf"))


def _bias_call(encodings: Any, heads: int, head_dim: int | None, positions: Any, key_positions: Any, parameters: Any,
               inputs: Any, by_distance: bool, start: int | None) -> tuple[Any, ...]:
    dim = 64 if head_dim is None else head_dim
    if start is not None:
        if parameters is not None:
            raise ValueError("[bias] start draws the parameters: pass start or parameters, not both")
        parameters = _posenc.score_initial(encodings, heads=heads, head_dim=dim, seed=start)
    places = [_posenc.positions_of_text(p) if isinstance(p, str) else p for p in (positions, key_positions)]
    return (encodings, heads, dim, *places, None if parameters is None else dict(parameters),
            None if inputs is None else dict(inputs), by_distance)


def extend(
    table: Any,
    *,
    to: int | str,
    how: str,
    grid: str | None = None,
    prefix: int | None = None,
    suffix: int | None = None,
    align_corners: bool = False,
    antialias: bool = False,
    keys: float | None = None,
    border: str | None = None,
    offset: float | None = None,
    scale: str | float | None = None,
    alpha: float | None = None,
    rows: str | None = None,
    order: str | None = None,
    tensor: str | None = None,
    output: str | os.PathLike[str] | None = None,
) -> Any:
    """A learned table at another size: an array gives an array; the path of a .safetensors file, with `tensor` and
    `output`, a new file.

    >>> import numpy, posenc
    >>> posenc.extend(numpy.arange(4.0).reshape(4, 1), to=8, how="linear")[:, 0].tolist()
    [0.0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3.0]
    """
    of_file = isinstance(table, (str, os.PathLike))
    with Call("extend") as call:
        made = os.fspath(output) if of_file and output is not None else call.file("extended.safetensors")
        if of_file:
            call.words += [os.fspath(table)]
            call.option("tensor", tensor)
        else:
            path = call.file("table.safetensors")
            _posenc.save_arrays(path, {"table": table})
            call.words += [path, "--tensor=table"]
        call.options({"to": to, "how": how, "grid": grid, "prefix": prefix, "suffix": suffix,
                      "align_corners": align_corners, "antialias": antialias, "keys": keys, "border": border,
                      "offset": offset, "scale": scale, "alpha": alpha, "rows": rows, "order": order, "output": made,
                      "json": True})
        call.write()
        if of_file and output is not None:
            return made
        with open(made, "rb") as file:
            arrays = _posenc.arrays_of(file.read())
        return arrays[tensor] if of_file and tensor is not None else arrays["table"]


def plot(
    subject: Subject | Any,
    *,
    kind: str | None = None,
    positions: PositionsLike | str | None = None,
    heads: int | None = None,
    head_dim: int | None = None,
    q: Any = None,
    k: Any = None,
    v: Any = None,
    order: str | None = None,
    mask: str | Iterable[str] | None = None,
    inputs: Mapping[str, Any] | None = None,
    compare: EncodingLike | Iterable[EncodingLike] | None = None,
    language: str | None = None,
    title: str | None = None,
    context: int | None = None,
    layer: int | None = None,
    tower: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    start: int | None = None,
) -> Picture:
    """A picture as `posenc plot` draws it: wavelengths, rotation, scaling, error, decay, rows, bias, terms, locality ...

    subject: an encoding, a model, or a module of `posenc.torch`, of which the encodings, the sizes and the numbers as
    they are now are drawn. q, k, v: of the kinds terms, locality and decay of a score, arrays [tokens, heads, channels],
    or with an order; none: random numbers. mask: words of the command line such as `causal`. compare: further encodings
    in the same picture. language: of the words in it, en or zh.

    >>> import numpy, posenc
    >>> q, k = numpy.random.default_rng(0).normal(size=(2, 16, 4, 8))
    >>> posenc.plot(posenc.Alibi(), kind="locality", q=q, k=k, mask="causal").svg[:4]
    '<svg'
    """
    with Call("plot") as call:
        more: list[str] = []
        if hasattr(subject, "state_dict"):
            subject, more, parameters, sizes = _of_module(subject, kind, parameters)
            if q is None and _draws_heads(subject, kind):
                heads, head_dim = heads or sizes[0], head_dim or sizes[1]
        call.subject(subject)
        call.positions("positions", positions)
        several = [compare] if isinstance(compare, str) or hasattr(compare, "_text") else list(compare or [])
        call.options({"kind": kind, "heads": heads, "head_dim": head_dim, "title": title, "context": context,
                      "layer": layer, "tower": tower, "start": start, "order": order, "language": language, "with": more,
                      "mask": [mask] if isinstance(mask, str) else list(mask or []), "compare": [str(x) for x in several]})
        for name, value in (("q", q), ("k", k), ("v", v)):
            call.array(name, value)
        call.inputs(inputs)
        # Beside a rotation the arrays are those of the encodings behind it.
        call.arrays("params" if kind in ("terms", "locality") and "@" not in str(subject) else "arrays", parameters)
        return Picture(call.run()[1].decode(errors="replace"))


def _draws_heads(text: str, kind: str | None) -> bool:
    family = _family(text)
    return kind in ("bias", "terms", "locality") or (family == "relative" and kind in (None, "decay"))


def _family(text: str) -> str:
    from ._encoding import schemes

    return next((str(x["family"]) for x in schemes()["schemes"] if x["name"] == text.split(" ", 1)[0]), "")


def _learned_frequencies(module: Any) -> str:
    values = module.frequencies.detach().cpu().double()
    if values.shape[:2] != (1, 1):
        raise ValueError("[plot] frequencies must be shared by all heads, of one axis, to be drawn, got "
                         f"{list(values.shape)}: plot posenc.Rope(...) + posenc.Frequencies(values=...) of each")
    return "[" + ",".join(map(repr, values.flatten().tolist())) + "]"


def _of_module(module: Any, kind: str | None, parameters: Any) -> tuple[str, list[str], Any, tuple[Any, Any]]:
    """What a module draws: its encoding, those beside it, its arrays, heads and head_dim."""
    texts = list(module.encodings) if hasattr(module, "encodings") else [module.encoding] if hasattr(module, "encoding") else []
    if not texts:
        raise ValueError(f'[plot] subject must be a module of posenc.torch with an encoding, got "{type(module).__name__}"')
    # What acts in the score is drawn by default; what rotates beside it takes part in attention alone.
    texts.sort(key=lambda text: _family(text) != "relative" if kind in (None, "bias", "decay") else 0)
    attention = kind in ("terms", "locality")
    if getattr(module, "frequencies", None) is not None:
        texts = [f"{texts[0]} + frequencies values={_learned_frequencies(module)}"]
    named: dict[str, Any] = module.named_arrays() if hasattr(module, "named_arrays") else {}
    arrays = named or {name: getattr(module, mine) for name, mine in getattr(module, "_learned", {}).items()}
    held = {n: x.detach().cpu().double().numpy() for n, x in arrays.items()} if parameters is None else parameters
    learned = attention or _family(texts[0]) in ("relative", "absolute")
    return (texts[0], texts[1:] if attention else [], held if learned and held else None,
            (getattr(module, "heads", None), getattr(module, "head_dim", None)))


def emit(
    subject: Subject,
    *,
    output: str | os.PathLike[str],
    kind: str = "onnx",
    positions: PositionsLike | str | None = None,
    key_positions: PositionsLike | str | None = None,
    heads: int | None = None,
    head_dim: int | None = None,
    mask: str | Iterable[str] | None = None,
    offset: int | str | None = None,
    scale: float | None = None,
    dtype: str | None = None,
    context: int | None = None,
    layer: int | None = None,
    tower: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    start: int | None = None,
) -> dict[str, Any]:
    """Writes an ONNX model of one node: RotaryEmbedding for a rotation, Attention for relative schemes. Returns the
    report of posenc.emit/1.

    >>> import os, posenc, tempfile
    >>> x = posenc.Rope(head_dim=8, pairing="half_split")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     posenc.emit(x, positions="0:64", output=os.path.join(folder, "rotary.onnx"))["operator"]
    'RotaryEmbedding'
    """
    import json

    with Call("emit") as call:
        call.words.append(kind)
        call.subject(subject)
        call.positions("positions", positions)
        call.positions("key_positions", key_positions)
        call.options({"heads": heads, "head_dim": head_dim, "offset": offset, "scale": scale, "dtype": dtype,
                      "context": context, "layer": layer, "tower": tower, "start": start, "output": os.fspath(output),
                      "mask": [mask] if isinstance(mask, str) else list(mask or []), "json": True})
        call.arrays("params", parameters)
        report: dict[str, Any] = json.loads(call.write())
        return report


def selftest(
    suite: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    filter: str | None = None,
) -> dict[str, Any]:
    """Conformance suites, run on this machine: the report of posenc.selftest/1. The suites come with the sources."""
    import json

    folders = [suite] if isinstance(suite, (str, os.PathLike)) else list(suite)
    report: dict[str, Any] = json.loads(_posenc.selftest([os.fspath(f) for f in folders], filter or ""))
    return report


def _only(arrays: dict[str, Any]) -> Any:
    (array,) = arrays.values()
    return array
