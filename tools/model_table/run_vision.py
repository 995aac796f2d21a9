# SPDX-License-Identifier: Apache-2.0
"""Tables of positions of images, video and spectrograms in transformers 5.23.0, counted on models
that it built: tests/model/vision_encodings.json.

    pip install transformers==5.23.0 torch scipy
    python run_vision.py > ../../tests/model/vision_encodings.json

Every case is a config.json. Its model is built without memory (torch's meta device) and every
parameter that holds rows of positions is listed by name, rows and width; sinusoids by their rows, as
numbers, at the coordinates that the class gives them; frequencies of rotaries; relative tables in the
score by their count, one a layer. A config that cannot be built says so. Nothing here is posenc's.
"""
import importlib
import inspect
import json
import math
import re
import sys
import warnings

import torch
from transformers import AutoModel, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import logging

warnings.filterwarnings("ignore")
logging.set_verbosity_error()
POSITIONS = re.compile(r"(pos_embed|position_embeddings?|time_embeddings|gated_positional_embedding\.embedding"
                       r"|(row|column)_embedder|positional_embedding|position_embeddings?\.weight|(row|column)_embedder\.weight)$")
SCORES = re.compile(r"(rel_pos_h|relative_position_bias_table|continuous_position_bias_mlp\.0\.weight)$")
SIZES = [{}, {"image_size": 64, "patch_size": 8}, {"image_size": [32, 48]},
         {"image_size": [64, 96], "patch_size": [8, 16]}, {"image_size": 70, "patch_size": 8},
         {"hidden_size": 96, "num_attention_heads": 4}]
IMAGES = """blip_vision_model blip_2_vision_model instructblip_vision_model
instructblipvideo_vision_model git_vision_model idefics_vision idefics2_vision idefics3_vision
smolvlm_vision kosmos_2_vision_model internvl_vision janus_vision_model mllama_vision_model ovis2_vision
phi4_multimodal_vision groupvit_vision_model flava_image_model bridgetower_vision_model aimv2_vision_model
minicpm_ocr_vision minicpmv4_6_vision minicpmv4_7_vision glm_image_vision qianfan_ocr_vision
tipsv2_vision_model timesformer vivit ijepa pixio dpt rf_detr_dinov2 vitpose_backbone vilt
unlimited_ocr_vision_encoder got_ocr2_vision sam_vision_model sam_hq_vision_model
deepseek_ocr2_sam_vision_model unlimited_ocr_sam_vision_model slanext_vision pp_formulanet_vision
videomae""".split()
OTHERS = [
    ("hunyuan_vl_vision", [{}, {"max_image_size": 64, "patch_size": 8}]),
    ("radio", [{}, {"max_img_size": 64, "patch_size": 8}]),
    ("vitdet", [{}, {"pretrain_image_size": 64, "patch_size": 8}, {"pretrain_image_size": [32, 48]},
                {"use_absolute_position_embeddings": False},
                {"use_relative_position_embeddings": True}]),
    ("lw_detr_vit", [{}, {"pretrain_image_size": 64}, {"use_absolute_position_embeddings": False}]),
    ("seggpt", [{}, {"pretrain_image_size": 64, "patch_size": 8},
                {"use_relative_position_embeddings": False}]),
    ("sam_vision_model", [{"use_abs_pos": False}, {"use_rel_pos": False}]),
    ("got_ocr2_vision", [{"use_abs_pos": False}, {"use_rel_pos": False}]),
    ("internvl_vision", [{"use_absolute_position_embeddings": False}]),
    ("pixio", [{"n_cls_tokens": 3}]),
    ("yolos", [{}, {"image_size": [64, 96], "patch_size": 8, "num_detection_tokens": 7}]),
    ("mgp-str", [{}, {"image_size": [64, 96], "patch_size": [8, 16]}]),
    ("hiera", [{}, {"image_size": [64, 96]}, {"embed_dim": 48}, {"patch_stride": [8, 4]}]),
    ("vivit", [{"num_frames": 16, "tubelet_size": [4, 16, 32]}]),
    ("timesformer", [{"num_frames": 4}, {"attention_type": "space_only"}]),
    ("vilt", [{"max_position_embeddings": 80}]),
    ("videomae", [{"num_frames": 8, "tubelet_size": 4, "hidden_size": 48, "num_attention_heads": 4}]),
    ("siglip2_vision_model", [{}, {"num_patches": 64}]),
    ("cosmos3_edge_vision", [{}, {"num_patches": 64}]),
    ("audio-spectrogram-transformer", [{}, {"max_length": 128, "num_mel_bins": 64}, {"time_stride": 16},
                                       {"patch_size": 8, "frequency_stride": 4}]),
    ("pix2struct_vision_model", [{}, {"seq_len": 60}]),
    ("kosmos_2_5_vision_model", [{}, {"max_num_patches": 60}]),
    ("aimv2_vision_model", [{"is_native": True, "hidden_size": 48, "num_attention_heads": 4,
                             "image_size": 32, "patch_size": 8}]),
    ("videomt", [{}, {"image_size": 64, "patch_size": 8}, {"image_size": [32, 48]}]),
    ("granite_docling_vision", [{}, {"image_size": 64, "patch_size": 8}, {"image_size": [32, 48]}]),
    ("videoprism_vision_model", [{}, {"num_frames": 8, "image_size": [36, 54]},
                                 {"tubelet_size": [2, 8, 16], "image_size": 64}]),
    ("molmo2_vision", [{}, {"image_size": [280, 140]}, {"num_position_embeddings": 64},
                       {"num_position_embeddings": 64, "image_num_pos": 100},
                       {"image_patch_size": 7}, {"image_size": None}]),
    ("eomt", [{}, {"image_size": 64, "patch_size": 8}, {"image_size": [32, 48]}]),
    ("eomt_dinov3", [{}, {"hidden_size": 96, "num_attention_heads": 2,
                          "rope_parameters": {"rope_type": "default", "rope_theta": 50.0}}]),
    ("sapiens2", [{}, {"rope_theta": 50.0, "hidden_size": 96, "num_attention_heads": 2}]),
    *[(name, [{"d_model": 48}, {"position_embedding_type": "learned"},
              {"position_embedding_type": "learned", "d_model": 64}, {"position_embedding_type": "v1"}])
      for name in "detr table-transformer conditional_detr deformable_detr".split()],
    ("dab-detr", [{"hidden_size": 48}, {"hidden_size": 48, "temperature_height": 100,
                                        "temperature_width": 100}]),
    ("mask2former", [{"feature_size": 48}]), ("oneformer", [{"conv_dim": 48}]),
    *[(name, [{"encoder_hidden_dim": 48}, {"encoder_hidden_dim": 48,
                                           "positional_encoding_temperature": 100}]) for name in
      "rt_detr rt_detr_v2 d_fine deimv2 pp_doclayout_v2 pp_doclayout_v3 pp_doclayout_v4".split()],
    ("donut-swin", [{}, {"depths": [2, 4], "num_heads": [2, 4]}]), ("maskformer-swin", [{}]),
    ("clap_audio_model", [{}]), ("swin2sr", [{}, {"depths": [2, 3], "num_heads": [2, 2]}]),
]


