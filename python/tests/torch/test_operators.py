# SPDX-License-Identifier: Apache-2.0
"""Operators called directly, through torch.ops.posenc: each of them, with each tensor wrong in each way, is refused and writes nothing."""
import pytest
import torch

import posenc.torch

ROPE, T5, LEARNED = "rope head_dim=8 pairing=half_split", "t5 bidirectional=false", "learned rows=9 width=4"
P = torch.arange(3)


def r(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype)


def heads():
    return r(3, 2, 8)


def of_attention():
    arrays = [r(32, 2), r(2, 2, 3, 3), P.clone(), r(2), torch.tensor([3, 2]), torch.ones(2, 3, dtype=torch.bool), r(2, 3), r(2, 2)]
    names = ["parameters.table", "bias", "query_positions", "sink", "key_length", "key_visible", "query_factor", "head_scale"]
    return [r(2, 3, 2, 8), r(2, 3, 2, 8), r(2, 3, 2, 8), arrays, names, [T5], "bthd", None, None, True, *[None] * 8]


def of_attention_gradients():
    call = of_attention()
    out, sums = torch.ops.posenc.attend(*call)
    return [torch.randn_like(out), torch.randn_like(sums), out, sums, [True] * 5 + [False, True, False, False, True, True], *call]


def of_bias():
    return [[r(32, 2), P.clone()], ["parameters.table", "positions"], [T5], 2, 8, False]


def of_path():
    return [[r(3, 2, 4), r(3, 2, 4), r(3, 2, 4), r(3, 2, 4), r(3, 2, 1), r(3, 2, 1)], None, None, None, None, None]


def of_selective():
    arrays = [torch.tensor([2]), torch.ones(3, dtype=torch.bool), torch.ones(3, 3, dtype=torch.bool)]
    return [[r(3, 2, 4), r(3, 2, 4), r(3, 2, 4)], None, arrays, ["key_length", "key_visible", "visible"], None, None, None, None, None,
            True, None, None, None]


def of_merge():
    return [[r(3, 2, 4), r(3, 2, 4), r(1, 2, 3, dtype=torch.float64), r(1, 2, 3, dtype=torch.float64)], None, "softmax"]


def gradients_of(name, call):
    out, sums = operator(name)(*call)
    return [torch.randn_like(out), torch.randn_like(sums), out, sums, *call]


def of_composition():
    return [r(2, 3, 4), P.clone(), [r(9, 4)], ["table"], LEARNED, None]


def of_lookup():
    ids = [torch.randint(9, (2, 3)), torch.randint(5, (2, 3))]
    return [[r(9, 4), r(5, 4)], ids, [1.0, 2.0], [0, 0], [-1, 0], r(3, 4), r(4), r(4), 1e-5]


ROWS = ("half_split", "half", None, "in_place", 0)
CALLS = {
    "attend": of_attention,
    "attend_backward": of_attention_gradients,
    "bias": of_bias,
    "bias_backward": lambda: [torch.randn_like(torch.ops.posenc.bias(*of_bias())), [True, False], *of_bias()],
    "attend_path": of_path,
    "attend_path_backward": lambda: gradients_of("attend_path", of_path()),
    "attend_selective": of_selective,
    "attend_selective_backward": lambda: gradients_of("attend_selective", of_selective()),
    "merge": of_merge,
    "merge_backward": lambda: gradients_of("merge", of_merge()),
    "compose": of_composition,
    "compose_": of_composition,
    "compose_gradients": lambda: [r(2, 3, 4), *of_composition()],
    "embed": of_lookup,
    "embed_gradients": lambda: [r(2, 3, 4), *of_lookup(), [True] * 5],
    "phase_gradients": lambda: [heads(), heads(), heads(), heads(), P.double(), r(1, 1, 4), ROPE, "thd", None, True, True],
    "polar": lambda: [heads(), P.clone(), r(2, 8), "pope head_dim=8", None, None],
    "polar_gradients": lambda: [r(3, 2, 16), heads(), P.clone(), r(2, 8), "pope head_dim=8", None, None],
    "row_gradients": lambda: [heads(), heads(), heads(), heads(), r(3, 4), r(3, 4), P.clone(), *ROWS],
}
for _name, _tensors, _rest in (("rotate", lambda: [P.clone()], (ROPE, None, "forward", None, False)),
                               ("rotate_learned", lambda: [P.clone(), r(1, 1, 4)], (ROPE, None, "forward", None, False)),
                               ("rotate_rows", lambda: [r(3, 4), r(3, 4), P.clone()], (*ROWS, "forward"))):
    for _n, _pair in ((1, ""), (2, "_qk")):
        for _place in ("", "_"):
            CALLS[_name + _pair + _place] = lambda n=_n, more=_tensors, rest=_rest: [*(heads() for _ in range(n)), *more(), *rest]

WRONG = {
    "complex": lambda x: x.to(torch.complex64),
    "int16": lambda x: x.to(torch.int16),
    "no axes": lambda x: x.flatten()[0],
    "six axes": lambda x: x.reshape(*[1] * (6 - x.dim()), *x.shape),
    "one more": lambda x: torch.cat([x, x[..., :1]], -1),
}
# One more channel than the encoding acts on is passed on; a longer table has more rows.
FINE = {("compose", "x", "one more"), ("compose_", "x", "one more"), ("rotate_rows", "x", "one more"), ("rotate_rows_", "x", "one more"),
        ("attend", "v", "one more"), ("bias", "arrays", "one more"), ("attend_path", "tensors", "one more"), ("attend_selective", "tensors", "one more")}


def operator(name):
    return getattr(torch.ops.posenc, name).default


