#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of the pages into docs/images/.

    python3 tools/docs_images/draw.py                  all of them
    python3 tools/docs_images/draw.py cape extend      these
    python3 tools/docs_images/draw.py --check          the library still draws those that are there

Those that `posenc plot` can draw it draws; those of relative_pictures.py are of numbers that other verbs write; the others are drawn here from what numbers*.cpp print,
which are compiled against the library in --build, and concepts.py and attention.py draw those that need no library. Plain Python, no packages.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import attention
import concepts
import relative
import relative_pictures
from svg import COLOURS, colour, lines, maps, page, png, text, ticks, value_ticks

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = ROOT / "docs/images"

ROPE = "rope head_dim=128 pairing=half_split"
# name: arguments of `posenc plot`
PLOTTED = {
    "wavelengths": ["examples/models/llama-3.1-8b", "--kind", "wavelengths"],
    "rope": [ROPE, "--kind", "decay", "--context", "32768"],
    "rope_rows": ["rope head_dim=32 pairing=interleaved", "--kind", "rows", "--positions", "0:64"],
    "xpos": ["xpos head_dim=64 pairing=half_split center=0", "--kind", "decay", "--context", "4096"],
    "dynamic": [f"{ROPE} + dynamic factor=2 trained_length=4096 length_rule=per_call", "--kind", "scaling",
                "--context", "16384"],
    "yarn": [f"{ROPE} + yarn factor=4 original_context=4096", "--kind", "scaling", "--context", "16384"],
    "llama3": ["examples/models/llama-3.1-8b", "--kind", "scaling"],
    "proportional": [f"{ROPE} + proportional fraction=0.25", "--kind", "scaling"],
    "sinusoidal": ["sinusoidal width=64", "--kind", "rows", "--positions", "0:64"],
    "learned": ["learned width=64 rows=512", "--start", "1", "--kind", "decay"],
    "float32_error": [ROPE, "--kind", "error", "--context", "10000000"],
    "inner_products": ["sinusoidal width=512", "--kind", "decay", "--context", "10000"],
    **relative.PLOTTED,
}


def compose(n):
    return maps("x of ones, composed with a sinusoid", [
        (how, n["compose_" + how], "channel", "position") for how in ("add", "multiply", "one_plus")], "y")


def sinusoidal_nd(n):
    return maps("A sinusoid of two axes on 15 × 15 patches", [
        ("channel 3: sine of x", n["nd_sin_x"], "column", "row"),
        ("channel 35: sine of y", n["nd_sin_y"], "column", "row"),
        ("similarity to the middle, base 10000", n["nd_10000"], "column", "row"),
        ("the same, base 100", n["nd_100"], "column", "row")], "value", 220)


def fourier_features(n):
    return maps("Fourier features of one coordinate", [
        ("linear: Perceiver, 16 bands", n["fourier_linear"], "channel", "place, −1 to 1"),
        ("log: NeRF, 6 bands", n["fourier_log"], "channel", "place, −1 to 1"),
        ("powers: timm, 16 bands", n["fourier_powers"], "channel", "place, 0 to 63")], "value", 256)


def learnable_fourier(n):
    return maps("Distance of every row to that of the middle of 15 × 15 patches, before training", [
        (f"gamma = {g}", n[f"learnable_{g}"], "column", "row") for g in ("2", "0.5", "0.2")], "of largest")


def learned_axes(n):
    return maps("Similarity to the middle of 15 × 15 patches, tables as they start", [
        ("summed", n["axes_summed"], "column", "row"),
        ("side by side", n["axes_beside"], "column", "row")], "cosine")


def coordinates(n):
    return maps("The two channels on 8 × 12 patches", [
        ("row", n["coordinates_row"], "column", "row"),
        ("column", n["coordinates_column"], "column", "row")], "value", 176, [264, 264])


def cape(n):
    return lines("CAPE: where five training sequences put their tokens", [
        (f"sequence {b}", list(range(128)), row) for b, row in enumerate(n["cape"])], "token", "drawn position − token")


