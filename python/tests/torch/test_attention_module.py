# SPDX-License-Identifier: Apache-2.0
"""posenc.torch.Attention checks encodings and options when it is made, and the sizes of every call."""
import pytest
import torch

import posenc.torch

ALIBI = "alibi"


def module(encodings=ALIBI, **more):
    return posenc.torch.Attention(encodings, **{"heads": 8, "head_dim": 16, **more})


@pytest.mark.parametrize("options, message", [
    ({"casual": True}, r'options must be of order, .* \(did you mean causal\?\), got "casual"'),
    ({"dropout": 0.1}, r'options must be of .*, got "dropout"'),
    ({"windows": (3, 0)}, r'\(did you mean window\?\), got "windows"'),
    ({"window": (3,)}, r"window must be two whole numbers"), ({"window": "near"}, r"window"), ({"window": (-1, 0)}, r"window_left must not be negative, got -1"),
    ({"order": "bhdt"}, r'order must be thd, bthd, bhtd, tbhd, htd, got "bhdt"'), ({"causal": "yes"}, r"causal must be True or False"),
    ({"scale": "big"}, r"scale"), ({"scale": float("nan")}, r"scale must be finite"), ({"softcap": -1.0}, r"softcap"), ({"chunk": -2}, r"chunk must not be negative"),
    ({"sink_tokens": -1}, r"sink_tokens must not be negative"), ({"prefix": 3}, r"prefix needs a causal mask"), ({"offset": "middle"}, r"offset must be end, start"),
    ({"length": "long"}, r"length"), ({"heads": 0}, r"heads must be a whole number of 1 or more, got 0"), ({"head_dim": 1.5}, r"head_dim must be a whole number"),
    ({"key_heads": 3}, r"key_heads must divide the heads, 8, got 3"), ({"encodings": "alibis"}, r"alibis"), ({"encodings": "sinusoidal width=16"}, r"sinusoidal"),
    ({"encodings": "rope head_dim=32 pairing=half_split"}, r"head_dim of the rotary encoding must be that of q, 16, got 32"), ({"encodings": 3}, r".*"),
])
def test_what_is_wrong_is_refused_when_it_is_made(options, message):
    with pytest.raises((ValueError, TypeError, RuntimeError), match=message):
        module(**options)


def test_options_that_are_right():
    q = torch.randn(2, 8, 5, 16)
    made = module(order="bhtd", causal=True, window=(3, 0), prefix=2, sink_tokens=1, scale=0.5, softcap=3.0, offset="end", chunk=None,
                  key_visible=torch.ones(2, 5, dtype=torch.bool), query_positions=torch.arange(5), log_sum_exp=True)
    out, sums = made(q, q, q)
    assert out.shape == q.shape and sums.shape == (2, 8, 5)
    assert module(offset=3)(q[0].transpose(0, 1), *torch.randn(2, 8, 8, 16)).shape == (5, 8, 16)


@pytest.mark.parametrize("order, shape, message", [
    ("bhtd", (2, 4, 5, 16), "axis 1 of q must be the heads of the module, 8, in the order bhtd, got 4"),
    ("bhtd", (2, 129, 8, 16), "axis 1 of q must be the heads of the module, 8, in the order bhtd, got 129"),  # a bthd tensor
    ("bthd", (2, 8, 129, 16), "axis 2 of q must be the heads of the module, 8, in the order bthd, got 129"),
    ("thd", (5, 8, 32), "axis 2 of q must be the head_dim of the module, 16, in the order thd, got 32")])
def test_sizes_of_a_call(order, shape, message):
    """A call with 4 heads would get the slopes of ALiBi for 4 heads, which are others: 2^-2 and not 2^-1 comes first."""
    x = torch.randn(shape)
    with pytest.raises(ValueError, match=r"^\[torch Attention\] " + message):
        module(order=order)(x, x, x)


def test_key_heads_of_a_call():
    q, k = torch.randn(1, 8, 5, 16), torch.randn(1, 2, 5, 16)
    assert module(order="bhtd", key_heads=2)(q, k, k).shape == q.shape
    with pytest.raises(ValueError, match="axis 1 of k must be the key_heads of the module, 2, in the order bhtd, got 8"):
        module(order="bhtd", key_heads=2)(q, q, q)
    with pytest.raises(ValueError, match="axis 1 of k must be the key_heads of the module, 8, in the order bhtd, got 2"):
        module(order="bhtd")(q, k, k)
    with pytest.raises(ValueError, match="axis 1 of v must be the key_heads of the module, 8, in the order bhtd, got 4"):
        module(order="bhtd")(q, q, torch.randn(1, 4, 5, 16))
    assert module(order="bhtd")(q, q, torch.randn(1, 8, 5, 24)).shape == (1, 8, 5, 24)  # values have channels of their own


def test_a_layout_of_rotation_is_checked_when_it_is_made():
    with pytest.raises(ValueError, match=r'^\[torch RotaryEmbedding\] layout must be .*, got "bhdt"'):
        posenc.torch.RotaryEmbedding("rope head_dim=16 pairing=half_split", layout="bhdt")
