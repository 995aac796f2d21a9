# SPDX-License-Identifier: Apache-2.0
"""Prefill of random models with their own attention and with posenc's, in turn: seconds and peak memory, medians of pairs.

python hf_attention.py [--threads N] [--rounds N] [--dtype TYPE] [--train] [--rows N] [--decode] [TOKENS ...]

With --rows the batch has N rows of mixed lengths, from a quarter of the tokens to all of them, and padding behind. With --decode one more
token is computed after a cache of so many, by decoders whose query heads have keys of their own or share them.
"""
from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
import time

import torch
import transformers
from posenc.hf._attention import replace_attention
from posenc.hf._kept import give_back


class Silent:
    """No report."""

    def attention(self, layer: str, count: object) -> None:
        """Not kept."""

    def left(self, layer: str, reason: str) -> None:
        """Not kept."""


def memory(word: str) -> int:
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(word)) // 1024


def measured(run: object) -> tuple[float, float, int]:
    """Seconds, seconds of processor time, peak MiB over what was held before."""
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")
    held, wall, cpu = memory("VmRSS"), time.perf_counter(), time.process_time()
    run()  # type: ignore[operator]
    return time.perf_counter() - wall, time.process_time() - cpu, memory("VmHWM") - held


SIZES = dict(vocab_size=1000, hidden_size=512, num_hidden_layers=2, num_attention_heads=8, intermediate_size=1024)


def causal(kind: str, attention: str, **more: object) -> transformers.PreTrainedModel:
    config = transformers.AutoConfig.for_model(kind, **{**SIZES, "max_position_embeddings": 8192, **more})
    config._attn_implementation = attention
    return transformers.AutoModel.from_config(config)


def step(model: torch.nn.Module, words: tuple[torch.Tensor, dict[str, torch.Tensor]], train: bool) -> None:
    """Prefill; with `train` the gradients of all parameters too."""
    with torch.set_grad_enabled(train):
        out = model(words[0], **words[1])[0]
    if train:
        model.zero_grad()
        out.sum().backward()


def models(tokens: int, dtype: torch.dtype, train: bool, rows: int) -> dict[str, object]:
    torch.manual_seed(0)
    ids = torch.randint(3, 1000, (rows, tokens))
    corner = torch.rand(rows, tokens, 2)
    boxes = torch.cat([corner, corner + 0.1], -1)[..., [0, 1, 2, 1, 2, 3, 0, 3]]
    t5 = dict(vocab_size=1000, d_model=512, d_kv=64, d_ff=1024, num_layers=2, num_heads=8)
    made = {
        "T5 encoder": transformers.T5EncoderModel(transformers.T5Config(**t5)),
        "BLOOM": transformers.BloomModel(transformers.BloomConfig(vocab_size=1000, hidden_size=512, n_layer=2, n_head=8)),
        "DeBERTa-v3": transformers.DebertaV2Model(transformers.DebertaV2Config(
            **SIZES, relative_attention=True, position_buckets=256, max_relative_positions=512, share_att_key=True, norm_rel_ebd="layer_norm",
            pos_att_type=["p2c", "c2p"], type_vocab_size=0, position_biased_input=False)),
        "MPNet": transformers.MPNetModel(transformers.MPNetConfig(**SIZES, max_position_embeddings=8192)),
        "BROS": transformers.BrosModel(transformers.BrosConfig(**SIZES, max_position_embeddings=8192)),
        "XLNet": transformers.XLNetModel(transformers.XLNetConfig(vocab_size=1000, d_model=512, n_layer=2, n_head=8, d_inner=1024)),
        "LongT5": transformers.LongT5EncoderModel(transformers.LongT5Config(**t5, encoder_attention_type="transient-global")),
        "BERT, sdpa": causal("bert", "sdpa"), "BERT, eager": causal("bert", "eager"),
        "Llama, sdpa": causal("llama", "sdpa"), "Llama, eager": causal("llama", "eager"),
        "Gemma 2, eager": causal("gemma2", "eager", head_dim=64),
        "Mistral, window 256, sdpa": causal("mistral", "sdpa", sliding_window=256),
        "Mistral, window 256, eager": causal("mistral", "eager", sliding_window=256),
    }
    more = {"BROS": {"bbox": boxes.to(dtype)}}
    if rows > 1:
        lengths = torch.linspace(tokens / 4, tokens, rows).int()
        seen = {"attention_mask": (torch.arange(tokens) < lengths[:, None]).long()}
        for n, m in made.items():
            cache = {"use_cache": False} if hasattr(m.config, "use_cache") else {}
            more[n] = {**more.get(n, {}), **seen, **cache}
    return {n: (m.eval().to(dtype), lambda m=m, n=n: step(m, (ids, more.get(n, {})), train)) for n, m in made.items()}