def cape2d(n):
    return maps("Four of the 16 waves of cape2d width=32 on 25 × 25 patches", [
        (f"cosine {w}", n[f"cape2d_{w}"], "second axis", "first axis") for w in (0, 4, 9, 14)], "value", 200)


def drawn_positions(n):
    def dots(rows, base):
        return [v for row in rows for v in row], [base - b for b, row in enumerate(rows) for _ in row]

    return lines("Positions of five training sequences of 16 tokens", [
        ("SHAPE, max_shift = 100", *dots(n["shape"], 12)),
        ("randomised, max_length = 116", *dots(n["randomised"], 5))], "position", "sequence", (3.5, 3.5), 240, False)


def extend(n):
    return maps("Weight of every old row in every new row", [
        ("linear 8 → 20", n["extend_linear"], "old row", "new row"),
        ("bicubic, a = −0.75", n["extend_bicubic"], "old row", "new row"),
        ("antialias, a = −0.5", n["extend_antialias"], "old row", "new row"),
        ("geometric 7 → 15", n["extend_geometric"], "old row", "new row"),
        ("hierarchical 5 → 20", n["extend_hierarchical"], "old row", "new row")], "weight", 220, [130] * 5)


def extend_down(n):
    return maps("Fewer rows than before, 20 → 8: without and with antialias", [
        ("bicubic", n["extend_down"], "old row", "new row"),
        ("bicubic, antialias", n["extend_down_antialias"], "old row", "new row")], "weight", 140, [300, 300])


def hierarchy(n):
    return maps("Three sinusoids side by side: token, sentence, paragraph", [
        ("4 paragraphs of 3 sentences of 4 tokens", n["hierarchy"], "channel", "token of the text")], "value", 288, [420])


def paragraph_offset(n):
    return maps("Similarity of the rows of 48 tokens in 4 paragraphs", [
        ("omega = 0: position alone", n["paragraph_none"], "token", "token"),
        ("omega = 200", n["paragraph_shift"], "token", "token")], "cosine", 288)


def local_window(n):
    return maps("Bias of 24 tokens in 3 sentences, window = 3", [
        ("near = 1 − 0.25 |delta|, far = −0.6", n["local_window"], "key", "query")], "bias", 264)


def drawn_distances(n):
    return lines("A text of 64 tokens, distances drawn from 256: what a head of ALiBi adds", [
        ("as it runs", list(range(64)), [-d / 256 for d in range(64)]),
        *((f"step {i + 1} of training", list(range(64)), row) for i, row in enumerate(n["drawn_distances"]))], "distance", "bias")


def distance_offset(n):
    return maps("Weight of every row of E in a token's offset, 24 tokens, window = 5", [
        ("all of the document", n["distance_all"], "row of E", "token"),
        ("causal", n["distance_causal"], "row of E", "token")], "weight", 264, [200, 200])


def complex_order(n):
    x = list(range(101))
    return lines("Score of two words at p and p + 2", [
        ("Hermitian: the paper's algebra", x, n["complex_order"][0]),
        ("without conjugation: the public code", x, n["complex_order"][1])], "p", "|z|")


def convolutional(n):
    return lines("What 48 equal tokens get from a kernel of 16 places", [
        (f"channel {c}", list(range(48)), row) for c, row in enumerate(n["convolutional"])], "token", "encoding")


def crossmodal(n):
    series = []
    for kind, name in ((2, "audio frames of 20 ms from 0.5 s"), (1, "video frames, one a second"), (0, "words, one in 0.5 s")):
        rows = [r for r in n["crossmodal"] if r[0] == kind]
        series.append((name, [r[1] for r in rows], [r[2] for r in rows]))
    return lines("Similarity to the word at 1.5 s", series, "seconds", "cosine", (2, -9, -5))


