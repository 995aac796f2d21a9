# SPDX-License-Identifier: Apache-2.0
"""KeyCache and the rest of generate(): beams, chunks, further turns, accelerated models, and calls that are rejected."""
import copy
import importlib.util
import pathlib
import pickle

import pytest
import torch
import transformers

import posenc.hf
from posenc.hf import KeyCache

_spec = importlib.util.spec_from_file_location("test_cache_shared", pathlib.Path(__file__).with_name("test_cache.py"))
shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(shared)
tiny_models, generate, far, in_float64, prompt, kept, LONG = (
    shared.tiny_models, shared.generate, shared.far, shared.in_float64, shared.prompt, shared.kept, shared.LONG)
ONE = dict(num_hidden_layers=1, num_layers=1)


def forward(model, ids, cache, **more):
    with torch.no_grad():
        return model(ids, past_key_values=cache, use_cache=True, **more).logits


def turned(x, angle):
    """Half-split, by angles [tokens, pairs]."""
    n = angle.shape[-1]
    a, b = x[..., :n], x[..., n:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


@pytest.mark.parametrize("name", ("llama", "gemma3_text"))
def test_layers_in_depth_are_one_forward_in_float64(name):
    """Who sees whom, at which distance, in one forward of two layers. Keys come rotated; those of sinks are turned on for each query."""
    more = dict(layer_types=["sliding_attention", "full_attention"], sliding_window=64) if name == "gemma3_text" else {}
    model = tiny_models.build(name, **LONG, **more)
    ids, sinks, window = prompt(model), 3, 9
    sequence, logits = generate(model, ids, 40, KeyCache(model, sinks=sinks, window=window))
    exact, n = in_float64(model), sequence.shape[1]
    t, j = torch.arange(n)[:, None], torch.arange(n)
    seen = (j <= t) & ((t < 12) | (j < sinks) | (t - j < window))
    closer = torch.where((t >= 12) & (t + 1 > sinks + window), t + 1 - sinks - window, 0)

    def attention(module, q, k, v, mask, scaling=None, **rest):
        kind = getattr(module, "layer_type", None)
        rotary = exact.model.rotary_emb
        f = (rotary.inv_freq if name == "llama" else getattr(rotary, f"{kind}_inv_freq")).double()
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        score = q @ k.transpose(-1, -2)
        for i in range(n):
            near = turned(k[:, :, :sinks], closer[i] * f[None])
            score[:, :, i, :sinks] = (q[:, :, i:i + 1] * near).sum(-1)
        p = torch.where(seen, score * scaling, -torch.inf).softmax(-1)
        return (p @ v).transpose(1, 2), None

    transformers.AttentionInterface.register("posenc_test_dense", attention)
    exact.set_attn_implementation("posenc_test_dense")
    with torch.no_grad():
        want = exact(sequence, use_cache=False).logits[:, 11:-1]
    assert torch.equal(want.argmax(-1), sequence[:, 12:])
    assert far(logits, want) < 1e-4


@pytest.mark.parametrize("window", (dict(), dict(sinks=3, window=9)))
def test_beams(window):
    model = tiny_models.build("llama", **ONE, **LONG)
    ids = prompt(model)
    model.generation_config.eos_token_id = None
    said = [model.generate(ids, past_key_values=c, max_new_tokens=12, num_beams=3, do_sample=False) for c in (
        KeyCache(model, **window), transformers.DynamicCache())]
    if window:
        with torch.no_grad():
            scores = [in_float64(model)(said[0][:, kept(n, 12, 3, 9)], use_cache=False).logits[0, -1].log_softmax(-1) for n in range(12, 24)]
        assert all(float(s[said[0][0, 12 + i]]) > float(s.sort().values[-8]) for i, s in enumerate(scores))
    else:
        assert torch.equal(*said)


def test_a_prompt_in_chunks_and_a_second_turn():
    model = tiny_models.build("qwen2", **LONG)
    ids = prompt(model, 30)
    plain, logits = generate(model, ids, 10)
    chunks, got = generate(model, ids, 10, KeyCache(model), prefill_chunk_size=7)
    assert torch.equal(chunks, plain) and far(got, logits) < 1e-5
    cache = KeyCache(model)
    first, _ = generate(model, ids[:, :20], 5, cache)
    turn = torch.cat([first, ids[:, 20:]], 1)
    assert torch.equal(generate(model, turn, 8, cache)[0], generate(model, turn, 8)[0])


def test_a_draft_of_another_model_is_taken_back():
    model, draft = tiny_models.build("llama", **LONG), tiny_models.build("llama", **ONE, **LONG)
    ids = prompt(model)
    for one in (model, draft):
        one.generation_config.eos_token_id = None
    cache = KeyCache(model)
    with torch.no_grad():
        said = model.generate(ids, past_key_values=cache, assistant_model=draft, max_new_tokens=20, do_sample=False)
    assert torch.equal(said, generate(model, ids, 20)[0])


@pytest.mark.parametrize("name", ("llama", "glm"))
def test_a_chunk_sees_the_window_before_it_and_itself(name):
    model = tiny_models.build(name, **ONE, **LONG)
    ids = prompt(model, 40)
    cache = KeyCache(model, sinks=3, window=9)
    forward(model, ids[:, :20], cache)
    got = forward(model, ids[:, 20:30], cache)
    own = [0, 1, 2, *range(12, 30)]
    with torch.no_grad():
        want = in_float64(model)(ids[:, own], use_cache=False).logits[:, -10:]
    assert far(got, want) < 1e-4


def test_crop_takes_tokens_back():
    model = tiny_models.build("gemma2", **LONG, sliding_window=8)
    ids = prompt(model, 20)
    cache = KeyCache(model)
    forward(model, ids[:, :6], cache)
    cache.activate_past_recording()
    forward(model, ids[:, 6:15], cache)
    cache.crop(-4)
    assert far(forward(model, ids[:, 11:], cache), forward(model, ids, None)[:, 11:]) < 1e-5
    window = KeyCache(model, sinks=2, window=6)
    forward(model, ids, window)
    with pytest.raises(ValueError, match="crop requires a cache whose window has dropped no token, got \"13 dropped"):
        window.crop(-1)
    with pytest.raises(ValueError, match="crop must remove 0 to 20 tokens"):
        window.crop(3)
    sliding = KeyCache(model)
    forward(model, ids[:, :12], sliding)
    forward(model, ids[:, 12:20], sliding)
    with pytest.raises(ValueError, match="crop requires tokens that a sliding layer still has"):
        sliding.crop(-13)


@pytest.mark.parametrize("words", (dict(), dict(sinks=2, window=6), dict(sinks=2, window=6, keys="unrotated")))
def test_sequences_of_the_batch_are_chosen_and_the_cache_is_emptied(words):
    model = tiny_models.build("llama", **ONE, **LONG)
    ids, cache = prompt(model, 14, 3), KeyCache(model, **words)
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    positions = (mask.cumsum(-1) - 1).clamp(min=0)

    def steps(rows, cache, first, last):
        return forward(model, ids[rows, first:last], cache, attention_mask=mask[rows, :last], position_ids=positions[rows, first:last])

    steps([0, 1, 2], cache, 0, 10)
    cache.batch_select_indices(torch.tensor([False, True, True]))
    cache.batch_repeat_interleave(2)
    steps([1, 1, 2, 2], cache, 10, 13)
    cache.reorder_cache(torch.tensor([3, 0]))
    got = steps([2, 1], cache, 13, 14)
    for row, one in zip((2, 1), got):
        own = KeyCache(model, **words)
        for first, last in ((0, 10), (10, 13), (13, 14)):
            want = steps([row], own, first, last)[0]
        assert far(one, want) < 1e-5
    cache.reset()
    assert cache.get_seq_length() == 0 and cache.layers[0].keys is None
    assert far(forward(model, ids, cache), forward(model, ids, None)) < 1e-5


def test_an_encoder_and_decoder():
    model = tiny_models.build("t5", **ONE)
    ids = prompt(model)

    def run(cache):
        model.generation_config.eos_token_id = None
        with torch.no_grad():
            return model.generate(ids, past_key_values=cache, max_new_tokens=30, do_sample=False)

    pair = transformers.EncoderDecoderCache(KeyCache(model), transformers.DynamicCache())
    assert torch.equal(run(pair), run(None))
    said = run(transformers.EncoderDecoderCache(KeyCache(model, sinks=2, window=6), transformers.DynamicCache()))
    for n in range(1, 31):
        own = said[:, kept(n, 1, 2, 6)]
        with torch.no_grad():
            assert int(in_float64(model)(input_ids=ids, decoder_input_ids=own, use_cache=False).logits[0, -1].argmax()) == int(said[0, n])


def test_accelerated_models():
    model = tiny_models.build("llama", **LONG)
    ids = prompt(model)
    want = generate(model, ids, 30, KeyCache(model, sinks=3, window=9))
    posenc.hf.accelerate(model, force=True)
    got = generate(model, ids, 30, KeyCache(model, sinks=3, window=9, keys="unrotated"))
    assert torch.equal(got[0], want[0]) and far(got[1], want[1]) < 1e-4
    posenc.hf.restore(model)
    assert not any("_posenc_tap" in m.__dict__ or m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    cache = KeyCache(model)
    forward(model, ids, cache)
    posenc.hf.accelerate(model, force=True)
    forward(model, ids[:, :3], cache)
    assert cache.tokens.end == 15 and cache.layers[0].place is not None
    posenc.hf.restore(model)
    forward(model, ids[:, :3], KeyCache(model))
    twin = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    assert torch.equal(generate(twin, ids, 5)[0], generate(model, ids, 5)[0])


def test_an_image_tower_has_positions_of_its_own():
    """What adds or rotates positions in the tower is not the decoder's: sinks move, for text and M-RoPE positions."""
    torch.manual_seed(0)
    text = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, initializer_range=0.2)
    vision = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)
    llava = transformers.LlavaConfig(text_config=transformers.LlamaConfig(**text), vision_config=transformers.CLIPVisionConfig(**vision), image_token_index=95)
    mrope = dict(rope_type="default", rope_theta=10000.0, mrope_section=[1, 1, 2])
    qwen = transformers.Qwen2VLConfig(text_config=dict(**text, rope_parameters=mrope), vision_config=dict(depth=1, embed_dim=32, num_heads=2, hidden_size=32))
    for config in (llava, qwen):
        model = transformers.AutoModelForImageTextToText.from_config(config).eval()
        ids = prompt(model)
        sequence, logits = generate(model, ids, 30, KeyCache(model, sinks=3, window=9))
        exact = in_float64(model)
        with torch.no_grad():
            want = torch.stack([exact(input_ids=sequence[:, kept(n, 12, 3, 9)], use_cache=False).logits[:, -1] for n in range(12, 42)], 1)
        assert torch.equal(want.argmax(-1), sequence[:, 12:])
        assert far(logits, want) < 1e-4


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
@pytest.mark.parametrize("keys", ("rotated", "unrotated"))
def test_sixteen_bits(dtype, keys):
    """As near to float64 as the same model without a cache, on the kept tokens."""
    model = tiny_models.build("llama", **ONE, **LONG).to(dtype)
    ids = prompt(model)
    sequence, logits = generate(model, ids, 30, KeyCache(model, sinks=3, window=9, keys=keys))
    exact = in_float64(model)
    with torch.no_grad():
        want, plain = (torch.stack([m(sequence[:, kept(n, 12, 3, 9)], use_cache=False).logits[:, -1] for n in range(12, 42)], 1) for m in (exact, model))
    assert far(logits, want) < 1.5 * far(plain, want)


