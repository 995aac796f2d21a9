# SPDX-License-Identifier: Apache-2.0
"""The encoder-decoder: cached against uncached decoding, padding, greedy and beam search, runs and records."""
import itertools
import math
import textwrap

import pytest
import torch
from posenc.lab import translate
from posenc.lab.errors import LabError
from posenc.lab.model import weights_hash
from posenc.lab.translate import END, PAD, START, UNKNOWN, Sides, Translator, penalty, search

TRAINED, ROWS = (6, 9), 24
# Every kind of part: input, rotations and their scalings, tables, inputs made of hidden states and gates, classes, several at once.
BOTH = ["nope", "sinusoidal", "learned", "rope", "xpos", "pope", "alibi", "t5", "kerple", "fire", "shaw", "tupe", "wavlm", "prophetnet", "relative_projection",
        "transformer_xl", "deberta", "cpmant", "clipped", "dape", "enformer", "sandwich", "tener", "rope + yarn factor=4 original_context=8",
        "rope + dynamic factor=4 trained_length=8 length_rule=declared declared_length=16", "learned | rope", "rope | kerple kernel=log"]
DECODERS = ["forgetting", "stick_breaking", "cope", "rope | forgetting"]
SCHEMES = BOTH + [f"rope ;; {text}" for text in DECODERS]


def model(scheme, seed=0, characters=12, **more):
    made = Translator(scheme, 14, characters, **{"width": 16, "layers": 2, "heads": 2, "rows": ROWS, "trained": TRAINED, "seed": seed, **more})
    g = torch.Generator().manual_seed(seed + 5)
    with torch.no_grad():  # tables that start at zero show nothing
        for p in made.parameters():
            p.add_(0.2 * torch.randn(p.shape, generator=g))
        made.head.weight[END] *= 0.5
    return made.eval()


