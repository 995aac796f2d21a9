# SPDX-License-Identifier: Apache-2.0
"""An accelerated model that is exported to ONNX has a graph without operators of posenc, and the same numbers."""
import importlib.util

import posenc.hf
import pytest
import torch
import transformers

IDS = torch.arange(12)[None]


def llama():
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, use_cache=False)).eval()


def operators(model):
    with torch.no_grad():
        graph = torch.export.export(model, (IDS,)).module().graph
    return [str(n.target) for n in graph.nodes if "posenc" in str(n.target)]


@pytest.mark.parametrize("attention", [False, True])
def test_an_onnx_graph_is_the_models_own(monkeypatch, attention):
    model = llama()
    with torch.no_grad():
        want = model(IDS).logits
    posenc.hf.accelerate(model, attention=attention)
    assert operators(model)  # a graph of PyTorch has them
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
    assert not operators(model)
    monkeypatch.undo()
    with torch.no_grad():
        assert torch.allclose(model(IDS).logits, want, atol=1e-5)


@pytest.mark.parametrize("attention", [False, True])
@pytest.mark.skipif(not importlib.util.find_spec("onnxscript"), reason="torch.onnx needs onnxscript")
def test_the_file_computes_the_same(tmp_path, attention):
    import onnxruntime

    model = llama()
    with torch.no_grad():
        want = model(IDS).logits
    posenc.hf.accelerate(model, attention=attention)
    with torch.no_grad():
        torch.onnx.export(model, (IDS,), dynamo=True, verbose=False).save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (got,) = session.run(None, {session.get_inputs()[0].name: IDS.numpy()})
    assert abs(torch.from_numpy(got) - want).max() < 1e-6
