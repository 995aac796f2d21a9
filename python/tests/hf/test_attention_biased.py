# SPDX-License-Identifier: Apache-2.0
"""accelerate(model, attention=True, force=True) where the model makes the bias and its file computes in place: logits, gradients, the way back."""
import importlib
import importlib.util
import inspect
import pathlib

import pytest
import torch
import transformers

import posenc.hf

_spec = importlib.util.spec_from_file_location("attention_proof", pathlib.Path(__file__).with_name("test_attention.py"))
proof = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(proof)


class Plain(torch.nn.Module):
    """A model whose first output counts; what its class keeps from the call before is forgotten."""

    def __init__(self, model, first=lambda x: x[0]):
        super().__init__()
        self.model, self.first = model, first

    def forward(self, **inputs):
        self.model.train().eval()  # LeViT keeps its biases
        return transformers.modeling_outputs.CausalLMOutput(logits=self.first(self.model(**inputs)))


def attentions_are_its_own(model, layers, **given):
    """Where they are asked for the model's own attention runs."""
    with torch.no_grad():
        want = model(**given, output_attentions=True).attentions
        report = proof.Report()
        proof.replace_attention(model, report)
        got = model(**given, output_attentions=True).attentions
        proof.undone(model)
    assert len(got) == len(want) == layers and all(torch.equal(a, b) for a, b in zip(got, want))
    assert all(c.original == {"attentions as output": 1} for c in report.layers.values())


def proven(model, layers, mask=None, first=lambda x: x[0], **inputs):
    with torch.no_grad():
        for x in model.parameters():
            if x.abs().max() == 0:  # biases that start at zero
                x.normal_(std=0.3)
    model = Plain(model.eval(), first)
    if mask is None:
        with torch.no_grad():
            mask = torch.ones(model(**inputs).logits.shape[:-1])
    report = proof.proven(model, mask, lambda: torch.zeros(1), **inputs)
    assert len(report.layers) == layers


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", [{}, {"multi_query": False}, {"new_decoder_architecture": True, "num_kv_heads": 3}], ids=str)
def test_falcon_with_alibi(kind, implementation):
    torch.manual_seed(0)
    config = transformers.FalconConfig(vocab_size=99, hidden_size=48, num_hidden_layers=2, num_attention_heads=6, alibi=True, **kind,
                                       **proof.PADS)
    config._attn_implementation = implementation
    model = transformers.FalconForCausalLM(config).eval()
    ids, mask = proof.batch()

    def generate():
        return model.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False)

    proof.proven(model, mask, generate, input_ids=ids, attention_mask=mask)


