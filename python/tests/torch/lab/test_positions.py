# SPDX-License-Identifier: Apache-2.0
"""Every scheme that one axis of positions determines: its layer against attention of all pairs, forward and backward."""
import posenc
import pytest
import torch
from posenc.lab.errors import LabError
from posenc.lab.model import Model, weights_hash
from posenc.lab.positions import _NEEDS, AttentionParts, Scheme, Sizes, complete

TRAINED, TOKENS = 8, 11
SIZES = {causal: Sizes(width=16, heads=2, rows=TOKENS, trained=TRAINED, causal=causal) for causal in (True, False)}
ALL = [s["name"] for s in posenc.schemes()["schemes"]]
# Fields without which a scheme has no meaning here.
WORDS = {"fourier_features": "fourier_features bands=8 law=linear last=[0.5]"}
SCHEMES = [WORDS.get(n, n) for n in ALL if n not in _NEEDS]


def parts(text, causal):
    torch.manual_seed(3)
    scheme = Scheme(text, SIZES[causal])
    made = AttentionParts(scheme, causal=causal).double()
    with torch.no_grad():  # tables that start at zero show nothing
        for p in made.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return scheme, made


def given():
    g = torch.Generator().manual_seed(5)
    return [torch.randn(2, TOKENS, 2, 8, generator=g, dtype=torch.float64, requires_grad=True) for _ in range(3)] + [
        torch.randn(2, TOKENS, 16, generator=g, dtype=torch.float64, requires_grad=True)]


@pytest.mark.parametrize("causal", (True, False))
@pytest.mark.parametrize("text", SCHEMES)
def test_a_layer_is_softmax_of_its_scores(text, causal):
    scheme, layer = parts(text, causal)
    if not scheme.attention:
        pytest.skip("acts at the input")
    q, k, v, hidden = given()
    found = layer(q, k, v, hidden)
    call = layer.attention._seen(q, k, v, {"inputs": layer._inputs(hidden)} if layer.wanted else {})
    p = torch.from_numpy(call.probabilities)
    if any(t.split()[0] in ("shaw", "relative_projection") for t in scheme.attention):  # rows are added to values too
        assert torch.isfinite(found).all()
        return
    wanted = torch.einsum("bhqk,bkhd->bqhd", p, v)
    assert (found - wanted).abs().max() < 1e-9


@pytest.mark.parametrize("causal", (True, False))
@pytest.mark.parametrize("text", SCHEMES)
def test_gradients_of_a_layer_are_slopes(text, causal):
    """Along a drawn direction of everything at once: a difference quotient against the gradient."""
    scheme, layer = parts(text, causal)
    if not scheme.attention:
        pytest.skip("acts at the input")
    inputs = given()
    weight = torch.randn(2, TOKENS, 2, 8, dtype=torch.float64)
    value = lambda: (layer(*inputs) * weight).sum()
    value().backward()
    moved = [x for x in [*inputs, *layer.parameters()] if x.grad is not None]
    assert moved
    way = [torch.randn_like(x) for x in moved]
    slope = sum(float((x.grad * w).sum()) for x, w in zip(moved, way))
    step, at = 1e-6, []
    for sign in (1, -2, 1):
        with torch.no_grad():
            for x, w in zip(moved, way):
                x.add_(sign * step * w)
        at.append(value().item())
    quotient = (at[0] - at[1]) / (2 * step)
    assert abs(quotient - slope) < 1e-5 * max(1.0, abs(slope))


@pytest.mark.parametrize("name", ("rope", "alibi", "t5", "kerple", "learned", "sinusoidal", "cope", "forgetting", "pope", "xpos", "tupe"))
def test_a_dense_model_of_ones_own_computes_the_same(name):
    """alibi, t5 and kerple: logits and gradients of the whole model, beside biases of all pairs."""
    if name not in ("alibi", "t5", "kerple"):
        pytest.skip("not a bias by distance")
    model = Model(name, 9, width=16, layers=2, heads=2, rows=TOKENS, trained=TRAINED).double()
    ids = torch.randint(0, 9, (3, TOKENS))
    ours = model(ids)
    ours.square().sum().backward()
    of = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad()

    class Dense(torch.nn.Module):
        def __init__(self, parts):
            super().__init__()
            self.parts, self.scale = parts, 1.0 if name == "t5" else 8 ** -0.5

        def forward(self, q, k, v, hidden, positions=None):
            a = self.parts.attention
            bias = posenc.torch.bias(a.encodings, heads=2, head_dim=8, positions=range(TOKENS), parameters=a.named_arrays())
            bias = bias + torch.full((TOKENS, TOKENS), -torch.inf, dtype=torch.float64).triu(1)
            p = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) * self.scale + bias, -1)
            return torch.einsum("bhqk,bkhd->bqhd", p, v)

    for block in model.blocks:
        block.parts = Dense(block.parts)
    dense = model(ids)
    assert (dense - ours).abs().max() < 1e-9
    dense.square().sum().backward()
    for n, p in model.named_parameters():
        assert (p.grad - of[n.replace("parts.parts", "parts")]).abs().max() < 1e-9, n


