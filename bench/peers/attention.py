# SPDX-License-Identifier: Apache-2.0
"""posenc's attention beside PyTorch, onnxruntime and llama.cpp on the same numbers, one thread, float32.

python bench/peers/attention.py [--heads 8] [--dim 64] [--rounds 5] [--keys 16384] [TOKENS ...]

Milliseconds of processor time, the least of the rounds, the programs of a row in turns. Every output is compared with double
arithmetic before it is timed. Needs torch and the posenc package; onnxruntime with onnx, and xllamacpp for llama.cpp, where
they are installed: a program that is missing is named.

PyTorch's fused kernel, onnxruntime and llama.cpp take a bias as an array of all pairs; flex_attention computes it (compiled,
without a backward pass on a CPU). llama.cpp has keys and values in float16 (f16) or float32. The last rows are a batch of short
sequences, as small models train on, and one query against a cache of --keys keys.
"""
from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
from llama_cpp_attention import LlamaCpp  # noqa: E402
from onnxruntime_attention import onnxruntime_attention  # noqa: E402
from torch.nn.attention.flex_attention import flex_attention  # noqa: E402

import posenc  # noqa: E402
import posenc.torch  # noqa: E402

Call = Callable[[], torch.Tensor]
PLAIN, CAUSAL, ALIBI, LEARNED = "no position term", "causal", "ALiBi, causal", "T5's learned bias"
SCHEMES = {PLAIN: None, CAUSAL: None, ALIBI: "alibi", LEARNED: "t5 bidirectional=true"}
LARGEST_ERROR = 2e-3  # of programs that round keys and weights to float16


