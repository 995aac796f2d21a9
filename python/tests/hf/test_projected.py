# SPDX-License-Identifier: Apache-2.0
"""DeBERTa's projected tables are kept between calls, and made again when anything that they are made of has changed."""
import copy
import pickle

import pytest
import torch
import transformers
from posenc.hf._projected import Projections

import posenc.hf

SMALL = dict(vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, pad_token_id=0, max_position_embeddings=64)


def build(kind="deberta-v2"):
    torch.manual_seed(0)
    more = {"position_buckets": 8, "share_att_key": True} if kind == "deberta-v2" else {}
    config = transformers.AutoConfig.for_model(kind, **SMALL, relative_attention=True, pos_att_type=["c2p", "p2c"], **more)
    model = transformers.AutoModel.from_config(config).eval()
    with torch.no_grad():
        model.encoder.rel_embeddings.weight.normal_()
    return model


def of(model):
    with torch.no_grad():
        return model(torch.arange(3, 15)[None]).last_hidden_state


@pytest.mark.parametrize("kind", ["deberta-v2", "deberta"])
def test_changed_numbers_make_new_tables(kind):
    model = build(kind)
    posenc.hf.accelerate(model, attention=True, force=True)
    projection = "key_proj" if kind == "deberta-v2" else "pos_proj"
    layer = getattr(next(m for m in model.modules() if hasattr(m, projection)), projection)
    of(model), of(model)
    changes = [lambda: model.encoder.rel_embeddings.weight.data.mul_(1.5), lambda: layer.weight.data.mul_(1.5),
               lambda: setattr(layer, "weight", torch.nn.Parameter(layer.weight.detach() * 0.5)), lambda: model.double(), lambda: model.float()]
    for change in changes:
        change()
        got = of(model)
        assert torch.equal(of(model), got)
        own = copy.deepcopy(model)
        posenc.hf.restore(own)
        torch.testing.assert_close(got, of(own), atol=1e-5, rtol=1e-5)


def counted(layer, calls):
    """The layer, with a list of its calls."""
    forward = type(layer).forward

    def count(self, x):
        calls.append(self)
        return forward(self, x)

    return count


def test_tables_are_made_once(monkeypatch):
    layer, rows, calls = torch.nn.Linear(4, 3), torch.randn(5, 4), []
    monkeypatch.setattr(torch.nn.Linear, "forward", counted(layer, calls))
    tables = Projections()
    with torch.no_grad():
        want = layer(rows)
        for _ in range(3):
            assert torch.equal(tables.of("key", layer, rows.clone()), want)
        assert len(calls) == 2
        layer.bias.data.mul_(2), layer.weight.data.mul_(2)  # which rounds nothing
        assert torch.equal(tables.of("key", layer, rows), 2 * want) and len(calls) == 3
        assert torch.equal(pickle.loads(pickle.dumps(tables)).of("key", layer, rows), 2 * want) and len(calls) == 4
        handle = layer.register_forward_hook(lambda module, args, out: out * 2)
        assert torch.equal(tables.of("key", layer, rows), 4 * want) and len(calls) == 5
        handle.remove()
        layer.forward = lambda x: x
        assert torch.equal(tables.of("key", layer, rows), rows)
        del layer.forward
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert tables.of("key", layer, rows).dtype == torch.bfloat16
    assert tables.of("key", layer, rows).requires_grad