def learned_rows(n):
    names = ["BERT", "GPT-2, generating", "OPT", "RoBERTa", "BART", "OpenNMT-tf"]
    tokens = ["pad", "pad", *"abcdefgh"]
    left, top, wide, high, body = 158, 74, 50, 32, ""
    body += text(left + wide * len(tokens) / 2, 46, "token, two of padding on the left", 12)
    for i, token in enumerate(tokens):
        body += text(left + wide * (i + .5), top - 8, token, 12, more='fill="#888"' if token == "pad" else "")
    for r, (name, row) in enumerate(zip(names, n["learned_rows"])):
        y = top + high * r
        body += text(left - 10, y + 21, name, 12, "end")
        for i, v in enumerate(row):
            fill = "#%02x%02x%02x" % colour(-v / 14)
            body += (f'<rect x="{left + wide * i}" y="{y}" width="{wide}" height="{high}" fill="{fill}" stroke="#fff"/>\n'
                     + text(left + wide * (i + .5), y + 21, f"{v:g}", 13, more='fill="#888"' if i < 2 else ""))
    body += text(left, top + high * len(names) + 22, "the number of the row that is read; the darker, the farther down the table", 12, "start",
                 'fill="#555"')
    return page(left + wide * len(tokens) + 24, top + high * len(names) + 40, "Which row of its table each token reads", body)


def boxes(n):
    words = ["Total", "amount", "due", "Pay", "within", "30 days"]
    x0, y0, x1, y1 = n["boxes_corners"]
    side, left, top = 250, 56, 74
    body = text(left + side / 2, top - 10, "a page, in thousandths", 12)
    body += f'<rect x="{left}" y="{top}" width="{side}" height="{side}" fill="#fbfbf8" stroke="#333"/>\n'
    body += text(left, top + side + 14, "0") + text(left + side, top + side + 14, "1000")
    body += text(left + side / 2, top + side + 28, "x", 12) + text(left - 6, top + 8, "0", 11, "end")
    body += text(left - 6, top + side, "1000", 11, "end") + text(left - 16, top + side / 2, "y", 12, "end")
    for i, word in enumerate(words):
        a, b, c, d = (v[i] * side / 1000 for v in (x0, y0, x1, y1))
        body += (f'<rect x="{left + a:.1f}" y="{top + b:.1f}" width="{c - a:.1f}" height="{d - b:.1f}" fill="none" '
                 f'stroke="{COLOURS[i // 3]}"/>\n' + text(left + (a + c) / 2, top + (b + d) / 2 + 4, word, 11))
    rows, cell = n["boxes_rows"], (10, 34)
    x, width = left + side + 110, 10 * len(n["boxes_rows"][0])
    limit = sorted(abs(v) for row in rows for v in row)[-4]
    body += (f'<image x="{x}" y="{top}" width="{width}" height="{cell[1] * 6}" preserveAspectRatio="none" '
             f'href="{png([[colour(v / limit) for v in row] for row in rows], cell)}"/>\n')
    for k, name in enumerate(["X[left]", "Y[top]", "X[right]", "Y[bottom]", "H[height]", "W[width]"]):
        body += f'<path d="M{x + 80 * k} {top - 4}v{cell[1] * 6 + 8}" stroke="#333"/>\n'
        body += text(x + 80 * k + 40, top - 10, name, 12)
    body += f'<rect x="{x}" y="{top - 4}" width="{width}" height="{cell[1] * 6 + 8}" fill="none" stroke="#333"/>\n'
    for i, word in enumerate(words):
        body += text(x - 8, top + cell[1] * (i + .5) + 4, word, 12, "end", f'fill="{COLOURS[i // 3]}"')
    for k in range(0, 49, 8):
        body += text(x + 10 * k, top + cell[1] * 6 + 20, str(k))
    body += text(x + width / 2, top + cell[1] * 6 + 36, "channel of the encoding", 12)
    key = [[colour(2 * i / 63 - 1) for i in range(64)]]
    body += (f'<image x="{x + width - 160}" y="{top + 6 * cell[1] + 50}" width="100" height="10" preserveAspectRatio="none" '
             f'href="{png(key)}"/>\n' + text(x + width - 166, top + 6 * cell[1] + 59, f"value −{limit:.2g}", 11, "end")
             + text(x + width - 54, top + 6 * cell[1] + 59, f"{limit:.2g}", 11, "start"))
    return page(x + width + 28, top + side + 44, "Boxes side by side: which channels come from which coordinate", body)