def decoders(tokens: int, dtype: torch.dtype) -> dict[str, object]:
    torch.manual_seed(0)
    made: dict[str, object] = {}
    for heads, key_heads, dim in ((8, 8, 64), (8, 4, 64), (16, 4, 128), (16, 16, 128)):
        for attention in ("sdpa", "eager"):
            sizes = dict(num_attention_heads=heads, num_key_value_heads=key_heads, head_dim=dim, max_position_embeddings=1 << 20)
            model = causal("llama", attention, **sizes).eval().to(dtype)
            cache = transformers.DynamicCache(config=model.config)
            for layer in range(SIZES["num_hidden_layers"]):
                cache.update(*torch.randn(2, 1, key_heads, tokens, dim, dtype=dtype), layer)

            def run(model: torch.nn.Module = model, cache: transformers.DynamicCache = cache) -> None:
                with torch.no_grad():
                    model(torch.tensor([[5]]), past_key_values=cache, use_cache=True)
                cache.crop(-1)

            made[f"Llama, {heads}/{key_heads} of {dim}, {attention}"] = model, run
    return made


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("tokens", nargs="*", type=int, default=[2048])
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--threads", type=int, default=torch.get_num_threads())
    words.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    words.add_argument("--train", action="store_true", help="forward and backward")
    words.add_argument("--rows", type=int, default=1, help="of a batch, of mixed lengths")
    words.add_argument("--decode", action="store_true", help="one more token after a cache of so many")
    words.add_argument("--only", default="", help="models whose name has this in it")
    given = words.parse_args()
    torch.set_num_threads(given.threads)
    for tokens in given.tokens:
        what = ", one more" if given.decode else ", training step" if given.train else ""
        print(f"{given.rows} x {tokens} tokens, 2 layers, 8 heads of 64, {given.dtype}, {torch.get_num_threads()} threads{what}")
        dtype = getattr(torch, given.dtype)
        made = decoders(tokens, dtype) if given.decode else models(tokens, dtype, given.train, given.rows)
        for name, (model, run) in made.items():  # type: ignore[misc]
            if given.only not in name:
                continue
            pairs = []
            for _ in range(given.rounds + 1):
                own = measured(run)
                replace_attention(model, Silent())
                pairs.append((own, measured(run)))
                give_back(model)
            medians = [[statistics.median(p[i][j] for p in pairs[1:]) for j in range(3)] for i in range(2)]
            ratios = [statistics.median(b[j] / max(a[j], 1e-9) for a, b in pairs[1:]) for j in range(2)]
            (own_s, _, own_m), (our_s, _, our_m) = medians
            print(f"{name:27} own {own_s:8.4f} s {own_m:5.0f} MiB | posenc {our_s:8.4f} s {our_m:5.0f} MiB | "
                  f"time {ratios[0]:.2f} x, processor {ratios[1]:.2f} x, memory {our_m / max(own_m, 1):.2f} x", flush=True)


if __name__ == "__main__":
    main()
