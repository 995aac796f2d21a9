# SPDX-License-Identifier: Apache-2.0
"""Whole unchanged models of transformers in public shapes with random weights, before and after posenc.hf.accelerate, in turns: seconds of
processor time and peak memory, medians of pairs, after logits and gradients were compared.

python hf_models.py [--models t5-small,...] [--rounds N] [--threads N] [--dtype TYPE] [--train] [--rows N] [--onnxruntime] [TOKENS ...]

--rows: a batch of N rows of mixed lengths, from a quarter of the tokens to all of them. --onnxruntime times an export in float32, too
(needs onnx, onnxscript and onnxruntime).
"""
from __future__ import annotations

import argparse
import functools
import logging
import statistics
import tempfile
import time
from typing import Any, Callable

import torch
import transformers
from hf_attention import measured

import posenc.hf

DEBERTA = dict(vocab_size=128100, hidden_size=768, num_attention_heads=12, intermediate_size=3072, relative_attention=True, position_buckets=256,
               max_relative_positions=-1, max_position_embeddings=512, share_att_key=True, norm_rel_ebd="layer_norm", pos_att_type=["p2c", "c2p"],
               type_vocab_size=0, position_biased_input=False)


class Spans(torch.nn.Module):
    """What GLiNER has on DeBERTa: a recurrent layer, and a score for each pair of a token and a label."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = transformers.DebertaV2Model(transformers.DebertaV2Config(**DEBERTA, num_hidden_layers=6))
        self.config = self.encoder.config
        self.recurrent = torch.nn.LSTM(768, 384, batch_first=True, bidirectional=True)
        self.labels = torch.nn.Parameter(torch.randn(16, 768) / 28)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> tuple[torch.Tensor]:
        return (self.recurrent(self.encoder(input_ids, attention_mask=attention_mask)[0])[0] @ self.labels.t(),)


MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "t5-small": lambda: transformers.T5EncoderModel(transformers.T5Config(d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8)),
    "deberta-v3-small": lambda: transformers.DebertaV2Model(transformers.DebertaV2Config(**DEBERTA, num_hidden_layers=6)),
    "deberta-v3-base": lambda: transformers.DebertaV2Model(transformers.DebertaV2Config(**DEBERTA, num_hidden_layers=12)),
    "gliner": Spans,
    "bloom-560m": lambda: transformers.BloomModel(transformers.BloomConfig(vocab_size=4096, hidden_size=1024, n_layer=24, n_head=16, use_cache=False)),
    "xlnet-base": lambda: transformers.XLNetModel(transformers.XLNetConfig(d_model=768, n_layer=12, n_head=12, d_inner=3072)),
    "swin-t": lambda: transformers.SwinModel(transformers.SwinConfig()),
    "modernbert-base": lambda: transformers.ModernBertModel(transformers.ModernBertConfig()),
}


def inputs(name: str, tokens: int, rows: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    if name == "swin-t":
        return {"pixel_values": torch.randn(max(1, tokens // 256), 3, 224, 224, generator=g).to(dtype)}
    given = {"input_ids": torch.randint(3, 4000, (rows, tokens), generator=g)}
    if rows > 1:
        lengths = torch.linspace(tokens / 4, tokens, rows).int()
        given["attention_mask"] = (torch.arange(tokens) < lengths[:, None]).long()
    return given


def step(model: torch.nn.Module, given: dict[str, torch.Tensor], train: bool) -> torch.Tensor:
    with torch.set_grad_enabled(train):
        out: torch.Tensor = model(**given)[0]
    if train:
        model.zero_grad()
        seen = given.get("attention_mask")
        (out if seen is None else out * seen[..., None]).square().mean().backward()
    return out.detach()


def same(model: torch.nn.Module, given: dict[str, torch.Tensor], train: bool, most: float) -> None:
    """Logits and gradients before and after."""
    def all_of_it() -> list[torch.Tensor]:
        out, seen = step(model, given, train).float(), given.get("attention_mask")
        gradients = [p.grad.float().clone() for p in model.parameters() if p.grad is not None] if train else []
        return [out if seen is None else out[seen.bool()], torch.cat([g.flatten() for g in gradients]) if gradients else out[:0]]

    want = all_of_it()
    posenc.hf.accelerate(model)
    got = all_of_it()
    posenc.hf.restore(model)
    for a, b in zip(got, want):
        if b.numel() and float((a - b).norm()) > most * float(b.norm()):
            raise SystemExit(f"numbers differ: {float((a - b).norm() / b.norm()):.1e}")


def exported(model: torch.nn.Module, given: dict[str, torch.Tensor]) -> Callable[[], Any]:
    """The model in onnxruntime."""
    import onnxruntime

    names = list(given)
    if hasattr(model, "set_attn_implementation"):
        model.set_attn_implementation("eager")  # the exporter has no sdpa for all of them
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.onnx"
        torch.onnx.export(model, tuple(given.values()), path, input_names=names, output_names=["out"], dynamo=True, external_data=True, verbose=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feeds = {i.name: given[n].numpy() for i, n in zip(session.get_inputs(), names)}
    return lambda: session.run(["out"], feeds)


def timed(run: Callable[[], Any]) -> float:
    """Seconds of processor time, the least of three calls after a first one."""
    run()
    times = []
    for _ in range(3):
        begin = time.process_time()
        run()
        times.append(time.process_time() - begin)
    return min(times)


def report(name: str, tokens: int, words: argparse.Namespace) -> None:
    torch.manual_seed(0)
    dtype = getattr(torch, words.dtype)
    model = MODELS[name]().eval().to(dtype)
    given = inputs(name, tokens, words.rows, dtype)
    same(model, given, words.train, 1e-4 if dtype == torch.float32 else 0.1)
    run = functools.partial(step, model, given, words.train)
    pairs = []
    for _ in range(words.rounds):
        own = measured(run)
        posenc.hf.accelerate(model)
        pairs.append((own, measured(run)))
        posenc.hf.restore(model)
    own_s, our_s = (statistics.median(p[i][1] for p in pairs) for i in range(2))
    own_m, our_m = (statistics.median(p[i][2] for p in pairs) for i in range(2))
    ratio = statistics.median(a[1] / b[1] for a, b in pairs)
    line = f"{name:17} {tokens:5} before {own_s:7.2f} s {own_m:6.0f} MiB | after {our_s:7.2f} s {our_m:6.0f} MiB | {ratio:.2f} x as fast, {own_m / max(our_m, 1):.1f} x less memory"
    if words.onnxruntime:
        try:
            line += f" | onnxruntime {timed(exported(model, given)):.2f} s"
        except Exception as e:  # whatever the exporter says of a model
            line += f" | onnxruntime: {type(e).__name__}"
    print(line, flush=True)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("tokens", nargs="*", type=int, default=[512])
    words.add_argument("--models", default=",".join(MODELS))
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--threads", type=int, default=1)
    words.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    words.add_argument("--rows", type=int, default=1)
    words.add_argument("--train", action="store_true", help="forward and backward")
    words.add_argument("--onnxruntime", action="store_true")
    given = words.parse_args()
    transformers.logging.set_verbosity_error()
    logging.disable(logging.WARNING)  # the exporter's
    torch.set_num_threads(given.threads)
    print(f"{given.rows} rows, {given.dtype}, {given.threads} threads, {'training step' if given.train else 'prefill'}")
    for name in given.models.split(","):
        for tokens in given.tokens:
            report(name, tokens, given)


if __name__ == "__main__":
    main()