def continuous_axial(n):
    def panel(rows, first, last, name, across, left):
        top, width, height = 86, 330, 220
        low, high = min(map(min, rows)), max(map(max, rows))
        pad = .06 * (high - low)
        low, high = low - pad, high + pad
        px, py = (lambda v: left + width * (v - first) / (last - first)), (lambda v: top + height * (high - v) / (high - low))
        body = text(left + width / 2, top - 12, name, 12)
        if first < -1:
            body += f'<rect x="{px(-1):.1f}" y="{top}" width="{px(1) - px(-1):.1f}" height="{height}" fill="#f2f2ec"/>\n'
            body += text(px(0), top + 14, "the grid's", 11, more='fill="#777"')
        body += f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#333"/>\n'
        for v in (ticks(first, last) if last < 10 else range(0, 224, 56)):
            body += f'<path d="M{px(v):.1f} {top + height}v4" stroke="#333"/>\n' + text(px(v), top + height + 16, f"{v:g}")
        for v in value_ticks(low, high):
            body += f'<path d="M{left - 4} {py(v):.1f}h4" stroke="#333"/>\n' + text(left - 7, py(v) + 4, f"{v:g}", 11, "end")
        for row, c in zip(rows, COLOURS):
            path = "L".join(f"{px(first + (last - first) * i / 200):.1f} {py(v):.1f}" for i, v in enumerate(row))
            body += f'<path d="M{path}" fill="none" stroke="{c}" stroke-width="1.8"/>\n'
        return body + text(left + width / 2, top + height + 34, across, 12)

    body = panel(n["continuous_unit"], -2, 2, "coordinates −1 .. 1, and beyond", "coordinate", 64)
    body += panel(n["continuous_index"], 0, 223, "the same network given indices", "index", 470)
    body += '<text font-size="12" text-anchor="middle" transform="translate(20 196) rotate(-90)">encoding</text>\n'
    for k, c in enumerate(COLOURS[:4]):
        body += f'<path d="M{64 + 96 * k} 364h18" stroke="{c}" stroke-width="3"/>\n' + text(88 + 96 * k, 368, f"channel {k}", 12, "start")
    return page(826, 386, "Four channels of one network of one axis, before training", body)


def continuous_grid(n):
    return maps("One channel of one network of two axes, before training", [
        ("on 8 × 8 patches", n["continuous_8"], "column", "row"),
        ("the same on 32 × 32", n["continuous_32"], "column", "row")], "value", 256)


def embed(n):
    names = ["BERT", "GPT-2 in transformers", "GPT-2, OpenAI's code", "√width × words + sinusoid", "words + sinusoid"]
    parts = [("words", "#0072B2"), ("positions", "#D55E00"), ("segments", "#009E73")]
    left, top, width, high, body, labels = 196, 54, 520, 40, "", ""
    for r, (name, row) in enumerate(zip(names, n["embed"])):
        y, at = top + high * r, left
        body += text(left - 10, y + 18, name, 12, "end")
        for v, (_, fill) in zip(row, parts):
            share = v / sum(row)
            if share == 0:
                continue
            body += f'<rect x="{at:.1f}" y="{y}" width="{width * share:.1f}" height="26" fill="{fill}"/>\n'
            number = f"{100 * share:.1f} %" if share < .1 or share > .9 else f"{100 * share:.0f} %"
            inside = share > .1
            labels += text(at + width * share / 2 if inside else left + 8, y + 18, number if inside else "words " + number, 12,
                           "middle" if inside else "start", 'fill="#fff"')
            at += width * share
    foot = top + high * len(names)
    for percent in range(0, 101, 25):
        x = left + width * percent / 100
        body += f'<path d="M{x:.1f} {foot - 8}v6" stroke="#333"/>\n' + text(x, foot + 12, str(percent))
    body += f'<path d="M{left} {foot - 8}h{width}" stroke="#333"/>\n' + text(left + width / 2, foot + 30, "share of the mean square [%]", 12)
    for k, (name, fill) in enumerate(parts):
        body += f'<rect x="{left + 110 * k}" y="{foot + 44}" width="12" height="12" fill="{fill}"/>\n'
        body += text(left + 18 + 110 * k, foot + 54, name, 12, "start")
    body += labels
    return page(left + width + 30, foot + 70, "What each part brings to the sum before the norm, at the start of training", body)