def places(call):
    """Where the tensors of a call are, in lists too."""
    for i, x in enumerate(call):
        if isinstance(x, torch.Tensor):
            yield (i, None)
        elif isinstance(x, list):
            yield from ((i, j) for j, y in enumerate(x) if isinstance(y, torch.Tensor))


def at(call, place):
    return call[place[0]] if place[1] is None else call[place[0]][place[1]]


def put(call, place, x):
    if place[1] is None:
        call[place[0]] = x
    else:
        call[place[0]] = [x if j == place[1] else y for j, y in enumerate(call[place[0]])]


def without_memory(call):
    for place in places(call):
        put(call, place, at(call, place).to("meta"))
    return call


def refused(name, call):
    """It raises by name, and changes none of the tensors that have memory."""
    here = [at(call, p) for p in places(call) if at(call, p).device.type == "cpu"]
    before = [x.clone() for x in here]
    with pytest.raises((ValueError, RuntimeError), match=r"^\[\w+") as problem:
        operator(name)(*call)
    assert all(torch.equal(x, y) for x, y in zip(here, before)), problem.value
    return str(problem.value)


def test_every_operator_is_here():
    registered = {n.partition("::")[2] for n in torch._C._dispatch_get_all_op_names() if n.startswith("posenc::")}
    assert {n.partition(".")[0] for n in registered} == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_without_memory_the_shapes_are_the_same(name):
    found = operator(name)(*CALLS[name]())
    shapes = operator(name)(*without_memory(CALLS[name]()))
    if found is not None:
        one = (lambda x: [x] if isinstance(x, torch.Tensor) else list(x))
        assert [(x.shape, x.dtype) for x in one(found)] == [(x.shape, x.dtype) for x in one(shapes)]
        assert all(x.device.type == "meta" for x in one(shapes))


@pytest.mark.parametrize("name", CALLS)
def test_tensors_of_two_devices(name):
    for place in list(places(CALLS[name]())):
        one, others = CALLS[name](), without_memory(CALLS[name]())
        put(others, place, at(one, place))
        put(one, place, at(one, place).to("meta"))
        assert "must be on the device of" in refused(name, one), place
        assert "must be on the device of" in refused(name, others), place


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("name", CALLS)
def test_elements_axes_and_sizes(name, kind):
    schema = operator(name)._schema.arguments
    for place in list(places(CALLS[name]())):
        if (name, schema[place[0]].name, kind) in FINE:
            continue
        call = CALLS[name]()
        put(call, place, WRONG[kind](at(call, place)))
        refused(name, list(call))
        refused(name, without_memory(call))


@pytest.mark.parametrize("name", [n for n in CALLS if "names" in [a.name for a in operator(n)._schema.arguments]])
@pytest.mark.parametrize("names", [
    lambda names: names[:-1], lambda names: [*names, "sink"], lambda names: ["out", *names[1:]], lambda names: ["", *names[1:]],
    lambda names: [*names[:-1], names[0]] if len(names) > 1 else ["tables"], lambda names: ["done"] * len(names)])
def test_names(name, names):
    place = [a.name for a in operator(name)._schema.arguments].index("names")
    call = CALLS[name]()
    call[place] = names(call[place])
    assert "names must" in refused(name, list(call))
    assert "names must" in refused(name, without_memory(call))


@pytest.mark.parametrize("name, place, got", [("embed", 2, [1.0]), ("embed", 3, [0, 0, 0]), ("embed", 8, None), ("embed_gradients", 10, [True] * 4),
                                              ("attend_backward", 4, [True])])
def test_lists_of_another_length(name, place, got):
    for call in (CALLS[name](), without_memory(CALLS[name]())):
        call[place] = got
        refused(name, call)


@pytest.mark.parametrize("name, place", [("attend", (3, 1)), ("attend", (3, 3)), ("attend", (3, 4)), ("embed", (6, None)), ("embed", (7, None)),
                                         ("rotate_rows", (3, None)), ("row_gradients", (6, None)), ("attend_backward", (1, None))])
def test_nothing_is_not_none(name, place):
    """An array without elements does not count as one that was not given."""
    call = CALLS[name]()
    put(call, place, at(call, place)[:0])
    refused(name, call)


def test_the_functions_say_it_too():
    x, there = r(3, 2, 8), P.to("meta")
    before = x.clone()
    for f in (posenc.torch.rotate, posenc.torch.rotate_):
        with pytest.raises(ValueError, match=r'^\[torch rotate_?\] positions must be on the device of q, cpu, got "meta"'):
            f(ROPE, x, positions=there)
    assert torch.equal(x, before)
    with pytest.raises(ValueError, match=r'^\[torch attend\] k must be on the device of q, cpu, got "meta"'):
        posenc.torch.attend(None, x, x.to("meta"), x)
    with torch.device("meta"):
        module = posenc.torch.LearnedPositions(LEARNED)
    with pytest.raises(ValueError, match=r'^\[torch compose\] table must be on the device of x, cpu, got "meta"'):
        module(r(2, 3, 4))


def test_modules_without_memory():
    with torch.device("meta"):
        made = [posenc.torch.LearnedPositions(LEARNED), posenc.torch.Attention(T5, heads=2, head_dim=8),
                posenc.torch.RotaryEmbedding(ROPE, learned=True)]
    assert all(p.is_meta for m in made for p in m.parameters()) and made[0](r(2, 3, 4).to("meta")).shape == (2, 3, 4)
    for m in made:
        m.to_empty(device="cpu").reset_parameters()
        assert all(p.isfinite().all() for p in m.parameters())
