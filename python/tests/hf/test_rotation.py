# SPDX-License-Identifier: Apache-2.0
"""accelerate and restore on tiny random models: the same numbers before and after, and nothing else touched."""
import copy
import functools
import importlib.util
import pathlib

import pytest
import torch
import transformers

import posenc.hf

_spec = importlib.util.spec_from_file_location("tiny_models", pathlib.Path(__file__).with_name("tiny_models.py"))
tiny_models = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tiny_models)
GENERATE = dict(max_new_tokens=6, do_sample=False)

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)  # tiny models: a team would wait more than work


def logits(model, **more):
    with torch.no_grad():
        return model(**{**tiny_models.inputs(model), **more}).logits


def distance(a, b):
    """The largest difference, relative to the largest number."""
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-30))


def loss_and_gradients(model):
    model.zero_grad()
    torch.manual_seed(2)  # of dropout
    loss = model(**tiny_models.inputs(model)).logits.float().pow(2).mean()
    loss.backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def bound(model):
    """What stands in the instances beside torch's own, by module."""
    return [(n, sorted(k for k in m.__dict__)) for n, m in model.named_modules()]


def can_generate(model):
    return model.can_generate() and not model.config.is_encoder_decoder


@pytest.mark.parametrize("name", tiny_models.ALL)
def test_a_model_computes_the_same_before_and_after(name):
    model, other = tiny_models.build(name), tiny_models.build(name)
    before, gradients = logits(model), loss_and_gradients(model)
    said = model.generate(**tiny_models.inputs(model), **GENERATE) if can_generate(model) else None
    things, others = bound(model), bound(other)
    report = posenc.hf.accelerate(model, attention=False)
    after = logits(model)
    assert (report.calls > 0) == (name in tiny_models.ROTARY), str(report)
    assert not any(c.original for layer in report.rotation.values() for c in layer), str(report)
    assert bool(report.reasons) == (name in ("deepseek_v2", "llama4_text", "nanochat"))
    assert distance(after, before) <= (1e-5 if name in tiny_models.ROTARY else 0)
    for n, g in loss_and_gradients(model).items():
        largest = float(gradients[n].abs().max())
        assert float((g - gradients[n]).abs().max()) <= 1e-5 * max(largest, 1e-3), n
    if said is not None:
        assert torch.equal(model.generate(**tiny_models.inputs(model), **GENERATE), said)
    assert bound(other) == others  # of the same class
    posenc.hf.restore(model)
    assert bound(model) == things
    assert torch.equal(logits(model), before)


def test_models_of_at_least_sixty_types_are_taken_over():
    assert len(tiny_models.ROTARY) >= 60


def test_bfloat16_is_as_near_to_float64_as_before():
    before, after = [], []
    for name in tiny_models.ROTARY:
        model = tiny_models.build(name)
        wide = copy.deepcopy(model).double()
        wide.set_experts_implementation("eager")  # the others know no float64
        exact = logits(wide)
        model = model.to(torch.bfloat16)
        scale = exact.abs().mean()
        before.append(float((logits(model) - exact).abs().mean() / scale))
        report = posenc.hf.accelerate(model, attention=False)
        after.append(float((logits(model) - exact).abs().mean() / scale))
        assert report.calls > 0 or any(c.original for layer in report.rotation.values() for c in layer)
    assert sum(after) <= 1.05 * sum(before), (sum(after) / sum(before))


def test_in_place_only_where_nobody_looks():
    model = tiny_models.build("llama")
    before = logits(model)
    report = posenc.hf.accelerate(model, attention=False)
    assert all(c.in_place for layer in report.rotation.values() for c in layer)
    seen = []
    projection = model.model.layers[0].self_attn.q_proj
    hook = projection.register_forward_hook(lambda module, args, out: seen.append((out, out.clone())))
    assert distance(logits(model), before) <= 1e-5
    assert torch.equal(*seen[0])  # the hook's tensor was not overwritten
    hook.remove()
    twin = copy.deepcopy(model)
    twin.model.layers[0].self_attn.q_proj.register_forward_hook(lambda module, args, out: seen.append((out, out.clone())))
    assert distance(logits(twin), before) <= 1e-5
    assert torch.equal(*seen[1])