def families(n):
    return maps("Similarity of the rows of 48 tokens: what four schemes say before training", [
        ("sinusoidal", n["family_sinusoidal"], "token", "token"),
        ("learned", n["family_learned"], "token", "token"),
        ("token + sentence + paragraph", n["family_hierarchy"], "token", "token"),
        ("a network of the coordinate", n["family_network"], "token", "token")], "cosine", 192)


def four_terms(n):
    return maps("The four terms of 24 random tokens: Transformer-XL's, and what DeBERTa has in place of the third", [
        ("content-content", n["xl_content"], "key", "query"), ("content-position", n["xl_query"], "key", "query"),
        ("position-content: u · k", n["xl_key"], "key", "query"), ("DeBERTa's: k · Q by distance", n["deberta_key"], "key", "query"),
        ("position-position", n["xl_position"], "key", "query")], "score", 168)


def mrope(n):
    names = ["Qwen2-VL, chunked [16,24,24]", "Qwen3-VL, interleaved [24,20,20]", "Ernie-4.5-VL [22,22,20]", "openPangu [24,20,20]"]
    left, top, wide, high = 234, 56, 10, 30
    body, fills = "", {-1: COLOURS[0], 0: COLOURS[2], 1: COLOURS[1]}
    for r, (name, row) in enumerate(zip(names, n["mrope"])):
        y = top + (high + 8) * r
        body += text(left - 10, y + 20, name, 12, "end")
        for k, stream in enumerate(row):
            body += f'<rect x="{left + wide * k}" y="{y}" width="{wide}" height="{high}" fill="{fills[round(stream)]}" stroke="#fff" stroke-width="0.5"/>\n'
    foot = top + 4 * (high + 8)
    for k in (0, 16, 32, 48, 63):
        body += text(left + wide * (k + .5), foot + 10, str(k))
    body += text(left + wide * 32, foot + 28, "pair, the fastest first", 12)
    for k, (stream, name) in enumerate(((-1, "t, time"), (0, "h, row"), (1, "w, column"))):
        body += f'<rect x="{left + 110 * k}" y="{foot + 42}" width="12" height="12" fill="{fills[stream]}"/>\n'
        body += text(left + 18 + 110 * k, foot + 52, name, 12, "start")
    return page(left + 64 * wide + 24, foot + 70, "Which stream of positions rotates each pair", body)


def axial(n):
    return maps("Score of equal q and k with the middle of 15 × 15 patches", [
        ("axial, base 10000", n["axial_10000"], "column", "row"), ("axial, base 100", n["axial_100"], "column", "row"),
        ("mixed axes, base 100", n["mixed_axes"], "column", "row")], "score", 220)


def scalings(n):
    names = ["linear", "ntk alpha", "ntk fixed", "yarn", "llama3"]
    return lines("Frequency after over before, factor 4", [
        (name, list(range(64)), row) for name, row in zip(names, n["scalings"])], "pair", "ratio")


