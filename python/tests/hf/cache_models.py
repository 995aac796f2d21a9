# SPDX-License-Identifier: Apache-2.0
"""KeyCache with every type of tiny_models: greedy tokens beside forwards in float64 without a cache. Takes minutes; run by hand.

python cache_models.py [--tokens N] [TYPE ...]

Columns: tokens that are the argmax of one dense forward over the whole text; tokens that are the argmax of a forward over the kept
tokens alone, with sinks and a window, in one layer, keys rotated and unrotated. Where a type is rejected the reason stands there.
"""
import argparse

import test_cache as shared
import torch

from posenc.hf import KeyCache

SINKS, WINDOW = 4, 28
ENCODERS = ("bert", "electra", "roberta", "roformer")  # decoders by a word of the config only


def build(name, **more):
    return shared.tiny_models.build(name, **more, **(dict(is_decoder=True) if name in ENCODERS else {}))


def plain(name, tokens):
    model = build(name, **shared.LONG)
    ids = shared.prompt(model)
    said, _ = shared.generate(model, ids, tokens, KeyCache(model))
    with torch.no_grad():
        want = shared.in_float64(model)(said, use_cache=False).logits[:, 11:-1].argmax(-1)
    return int((want == said[:, 12:]).sum())


def windowed(name, tokens, keys):
    model = build(name, num_hidden_layers=1, num_layers=1, **shared.LONG)
    ids = shared.prompt(model)
    said, _ = shared.generate(model, ids, tokens, KeyCache(model, sinks=SINKS, window=WINDOW, keys=keys))
    exact = shared.in_float64(model)
    with torch.no_grad():
        want = [int(exact(said[:, shared.kept(n, 12, SINKS, WINDOW)], use_cache=False).logits[0, -1].argmax()) for n in range(12, 12 + tokens)]
    return int((torch.tensor(want) == said[0, 12:]).sum())


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("types", nargs="*")
    words.add_argument("--tokens", type=int, default=400)
    given = words.parse_args()
    for name in given.types or shared.tiny_models.ALL:
        try:
            model = build(name)
        except Exception as problem:
            print(f"{name}: not built: {str(problem)[:80]}", flush=True)
            continue
        if not model.can_generate() or model.config.is_encoder_decoder:
            continue
        row = []
        for run in (plain, lambda n, t: windowed(n, t, "rotated"), lambda n, t: windowed(n, t, "unrotated")):
            try:
                row.append(f"{run(name, given.tokens)} of {given.tokens}")
            except Exception as problem:
                row.append(str(problem).removeprefix("[hf KeyCache] ").splitlines()[0][:110])
        print(f"{name}: " + " | ".join(row), flush=True)


if __name__ == "__main__":
    main()