def test_a_copy_is_accelerated_and_restored_by_itself():
    model = tiny_models.build("qwen3")
    before, things = logits(model), bound(model)
    posenc.hf.accelerate(model, attention=False)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    assert distance(logits(twin), before) <= 1e-5  # its own weights
    posenc.hf.restore(twin)
    assert bound(twin) == things and torch.equal(logits(twin), before)
    assert bound(model) != things


@pytest.mark.parametrize("name", ["llama", "gpt_neox", "gptj", "glm", "gpt_oss"])
def test_static_cache(name):
    model = tiny_models.build(name)
    ids = tiny_models.inputs(model)
    before = model.generate(**ids, **GENERATE, cache_implementation="static")
    report = posenc.hf.accelerate(model, attention=False)
    assert torch.equal(model.generate(**ids, **GENERATE, cache_implementation="static"), before)
    assert report.calls > 0


@pytest.mark.parametrize("name", ["llama", "glm", "esm"])
def test_checkpointing(name):
    model = tiny_models.build(name).train()
    model.gradient_checkpointing_enable()
    before = loss_and_gradients(model)
    posenc.hf.accelerate(model, attention=False)
    for n, g in loss_and_gradients(model).items():
        assert distance(g, before[n]) <= 2e-5, n


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", ["llama", "gptj", "deepseek_v3", "gpt_oss", "esm"])
def test_compiled_without_a_break(name, backend):
    model = tiny_models.build(name)
    before = logits(model)
    posenc.hf.accelerate(model, attention=False)
    torch._dynamo.reset()
    compiled = torch.compile(functools.partial(model, use_cache=False) if name != "esm" else model, fullgraph=True, backend=backend)
    with torch.no_grad():
        assert distance(compiled(**tiny_models.inputs(model)).logits, before) <= 1e-5


def test_saved_as_any_other_model(tmp_path):
    model = tiny_models.build("llama")
    before = logits(model)
    posenc.hf.accelerate(model, attention=False)
    model.save_pretrained(tmp_path)
    assert torch.equal(logits(transformers.AutoModelForCausalLM.from_pretrained(tmp_path)), before)


def test_a_padded_batch_and_one_token_of_a_fused_projection():
    for name in ("llama", "gpt_neox", "phi3"):
        model = tiny_models.build(name)
        ids = tiny_models.inputs(model)["input_ids"]
        mask = torch.ones_like(ids)
        mask[0, :5] = 0
        before = logits(model, attention_mask=mask)
        posenc.hf.accelerate(model, attention=False)
        assert distance(logits(model, attention_mask=mask), before) <= 1e-5
        posenc.hf.restore(model)
        one = logits(model, input_ids=ids[:, :1])
        posenc.hf.accelerate(model, attention=False)
        assert distance(logits(model, input_ids=ids[:, :1]), one) <= 1e-5


def test_what_cannot_be_taken_over_is_named():
    report = posenc.hf.accelerate(tiny_models.build("nanochat"), attention=False)
    assert report.reasons == {f"model.layers.{i}.self_attn": "apply_rotary_pos_emb computes something else" for i in (0, 1)}
    assert "left as it was" in str(report)
    assert "nothing to replace" in str(posenc.hf.accelerate(tiny_models.build("bert"), attention=False))
    report = posenc.hf.accelerate(tiny_models.build("falcon-alibi"), attention=False)
    assert report.rotation and report.calls == 0  # the rotation that it names is never called


def test_refusals():
    with pytest.raises(ValueError, match=r"\[hf accelerate\] model must be a torch.nn.Module, got \"int\""):
        posenc.hf.accelerate(3)
    model = tiny_models.build("llama")
    posenc.hf.accelerate(model, attention=False)
    with pytest.raises(ValueError, match="restore it first"):
        posenc.hf.accelerate(model, attention=False)
    posenc.hf.restore(model)
    posenc.hf.restore(model)  # nothing to do


