# SPDX-License-Identifier: Apache-2.0
"""KeyCache in generate(): tokens of tiny random models against forwards without a cache, in float64."""
import copy
import importlib.util
import pathlib

import pytest
import torch
import transformers

import posenc.hf
from posenc.hf import KeyCache

_spec = importlib.util.spec_from_file_location("tiny_models", pathlib.Path(__file__).with_name("tiny_models.py"))
tiny_models = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tiny_models)
transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

# Half-split, partial, interleaved, latent, a table of the layer, two rotaries, layers without rotation, scores with positions.
TYPES = ("llama", "phi", "cohere", "glm", "deepseek_v3", "gptj", "gemma2", "smollm3", "qwen3", "bloom", "falcon-alibi", "gemma3_text")
LONG = dict(max_position_embeddings=512, n_ctx=512, n_positions=512)


def generate(model, ids, tokens, cache=None, mask=None, **more):
    mask = torch.ones_like(ids) if mask is None else mask
    model.generation_config.eos_token_id = None
    with torch.no_grad():
        r = model.generate(ids, attention_mask=mask, past_key_values=cache, max_new_tokens=tokens, use_cache=True,
                           do_sample=False, return_dict_in_generate=True, output_logits=True, **more)
    return r.sequences, torch.stack(r.logits, 1)


def in_float64(model):
    exact = copy.deepcopy(model).double()
    if hasattr(exact, "set_experts_implementation"):
        exact.set_experts_implementation("eager")  # the other has no float64
    return exact


def far(got, want):
    """The largest difference of logits, of their standard deviation."""
    return float((got.double() - want.double()).abs().max() / want.std())


def prompt(model, tokens=12, batch=1):
    return tiny_models.inputs(model, batch, tokens)["input_ids"]


@pytest.mark.parametrize("name", TYPES)
def test_tokens_are_those_of_one_forward_in_float64(name):
    model = tiny_models.build(name, **LONG)
    ids = prompt(model)
    cache = KeyCache(model)
    sequence, logits = generate(model, ids, 40, cache)
    with torch.no_grad():
        want = in_float64(model)(sequence, use_cache=False).logits[:, len(ids[0]) - 1:-1]
    assert torch.equal(want.argmax(-1), sequence[:, len(ids[0]):])
    assert far(logits, want) < 1e-4
    assert cache.get_seq_length() == sequence.shape[1] - 1 and cache.moved == 0


def kept(n, before, sinks, window):
    """Tokens that the query after n - 1 others sees, itself included; all of the prompt if it is part of it."""
    return list(range(n)) if n <= before or n <= sinks + window else [*range(sinks), *range(n - window, n)]


@pytest.mark.parametrize("keys", ("rotated", "unrotated"))
@pytest.mark.parametrize("name", TYPES)
def test_sinks_and_window_are_a_forward_over_the_kept_tokens(name, keys):
    """Keys of a single layer depend on no other token, so that the kept tokens alone, at positions from 0 on, give the same."""
    model = tiny_models.build(name, num_hidden_layers=1, num_layers=1, **LONG)
    if keys == "unrotated" and name in ("bloom", "falcon-alibi", "smollm3"):
        if name != "smollm3":
            with pytest.raises(ValueError, match='keys="unrotated" requires a model that rotates its keys'):
                KeyCache(model, keys=keys)
        return
    ids = prompt(model)
    sequence, logits = generate(model, ids, 40, KeyCache(model, sinks=3, window=9, keys=keys))
    exact = in_float64(model)
    with torch.no_grad():
        want = torch.stack([exact(sequence[:, kept(n, 12, 3, 9)], use_cache=False).logits[:, -1] for n in range(12, 52)], 1)
    assert torch.equal(want.argmax(-1), sequence[:, 12:])
    assert far(logits, want) < 1e-4


@pytest.mark.parametrize("name", ("llama", "glm", "deepseek_v3", "bloom"))
@pytest.mark.parametrize("pads", ((0, 5), (9, 2), (4, 11)))
def test_sinks_are_the_first_visible_tokens_of_each_row(name, pads):
    model = tiny_models.build(name, num_hidden_layers=1, **LONG)
    ids = prompt(model, 12, 2)
    mask = torch.ones_like(ids)
    for row, n in enumerate(pads):
        mask[row, :n] = 0
    sequence, logits = generate(model, ids, 30, KeyCache(model, sinks=3, window=6), mask)
    exact = in_float64(model)
    for row, pad in enumerate(pads):
        own = sequence[row:row + 1, pad:]
        with torch.no_grad():
            want = torch.stack([exact(own[:, kept(n, 12 - pad, 3, 6)], use_cache=False).logits[0, -1] for n in range(12 - pad, 42 - pad)])
        assert torch.equal(want.argmax(-1), sequence[row, 12:]), row
        assert far(logits[row], want) < 1e-4


@pytest.mark.parametrize("name", ("llama", "gpt2", "opt", "gemma2", "deepseek_v2"))
def test_a_window_of_the_stream_is_a_mask(name):
    model = tiny_models.build(name, **LONG)
    ids = prompt(model)
    sequence, logits = generate(model, ids, 40, KeyCache(model, sinks=3, window=9, positions="stream"))
    n = sequence.shape[1]
    t, j = torch.arange(n)[:, None], torch.arange(n)
    seen = (j <= t) & ((t < 12) | (j < 3) | (t - j < 9))
    mask = torch.zeros(1, 1, n, n, dtype=torch.float64).masked_fill(~seen, torch.finfo(torch.float64).min)
    with torch.no_grad():
        want = in_float64(model)(sequence, attention_mask=mask, position_ids=j[None], use_cache=False).logits[:, 11:-1]
    assert torch.equal(want.argmax(-1), sequence[:, 12:])
    assert far(logits, want) < 1e-4


@pytest.mark.parametrize("name", ("mistral", "gemma3_text"))
def test_a_sliding_layer_keeps_its_window(name):
    more = dict(layer_types=["sliding_attention", "full_attention"]) if name == "gemma3_text" else {}
    model = tiny_models.build(name, **LONG, sliding_window=7, **more)
    ids = prompt(model)
    cache = KeyCache(model)
    sequence, logits = generate(model, ids, 30, cache)
    with torch.no_grad():
        want = in_float64(model)(sequence, use_cache=False).logits[:, 11:-1]
    assert torch.equal(want.argmax(-1), sequence[:, 12:])
    assert far(logits, want) < 1e-4
    assert [x.keys.shape[2] for x in cache.layers] == [6, 41 if more else 6]
