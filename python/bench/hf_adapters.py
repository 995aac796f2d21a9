# SPDX-License-Identifier: Apache-2.0
"""Layers whose attention posenc.hf computes in place by an adapter: the class's own and posenc's in turns, at every length, without the
rules of posenc.hf._speed. Seconds of processor time and peak memory, medians of pairs.

python hf_adapters.py [--only NAME] [--rounds N] [--threads N] [--dtype TYPE] [--train] [TOKENS ...]
"""
from __future__ import annotations

import argparse
import importlib
import statistics
from typing import Any, Callable

import torch
import transformers
from hf_attention import Silent, measured
from posenc.hf._attention import replace_attention
from posenc.hf._kept import give_back

TEXT = dict(vocab_size=1000, hidden_size=512, num_hidden_layers=2, num_attention_heads=8, intermediate_size=1024, max_position_embeddings=8192)
Made = tuple[torch.nn.Module, dict[str, Any]]


def of_file(kind: str, cls: str) -> Any:
    """A class that transformers does not show."""
    return getattr(importlib.import_module(f"transformers.models.{kind}.modeling_{kind}"), cls)


def falcon(tokens: int) -> Made:
    config = transformers.FalconConfig(**TEXT, alibi=True, use_cache=False)
    return transformers.FalconModel(config), {"input_ids": torch.randint(3, 999, (1, tokens))}


def speecht5(tokens: int) -> Made:
    config = transformers.SpeechT5Config(hidden_size=512, encoder_layers=2, encoder_attention_heads=8, encoder_ffn_dim=1024, encoder_layerdrop=0.0)
    return of_file("speecht5", "SpeechT5Encoder")(config), {"hidden_states": torch.randn(1, tokens, 512)}


def vits(tokens: int) -> Made:
    config = transformers.VitsConfig(hidden_size=512, num_hidden_layers=2, num_attention_heads=8, ffn_dim=1024, layerdrop=0.0)
    seen = torch.ones(1, tokens, dtype=torch.long)
    return of_file("vits", "VitsEncoder")(config), {"hidden_states": torch.randn(1, tokens, 512), "attention_mask": seen, "padding_mask": seen[..., None].float()}


def fastspeech(tokens: int) -> Made:
    config = transformers.FastSpeech2ConformerConfig(hidden_size=512, vocab_size=999, encoder_num_attention_heads=8, encoder_layers=2, encoder_linear_units=1024)
    model = transformers.FastSpeech2ConformerModel(config).encoder
    return model, {"input_tensor": torch.randint(3, 99, (1, tokens)), "attention_mask": torch.ones(1, 1, tokens, dtype=torch.long), "return_dict": False}


def granite(tokens: int) -> Made:
    config = transformers.GraniteSpeechEncoderConfig(input_dim=160, num_layers=2, hidden_dim=512, feedforward_mult=2, num_heads=8, dim_head=64, output_dim=100)
    return of_file("granite_speech", "GraniteSpeechCTCEncoder")(config), {"hidden_states": torch.randn(1, tokens, 160)}


def wavlm(tokens: int) -> Made:
    config = transformers.WavLMConfig(hidden_size=512, num_hidden_layers=2, num_attention_heads=8, intermediate_size=1024, layerdrop=0.0)
    return of_file("wavlm", "WavLMEncoder")(config), {"hidden_states": torch.randn(1, tokens, 512)}


def cpmant(tokens: int) -> Made:
    config = transformers.CpmAntConfig(vocab_size=1000, hidden_size=512, num_attention_heads=8, dim_head=64, dim_ff=1024, num_hidden_layers=2, use_cache=False)
    return transformers.CpmAntModel(config), {"input_ids": torch.randint(3, 999, (1, max(1, tokens - config.prompt_length)))}


def boxes(tokens: int) -> torch.Tensor:
    corner = torch.randint(0, 500, (1, tokens, 2))
    return torch.cat([corner, corner + 20], -1)


def layoutlmv3(tokens: int) -> Made:
    config = transformers.LayoutLMv3Config(**TEXT, coordinate_size=86, shape_size=84, visual_embed=False)
    return transformers.LayoutLMv3Model(config), {"input_ids": torch.randint(3, 999, (1, tokens)), "bbox": boxes(tokens)}


def layoutlmv2(tokens: int) -> Made:
    config = transformers.LayoutLMv2Config(**TEXT, has_relative_attention_bias=True, has_spatial_attention_bias=True)
    return of_file("layoutlmv2", "LayoutLMv2Encoder")(config), {
        "hidden_states": torch.randn(1, tokens, 512), "attention_mask": torch.zeros(1, 1, 1, tokens), "bbox": boxes(tokens), "position_ids": torch.arange(tokens)[None]}


def side_of(tokens: int) -> int:
    """The side of a square of so many patches, a multiple of 8."""
    return max(8, round(tokens ** 0.5 / 8) * 8)


def sam(tokens: int, kind: str = "Sam", window: int = 0) -> Made:
    side = side_of(tokens)
    config = getattr(transformers, f"{kind}VisionConfig")(hidden_size=512, num_hidden_layers=2, num_attention_heads=8, image_size=16 * side, window_size=window,
                                                          global_attn_indexes=[] if window else [0, 1], mlp_dim=1024, initializer_range=0.02)
    return getattr(transformers, f"{kind}VisionModel")(config), {"pixel_values": torch.randn(1, 3, 16 * side, 16 * side)}


