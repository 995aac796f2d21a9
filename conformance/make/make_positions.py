#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the suite `positions`: position ids of text mixed with images, videos and sound.

    python3 conformance/make/make_positions.py OUTDIR [--transformers DIR]

Random rows, laid out by transformers' own processors, are given to transformers' own get_rope_index. The functions are
taken out of the installed package's source (5.23.0) and run alone, so that torch is all they need.
"""
import argparse
import ast
import importlib.util
import itertools
import json
import pathlib
import random
import struct
import types

import numpy as np
import torch

Config = types.SimpleNamespace
VISION_START, VISION_END, SOUND_START, SOUND_END = 11, 12, 13, 14
TEXT = 91
CASES_EACH = 10
MODELS = {
    "qwen2_vl": "qwen2_vl/modeling_qwen2_vl.py",
    "qwen2_5_vl": "qwen2_5_vl/modeling_qwen2_5_vl.py",
    "qwen3_vl": "qwen3_vl/modeling_qwen3_vl.py",
    "qwen2_5_omni": "qwen2_5_omni/modeling_qwen2_5_omni.py",
    "qwen3_omni": "qwen3_omni_moe/modeling_qwen3_omni_moe.py",
    "hunyuan_vl": "hunyuan_vl/modeling_hunyuan_vl.py",
}
PROCESSORS = {
    "qwen2_5_omni": "qwen2_5_omni/processing_qwen2_5_omni.py",
    "qwen3_omni": "qwen3_omni_moe/processing_qwen3_omni_moe.py",
}
METHODS = {"get_rope_index", "get_vision_position_ids", "get_llm_pos_ids_for_vision", "get_chunked_index",
           "replace_video_with_audio_token", "_get_feat_extract_output_lengths"}


def functions(path):
    """The first function of each name in METHODS, without decorators and annotations."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.FunctionDef) or node.name not in METHODS or node.name in found:
            continue
        node.decorator_list, node.returns = [], None
        every = node.args.args + node.args.kwonlyargs
        for argument in every + ([node.args.kwarg] if node.args.kwarg else []):
            argument.annotation = None
        found[node.name] = ast.unparse(node)
    names = {"torch": torch, "np": np, "itertools": itertools}
    for source in found.values():
        exec(source, names)
    return {name: names[name] for name in found}


def bound(functions_of, **attributes):
    me = Config(**attributes)
    for name, function in functions_of.items():
        if not name.startswith("_"):
            setattr(me, name, types.MethodType(function, me))
    return me


def patches(grid):
    return grid[0] * grid[1] * grid[2] // 4


