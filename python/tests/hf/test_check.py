# SPDX-License-Identifier: Apache-2.0
"""check: what a live model's buffers hold beside what its config says."""
import pytest
import torch
import transformers

import posenc.hf


def model(dtype=None, **rope):
    given = {"rope_type": "default", "rope_theta": 10000.0, **rope}
    config = transformers.LlamaConfig(
        vocab_size=96, hidden_size=64, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4, max_position_embeddings=64,
        rope_parameters=given)
    made = transformers.AutoModelForCausalLM.from_config(config).eval()
    return made if dtype is None else made.to(dtype)


def codes(m):
    return [(f.severity, f.code) for f in posenc.hf.check(m)]


def test_a_fresh_model_is_well():
    assert codes(model()) == []
    assert codes(model(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)) == []
    assert codes(torch.nn.Linear(2, 2)) == []


def test_frequencies_that_were_cast():
    assert codes(model(torch.bfloat16)) == [("error", "frequencies_cast")]
    assert codes(model(torch.bfloat16).float()) == [("error", "frequencies_cast")]  # and widened again
    found = posenc.hf.check(model(torch.bfloat16))[0]
    assert found.where == "model.rotary_emb.inv_freq" and "bfloat16" in found.message and "position 64" in found.message


def test_frequencies_that_are_stale():
    m = model()
    m.config.rope_parameters["rope_theta"] = 5e5
    assert codes(m) == [("error", "frequencies_stale")]


