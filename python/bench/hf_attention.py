# SPDX-License-Identifier: Apache-2.0
"""Prefill of random models with their own attention and with posenc's, in turn: seconds and peak memory, medians.

python hf_attention.py [TOKENS [ROUNDS]]
"""
from __future__ import annotations

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
    with torch.no_grad():
        run()  # type: ignore[operator]
    return time.perf_counter() - wall, time.process_time() - cpu, memory("VmHWM") - held


def models(tokens: int) -> dict[str, object]:
    torch.manual_seed(0)
    ids = torch.randint(2, 1000, (1, tokens))
    t5 = transformers.T5EncoderModel(transformers.T5Config(vocab_size=1000, d_model=512, d_kv=64, d_ff=1024, num_layers=2, num_heads=8))
    bloom = transformers.BloomModel(transformers.BloomConfig(vocab_size=1000, hidden_size=512, n_layer=2, n_head=8))
    deberta = transformers.DebertaV2Model(transformers.DebertaV2Config(
        vocab_size=1000, hidden_size=512, num_hidden_layers=2, num_attention_heads=8, intermediate_size=1024, relative_attention=True,
        position_buckets=256, max_relative_positions=512, share_att_key=True, norm_rel_ebd="layer_norm",
        pos_att_type=["p2c", "c2p"], type_vocab_size=0, position_biased_input=False))
    llama = transformers.LlamaModel(transformers.LlamaConfig(vocab_size=1000, hidden_size=512, intermediate_size=1024,
                                                             num_hidden_layers=2, num_attention_heads=8))
    bros = transformers.BrosModel(transformers.BrosConfig(vocab_size=1000, hidden_size=512, num_hidden_layers=2, num_attention_heads=8,
                                                          intermediate_size=1024, max_position_embeddings=tokens))
    longt5 = transformers.LongT5EncoderModel(transformers.LongT5Config(vocab_size=1000, d_model=512, d_kv=64, d_ff=1024, num_layers=2,
                                                                       num_heads=8, encoder_attention_type="transient-global"))
    corner = torch.rand(1, tokens, 2)
    more = {bros: {"bbox": torch.cat([corner, corner + 0.1], -1)[..., [0, 1, 2, 1, 2, 3, 0, 3]]}}
    return {n: (m.eval(), lambda m=m: m(ids, **more.get(m, {}))) for n, m in (
        ("T5 encoder", t5), ("BLOOM", bloom), ("DeBERTa-v3", deberta), ("BROS", bros), ("LongT5", longt5), ("Llama, sdpa", llama))}


def main(tokens: int = 2048, rounds: int = 5) -> None:
    print(f"{tokens} tokens, 2 layers, 8 heads of 64, float32, {torch.get_num_threads()} threads")
    for name, (model, run) in models(tokens).items():  # type: ignore[misc]
        both: dict[str, list[tuple[float, float, int]]] = {"own": [], "posenc": []}
        for _ in range(rounds + 1):
            both["own"].append(measured(run))
            replace_attention(model, Silent())
            both["posenc"].append(measured(run))
            give_back(model)
        own, ours = ([statistics.median(x[i] for x in both[n][1:]) for i in range(3)] for n in both)
        print(f"{name:12} own {own[0]:6.2f} s, {own[1]:6.2f} s of processor, {own[2]:5} MiB | posenc {ours[0]:6.2f} s, "
              f"{ours[1]:6.2f} s of processor, {ours[2]:5} MiB | processor {ours[1] / own[1]:.2f} x, memory {ours[2] / max(own[2], 1):.2f} x")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