class Maker:
    def __init__(self, models):
        self.models, self.random = models, random.Random(7)
        self.arrays, self.cases = {}, []

    def grid(self, frames=1):
        return [frames, 2 * self.random.randint(1, 4), 2 * self.random.randint(1, 7)]

    def padded(self, rows):
        longest = max(map(len, rows))
        ids = torch.zeros(len(rows), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for i, row in enumerate(rows):
            at = self.random.choice([0, longest - len(row)])
            ids[i, at:at + len(row)] = torch.tensor(row)
            mask[i, at:at + len(row)] = 1
        return ids, mask

    def add(self, family, symbol, params, kinds, mask, images, videos, seconds, result):
        name = "%s_%d" % (family, sum(c["scheme"] == family for c in self.cases))
        inputs = {"token_types": kinds, "mask": mask}
        if images:
            inputs["image_grid_thw"] = torch.tensor(images)
        if videos:
            inputs["video_grid_thw"] = torch.tensor(videos)
            if seconds:
                inputs["seconds"] = torch.tensor(seconds, dtype=torch.float32)
        outputs = {"position_ids": result[0], "deltas": result[1].flatten()}
        for key, value in {**inputs, **outputs}.items():
            self.arrays["%s/%s" % (name, key)] = value.contiguous()
        self.cases.append({
            "name": name,
            "source": {"project": "huggingface/transformers", "version": "5.23.0",
                       "file": "src/transformers/models/" + MODELS[family], "symbol": symbol},
            "scheme": family,
            "what": "Position ids of a batch of rows of text, images%s." % (
                ", videos and sound" if "omni" in family else "" if family == "hunyuan_vl" else " and videos"),
            "params": {"family": family, **params},
            "inputs": {k: "%s/%s" % (name, k) for k in inputs},
            "outputs": {k: "%s/%s" % (name, k) for k in outputs},
            "computed_in": "float32" if family == "qwen3_omni" else "float64",
            "tolerance": {"abs": 0.0, "rel": 0.0, "why": "the same integers, or the same float32 numbers"},
            "notes": "position_ids [axis, batch, token]; kinds 0 text, 1 image, 2 video, 3 sound",
        })

    def vision(self, family):
        images, videos, seconds, rows = [], [], [], []
        for _ in range(self.random.randint(1, 3)):
            row = [0] * self.random.randint(1, 4)
            for _ in range(self.random.randint(0, 3)):
                if self.random.random() < 0.5:
                    images.append(self.grid())
                    row += [1] * patches(images[-1])
                else:
                    grid = self.grid(self.random.randint(1, 6))
                    videos.append(grid)
                    seconds.append(self.random.choice([1.0, 0.5, 0.3, 2.0, 1 / 12, 1 / 15, 0.4]))
                    if family == "qwen3_vl":  # timestamps between the frames
                        for _ in range(grid[0]):
                            row += [2] * (patches(grid) // grid[0]) + [0] * self.random.randint(1, 2)
                    else:
                        row += [2] * patches(grid)
                row += [0] * self.random.randint(1, 3)
            rows.append(row)
        kinds, mask = self.padded(rows)
        rate = self.random.choice([1, 2, 4, 25])
        model = bound(functions(self.models / MODELS[family]),
                      config=Config(vision_config=Config(spatial_merge_size=2, tokens_per_second=rate)))
        more, params = {}, {}
        if family == "qwen2_5_vl":
            more["second_per_grid_ts"] = torch.tensor(seconds) if seconds else None
            params["tokens_per_second"] = rate
        result = model.get_rope_index(
            torch.zeros_like(kinds), kinds.to(torch.int32), attention_mask=mask,
            image_grid_thw=torch.tensor(images) if images else None,
            video_grid_thw=torch.tensor(videos) if videos else None, **more)
        self.add(family, "get_rope_index", params, kinds, mask, images, videos,
                 seconds if family == "qwen2_5_vl" else [], result)

    def hunyuan(self, family):
        images, rows = [], []
        axes = self.random.choice([3, 4])
        for _ in range(self.random.randint(1, 3)):
            row = [0] * self.random.randint(1, 3)
            for _ in range(self.random.randint(1, 3)):
                grid = self.grid()
                images.append(grid)
                row += [1] * ((grid[1] // 2) * (grid[2] // 2 + 1) + self.random.choice([0, 2]))
                row += [0] * self.random.randint(1, 3)
            rows.append(row)
        kinds, mask = self.padded(rows)
        model = bound(functions(self.models / MODELS[family]),
                      config=Config(text_config=Config(rope_parameters={"mrope_section": [1] * axes}),
                                    vision_config=Config(spatial_merge_size=2)))
        result = model.get_rope_index(torch.zeros_like(kinds), kinds, torch.tensor(images), mask)
        self.add(family, "get_rope_index", {"axes": axes}, kinds, mask, images, [], [], result)

    def omni(self, family):
        code = functions(self.models / MODELS[family])
        rate, together = self.random.choice([2, 4, 13, 25]), self.random.random() < 0.6
        lay = bound(functions(self.models / PROCESSORS[family]), video_processor=Config(merge_size=2),
                    video_token="2 ", audio_token="3 ", audio_bos_token="%d " % SOUND_START,
                    audio_eos_token="%d " % SOUND_END)

        def sounds(frames):
            if family == "qwen2_5_omni":
                return ((frames - 1) // 2 + 1 - 2) // 2 + 1
            return int(code["_get_feat_extract_output_lengths"](torch.tensor(frames), 50))

        images, videos, seconds, recordings, rows = [], [], [], [], []
        for _ in range(self.random.randint(1, 3)):
            row = [TEXT] * self.random.randint(1, 3)
            for _ in range(self.random.randint(1, 4)):
                kind, frames = self.random.choice([1, 2, 3]), self.random.randint(3, 300)
                if kind == 3:
                    recordings.append(frames)
                    row += [SOUND_START] + [3] * sounds(frames) + [SOUND_END]
                elif kind == 1:
                    images.append(self.grid())
                    row += [VISION_START] + [1] * patches(images[-1]) + [VISION_END]
                else:
                    videos.append(self.grid(self.random.randint(1, 6)))
                    second = self.random.choice([1.0, 0.5, 0.3, 2.0, 1 / 12, 4.7])
                    seconds.append(float(torch.tensor(second, dtype=torch.float32)))
                    span = [2] * patches(videos[-1])
                    if together:
                        recordings.append(frames)
                        text = lay.replace_video_with_audio_token(
                            {"video_grid_thw": np.array([videos[-1]]), "video_second_per_grid": [seconds[-1]]}, 0,
                            {"num_audio_tokens": [sounds(frames)]}, 0, position_id_per_seconds=rate,
                            seconds_per_chunk=2.0)
                        span = [int(word) for word in text.split()]
                    row += [VISION_START] + span + [VISION_END]
                row += [TEXT] * self.random.randint(0, 3)
            rows.append(row)
        ids, mask = self.padded(rows)
        model = bound(code, spatial_merge_size=2, config=Config(
            image_token_id=1, video_token_id=2, audio_token_id=3, vision_start_token_id=VISION_START,
            audio_start_token_id=SOUND_START, position_id_per_seconds=rate, seconds_per_chunk=2,
            audio_config=Config(n_window=50)))
        if "_get_feat_extract_output_lengths" in code:
            model.get_rope_index.__func__.__globals__.update(code)
        result = model.get_rope_index(
            ids, torch.tensor(images) if images else None, torch.tensor(videos) if videos else None, mask, together,
            torch.tensor(recordings) if recordings else None, torch.tensor(seconds) if seconds else None)
        kinds = torch.where(ids > 3, torch.zeros_like(ids), ids)
        self.add(family, "get_rope_index", {"position_id_per_seconds": rate, "seconds_per_chunk": 2,
                                            "use_audio_in_video": together},
                 kinds, mask, images, videos, seconds, result)

    def write(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        header, data = {}, b""
        for name, value in sorted(self.arrays.items()):
            raw = value.numpy().tobytes()
            kind = {torch.int64: "I64", torch.int32: "I32", torch.float32: "F32"}[value.dtype]
            header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        (folder / "arrays.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
        suite = {"suite": "positions", "format": 1,
                 "made_with": {"transformers": "5.23.0", "torch": torch.__version__, "numpy": np.__version__},
                 "cases": self.cases}
        (folder / "cases.json").write_text(json.dumps(suite, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outdir", type=pathlib.Path)
    parser.add_argument("--transformers", type=pathlib.Path, help="folder of the package (default: the installed one)")
    options = parser.parse_args()
    package = options.transformers
    if package is None:
        package = pathlib.Path(importlib.util.find_spec("transformers").submodule_search_locations[0])
    maker = Maker(package / "models")
    for _ in range(CASES_EACH):
        for family in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl"):
            maker.vision(family)
        maker.hunyuan("hunyuan_vl")
        for family in ("qwen2_5_omni", "qwen3_omni"):
            maker.omni(family)
    maker.cases.sort(key=lambda c: c["name"])
    maker.write(options.outdir)


if __name__ == "__main__":
    main()