def sentences(lengths=(7, 3, 5)):
    g = torch.Generator().manual_seed(2)
    x = torch.randint(4, 14, (len(lengths), max(lengths)), generator=g)
    lengths = torch.tensor(lengths)
    return x.masked_fill(torch.arange(x.shape[1]) >= lengths[:, None], PAD), lengths


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_cache_gives_the_logits_of_the_whole_text(scheme):
    made, (x, lengths) = model(scheme), sentences()
    y = torch.randint(4, 12, (3, 11), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        memory = made.encode(x, lengths)
        whole = made.decode(y, memory, lengths)
        caches = [{} for _ in made.decoder]
        pieces = [made.decode(some, memory, lengths, caches) for some in y.split([1, 1, 3, 1, 5], 1)]
    assert whole.std() > 0.1
    assert (torch.cat(pieces, 1) - whole).abs().max() < 1e-5


@pytest.mark.parametrize("scheme", SCHEMES)
def test_padding_changes_nothing(scheme):
    made, (x, lengths) = model(scheme), sentences()
    y = torch.randint(4, 12, (3, 8), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        together = made(x, lengths, y)
        for i, n in enumerate(lengths.tolist()):
            alone = made(x[i:i + 1, :n], lengths[i:i + 1], y[i:i + 1, :5])
            assert (together[i, :5] - alone[0]).abs().max() < 1e-5


def greedy(made, x, length, limit):
    """Written out: the whole text again for each character."""
    y = [START]
    for _ in range(limit):
        p = made(x[None, :length], torch.tensor([length]), torch.tensor([y]))[0, -1].clone()
        p[[PAD, UNKNOWN, START]] = -math.inf
        y.append(int(p.argmax()))
        if y[-1] == END:
            return y[1:-1]
    return y[1:]


@pytest.mark.parametrize("scheme", ["sinusoidal", "rope", "alibi future=half_heads ;; alibi", "rope ;; forgetting"])
def test_one_hypothesis_is_greedy(scheme):
    found = set()
    for seed in range(4):
        made, (x, lengths) = model(scheme, seed, characters=7), sentences()
        limits = torch.tensor([9, 4, 12])
        with torch.no_grad():
            wanted = [greedy(made, *row) for row in zip(x, lengths.tolist(), limits.tolist())]
        assert search(made, x, lengths, limits) == wanted
        found |= {len(row) for row in wanted}
    assert len(found) > 1


def best_of_all(made, x, length, limit):
    """Of every text that ends within the limit, the best by the score of a hypothesis."""
    characters = range(END + 2, made.head.out_features)
    best = (-math.inf, [])
    memory = made.encode(x[None, :length], torch.tensor([length]))
    for size in range(limit):
        for text in itertools.product(characters, repeat=size):
            p = made.decode(torch.tensor([[START, *text]]), memory, torch.tensor([length])).log_softmax(-1)[0]
            p = sum(float(p[i, c]) for i, c in enumerate([*text, END]))
            best = max(best, (p / penalty(size + 1), list(text)))
    return best[1]


@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_finds_the_best_of_all(seed):
    made, (x, lengths) = model("rope", seed, characters=6), sentences((4, 2))
    limits = torch.tensor([5, 4])
    with torch.no_grad():
        wanted = [best_of_all(made, *row) for row in zip(x, lengths.tolist(), limits.tolist())]
    assert search(made, x, lengths, limits, beam=64) == wanted


def written_out(made, x, length, limit, beam):
    """The whole text again for each hypothesis, without a cache."""
    memory, going, best = made.encode(x[None, :length], torch.tensor([length])), [(0.0, [])], (-math.inf, [])
    for step in range(1, limit + 1):
        found = []
        for total, text in going:
            p = made.decode(torch.tensor([[START, *text]]), memory, torch.tensor([length])).log_softmax(-1)[0, -1]
            found += [(total + float(p[c]), text, c) for c in range(len(p)) if c not in (PAD, UNKNOWN, START)]
        found = sorted(found, key=lambda f: -f[0])[:2 * beam]
        best = max([best, *((value / penalty(step), text) for value, text, c in found[:beam] if c == END)], key=lambda b: b[0])
        going = [(value, [*text, c]) for value, text, c in found if c != END][:beam]
        if going[0][0] / penalty(limit) <= best[0]:
            break
    return best[1] if best[0] > -math.inf else going[0][1]


@pytest.mark.parametrize("seed", range(3))
def test_a_beam_is_one_without_a_cache(seed):
    made, (x, lengths) = model("rope", seed, characters=12), sentences()
    limits = torch.tensor([9, 7, 11])
    with torch.no_grad():
        made.head.weight *= 2  # hypotheses change places
        wanted = [written_out(made, *row, 3) for row in zip(x, lengths.tolist(), limits.tolist())]
    assert search(made, x, lengths, limits, beam=3) == wanted


def test_the_length_penalty_is_that_of_wu():
    assert penalty(1, 0.6) == 1 and penalty(7, 1.0) == 2 and abs(penalty(19, 0.5) - 2) < 1e-12


def test_a_beam_does_not_depend_on_the_other_sentences():
    made, (x, lengths) = model("t5", characters=8), sentences()
    limits = torch.tensor([9, 6, 12])
    together = search(made, x, lengths, limits, beam=4)
    for i, n in enumerate(lengths.tolist()):
        assert search(made, x[i:i + 1, :n], lengths[i:i + 1], limits[i:i + 1], beam=4) == [together[i]]


def test_sides_have_their_own_scheme():
    made = model("t5")
    encoder, decoder = made.scheme.text.split(" ;; ")
    assert "bidirectional=true" in encoder and "max_distance=8" in encoder and "bidirectional=false" in decoder and "max_distance=9" in decoder
    assert model("rope").scheme.text == made.scheme.text.split()[0].replace("t5", "rope") + " head_dim=8 pairing=half_split"
    again = model(made.scheme.text)  # what a record has is what runs
    assert again.scheme.text == made.scheme.text and weights_hash(again) == weights_hash(made)


def test_weights_without_a_scheme_depend_on_the_seed_alone():
    def fresh(scheme, seed):
        return Translator(scheme, 14, 12, width=16, layers=2, heads=2, rows=ROWS, trained=TRAINED, seed=seed).state_dict()
    plain, rope, shaw, other = fresh("nope", 0), fresh("rope", 0), fresh("shaw", 0), fresh("nope", 1)
    assert plain.keys() == rope.keys() < shaw.keys()
    assert all(torch.equal(x, rope[name]) and torch.equal(x, shaw[name]) for name, x in plain.items())
    assert any(not torch.equal(x, other[name]) for name, x in plain.items())


OWN = '''
import torch
class Decay(torch.nn.Module):
    """All four hooks, each of which depends on the position."""
    def __init__(self, heads, width):
        super().__init__()
        self.slope = torch.nn.Parameter(torch.linspace(0.1, 0.5, heads))
        self.table = torch.nn.Parameter(torch.randn(40, width))
    def embed(self, x, positions):
        return x + self.table[positions]
    def rotate(self, q, k, positions):
        turn = torch.cos(positions.float())[:, None, None]
        return q * turn, k * turn
    def bias(self, distances):
        return -self.slope * distances[:, None].abs()
    def attend(self, q, k, v, call):
        return call(2 * q, k, v)
'''


def test_a_module_of_ones_own(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(textwrap.dedent(OWN))
    for scheme in (f"{path}:Decay", f"rope | {path}:Decay", f"{path}:Decay ;; forgetting | {path}:Decay"):
        test_a_cache_gives_the_logits_of_the_whole_text(scheme)
        test_padding_changes_nothing(scheme)


@pytest.mark.parametrize("scheme, message", [
    ("rope ;; alibi ;; t5", r'must be SCHEME or "ENCODER ;; DECODER", got "rope ;; alibi ;; t5"'), ("rope ;;", r"ENCODER ;; DECODER"),
    ("swin", r"swin needs the grid of an image"), ("rope + dynamic factor=4 trained_length=8 length_rule=per_call", r"scaled by the length of each call.*length_rule=declared"),
    ("rope | xpos", r"one rotary encoding at most"), ("rop", r"rope"),
])
def test_what_does_not_fit_is_refused(scheme, message):
    with pytest.raises((LabError, ValueError, RuntimeError), match=message):
        x, lengths = sentences()
        model(scheme)(x, lengths, torch.full((3, 2), START))


def test_no_scheme_text_is_lost():
    sizes = translate.Sizes(16, 2, ROWS, 6, True)
    assert Sides("rope;;alibi", sizes, sizes).text == "rope head_dim=8 pairing=half_split ;; alibi"