ROTARY = ["rope", "rope_rows", "xpos", "dynamic", "yarn", "llama3", "proportional", "mrope", "axial", "scalings"]
DRAWN = [mrope, axial, scalings, four_terms, compose, sinusoidal_nd, fourier_features, learnable_fourier, learned_axes, coordinates, cape, cape2d,
         drawn_positions, extend, extend_down, hierarchy, paragraph_offset, local_window, drawn_distances, distance_offset, complex_order,
         convolutional, crossmodal, learned_rows, boxes, continuous_axial, continuous_grid, embed, families]


FREE = {**concepts.FOLDERS, **attention.FOLDERS}  # of no numbers of the library, by folder
# The folder of a picture's page; absolute where no other is named.
FOLDER = {**{name: "rotary" for name in ROTARY}, "float32_error": "misconceptions", "wavelengths": ".", "four_terms": "concepts", "drawn_distances": "relative",
          **{f.__name__: folder for folder, drawn in FREE.items() for f in drawn},
          **dict.fromkeys([*relative.PLOTTED, *(f.__name__ for f in relative_pictures.DRAWN)], "relative")}


def numbers(args):
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "numbers"
        subprocess.run([args.compiler, "-std=c++20", "-O0", f"-I{ROOT}/include", f"-I{args.build}/include",
                        *map(str, sorted((ROOT / "tools/docs_images").glob("*.cpp"))), "-o", str(program),
                        *(args.library or [f"{args.build}/src/libposenc.a", f"{args.build}/src/libposenc_core.a"]), "-lhwy", "-pthread"], check=True)
        printed = subprocess.run([str(program)], check=True, stdout=subprocess.PIPE, text=True).stdout
    blocks, current = {}, None
    for line in printed.splitlines():
        if line.startswith("#"):
            current = blocks.setdefault(line.split()[1], [])
        else:
            current.append([float(v) for v in line.split(",")])
    return blocks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--build", default=str(ROOT / "build"), type=os.path.abspath)
    parser.add_argument("--library", nargs="+", help="default: BUILD/src/libposenc.a and libposenc_core.a")
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--out", default=str(KEPT), type=os.path.abspath)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if args.check:
        return check(args)
    draw(args)


def check(args):
    """Every picture can be drawn, no other is kept, and none is far from the one that is: last digits may differ."""
    with tempfile.TemporaryDirectory() as folder:
        args.out, args.names = folder, []
        draw(args)
        new, kept = ({str(p.relative_to(f)): p.stat().st_size for p in pathlib.Path(f).rglob("*.svg")}
                     for f in (folder, KEPT))
        kept = {name: size for name, size in kept.items() if not name.startswith("lab/")}  # of `./lab quick`, which trains for minutes
    wrong = sorted(new.keys() ^ kept.keys()) + [n for n in new if n in kept and abs(new[n] - kept[n]) > 0.1 * kept[n]]
    sys.exit(f"not as kept in docs/images: {', '.join(wrong)}" if wrong else 0)


def draw(args):
    free = {f.__name__: f for drawn in FREE.values() for f in drawn}
    drawn = {f.__name__: f for f in DRAWN}
    of_score = {f.__name__: f for f in relative_pictures.DRAWN}
    all_names = [*PLOTTED, *drawn, *free, *of_score]
    wanted = args.names or all_names
    unknown = [n for n in wanted if n not in all_names]
    if unknown:
        sys.exit(f"no picture called {', '.join(unknown)}; there are {', '.join(all_names)}")
    program = relative.Program(f"{args.build}/bin/posenc")
    values = numbers(args) if any(n in drawn for n in wanted) else {}
    for name in wanted:
        file = pathlib.Path(args.out) / FOLDER.get(name, "absolute") / f"{name}.svg"
        file.parent.mkdir(parents=True, exist_ok=True)
        if name in PLOTTED:
            subprocess.run([f"{args.build}/bin/posenc", "plot", *PLOTTED[name], "-o", str(file)], check=True, cwd=ROOT)
        elif name in of_score:
            file.write_text(of_score[name](program))
        else:
            file.write_text(free[name]() if name in free else drawn[name](values))
        print(f"{file}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
