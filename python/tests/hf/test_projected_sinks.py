# SPDX-License-Identifier: Apache-2.0
"""Inkling 2, whose sinks are projected from the hidden state: attention with the layer's scheme, and the sink after it."""
import numpy
import posenc
import pytest
import torch
import transformers

inkling2 = pytest.importorskip("transformers.models.inkling2.modeling_inkling2")
pytestmark = pytest.mark.skipif(transformers.__version__ != "5.23.0", reason="the test watches modules by the names of 5.23.0")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A tiny model, its folder, and what each attention layer read and wrote; token 0 is at position 5."""
    config = inkling2.Inkling2TextConfig(
        vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
        swa_num_attention_heads=6, swa_num_key_value_heads=3, swa_head_dim=8, sliding_window_size=7, d_rel=4, rel_extent=10,
        log_scaling_n_floor=9, log_scaling_alpha=0.5, layer_types=["hybrid_sliding", "hybrid"], moe_intermediate_size=8,
        n_routed_experts=4, num_experts_per_tok=2, qk_l2_clip_threshold=3.0, rel_l2_clip_threshold=2.0, pad_token_id=0,
        n_layers_per_attn_res_block=1)
    torch.manual_seed(5)
    config._attn_implementation = "eager"
    model = inkling2.Inkling2TextModel(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * (1 if "embed" in name else p.shape[-1] ** -0.5) + (1 if p.ndim == 1 or name.endswith("scale") else 0))
    folder = tmp_path_factory.mktemp("inkling2")
    model.save_pretrained(folder)
    logs = []

    def recorded(module, query, key, value, mask, **kw):
        out = eager(module, query, key, value, mask, **kw)
        logs[-1].update(k=key, v=value, out=out[0].transpose(1, 2), sink=kw["sinks"].reshape(query.shape[:3]))
        return out

    hooks = []
    for layer in model.layers:
        attention = layer.self_attn
        hooks.append(attention.register_forward_pre_hook(lambda m, args, kw: logs.append({"hidden": kw.get("hidden_states", args[0] if args else None)}),
                                                         with_kwargs=True))
        hooks.append(attention.q_l2_clip.register_forward_hook(lambda m, args, out: logs[-1].update(q=out.transpose(1, 2))))
    eager, inkling2.eager_attention_forward = inkling2.eager_attention_forward, recorded
    try:
        with torch.no_grad():
            model(input_ids=torch.randint(1, 40, (2, 23)), position_ids=torch.arange(5, 28)[None].expand(2, -1), use_cache=False)
    finally:
        inkling2.eager_attention_forward = eager
        for hook in hooks:
            hook.remove()
    return folder, {n: t.detach().double().numpy() for n, t in model.state_dict().items()}, [{n: t.double().numpy() for n, t in log.items()} for log in logs]


@pytest.mark.parametrize("layer", [0, 1])
def test_the_scheme_and_the_sink_after_it(run, layer):
    folder, weights, logs = run
    at, log = posenc.read_model(folder).layers[layer], logs[layer]
    (encoding,) = at.encodings
    tensors = at.data["encodings"][0]["tensors"]
    assert set(tensors) == {"distance_bank", "w_r", "clip_scale"}
    positions = numpy.arange(5, 28)
    factor = numpy.ones((1, 23))
    if temperature := at.data["query_temperature"]:
        assert temperature["form"] == "log_floor" and temperature["by"] == "position"
        factor[0] = 1 + temperature["beta"] * numpy.log(numpy.maximum(1, (positions + 1) / temperature["period"]))
    assert (factor.max() > 1) == (layer == 1)
    left = at.attention["left"]
    a = posenc.attend(encoding, log["q"], log["k"], log["v"], order="bhtd", parameters={p: weights[t] for p, t in tensors.items()},
                      inputs={"hidden": log["hidden"]}, query_positions=positions, key_positions=positions, query_factor=factor,
                      causal=True, window=None if left is None else (left, 0))
    names = {r["what"]: r["value"] for r in at.must_honour}
    sink = numpy.einsum("btw,hw->bht", log["hidden"], weights[names["query_sinks"]])
    assert abs(sink - log["sink"]).max() < 3e-6
    out = a.out / (1 + numpy.exp(sink - a.log_sum_exp))[..., None]
    assert abs(out - log["out"]).max() < 3e-6 < 1e-2 < abs(a.out - log["out"]).max()
    assert names["qk_norm"]["kind"] == "l2_clip" and names["qk_norm"]["threshold"] == 3


def test_a_call_of_the_model_is_refused(run):
    q = numpy.zeros((23, 6, 8))
    with pytest.raises(ValueError, match="each query of layer 0 has one a head, a projection of its hidden state"):
        posenc.read_model(run[0]).attend(q, q[:, :3], q[:, :3], inputs={"hidden": numpy.zeros((1, 23, 24))})