def _llama():
    """Its function by posenc, in place where it may."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    from posenc.hf._probe import probe
    from posenc.hf._report import Calls
    from posenc.hf._rotation import _rotated

    calls = Calls("apply_rotary_pos_emb", True)
    return apply_rotary_pos_emb, _rotated(apply_rotary_pos_emb, probe(apply_rotary_pos_emb), calls, torch.nn.Module(), {}), calls


def test_what_nobody_may_overwrite():
    theirs, ours, calls = _llama()
    k, cos, sin = torch.randn(2, 4, 5, 8), torch.randn(1, 5, 8), torch.randn(1, 5, 8)
    with torch.no_grad():
        for shared in (torch.randn(1, 1, 5, 8).expand(2, 4, 5, 8), torch.randn(2, 4, 5, 8, requires_grad=True),
                       torch.randn(4, 2, 5, 8, requires_grad=True).transpose(0, 1)):
            kept = shared.clone()
            got = ours(shared, k.clone(), cos, sin)
            assert torch.equal(shared, kept) and all(torch.allclose(a, b, atol=1e-6) for a, b in zip(got, theirs(shared, k, cos, sin)))
        free = k.clone()
        ours(free, k.clone(), cos, sin)
    assert not torch.equal(free, k) and calls.taken == 4


def test_rows_that_learn_are_the_models_own():
    theirs, ours, calls = _llama()
    q, k = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8)
    for learns in ((True, False), (False, True), (True, True)):
        rows = [torch.randn(1, 5, 8, requires_grad=x) for x in learns]
        (ours(q, k, *rows)[0] ** 2).sum().backward()
        assert [x.grad is not None for x in rows] == list(learns)
    assert calls.taken == 0 and calls.original == {"cos requires a gradient": 3}


def test_heads_on_another_axis():
    theirs, ours, calls = _llama()
    q, k, cos, sin = torch.randn(2, 5, 4, 8), torch.randn(2, 5, 2, 8), torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    for given in (((q, k, cos, sin), {"unsqueeze_dim": 2}), ((q, k, cos, sin, 2), {})):
        assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(ours(*given[0], **given[1]), theirs(*given[0], **given[1])))
    ours(q.transpose(1, 2), k.transpose(1, 2), cos, sin, unsqueeze_dim=1)
    assert calls.taken == 3 and not calls.original


def test_a_16_bit_q_with_wide_rows():
    """Where the function gives the wide type, so does posenc: it is the model's own."""
    theirs, ours, calls = _llama()
    q, k, cos, sin = torch.randn(1, 4, 5, 8).bfloat16(), torch.randn(1, 2, 5, 8).bfloat16(), torch.randn(1, 5, 8), torch.randn(1, 5, 8)
    assert all(a.dtype is b.dtype and torch.equal(a, b) for a, b in zip(ours(q, k, cos, sin), theirs(q, k, cos, sin)))


def test_reasons_of_one_layer_are_all_said():
    report = posenc.hf.Report()
    report.left("layer", "one")
    report.left("layer", "two")
    assert report.reasons == {"layer": "one; two"}


def held_in_a_list(f):
    kept = [f]

    @functools.wraps(f)
    def method(*a, **more):
        return kept[0](*a, **more)

    return method


def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)

    def half(x):
        return torch.cat((-x[..., x.shape[-1] // 2:], x[..., : x.shape[-1] // 2]), -1)

    return q * cos + half(q) * sin, k * cos + half(k) * sin


class Decorated(torch.nn.Module):
    @torch.no_grad()
    @torch.autocast("cpu", enabled=False)
    def forward(self, q, k, cos, sin, *, scale=1.0):
        q, k = apply_rotary_pos_emb(q, k, cos, sin)
        return q * scale + k

    @held_in_a_list
    def other(self, q, k, cos, sin):
        return apply_rotary_pos_emb(q, k, cos, sin)


def test_decorated_methods():
    model, (q, k) = Decorated(), torch.randn(2, 1, 4, 6, 8)
    angles = torch.outer(torch.arange(6), 1e4 ** (-torch.arange(4) / 4)).repeat(1, 2)[None]
    cos, sin = angles.cos(), angles.sin()
    want = model(q, k, cos, sin, scale=2.0)
    report = posenc.hf.accelerate(model, attention=False)
    assert "other is decorated in another way than torch.no_grad is" in str(report)
    got = model(q.clone().requires_grad_(), k.clone(), cos, sin, scale=2.0)
    assert report.calls == 1 and torch.allclose(got, want, atol=1e-6) and not got.requires_grad
    assert model.forward.__func__.__wrapped__.__wrapped__.__kwdefaults__ == {"scale": 1.0}
    posenc.hf.restore(model)
    assert "forward" not in model.__dict__ and torch.equal(model(q, k, cos, sin, scale=2.0), want)