@pytest.mark.parametrize("kind", ["Swinv2", "Swin2SR"])
def test_swin_v2(kind):
    """In double: cosines times 10 make gradients that float32, the model's own too, knows to four digits."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(image_size=16, patch_size=2 if kind == "Swinv2" else 1, embed_dim=16, depths=[2, 2],
                                                    num_heads=[2, 4], window_size=4, upscale=2)
    proven(getattr(transformers, f"{kind}Model")(config).double(), 4, pixel_values=torch.randn(2, 3, 16, 16).double())


def test_a_mask_of_windows_acts_as_often_as_in_the_model():
    """A mask that hides wholly would not show whether it is added once or twice."""
    g = torch.Generator().manual_seed(3)
    for model in (transformers.Swinv2Model(transformers.Swinv2Config(image_size=32, patch_size=2, embed_dim=16, depths=[1], num_heads=[2], window_size=4)),
                  transformers.DonutSwinModel(transformers.DonutSwinConfig(image_size=32, patch_size=2, embed_dim=16, depths=[1], num_heads=[2],
                                                                           window_size=4))):
        name, layer = next((n, m) for n, m in model.eval().named_modules() if type(m).__name__.endswith("SelfAttention"))
        x, mask = torch.randn(8, 16, 16, generator=g), torch.randn(4, 16, 16, generator=g)
        with torch.no_grad():
            before = layer(x, mask)[0]
            report = posenc.hf.accelerate(model, attention=True, force=True)
            assert name in report.attentions
            torch.testing.assert_close(layer(x, mask)[0], before, atol=1e-5, rtol=1e-5)
            assert report.attentions[name].taken == 1


def test_swin_of_donut_and_maskformer():
    torch.manual_seed(0)
    words = dict(image_size=16, patch_size=1, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4)
    proven(transformers.DonutSwinModel(transformers.DonutSwinConfig(**words)), 4, pixel_values=torch.randn(2, 3, 16, 16))
    backbone = transformers.MaskFormerSwinBackbone(transformers.MaskFormerSwinConfig(**words, out_features=["stage2"]))
    proven(backbone, 4, first=lambda x: x.feature_maps[-1].movedim(1, -1), pixel_values=torch.randn(2, 3, 16, 16))


def test_clap():
    torch.manual_seed(0)
    config = transformers.ClapAudioConfig(patch_embeds_hidden_size=16, depths=[2, 2], num_attention_heads=[2, 4], window_size=4, spec_size=64,
                                          num_mel_bins=16, hidden_size=32, patch_size=4, patch_stride=[4, 4], enable_fusion=False,
                                          drop_path_rate=0.0)
    proven(transformers.ClapAudioModel(config), 4, input_features=torch.randn(2, 1, 256, 16), is_longer=None)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_data2vec_of_images(implementation, shared):
    torch.manual_seed(0)
    config = transformers.Data2VecVisionConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=32,
                                               patch_size=8, use_relative_position_bias=not shared,
                                               use_shared_relative_position_bias=shared, drop_path_rate=0.0)
    config._attn_implementation = implementation
    proven(transformers.Data2VecVisionModel(config), 2, pixel_values=torch.randn(2, 3, 32, 32))


@pytest.mark.parametrize("biases", [(True, True), (True, False), (False, True)], ids=str)
def test_layoutlmv3(biases):
    torch.manual_seed(0)
    config = transformers.LayoutLMv3Config(**proof.SMALL, **proof.PADS, max_position_embeddings=40, max_2d_position_embeddings=64,
                                           coordinate_size=6, shape_size=4, has_relative_attention_bias=biases[0],
                                           has_spatial_attention_bias=biases[1], visual_embed=False)
    ids, mask = proof.batch()
    corner = torch.randint(0, 30, (2, 11, 2))
    box = torch.cat([corner, corner + torch.randint(1, 30, (2, 11, 2))], -1)
    proven(transformers.LayoutLMv3Model(config), 2, mask, input_ids=ids, attention_mask=mask, bbox=box)


def boxes(shape):
    corner = torch.rand(*shape, 2) / 2
    low, high = corner, corner + torch.rand(*shape, 2) / 2
    return torch.cat([low, high[..., :1], low[..., 1:], high, low[..., :1], high[..., 1:]], -1)


def test_bros():
    torch.manual_seed(0)
    config = transformers.BrosConfig(**{**proof.SMALL, "hidden_size": 64}, **proof.PADS, max_position_embeddings=40)
    ids, mask = proof.batch()
    proven(transformers.BrosModel(config), 2, mask, input_ids=ids, attention_mask=mask, bbox=boxes((2, 11)))


@pytest.mark.parametrize("biases", [(True, True), (True, False)], ids=str)
def test_reading_order(biases):
    from transformers.models.pp_doclayout_v2 import modeling_pp_doclayout_v2 as file

    torch.manual_seed(0)
    config = transformers.PPDocLayoutV2Config().reading_order_config
    for name, value in dict(hidden_size=32, num_attention_heads=4, has_relative_attention_bias=biases[0], has_spatial_attention_bias=biases[1],
                            attention_probs_dropout_prob=0.1).items():
        setattr(config, name, value)
    model = torch.nn.Module()
    model.layer = file.PPDocLayoutV2ReadingOrderSelfAttention(config)
    model.eval()
    x, mask = torch.randn(2, 7, 32), torch.zeros(2, 1, 1, 7)
    mask[1, ..., 5:] = torch.finfo(torch.float32).min
    bias = {"rel_pos": torch.randn(2, 4, 7, 7), "rel_2d_pos": torch.randn(2, 4, 7, 7) if biases[1] else None}
    if "rel_pos" not in inspect.signature(model.layer.forward).parameters:  # from transformers 5.24 on the model makes one of both
        bias = {"position_bias": bias["rel_2d_pos"] if biases[1] else bias["rel_pos"] * 8 ** -0.5}
    with torch.no_grad():
        before = model.layer(x, mask, **bias)[0]
        report = posenc.hf.accelerate(model, attention=True, force=True)
        torch.testing.assert_close(model.layer(x, mask, **bias)[0], before, atol=1e-5, rtol=1e-5)
    assert report.attentions["layer"].taken == 1
    model.layer.train()
    model.layer(x, mask, **bias)
    assert report.attentions["layer"].original == {"dropout in training": 1}


def test_cpmant():
    torch.manual_seed(0)
    config = transformers.CpmAntConfig(vocab_size=99, hidden_size=32, num_attention_heads=4, dim_head=8, dim_ff=48, num_hidden_layers=2,
                                       prompt_length=4, prompt_types=4, segment_types=4, position_bias_num_buckets=16,
                                       position_bias_max_distance=20, init_std=0.2)
    model = transformers.CpmAntForCausalLM(config)
    ids, _ = proof.batch()
    proven(model, 2, input_ids=ids, first=lambda x: x.logits)


def test_wavlm():
    torch.manual_seed(0)
    config = transformers.WavLMConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, conv_dim=(16, 16), conv_stride=(5, 2),
        conv_kernel=(10, 3), num_feat_extract_layers=2, num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4, num_buckets=16,
        max_bucket_distance=20, feat_extract_norm="layer", layerdrop=0.0, apply_spec_augment=False)
    model = transformers.WavLMModel(config)
    sound, heard = torch.randn(2, 400), torch.ones(2, 400, dtype=torch.long)
    heard[1, 300:] = 0
    proven(model, 2, input_values=sound, attention_mask=heard)
    attentions_are_its_own(model, 2, input_values=sound, attention_mask=heard)


def test_levit():
    torch.manual_seed(0)
    config = transformers.LevitConfig(image_size=64, hidden_sizes=[16, 24, 32], num_attention_heads=[2, 3, 4], depths=[1, 1, 1], key_dim=[8, 8, 8],
                                      attention_ratio=[2, 2, 2], mlp_ratio=[2, 2, 2], drop_path_rate=0,
                                      down_ops=[["Subsample", 8, 2, 4, 2, 2], ["Subsample", 8, 3, 4, 2, 2]])
    proven(transformers.LevitModel(config), 5, pixel_values=torch.randn(2, 3, 64, 64))


def test_vits():
    torch.manual_seed(0)
    config = transformers.VitsConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=48, window_size=3,
                                     flow_size=8, layerdrop=0.0)
    ids, _ = proof.batch()
    seen = torch.ones(2, 11, dtype=torch.long)
    seen[1, 8:] = 0
    model = transformers.VitsModel(config).text_encoder
    proven(model, 2, seen, input_ids=ids, attention_mask=seen, padding_mask=seen[..., None].float(), return_dict=False)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("biases", [(True, True), (True, False), (False, True), (False, False)], ids=str)
def test_layoutlmv2(biases, fast):
    from transformers.models.layoutlmv2.modeling_layoutlmv2 import LayoutLMv2Encoder  # the model itself needs detectron2

    torch.manual_seed(0)
    config = transformers.LayoutLMv2Config(**proof.SMALL, **proof.PADS, max_2d_position_embeddings=64, has_relative_attention_bias=biases[0],
                                           has_spatial_attention_bias=biases[1], fast_qkv=fast)
    _, mask = proof.batch()
    hidden = torch.zeros(2, 1, 1, 11).masked_fill(mask[:, None, None] == 0, torch.finfo(torch.float32).min)
    corner = torch.randint(0, 30, (2, 11, 2))
    proven(LayoutLMv2Encoder(config), 2, mask, hidden_states=torch.randn(2, 11, 32), attention_mask=hidden,
           bbox=torch.cat([corner, corner + 20], -1), position_ids=torch.arange(11).expand(2, -1))


@pytest.mark.parametrize("kind, size, implementation", [
    ("Sam", 32, "sdpa"), ("Sam", 32, "eager"), ("SamHQ", 32, "sdpa"), ("SamHQ", 32, "eager"), ("GotOcr2", 32, "eager"), ("Sam", 64, "sdpa"),
    ("DeepseekOcr2", 32, "sdpa"), ("UnlimitedOcr", 32, "eager"), ("SLANeXt", 32, "eager"), ("PPFormulaNet", 32, "eager")])
def test_sam(kind, size, implementation):
    torch.manual_seed(0)
    tower = {"GotOcr2": ("got_ocr2", "VisionEncoder", "Vision"), "DeepseekOcr2": ("deepseek_ocr2", "SamVisionEncoder", "SamVision"),
             "UnlimitedOcr": ("unlimited_ocr", "SamVisionEncoder", "SamVision"), "SLANeXt": ("slanext", "VisionEncoder", "Vision"),
             "PPFormulaNet": ("pp_formulanet", "VisionModel", "Vision"), "Sam": ("sam", "VisionModel", "Vision"),
             "SamHQ": ("sam_hq", "VisionModel", "Vision")}
    file, cls, words = tower[kind]
    file = importlib.import_module(f"transformers.models.{file}.modeling_{file}")
    config = getattr(importlib.import_module(file.__name__.replace("modeling", "configuration")), f"{kind}{words}Config")(
        hidden_size=32, num_hidden_layers=3, num_attention_heads=4, image_size=size, patch_size=8, window_size=3, global_attn_indexes=[1],
        output_channels=256 if kind == "PPFormulaNet" else 16, mlp_dim=48)
    config._attn_implementation = implementation
    model = getattr(file, kind + cls)(config)
    if size == 64:  # a table of another size is resized
        layer = model.vision_encoder.layers[0].attn
        layer.rel_pos_h = torch.nn.Parameter(torch.zeros(7, 8))
    proven(model, 3, pixel_values=torch.randn(2, 3, size, size))


@pytest.mark.parametrize("windows", [[], [0]], ids=str)
def test_vitdet(windows):
    torch.manual_seed(0)
    config = transformers.VitDetConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, mlp_ratio=2, image_size=32, patch_size=8,
                                       pretrain_image_size=32, window_size=3 if windows else 0, window_block_indices=windows,
                                       use_relative_position_embeddings=True)
    proven(transformers.VitDetModel(config), 2, first=lambda x: x[0].movedim(1, -1), pixel_values=torch.randn(2, 3, 32, 32))


def test_seggpt():
    torch.manual_seed(0)
    config = transformers.SegGptConfig(hidden_size=32, num_hidden_layers=3, num_attention_heads=4, image_size=(32, 16), patch_size=8,
                                       pretrain_image_size=16, decoder_hidden_size=8, merge_index=0, mlp_dim=48, drop_path_rate=0.0,
                                       intermediate_hidden_state_indices=[0, 1, 2])
    images = {n: torch.randn(2, 3, 16, 16) for n in ("pixel_values", "prompt_pixel_values", "prompt_masks")}
    proven(transformers.SegGptModel(config), 3, **images)
