#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small models of transformers, whole, before and after posenc.hf.accelerate, in turns: prefill and one-token decode.

    PYTHON bench/peers/whole_models.py [--types llama,glm,...] [--tokens 1024] [--samples 11] [--dtypes f32,bf16] [--attention]

PYTHON has torch, transformers and posenc: build/lab/bin/python after `python/test.sh build --host`.
Time is the process's own CPU time on one thread, so that neighbours hardly count. The ratio is the median over rounds of
after / before, each round measuring both within a moment. Logits are compared before anything is timed.
"""
import argparse
import statistics
import time

import torch
import transformers

import posenc.hf

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
TYPES = "llama,qwen3,glm,gpt_neox,gptj,phi3,gemma2"


def build(kind, dtype):
    """4 layers, width 512, 8 heads of 64."""
    config = transformers.CONFIG_MAPPING[kind](
        vocab_size=1000, hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4,
        head_dim=64, rotary_dim=64, max_position_embeddings=4096, n_positions=4096, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config).eval().to(dtype)


def seconds(f, calls):
    start = time.process_time()
    for _ in range(calls):
        f()
    return (time.process_time() - start) / calls


def in_turns(model, f, calls, samples, attention):
    """Medians of before, after and of their ratio; who comes first changes from round to round."""
    before, after = [], []
    for i in range(samples + 1):
        for accelerated in ((False, True) if i % 2 else (True, False)):
            if accelerated:
                posenc.hf.accelerate(model, attention=attention)
            f()
            (after if accelerated else before).append(seconds(f, calls))
            posenc.hf.restore(model)
    before, after = before[1:], after[1:]  # the first round warms up
    return statistics.median(before), statistics.median(after), statistics.median(a / b for a, b in zip(after, before))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--types", default=TYPES)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--samples", type=int, default=11)
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--attention", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'model':12} {'dtype':5} {'what':8} {'before ms':>10} {'after ms':>10} {'after / before':>15}")
    for kind in arguments.types.split(","):
        for dtype in arguments.dtypes.split(","):
            model = build(kind, DTYPES[dtype])
            ids = torch.randint(3, 1000, (1, arguments.tokens))
            with torch.no_grad():
                want = model(ids).logits.float()
                report = posenc.hf.accelerate(model, attention=arguments.attention)
                far = float((model(ids).logits.float() - want).abs().max() / want.abs().max())
                posenc.hf.restore(model)
                if report.calls == 0 or far > (1e-5 if dtype == "f32" else 5e-2):
                    raise SystemExit(f"{kind} {dtype}: {report.calls} calls, logits {far:.1e} apart")
                cache = model(ids, use_cache=True).past_key_values

                def decode():
                    model(ids[:, :1], past_key_values=cache, use_cache=True)
                    cache.crop(-1)

                for what, f, calls in (("prefill", lambda: model(ids), 1), ("decode", decode, 20)):
                    b, a, ratio = in_turns(model, f, calls, arguments.samples, arguments.attention)
                    print(f"{kind:12} {dtype:5} {what:8} {b * 1e3:10.3f} {a * 1e3:10.3f} {ratio:15.3f}", flush=True)


if __name__ == "__main__":
    main()