def test_a_gain_that_is_stale():
    m = model(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
    m.model.rotary_emb.attention_scaling = 1.0
    assert codes(m) == [("error", "gain_stale")]


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_frequencies_that_a_load_left_unset(value):
    m = model()
    m.model.rotary_emb.inv_freq.fill_(value)
    assert codes(m) == [("error", "frequencies_unset")]


def test_frequencies_on_the_meta_device():
    m = model()
    m.model.rotary_emb.inv_freq = torch.empty(8, device="meta")
    assert codes(m) == [("error", "frequencies_missing")]


def test_frequencies_of_the_longest_call():
    m = model(rope_type="dynamic", factor=2.0)
    assert codes(m) == []
    with torch.no_grad():
        m(torch.ones(1, 100, dtype=torch.long))
    assert codes(m) == [("warning", "frequencies_held")]
    assert "100 tokens" in posenc.hf.check(m)[0].message


def test_each_layer_type_by_itself():
    config = transformers.Gemma3TextConfig(
        vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8)
    m = transformers.AutoModelForCausalLM.from_config(config)
    assert codes(m) == []
    m.model.rotary_emb.sliding_attention_inv_freq.mul_(2)
    assert [f.where for f in posenc.hf.check(m)] == ["model.rotary_emb.sliding_attention_inv_freq"]


def test_refusal():
    with pytest.raises(ValueError, match=r"\[hf check\] model must be a torch.nn.Module"):
        posenc.hf.check("llama")


def test_another_type_in_the_config():
    m = model()
    m.config.rope_parameters = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
    assert codes(m) == [("error", "frequencies_stale")]
    m = model(rope_type="linear", factor=4.0)
    m.config.rope_parameters = {"rope_type": "default", "rope_theta": 10000.0}
    assert codes(m) == [("error", "frequencies_stale")]
    m.config.rope_parameters = {"rope_type": "linear", "rope_theta": 10000.0}
    assert codes(m) == [("error", "config_unusable")] and "factor" in posenc.hf.check(m)[0].message


VISION = {  # a rotary tower beside the text
    "qwen2_vl": dict(vision_config=dict(embed_dim=32, depth=1, num_heads=2, hidden_size=64, patch_size=14)),
    "qwen2_5_vl": dict(vision_config=dict(hidden_size=32, depth=1, num_heads=2, out_hidden_size=64, intermediate_size=32, fullatt_block_indexes=[0])),
    "qwen3_vl": dict(vision_config=dict(hidden_size=32, depth=1, num_heads=2, out_hidden_size=64, intermediate_size=32, deepstack_visual_indexes=[0])),
    "glm4v": dict(vision_config=dict(hidden_size=32, depth=1, num_heads=2, out_hidden_size=64, intermediate_size=32)),
}
TEXT = dict(hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, vocab_size=64,
            pad_token_id=0, bos_token_id=1, eos_token_id=2, rope_parameters=dict(rope_type="default", rope_theta=1e6, mrope_section=[2, 3, 3]))


@pytest.mark.parametrize("kind", VISION)
def test_models_with_a_tower(kind):
    m = transformers.AutoModel.from_config(transformers.CONFIG_MAPPING[kind](text_config=TEXT, **VISION[kind]))
    assert codes(m) == []
    places = [n for n, _ in m.named_buffers() if n.endswith("rotary_pos_emb.inv_freq") or n.endswith("rotary_emb.inv_freq")]
    assert len(places) == 2
    for n, b in m.named_buffers():
        if n in places:
            b.copy_(torch.rand(b.shape, generator=torch.Generator().manual_seed(0)) + 2)  # memory that nobody has written
    found = posenc.hf.check(m)
    assert {f.where for f in found} == set(places) and {f.code for f in found} == {"frequencies_stale"}


def test_a_tower_that_is_a_model_of_its_own():
    m = transformers.AutoModel.from_config(transformers.PixtralVisionConfig(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=64))
    assert codes(m) == []
    m.patch_positional_embedding.inv_freq.zero_()
    assert codes(m) == [("error", "frequencies_unset")]


def test_sizes_that_differ_from_layer_to_layer():
    """embedding_gemma2_text says head_dim for each layer; the config refuses to say it for the whole model."""
    m = transformers.AutoModel.from_config(transformers.EmbeddingGemma2TextConfig(
        vocab_size=96, hidden_size=32, intermediate_size=32, num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"]))
    assert codes(m) == []
    m.rotary_emb.full_attention_inv_freq.mul_(1.5)
    assert [f.where for f in posenc.hf.check(m)] == ["rotary_emb.full_attention_inv_freq"]


IDS = torch.arange(3, 43)[None]
SOUND = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, conv_dim=[8], conv_stride=[5], conv_kernel=[10],
             num_feat_extract_layers=1, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, vocab_size=32)
TABLES = {  # config, name of the buffer, inputs
    "gptj": (lambda: transformers.GPTJConfig(n_embd=64, n_head=4, n_layer=2, n_positions=64, rotary_dim=16, vocab_size=64, bos_token_id=1, eos_token_id=2),
             "embed_positions", {"input_ids": IDS}),
    "codegen": (lambda: transformers.CodeGenConfig(n_embd=64, n_head=4, n_layer=1, n_positions=64, n_ctx=64, rotary_dim=16, vocab_size=64, bos_token_id=1,
                                                   eos_token_id=2), "embed_positions", {"input_ids": IDS}),
    "esm": (lambda: transformers.EsmConfig(hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, vocab_size=64,
                                           max_position_embeddings=64, position_embedding_type="rotary", pad_token_id=1, mask_token_id=2),
            "inv_freq", {"input_ids": IDS}),
    "dinov3": (lambda: transformers.DINOv3ViTConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=32,
                                                    patch_size=8), "inv_freq", {"pixel_values": torch.randn(1, 3, 32, 32)}),
    "conformer": (lambda: transformers.Wav2Vec2ConformerConfig(position_embeddings_type="rotary", **SOUND), "inv_freq", {"input_values": torch.randn(1, 400)}),
    "m2m_100": (lambda: transformers.M2M100Config(d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
                                                  encoder_ffn_dim=32, decoder_ffn_dim=32, vocab_size=64, max_position_embeddings=64),
                "weights", {"input_ids": IDS, "decoder_input_ids": IDS}),
    "xglm": (lambda: transformers.XGLMConfig(d_model=32, num_layers=1, attention_heads=2, ffn_dim=32, vocab_size=64, max_position_embeddings=64),
             "weights", {"input_ids": IDS}),
    "swinv2": (lambda: transformers.Swinv2Config(embed_dim=16, depths=[1], num_heads=[2], window_size=4, image_size=32, patch_size=4),
               "relative_coords_table", {"pixel_values": torch.randn(1, 3, 32, 32)}),
    "ctrl": (lambda: transformers.CTRLConfig(vocab_size=64, n_positions=64, n_embd=32, dff=32, n_layer=1, n_head=2), "pos_encoding", {"input_ids": IDS}),
    "llama4_vision": (lambda: transformers.Llama4VisionConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=128, image_size=32,
                                                              patch_size=8, vision_output_dim=32, projector_input_dim=32, projector_output_dim=32),
                      "freqs_ci", {"pixel_values": torch.randn(1, 3, 32, 32)}),
}


