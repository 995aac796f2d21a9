# SPDX-License-Identifier: Apache-2.0
"""Learned tables of towers that also turn q and k, counted and run in transformers 5.23.0:
tests/model/tower_tables.json.

    pip install transformers==5.23.0 torch pillow
    python run_towers.py > ../../tests/model/tower_tables.json

"cases": a config.json of a model around a tower. Its tower is built without memory (torch's meta
device); every parameter that holds rows of positions is listed by its shape and by its name in a file
that transformers writes. A config that cannot be built says so.
"fitted": a tower of one layer is run twice on the same pixels, with its table at zero and with a
random one; the difference where the table is added are the rows that the patches of a grid of
rows x columns get, row by row. "frames": what each frame of a video adds besides; "summed": rows of
Gemma-4 at (x, y); "class_token": the row that it gets in Llama-4. Nothing here is posenc's.
"""
import importlib
import inspect
import json
import re
import sys
import warnings

import torch
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import logging

warnings.filterwarnings("ignore")
logging.set_verbosity_error()
POSITIONS = re.compile(r"pos_?emb|position|positional|row_embed|col_embed")

CELLS = [{}, {"num_position_embeddings": 64}, {"num_position_embeddings": 70},
         {"hidden_size": 96, "num_heads": 4}]
IMAGE = [{}, {"image_size": 56}, {"image_size": 60}, {"image_size": [56, 56]},
         {"hidden_size": 96, "num_attention_heads": 4, "num_heads": 4}]
NONE = [{}]
AROUND = {
    **{name: CELLS for name in "qwen3_vl qwen3_vl_moe qwen3_5 qwen3_5_moe qwen4_exp cosmos3_omni".split()},
    "cohere_compass": CELLS,
    **{name: IMAGE for name in "glm4v glm4v_moe glm46v paddleocr_vl step3p7 llama4".split()},
    "kimi_k25": [{}, {"pos_emb_height": 8, "pos_emb_width": 8}, {"pos_emb_time": 7},
                 {"hidden_size": 96, "num_attention_heads": 4}],
    "inkling2": [{}, {"posemb_grid_size": 8}, {"hidden_size": 96, "num_attention_heads": 4}],
    **{name: [{}, {"position_embedding_size": 64}, {"hidden_size": 96}] for name in
       "gemma4 diffusion_gemma".split()},
    **{name: NONE for name in """qwen2_vl qwen2_5_vl glm_ocr glm5_next lfm3_vl dots3_note minimax_m3_vl
       exaone4_5 ernie4_5_vl_moe video_llama_3 mistral3 lighton_ocr""".split()},
}


def models_of(configuration):
    module = importlib.import_module(configuration.__module__.replace("configuration_", "modeling_"))
    return [c for n, c in inspect.getmembers(module, inspect.isclass)
            if issubclass(c, PreTrainedModel) and not n.endswith("PreTrainedModel")]


def tower_class(config):
    found = [c for c in models_of(type(config)) if getattr(c, "config_class", None) is type(config)]
    return max(found, key=lambda c: (c.__name__.endswith("Model"), -len(c.__name__)))


def tables_of(model):
    """Names as a file has them."""
    return [{"name": name, "shape": list(p.shape)} for name, p in
            revert_weight_conversion(model, dict(model.state_dict())).items()
            if POSITIONS.search(name) and not re.search(r"proj|norm|layers|blocks", name)]


def measure(case):
    configuration = CONFIG_MAPPING[case["model_type"]]
    config = configuration.from_dict(json.loads(json.dumps(case)))
    tower = config.vision_config
    with torch.device("meta"):
        try:
            around = [c for c in models_of(configuration) if c.__name__.endswith("ForConditionalGeneration")]
            return {"tables": tables_of(min(around, key=lambda c: len(c.__name__))(config))}
        except Exception:  # the text part cannot be made of defaults: the tower alone
            return {"tables": tables_of(tower_class(tower)(tower)), "alone": True}


def merged(order, rows, columns, merge):
    """Places of a sequence of blocks of merge x merge, row by row."""
    places = torch.arange(rows * columns).reshape(rows // merge, merge, columns // merge, merge)
    out = torch.empty_like(order)
    out[places.permute(0, 2, 1, 3).reshape(-1)] = order
    return out


SMALL = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 16,
         "depth": 1, "num_heads": 2, "deepstack_visual_indexes": [], "patch_size": 2}
# The tower, its sizes, the module before or behind which the table has been added, its table.
FITTED = [
    *[(name, {"num_position_embeddings": 16}, "blocks.0", "pos_embed.weight", 2) for name in
      "qwen3_vl qwen3_vl_moe qwen3_5 qwen3_5_moe qwen4_exp cohere_compass".split()],
    *[(name, {"image_size": 8}, "embeddings", "embeddings.position_embedding.weight", 2) for name in
      "glm4v glm4v_moe".split()],
    ("paddleocr_vl", {"image_size": 8}, "vision_model.embeddings",
     "vision_model.embeddings.position_embedding.weight", 1),
    ("step3p7", {"image_size": 8}, "embeddings", "embeddings.position_embedding.weight", 1),
    ("inkling2", {"posemb_grid_size": 4}, "embeddings", "embeddings.position_embedding.weight", 2),
    ("kimi_k25", {"pos_emb_height": 4, "pos_emb_width": 4}, "patch_embed",
     "patch_embed.pos_emb.position_embeddings", 1),
]