def in_turns(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """The least milliseconds of processor time of each."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for n in range(rounds + 1):
        for name, run in calls.items():
            begin = time.process_time()
            run()
            times[name] += [time.process_time() - begin] if n else []
    return {name: min(t) * 1e3 for name, t in times.items()}


class Row:
    """One kind of attention on q, k and v [batch, heads, tokens, dim]. The queries are the last tokens."""

    def __init__(self, kind: str, queries: int, keys: int, heads: int, dim: int, batch: int = 1):
        self.kind, self.causal, self.queries, self.keys = kind, kind in (CAUSAL, ALIBI), queries, keys
        self.q = torch.randn(batch, heads, queries, dim, requires_grad=True)
        self.k, self.v = (torch.randn(batch, heads, keys, dim, requires_grad=True) for _ in range(2))
        self.upstream = torch.randn(batch, heads, queries, dim)
        self.ours = posenc.torch.Attention(SCHEMES[kind], heads=heads, head_dim=dim, order="bhtd", scale=dim**-0.5)
        self.mask = torch.arange(keys - queries, keys)[:, None] >= torch.arange(keys)
        self.bias = self._bias(heads, dim)

    def _bias(self, heads: int, dim: int) -> torch.Tensor | None:
        """[1, heads, queries, keys], what the scheme adds."""
        if SCHEMES[self.kind] is None:
            return None
        parameters = {"table": p.detach().numpy() for p in self.ours.parameters()}
        start = self.keys - self.queries
        made = posenc.bias(SCHEMES[self.kind], heads=heads, head_dim=dim, positions=range(start, self.keys),
                           key_positions=range(self.keys), parameters=parameters)
        return torch.as_tensor(made).float()[None]

    def dense(self) -> torch.Tensor | None:
        """Bias and mask in one array, as programs without a mask of their own want it."""
        bias = self.bias
        if self.causal and self.queries > 1:
            hidden = torch.zeros(self.mask.shape).masked_fill(~self.mask, -math.inf)
            bias = hidden[None, None] if bias is None else bias + hidden
        return bias

    def exact(self) -> torch.Tensor:
        dense = self.dense()
        q, k, v = (x.detach().double() for x in (self.q, self.k, self.v))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        return ((scores if dense is None else scores + dense.double()).softmax(-1) @ v).float()


def pytorch(row: Row) -> dict[str, Call]:
    """The fused kernel, product by product, and flex_attention."""
    fused, dense, q, k, v = torch.nn.functional.scaled_dot_product_attention, row.dense(), row.q, row.k, row.v
    learns = dense.clone().requires_grad_(row.kind == LEARNED) if dense is not None else None
    calls: dict[str, Call] = {}
    if row.kind == CAUSAL and row.queries == row.keys:
        calls["PyTorch, fused"] = lambda: fused(q, k, v, is_causal=True)
    else:
        calls["PyTorch, fused"] = lambda: fused(q, k, v, attn_mask=learns)

    def by_products() -> torch.Tensor:
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        return (scores if learns is None else scores + learns).softmax(-1) @ v

    calls["PyTorch, products"] = by_products
    if row.queries > 1 and len(row.q) == 1:
        table = row.bias[0] if row.bias is not None else None

        def score(s: torch.Tensor, b: torch.Tensor, h: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
            s = s if table is None else s + table[h, i, j]
            return torch.where(i >= j, s, -torch.inf) if row.causal else s

        compiled = torch.compile(flex_attention, dynamic=False)
        calls["PyTorch, flex_attention"] = lambda: compiled(q.detach(), k.detach(), v.detach(), score_mod=score)
    return calls


def all_calls(row: Row, missing: set[str]) -> dict[str, Call]:
    scale = row.q.shape[-1] ** -0.5
    calls: dict[str, Call] = {"posenc": lambda: row.ours(row.q, row.k, row.v, causal=row.causal, offset=row.keys - row.queries)}
    if row.queries == 1:
        k, v = row.k.detach().half(), row.v.detach().half()
        calls["posenc, keys in f16"] = lambda: row.ours(row.q, k, v, causal=row.causal, offset=row.keys - row.queries)
    calls |= pytorch(row)
    if len(row.q) > 1:
        return calls
    for name, make in (("onnxruntime", lambda: onnxruntime_attention(row.q, row.k, row.v, row.dense(), scale)),
                       ("llama.cpp", lambda: LlamaCpp(row.q, row.k, row.v, row.dense(), scale).calls())):
        try:
            calls |= make()
        except ImportError as why:
            missing.add(f"{name}: {why}")
    return calls


def checked(calls: dict[str, Call], row: Row) -> dict[str, Call]:
    """Without those that fail or compute something else, which are named."""
    want, good = row.exact(), {}
    for name, run in calls.items():
        try:
            with torch.no_grad():
                error = float((run() - want).abs().max())
        except Exception as why:  # noqa: BLE001  a peer may fail in any way
            print(f"  {name:28} fails: {type(why).__name__}: {str(why).splitlines()[0][:90]}")
            continue
        if error < LARGEST_ERROR:
            good[name] = run
        else:
            print(f"  {name:28} is off by {error:.1e}: not timed")
    return good


def show(row: Row, rounds: int, missing: set[str]) -> None:
    calls = checked(all_calls(row, missing), row)
    if "posenc" not in calls:
        return
    with torch.no_grad():
        forward = in_turns(calls, rounds)
    trained = {name: run for name, run in calls.items() if name in ("posenc", "PyTorch, fused", "PyTorch, products")}
    both: dict[str, float] = {}
    if row.queries > 1:

        def backward(run: Call) -> Call:
            return lambda: run().backward(row.upstream)  # type: ignore[return-value]

        both = in_turns({name: backward(run) for name, run in trained.items()}, rounds)
    for name, ms in forward.items():
        ratio = f"{ms / forward['posenc']:6.2f} x"
        more = f"   with gradients {both[name]:9.2f} ms  {both[name] / both['posenc']:6.2f} x" if name in both else ""
        print(f"  {name:28} {ms:9.2f} ms  {ratio}{more}", flush=True)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("tokens", nargs="*", type=int, default=[512, 2048])
    words.add_argument("--heads", type=int, default=8)
    words.add_argument("--dim", type=int, default=64)
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--keys", type=int, default=16384)
    given = words.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    missing: set[str] = set()
    for tokens in given.tokens:
        for kind in SCHEMES:
            print(f"{tokens} tokens, {given.heads} heads of {given.dim}, {kind}")
            show(Row(kind, tokens, tokens, given.heads, given.dim), given.rounds, missing)
    print("128 sequences of 32 tokens, 8 heads of 16")
    show(Row(PLAIN, 32, 32, 8, 16, 128), 10 * given.rounds, missing)
    for kind in (PLAIN, ALIBI):
        print(f"1 query, {given.keys} keys, {given.heads} heads of {given.dim}, {kind}")
        show(Row(kind, 1, given.keys, given.heads, given.dim), given.rounds, missing)
    for text in sorted(missing):
        print("left out,", text)


if __name__ == "__main__":
    main()
