# SPDX-License-Identifier: Apache-2.0
"""A call that is kept for its gradients keeps the memory of its tensors, whatever becomes of the tensors."""
import gc
import weakref

import numpy
import posenc
import pytest
import torch


def arrays(*names, heads=2):
    """By name, float32 [1, 6, heads, 4]; each owner is a numpy array, whose end a weak reference shows."""
    random = numpy.random.default_rng(5)
    return {n: random.normal(size=(1, 6, heads, 4)).astype("float32") for n in names}


def attend(x):
    return posenc.attend("t5 bidirectional=false", x["q"], x["k"], x["v"], order="bthd", out=x["out"], sink=x["sink"],
                         bias=x["bias"], key_visible=x["key_visible"], query_positions=x["query_positions"], key_positions=x["query_positions"],
                         parameters={"table": x["table"]})


def attend_path(x):
    return posenc.attend_path(x["q"], x["k"], x["v"], w=x["w"], beta=x["beta"], order="bthd")


def attend_selective(x):
    return posenc.attend_selective(x["q"], x["k"], x["v"], order="bthd")


def of_attend():
    return arrays("q", "k", "v", "out") | {
        "sink": numpy.ones(2, "float32"), "bias": numpy.ones((1, 2, 6, 6), "float32"), "key_visible": numpy.arange(6)[None] < 5,
        "query_positions": numpy.arange(6) * 3, "table": numpy.ones((32, 2), "float32")}


def of_path():
    return arrays("q", "k", "v", "w") | {"beta": numpy.full((1, 6, 2, 1), 0.5, "float32")}


CALLS = [(attend, of_attend), (attend_path, of_path), (attend_selective, lambda: arrays("q", "k", "v"))]


def flat(gradients):
    return {n: flat(g) if isinstance(g, dict) else numpy.array(g) for n, g in gradients.items()}


@pytest.mark.parametrize("call, made", CALLS)
def test_other_data_of_a_tensor_does_not_release_what_gradients_read(call, made):
    given = made()
    d = numpy.ones_like(given["q"])
    want = flat(call({n: a.copy() for n, a in given.items()}).backward(d))
    owners = {n: weakref.ref(a) for n, a in given.items()}
    tensors = {n: torch.from_numpy(a) for n, a in given.items()}
    del given
    kept = call(tensors)
    for x in tensors.values():
        x.data = torch.zeros_like(x)
    gc.collect()
    assert [n for n, a in owners.items() if a() is None] == []
    numpy.testing.assert_equal(flat(kept.backward(d)), want)
    del kept
    gc.collect()
    assert [n for n, a in owners.items() if a() is not None] == []


@pytest.mark.parametrize("call, made", CALLS)
def test_a_storage_that_was_resized_is_refused(call, made):
    given = made()
    for name, a in given.items():
        tensors = {n: torch.from_numpy(b).clone() for n, b in given.items()}
        kept = call(tensors)
        tensors[name].untyped_storage().resize_(0)
        with pytest.raises(ValueError, match=rf"{name} must keep its memory from the call to its gradients, got \"?a storage that was resized to 0 bytes"):
            kept.backward(numpy.ones_like(given["q"]))
        if call is attend:
            with pytest.raises(ValueError, match="must keep its memory"):
                kept.scores(["scores"])


def test_a_view_inside_a_larger_storage_is_in_place():
    """Every other token and channel of a stack of q, k and v; and no token at all."""
    stack = torch.from_numpy(numpy.stack(list(arrays("q", "k", "v").values())))
    kept = posenc.attend("alibi", *stack[:, :, ::2, :, ::2], order="bthd")
    assert kept.backward(numpy.ones((1, 3, 2, 2), "float32"))["q"].shape == (1, 3, 2, 2)
    nothing = torch.zeros(1, 0, 2, 4)
    kept = posenc.attend(None, nothing, nothing, nothing, order="bthd")
    nothing.untyped_storage().resize_(0)
    assert kept.backward(numpy.zeros((1, 0, 2, 4), "float32"))["q"].size == 0