def inputs_of(name, config, frames, rows, columns):
    p, grid = config.patch_size, torch.tensor([[frames, rows, columns]])
    n = frames * rows * columns
    if name == "step3p7":
        return {"pixel_values": torch.zeros(1, 3, rows * p, columns * p)}
    if name == "inkling2":
        merge = config.spatial_merge_size
        return {"pixel_values": torch.zeros(n // merge**2, p * merge, p * merge, 3),
                "image_grid_thw": grid // torch.tensor([1, merge, merge])}
    if name == "kimi_k25":
        return {"pixel_values": torch.zeros(n, 3, p, p), "grid_thw": grid}
    if name == "paddleocr_vl":
        return {"pixel_values": torch.zeros(1, n, 3, p, p), "grid_thw": grid}
    return {"hidden_states": torch.zeros(n, 3 * getattr(config, "temporal_patch_size", 1) * p * p),
            "grid_thw": grid}


class Seen(Exception):
    pass


@torch.no_grad()
def added(model, where, inputs):
    """What reaches the module of blocks, or what another module gives."""
    seen = []

    def keep(module, given, *out):
        seen.append(out[0] if out else given[0])
        raise Seen

    module = model.get_submodule(where)
    hook = module.register_forward_pre_hook(keep) if "blocks" in where else module.register_forward_hook(keep)
    try:
        model(**inputs)
    except Seen:
        pass
    hook.remove()
    return seen[0].reshape(-1, seen[0].shape[-1])


def fitted(name, sizes, where, table, merge):
    kind = type(CONFIG_MAPPING[name].from_dict({"vision_config": {}}).vision_config)
    names = inspect.signature(kind).parameters
    config = kind(**{k: v for k, v in SMALL.items() if k in names}, **sizes)
    config.out_hidden_size = 16
    torch.manual_seed(0)
    model = tower_class(config)(config).float().eval()
    places = model.get_parameter(table)
    rows, columns = 6, 10
    inputs = inputs_of(name, config, 1, rows, columns)
    places.data.zero_()
    without = added(model, where, inputs)
    places.data.normal_()
    grid = (added(model, where, inputs) - without)[-rows * columns:, :2]
    if merge > 1:
        grid = merged(grid, rows, columns, merge)
    stored = places.data.reshape(16, -1)[:, :2]
    out = {"model_type": name, "table": rounded(stored), "grid": [rows, columns], "rows": rounded(grid)}
    if name == "kimi_k25":
        places.data.zero_()
        model.patch_embed.proj.bias.data.zero_()
        one = added(model, where, inputs)
        film = added(model, where, inputs_of(name, config, 4, 2, 2))
        out["one_frame"] = float(one.abs().max())
        out["frames"] = rounded(film.reshape(4, 4, -1)[:, 3])
    return out


@torch.no_grad()
def summed():
    """Gemma-4: rows at (x, y), patches of zeros."""
    from transformers.models.gemma4.modeling_gemma4 import Gemma4VisionPatchEmbedder
    kind = type(CONFIG_MAPPING["gemma4"](vision_config={}).vision_config)
    places = Gemma4VisionPatchEmbedder(kind(hidden_size=4, position_embedding_size=8))
    torch.manual_seed(0)
    places.position_embedding_table.data.normal_()
    at = torch.tensor([[[0, 0], [1, 0], [0, 1], [5, 3], [2, 7]]])
    pixels = torch.full((1, 5, places.input_proj.in_features), 0.5)  # zero after its scaling
    rows = places(pixels, at, torch.zeros(1, 5, dtype=torch.bool))[0]
    return {"model_type": "gemma4", "table": rounded(places.position_embedding_table.flatten(0, 1)),
            "at": at[0].tolist(), "rows": rounded(rows)}


@torch.no_grad()
def class_token():
    """Llama-4: which row of its table the class token gets."""
    kind = type(CONFIG_MAPPING["llama4"]().vision_config)
    model = tower_class(kind())(kind(image_size=8, patch_size=2, hidden_size=16, num_attention_heads=2,
                                     num_hidden_layers=1, intermediate_size=16)).float()
    model.positional_embedding_vlm.data.zero_()
    inputs = {"pixel_values": torch.zeros(1, 3, 8, 8)}
    model.class_embedding.data.fill_(1)
    seen = []
    model.layernorm_pre.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    try:
        model(**inputs)
    except Exception as problem:  # what follows may want other sizes
        assert seen, problem
    return {"model_type": "llama4", "class_token_at": seen[0].reshape(-1, 16).sum(1).argmax().item(),
            "rows": model.positional_embedding_vlm.shape[0]}


def rounded(rows):
    return [[float(f"{v:.7g}") for v in row] for row in rows.tolist()]


def cases():
    for name, list_of in AROUND.items():
        for more in list_of:
            yield {"model_type": name, "vision_config": more}


lines = []
for case in cases():
    try:
        facts = measure(case)
    except Exception as problem:
        if not isinstance(problem, TypeError) and "StrictDataclass" not in type(problem).__name__:
            print(json.dumps(case), repr(problem)[:300], file=sys.stderr)
            continue
        facts = {"refused": True}
    lines.append(json.dumps({"config": case, **facts}))
grids = [json.dumps(fitted(*about)) for about in FITTED]
print('{"about": "counted on models of transformers 5.23.0 by tools/model_table/run_towers.py",\n "cases": [\n'
      + ",\n".join(lines) + '\n],\n "fitted": [\n' + ",\n".join(grids)
      + '\n],\n "summed": ' + json.dumps(summed()) + ',\n "class_token": ' + json.dumps(class_token()) + "}")