def vitdet(tokens: int) -> Made:
    side = side_of(tokens)
    config = transformers.VitDetConfig(hidden_size=512, num_hidden_layers=2, num_attention_heads=8, mlp_ratio=2, image_size=16 * side, pretrain_image_size=16 * side,
                                       use_relative_position_embeddings=True)
    return transformers.VitDetModel(config), {"pixel_values": torch.randn(1, 3, 16 * side, 16 * side)}


def data2vec(tokens: int) -> Made:
    side = side_of(tokens)
    config = transformers.Data2VecVisionConfig(hidden_size=512, num_hidden_layers=2, num_attention_heads=8, intermediate_size=1024, image_size=16 * side,
                                               use_relative_position_bias=True, drop_path_rate=0.0)
    return transformers.Data2VecVisionModel(config), {"pixel_values": torch.randn(1, 3, 16 * side, 16 * side)}


def windows(cls: str, window: int) -> Callable[[int], Made]:
    """Swin and its kin: two stages of windows; `tokens` patches in the first one."""
    def make(tokens: int) -> Made:
        side = max(2 * window, round(tokens ** 0.5 / (2 * window)) * 2 * window)
        config = getattr(transformers, cls.replace("Model", "Config").replace("Backbone", "Config"))(
            image_size=4 * side, window_size=window, embed_dim=128, depths=[2, 2], num_heads=[4, 8], drop_path_rate=0.0)
        return getattr(transformers, cls)(config), {"pixel_values": torch.randn(1, 3, 4 * side, 4 * side)}

    return make


def clap(tokens: int) -> Made:
    config = transformers.ClapAudioConfig(patch_embeds_hidden_size=128, depths=[2, 2], num_attention_heads=[4, 8], spec_size=256, num_mel_bins=64, hidden_size=256,
                                          enable_fusion=False, drop_path_rate=0.0)
    return transformers.ClapAudioModel(config), {"input_features": torch.randn(1, 1, 1024, 64), "is_longer": None}


def levit(tokens: int) -> Made:
    return transformers.LevitModel(transformers.LevitConfig(drop_path_rate=0)), {"pixel_values": torch.randn(1, 3, 224, 224)}


MODELS: dict[str, Callable[[int], Made]] = {
    "SpeechT5": speecht5, "VITS": vits, "FastSpeech 2": fastspeech, "Granite speech": granite, "WavLM": wavlm, "CPM-Ant": cpmant, "Falcon, ALiBi": falcon,
    "LayoutLMv3": layoutlmv3, "LayoutLMv2": layoutlmv2, "SAM, global": sam, "SAM, windows of 14": lambda tokens: sam(tokens, window=14), "VitDet": vitdet,
    "Data2Vec, images": data2vec, "Swin 2, windows of 8": windows("Swinv2Model", 8), "Donut's Swin, 10": windows("DonutSwinModel", 10),
    "MaskFormer's Swin, 7": windows("MaskFormerSwinModel", 7), "CLAP, 8": clap, "LeViT": levit,
}


def step(model: torch.nn.Module, given: dict[str, Any], train: bool) -> torch.Tensor:
    """The output; with `train` the gradients of all parameters and of real inputs too."""
    with torch.set_grad_enabled(train):
        out = model(**given)
        out = out[0] if isinstance(out, (tuple, list)) or hasattr(out, "to_tuple") else out
    if train:
        model.zero_grad()
        out.square().mean().backward()
    return out.detach()


def report(name: str, tokens: int, words: argparse.Namespace) -> None:
    torch.manual_seed(0)
    dtype = getattr(torch, words.dtype)
    model, given = MODELS[name](tokens)
    model = model.train(words.train and name == "LeViT").to(dtype)  # in eval it keeps biases of one graph
    given = {n: x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for n, x in given.items()}
    for n, x in given.items():
        if n == "hidden_states":
            given[n] = x.requires_grad_(words.train)
    want = step(model, given, words.train)
    pairs = []
    for _ in range(words.rounds):
        own = measured(lambda: step(model, given, words.train))
        replace_attention(model, Silent())
        got = step(model, given, False)
        pairs.append((own, measured(lambda: step(model, given, words.train))))
        give_back(model)
    off = float((got - want).abs().max() / want.abs().max())
    ratio = statistics.median(b[1] / a[1] for a, b in pairs)
    own_m, our_m = (statistics.median(p[i][2] for p in pairs) for i in range(2))
    print(f"{name:22} {tokens:5} {ratio:5.2f} of its own time, {statistics.median(a[1] for a, _ in pairs):.3f} s; memory {own_m:.0f} -> {our_m:.0f} MiB; "
          f"differs by {off:.0e}", flush=True)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("tokens", nargs="*", type=int, default=[128, 256, 512, 1024, 2048])
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--threads", type=int, default=1)
    words.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float64"))
    words.add_argument("--train", action="store_true", help="forward and backward")
    words.add_argument("--only", default="", help="models whose name has one of these in it, by commas")
    given = words.parse_args()
    torch.set_num_threads(given.threads)
    transformers.logging.set_verbosity_error()
    print(f"two layers, 8 heads of 64 (windows: as published), {given.dtype}, {given.threads} threads, {'training step' if given.train else 'prefill'}")
    for name in MODELS:
        if any(one in name for one in given.only.split(",")):
            for tokens in given.tokens:
                report(name, tokens, given)


if __name__ == "__main__":
    main()