def cases():
    for name in IMAGES:
        for more in SIZES:
            yield {"model_type": name, **more}
    for name, list_of in OTHERS:
        for more in list_of:
            yield {"model_type": name, **more}


def model_of(name):
    """The smallest class that holds the whole of the configuration's model."""
    configuration = CONFIG_MAPPING[name]
    if name == "idefics_vision":
        from transformers.models.idefics.vision import IdeficsVisionTransformer
        return IdeficsVisionTransformer
    module = importlib.import_module(configuration.__module__.replace("configuration_", "modeling_"))
    found = [c for n, c in inspect.getmembers(module, inspect.isclass)
             if issubclass(c, PreTrainedModel) and getattr(c, "config_class", None) is configuration
             and c.__module__ == module.__name__ and not n.endswith("PreTrainedModel")]
    if name in ("rf_detr_dinov2", "lw_detr_vit", "vitpose_backbone"):
        return next(c for c in found if c.__name__.endswith("Backbone"))
    return min(found, key=lambda c: (not c.__name__.endswith("Model"), "For" in c.__name__, len(c.__name__)))


def rounded(rows):
    return [[float(f"{v:.7g}") for v in row] for row in rows.tolist()]


def sines_of(name, model, config):
    """Cells 0, 1 and 5 of what is added: of a line, or of a grid with four columns."""
    if name == "videomae":
        return model.embeddings.position_embeddings[0]
    if name == "aimv2_vision_model" and config.is_native:
        seen = []
        places = type(model.embeddings)(config)
        plain = torch.nn.Parameter(torch.zeros_like(places.patch_embed.weight))
        places.patch_embed.weight = plain
        places.rms_norm = torch.nn.Identity()
        places.patch_embed.bias = torch.nn.Parameter(torch.zeros_like(places.patch_embed.bias))
        seen.append(places(torch.zeros(1, 3, 32, 32))[0].detach())
        return seen[0]
    return None


def module_of(config, ending):
    """A class of the model's file, its name less the file's own prefix."""
    module = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    return next(c for n, c in inspect.getmembers(module, inspect.isclass)
                if n.endswith(ending) and c.__module__ == module.__name__)