def test_a_call_that_was_interrupted_is_over():
    model = tiny_models.build("llama", **LONG)
    ids, cache = prompt(model), KeyCache(model)
    handle = model.model.layers[0].register_forward_hook(lambda *a: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        forward(model, ids, cache)
    handle.remove()
    forward(model, ids, cache)
    assert cache.tokens.end == 12
    cache.evict(2, 4)


def test_a_forward_that_fails_adds_nothing():
    model = tiny_models.build("llama", **LONG)
    ids, cache = prompt(model), KeyCache(model)
    forward(model, ids[:, :5], cache)
    handle = model.model.layers[1].register_forward_hook(lambda *a: (_ for _ in ()).throw(RuntimeError("stop")))
    with pytest.raises(RuntimeError, match="stop"):
        forward(model, ids[:, 5:9], cache)
    handle.remove()
    assert cache.tokens.end == 5
    assert far(forward(model, ids[:, 5:], cache), forward(model, ids, None)[:, 5:]) < 1e-5


REFUSED = [
    ("llama", dict(sinks=-1, window=4), 'sinks must be a whole number of at least 0, got -1'),
    ("llama", dict(window=0), "window must be a whole number of at least 1, got 0"),
    ("llama", dict(window=2.5), "window must be a whole number of at least 1, got 2.5"),
    ("llama", dict(sinks=4), "sinks must not be given without window, got 4"),
    ("llama", dict(positions="slot"), 'positions must be slots or stream, got "slot"'),
    ("llama", dict(keys="raw"), 'keys must be rotated or unrotated, got "raw"'),
    ("qwen3_next", {}, 'no linear-attention or other states, got "linear_attention in layer 0"'),
    ("falcon_h1", {}, "no linear-attention or other states"),
    ("deepseek_v32", {}, 'got "indexed_attention in layer 0"'),
    ("gpt2", dict(window=8), 'positions="slots" requires positions in the keys or scores; use positions="stream", got "positions at the input, transformer.wpe"'),
    ("bloom", dict(window=8, positions="stream"), 'positions must be "slots" for a model whose scores count the keys that are there'),
    ("llama4_text", dict(window=8), "must not be given for a model whose layers attend by chunks of positions"),
    ("nanochat", dict(keys="unrotated"), 'keys="unrotated" requires a rotation that posenc recognises, got "model.layers.0.self_attn'),
    ("opt", dict(keys="unrotated"), 'keys="unrotated" requires a model that rotates its keys, got "OPTForCausalLM"'),
]


@pytest.mark.parametrize("name,words,said", REFUSED)
def test_caches_that_are_rejected(name, words, said):
    model = tiny_models.build(name)
    with pytest.raises(ValueError) as problem:
        KeyCache(model, **words)
    assert said in str(problem.value) and str(problem.value).startswith("[hf KeyCache]")


def test_calls_that_are_rejected():
    model = tiny_models.build("llama", **LONG)
    ids, cache = prompt(model), KeyCache(model)
    with pytest.raises(ValueError, match="model must be a model of transformers"):
        KeyCache(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="sinks must be a whole number of at least 0, got None"):
        KeyCache(model, sinks=None, window=3)
    for copied in (copy.copy, pickle.dumps):
        with pytest.raises(TypeError, match="must not be pickled or copied by copy.copy; use save or fork"):
            copied(KeyCache(model))
    with pytest.raises(ValueError, match="must not require a gradient"):
        model(ids, past_key_values=cache, use_cache=True)
    with pytest.raises(ValueError, match="use_cache must be True"):
        with torch.no_grad():
            model(ids, past_key_values=cache, use_cache=False)
    with pytest.raises(ValueError, match="must be an argument of its model's forward"):
        cache.update(torch.zeros(1, 2, 3, 8), torch.zeros(1, 2, 3, 8), 0)
    other = copy.deepcopy(model)
    with pytest.raises(ValueError, match="must be used with the model that it was made for, got \"another LlamaForCausalLM"):
        forward(other, ids, cache)
    forward(model, ids, cache)
    for words, said in (((3, 3), "start 3, stop 3"), ((-1, 3), "start -1, stop 3"), ((2, 13), "start 2, stop 13")):
        with pytest.raises(ValueError, match=said):
            cache.evict(*words)
    for delta in (1.5, [1, 2], "1", 2**63):
        with pytest.raises(ValueError, match="delta must be a whole number, or one for each axis"):
            cache.shift(delta)
    for call, name in ((lambda x: cache.evict(x, 3), "start"), (lambda x: cache.shift(3, 0, x), "stop"), (cache.crop, "tokens_to_remove"),
                       (lambda x: cache.append(cache, at=x), "at")):
        for wrong in (2.5, "2", True, 2**63):
            with pytest.raises(ValueError, match=rf"\[hf KeyCache\] {name} must be a whole number below 2\^62, got"):
                call(wrong)
    assert cache.tokens.end == 12 and cache.moved == 0
    with pytest.raises(ValueError, match=r"positions must be at most 2\^37"):
        cache.shift(2**37)
    with pytest.raises(ValueError, match=r"keys must be \[1, 2\] of 8 channels"):
        forward(model, ids.expand(2, -1), cache)
    with pytest.raises(ValueError, match="attention_mask must have a column for each of 12 tokens before and 2 new ones, got"):
        forward(model, ids[:, :2], cache, attention_mask=torch.ones(1, 2))
    with pytest.raises(ValueError, match="other must have tokens in 2 layers, got \"0 in 2"):
        cache.append(KeyCache(model))
    with pytest.raises(ValueError, match="append requires another cache that has all its tokens, got \"9 dropped by its window"):
        other = KeyCache(model, window=4)
        forward(model, ids, other)
        cache.append(other)
    deep = tiny_models.build("hunyuan_v1_dense", **LONG)
    with pytest.raises(ValueError, match='keys="unrotated" requires keys as the rotation leaves them; in layer 0 the keys are changed after the rotation'):
        forward(deep, ids, KeyCache(deep, keys="unrotated"))
    plain = KeyCache(deep)
    forward(deep, ids, plain)
    with pytest.raises(ValueError, match="shift requires keys as the rotation leaves them, got \"layer 0"):
        plain.shift(3)
    slides = tiny_models.build("mistral", **LONG, sliding_window=6)
    full = KeyCache(slides)
    forward(slides, ids, full)
    with pytest.raises(ValueError, match="evict requires layers that have all tokens, got \"layer 0, which slides over 6 and has dropped 7"):
        full.evict(1, 3)
    score = tiny_models.build("bloom")
    alibi = KeyCache(score)
    forward(score, ids, alibi)
    with pytest.raises(ValueError, match="shift requires a model that rotates its keys"):
        alibi.shift(2)