def first(output):
    return next(x for x in output.to_tuple() if isinstance(x, torch.Tensor))


@pytest.mark.parametrize("kind", TABLES)
def test_tables_beside_the_output(kind):
    """Where a table that a load left empty, garbage or rounded changes what the model computes, check says so, at its place."""
    config, name, inputs = TABLES[kind]
    torch.manual_seed(0)
    config = config()
    m = (transformers.Llama4VisionModel(config) if kind == "llama4_vision" else transformers.AutoModel.from_config(config)).eval()
    for p in m.parameters():
        p.data.mul_(4 if p.dim() > 1 else 1)
    assert codes(m) == []
    with torch.no_grad():
        before = first(m(**inputs))
        assert codes(m) == [] or {s for s, _ in codes(m)} == {"note"}  # rows that the call has kept
        places = {n: b for n, b in m.named_buffers() if n.rpartition(".")[2] == name}
        assert places
        for code, change in (("unset", lambda b: b.zero_()), ("unset", lambda b: b.fill_(float("nan"))), ("stale", lambda b: b.mul_(1.5)),
                             ("cast", lambda b: b.copy_(torch.view_as_complex(torch.view_as_real(b).bfloat16().float()) if b.is_complex() else b.bfloat16()))):
            kept = {n: b.clone() for n, b in places.items()}
            for b in places.values():
                change(b)
            for module in m.modules():  # rows that the call has kept
                if hasattr(module, "cached_sequence_length"):
                    module.cached_sequence_length = None
            assert not torch.equal(first(m(**inputs)), before), code
            found = [f for f in posenc.hf.check(m) if f.severity == "error" and "cached" not in f.where]
            assert {f.where for f in found} == set(places), found
            assert {f.code.partition("_")[2] for f in found} == {code}, found
            for n, b in places.items():
                b.copy_(kept[n])


def test_what_nothing_reads_is_no_finding():
    """Falcon with ALiBi makes a rotary module that its attention does not use."""
    m = transformers.AutoModel.from_config(transformers.FalconConfig(hidden_size=64, num_hidden_layers=1, num_attention_heads=4, vocab_size=64, alibi=True,
                                                                     bos_token_id=1, eos_token_id=2)).eval()
    with torch.no_grad():
        before = m(IDS).last_hidden_state
        m.rotary_emb.inv_freq.zero_()
        assert torch.equal(m(IDS).last_hidden_state, before)
    assert codes(m) == [] and codes(m.bfloat16()) == []
    m.config.alibi = False
    assert ("error", "frequencies_cast") in codes(m)


def test_tables_that_grew_are_well():
    config, _, inputs = TABLES["xglm"]
    m = transformers.AutoModel.from_config(config()).eval()
    m.embed_positions.make_weights(200, 32, 1)
    assert codes(m) == []


def test_what_is_not_looked_at_is_said():
    class Rows(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.freqs_cos = torch.nn.Buffer(torch.ones(4))

        def forward(self, x):
            return x * self.freqs_cos

    assert codes(Rows()) == [("note", "buffer_not_checked")]
    m = model()
    m.rows = Rows()
    found = posenc.hf.check(m)
    assert [(f.severity, f.where) for f in found] == [("note", "rows.freqs_cos")] and "no such tensor" in found[0].message
    m.rows.freqs_cos.zero_()
    assert codes(m) == [("error", "buffer_unset")]
    m = model()
    m.config.num_attention_heads = 0  # nothing can be built from it
    assert {(f.code, f.where) for f in posenc.hf.check(m)} <= {("config_unusable", "model.rotary_emb.inv_freq"), ("buffer_not_checked", "model.rotary_emb.inv_freq")}


def test_nothing_is_changed_and_no_number_drawn():
    m = model()
    state, register = {n: b.clone() for n, b in m.named_buffers()}, torch.nn.Module.register_parameter
    torch.manual_seed(3)
    want = torch.rand(2)
    torch.manual_seed(3)
    posenc.hf.check(m)
    assert torch.equal(torch.rand(2), want) and torch.nn.Module.register_parameter is register
    assert all(torch.equal(b, state[n]) for n, b in m.named_buffers()) and next(m.parameters()).device.type == "cpu"