def sines_at_q(name, config):
    """Rows of a grid of 3 x 4 cells and the coordinates (y, x) that the class's own code turns into
    sines; of DETR's kin with coordinates divided by the last and multiplied by 2 pi."""
    cells = [(y, x) for y in range(3) for x in range(4)]
    if hasattr(config, "encode_proj_layers"):
        places = module_of(config, "SinePositionEmbedding")(config.encoder_hidden_dim,
                                                            config.positional_encoding_temperature)
        rows = places(width=4, height=3, device=torch.device("cpu"), dtype=torch.float32)[0]
        return rows, [(float(y), float(x)) for y, x in cells]
    half = 0.5 if name == "deformable_detr" else 0.0
    ends = [[2 * math.pi * (k + 1 - half) / (n + 1e-6) for k in range(n)] for n in (3, 4)]
    seen = torch.ones(1, 3, 4)
    kind = module_of(config, "SinePositionEmbedding")
    if name == "dab-detr":
        rows = kind(config)(torch.zeros(1, 3, 3, 4), seen)
    elif name == "table-transformer":
        rows = kind(config.d_model // 2, normalize=True)(torch.zeros(1, 3, 3, 4), seen)
    else:
        width = {"mask2former": "feature_size", "oneformer": "conv_dim"}.get(name, "d_model")
        rows = kind(getattr(config, width) // 2, normalize=True)(
            torch.Size([1, 3, 3, 4]), torch.device("cpu"), torch.float32, seen)
    return rows[0].flatten(1).T, [(ends[0][y], ends[1][x]) for y, x in cells]


AT_Q = """detr table-transformer conditional_detr deformable_detr dab-detr mask2former oneformer rt_detr
rt_detr_v2 d_fine deimv2 pp_doclayout_v2 pp_doclayout_v3 pp_doclayout_v4""".split()


def tables_at_q(config):
    """DETR's learned tables behind a backbone of convolutions, and the axis of each half of the
    channels: a table of ones shows where it goes."""
    config.backbone, config.use_timm_backbone = None, False
    stages = ["stage2", "stage3", "stage4"] if config.model_type == "deformable_detr" else ["stage4"]
    config.backbone_config = CONFIG_MAPPING["resnet"](out_features=stages)
    try:
        with torch.device("meta"):
            model = AutoModel.from_config(config)
    except ValueError:
        return {"refused": True}
    tables = [{"name": where, "rows": p.shape[0], "width": p.shape[1]}
              for where, p in model.named_parameters() if "position_embedding." in where]
    places = module_of(config, "LearnedPositionEmbedding")(config.d_model // 2)
    torch.nn.init.zeros_(places.row_embeddings.weight)
    torch.nn.init.ones_(places.column_embeddings.weight)
    seen = torch.zeros(1, 3, 3, 4)
    wants_shape = "shape" in inspect.signature(places.forward).parameters
    out = places(seen.shape, seen.device, seen.dtype) if wants_shape else places(seen)
    halves = out[0, :, 0, 0].reshape(2, -1)
    return {"tables": tables, "scores": 0, "order": [int(h.min()) for h in halves]}


def measure(case):
    name = case["model_type"]
    config = CONFIG_MAPPING[name].from_dict(dict(case))
    if case.get("position_embedding_type", "sine") != "sine":
        return tables_at_q(config)
    if name in AT_Q:
        rows, places = sines_at_q(name, config)
        keep = [0, 1, 5]
        return {"tables": [], "scores": 0, "values": rounded(rows[keep]),
                "at": [[places[k][axis] for k in keep] for axis in (0, 1)]}
    if name in ("eomt_dinov3", "sapiens2"):
        kind = module_of(config, "RotaryEmbedding" if name == "eomt_dinov3" else "RopePositionEmbedding")
        return {"tables": [], "scores": config.num_hidden_layers,
                "inv_freq": kind(config).inv_freq.tolist()}
    with torch.device("meta"):
        model = model_of(name)(config)
    tables, scores = [], 0
    for where, p in model.named_parameters():
        scores += bool(SCORES.search(where))
        if POSITIONS.search(where) and not re.search(r"interpolation\.|connector\.", where):
            shape = [n for n in p.shape if n != 1] if p.ndim != 3 else list(p.shape[1:])
            rows = 1
            for n in shape[:-1]:
                rows *= n
            tables.append({"name": where, "rows": rows, "width": shape[-1]})
    out = {"tables": tables, "scores": scores}
    sines = sines_of(name, model, config)
    if sines is not None:
        out["positions"], out["values"] = sines.shape[0], rounded(sines[[0, 1, 5]])
    return out


lines = []
for case in cases():
    try:
        facts = measure(case)
    except TypeError as problem:  # a list where a number is divided
        facts = {"refused": True}
    except Exception as problem:
        if "StrictDataclass" not in type(problem).__name__:
            print(json.dumps(case), repr(problem)[:200], file=sys.stderr)
            continue
        facts = {"refused": True}
    lines.append(json.dumps({"config": case, **facts}))
print('{"about": "counted on models of transformers 5.23.0 by tools/model_table/run_vision.py",\n "cases": [\n'
      + ",\n".join(lines) + "\n]}")