@pytest.mark.parametrize("text", SCHEMES + ["rope | kerple kernel=log", "sinusoidal | alibi", "rope + yarn factor=2 original_context=8"])
def test_every_scheme_trains_a_step(text):
    model = Model(text, 9, width=16, layers=2, heads=2, rows=TOKENS, trained=TRAINED)
    model(torch.randint(0, 9, (2, TOKENS))).square().sum().backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())


LENGTH = "trained_length=8 length_rule=per_call"
SCALINGS = ["linear factor=2", "raised_base base=500", "ntk factor=2 formula=alpha", "ntk_by_parts factor=2 original_context=8", "yarn factor=2 original_context=8",
            "llama3 factor=2 low_freq_factor=1 high_freq_factor=4 original_context=8",
            "longrope long_factor=[1,2,3,4] short_factor=[1,1,1,1] original_context=8 factor=2 switch_rule=per_call", "proportional fraction=0.5",
            f"dynamic factor=2 {LENGTH}", f"qwen_dynamic {LENGTH}", f"dynamic_linear {LENGTH}", "dynamic_yarn original_context=8 length_rule=per_call",
            "dynamic_ntk_by_parts original_context=8 length_rule=per_call",
            "dynamic_longrope long_factor=[1,2,3,4] factor=2 original_context=8 length_rule=per_call", "fope trained_length=8", "frequencies values=[1,0.1,0.01,0.001]",
            "divisors values=[1,1,2,2]", "learned_stretch alpha=[1,1,2,2]", "mscale_logit factor=2 mscale_all_dim=1"]


@pytest.mark.parametrize("text", SCALINGS)
def test_rotary_trains_with_every_scaling(text):
    model = Model(f"rope + {text}", 9, width=16, layers=1, heads=2, rows=TOKENS, trained=TRAINED)
    model(torch.randint(0, 9, (2, TOKENS))).square().sum().backward()
    model.attention_by_distance(torch.randint(0, 9, (2, TOKENS)))
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters()) and model.blocks[0].qkv.weight.grad.abs().sum() > 0


def test_every_scaling_is_tried():
    assert {text.split()[0] for text in SCALINGS} == {s["name"] for s in posenc.schemes()["scalings"]}


@pytest.mark.parametrize("text", [n for n in _NEEDS if n in ALL])
def test_what_one_axis_does_not_determine_is_refused_by_name(text):
    with pytest.raises(LabError, match=f"{text} needs"):
        complete(text, SIZES[True])


def test_fields_follow_the_trained_length():
    sizes = Sizes(width=64, heads=4, rows=256, trained=32, causal=True)
    assert complete("t5", sizes) == "t5 bidirectional=false max_distance=32"
    assert complete("t5 num_buckets=8", sizes) == "t5 bidirectional=false num_buckets=8 max_distance=32"
    assert complete("sinusoidal", sizes) == "sinusoidal width=64 input_gain=8"
    assert complete("learned", sizes) == "learned width=64 rows=256"
    assert complete("fire", sizes) == "fire initial_length=32"
    assert complete("rope", sizes) == "rope head_dim=16 pairing=half_split"


def test_weights_that_no_scheme_brings_depend_on_the_seed_alone():
    models = [Model(text, 9, width=16, layers=2, heads=2, rows=8, trained=8, seed=4) for text in ("nope", "t5", "rope | alibi", "learned", "fire")]
    shared = [n for n, _ in models[0].named_parameters()]
    for other in models[1:]:
        for n, p in other.named_parameters():
            if n in shared:
                assert torch.equal(p, dict(models[0].named_parameters())[n]), n
    again = Model("t5", 9, width=16, layers=2, heads=2, rows=8, trained=8, seed=5)
    assert not torch.equal(again.embedding.weight, models[0].embedding.weight)


def test_the_hash_is_of_every_weight_and_its_name():
    def fresh():
        return Model("t5", 9, width=16, layers=1, heads=2, rows=8, trained=8)
    first = weights_hash(fresh())
    assert weights_hash(fresh()) == first
    for name, _ in fresh().named_parameters():
        other = fresh()
        with torch.no_grad():
            dict(other.named_parameters())[name].flatten()[-1].add_(1e-6)
        assert weights_hash(other) != first, name
    renamed = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2)})
    assert weights_hash(renamed) != weights_hash(torch.nn.ModuleDict({"b": renamed["a"]}))


def test_an_unknown_scheme_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match="alibi"):
        complete("alibbi", SIZES[True])
