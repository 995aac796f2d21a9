# SPDX-License-Identifier: Apache-2.0
"""Pictures: labels stay apart and on the page, curves that exploded are cut, the trained length is marked."""
import itertools
import xml.etree.ElementTree

import pytest
import stored
from posenc.lab import pictures
from posenc.lab.pictures import Line, Panel

SVG = "{http://www.w3.org/2000/svg}"


def boxes(svg):
    """(words, left, top, right, bottom) of every level text, letters estimated by 0.55 of their size."""
    for text in svg.iter(SVG + "text"):
        if "transform" not in text.attrib:
            x, y, size = float(text.get("x")), float(text.get("y")), float(text.get("font-size"))
            wide = 0.55 * size * len(text.text)
            left = x - {"start": 0, "middle": wide / 2, "end": wide}[text.get("text-anchor", "start")]
            yield text.text, left, y - 0.75 * size, left + wide, y + 0.2 * size


def checked(picture):
    """The picture as a tree; its labels do not touch and lie on the page."""
    svg = xml.etree.ElementTree.fromstring(picture)
    wide, high = float(svg.get("width")), float(svg.get("height"))
    found = list(boxes(svg))
    for words, left, top, right, bottom in found:
        assert 0 <= left and right <= wide and 0 <= top and bottom <= high, (words, right, wide)
    for a, b in itertools.combinations(found, 2):
        assert a[3] <= b[1] or b[3] <= a[1] or a[4] <= b[2] or b[4] <= a[2], (a, b)
    return svg


def line(label, numbers, first=32, spread=0.0):
    return Line(label, [(first << i, x, x - spread, x + spread) for i, x in enumerate(numbers)])


def draw(lines, **more):
    return pictures.curves("Loss", [Panel(lines)], **{"up": "nats", "across": "context", "trained": 32, **more})


def texts(svg):
    return [text.text for text in svg.iter(SVG + "text")]


def test_labels_of_many_lines_stay_apart():
    lines = [line(f"scheme {i}", [2.0, 2.001, 2.002, 2.003 + i / 1e4]) for i in range(14)]
    svg = checked(draw(lines))
    assert [name for name in texts(svg) if name.startswith("scheme")] == [f"scheme {i}" for i in reversed(range(14))]  # as the ends: the greatest loss is above
    looks = [(p.get("stroke"), p.get("stroke-dasharray")) for p in svg.iter(SVG + "polyline")]
    assert len(set(looks)) == 14


def test_a_known_scheme_always_looks_the_same():
    alone, among = pictures.styles(["rope"]), pictures.styles(["mine", "alibi", "rope"])
    assert alone["rope"] == among["rope"] and among["mine"] not in (among["rope"], among["alibi"])
    assert len({pictures.STYLES[name] for name in stored.LM}) == len(stored.LM)


def test_long_labels_are_cut_and_the_page_is_wide_enough():
    svg = checked(draw([line("rope base=500000 head_dim=16 | kerple kernel=log | alibi", [2, 2.1]), line("alibi", [2, 2])]))
    assert "rope base=500000 head_dim=16 | kerp…" in texts(svg)


def test_the_trained_length_is_marked():
    assert "trained on 32" in texts(checked(draw([line("rope", [2, 3])])))
    assert "trained on 128" in texts(checked(draw([line("rope", [2, 3])], trained=128)))
    assert "trained on" not in " ".join(texts(checked(draw([line("rope", [2, 3])], trained=None))))


def test_bands_span_the_seeds():
    assert len(list(checked(draw([line("rope", [2, 3], spread=.1), line("alibi", [2, 2])])).iter(SVG + "polygon"))) == 1


def test_exploded_curves_are_cut_at_the_top():
    """2.0 to 4.5 is drawn; what is above leaves the picture and has its last number beside the name."""
    svg = checked(draw([line("alibi", [2.0, 2.1, 2.1, 2.1]), line("rope", [2.0, 3.0, 40.0, 90.0], spread=.5), line("back", [2.0, 50.0, 60.0, 2.5])]))
    assert "rope ↑ 90.0" in texts(svg) and "back" in texts(svg) and "4" in texts(svg) and "5" not in texts(svg)
    top = min(float(r.get("y")) for r in svg.iter(SVG + "rect") if r.get("fill") == "#f3f5f8")
    points = [tuple(map(float, p.split(","))) for shape in ("polyline", "polygon") for element in svg.iter(SVG + shape) for p in element.get("points").split()]
    assert min(y for _, y in points) == pytest.approx(top, abs=.1)
    assert len(list(svg.iter(SVG + "polyline"))) == 4  # "back" comes back: two pieces


def test_a_curve_that_starts_high_is_whole():
    svg = checked(draw([line("alibi", [2.0, 2.0]), line("none", [6.0, 6.0])]))
    assert "none" in texts(svg) and "6" in texts(svg)


def test_noise_does_not_fill_a_picture():
    """2.00 and 2.02 are drawn on an axis of 0.4 nats: a twentieth of its height apart."""
    svg = checked(draw([line("rope", [2.0, 2.02])]))
    first, last = (float(point.split(",")[1]) for point in next(svg.iter(SVG + "polyline")).get("points").split())
    assert first - last == pytest.approx((372 - 62) * .02 / .4, abs=.2)


@pytest.mark.parametrize("numbers", [[2.0], [0.0, 0.0], [2.0, 2.0]])
def test_flat_and_short_curves(numbers):
    checked(draw([line("rope", numbers)]))


def test_accuracy_has_the_whole_range():
    assert {"0 %", "100 %"} <= set(texts(checked(draw([line("rope", [.9, .4])], share=True))))


def test_panels_share_their_axes():
    lines = [line(name, [2, 2 + i / 50, 2 + i / 20], 64) for i, name in enumerate(stored.EXTENSION)]
    svg = checked(pictures.curves("Extension", [Panel(lines, "zero-shot"), Panel(lines, "fine-tuned")], up="nats", across="context", trained=64))
    assert texts(svg).count("yarn_rotations") == 2 and texts(svg).count("trained on 64") == 2 and "zero-shot" in texts(svg)


def test_attention():
    svg = checked(pictures.attention("Attention", {label: stored.shares(label) for label in stored.LM}, [0, 1, 2, 3, 5, 8, 13, 21, 34, 55]))
    shades = [r.get("fill") for r in svg.iter(SVG + "rect") if r.get("height") == "13"]
    assert len(shades) == 7 * 8 * 10 and {"none", "alibi", "layer 2"} <= set(texts(svg))
    assert pictures._shade(0) == "#ffffff" and pictures._shade(1) == "#08306b"


def test_attention_with_layers_of_unequal_heads():
    svg = checked(pictures.attention("Attention", {"mine": [[[.5, .5]], [[1.0, 0.0], [0.0, 1.0]]]}, [-1, 0]))
    assert "distance back, from (negative: ahead)" in texts(svg)


def test_cost():
    tasks = ["lm", *stored.ACCURACY, "masked", "extension", "translate"]
    svg = checked(pictures.cost("Cost", {label: {task: 10.0 * i + len(label) for i, task in enumerate(tasks)} for label in stored.LM}))
    assert set(tasks) <= set(texts(svg)) and "4.0 s" in texts(svg)
