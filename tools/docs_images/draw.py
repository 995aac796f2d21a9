#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of docs/absolute/ and docs/rotary/ into docs/images/.

    python3 tools/docs_images/draw.py                  all of them
    python3 tools/docs_images/draw.py cape extend      these
    python3 tools/docs_images/draw.py --check          the library still draws those that are there

Those that `posenc plot` can draw it draws; the others are drawn here from what numbers.cpp prints,
which is compiled against the library in --build. Plain Python, no packages.
"""
import argparse
import base64
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = ROOT / "docs/images"
BLUE, ORANGE = (0, 96, 178), (213, 94, 0)  # Okabe and Ito, as `posenc plot`
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]

ROPE = "rope head_dim=128 pairing=half_split"
# name: arguments of `posenc plot`
PLOTTED = {
    "rope": [ROPE, "--kind", "decay", "--context", "32768"],
    "rope_rows": ["rope head_dim=32 pairing=interleaved", "--kind", "rows", "--positions", "0:64"],
    "xpos": ["xpos head_dim=64 pairing=half_split center=0", "--kind", "decay", "--context", "4096"],
    "dynamic": [f"{ROPE} + dynamic factor=2 trained_length=4096 length_rule=per_call", "--kind", "scaling",
                "--context", "16384"],
    "yarn": [f"{ROPE} + yarn factor=4 original_context=4096", "--kind", "scaling", "--context", "16384"],
    "llama3": ["examples/models/llama-3.1-8b", "--kind", "scaling"],
    "proportional": [f"{ROPE} + proportional fraction=0.25", "--kind", "scaling"],
    "sinusoidal": ["sinusoidal width=64", "--kind", "rows", "--positions", "0:64"],
    "inner_products": ["sinusoidal width=512", "--kind", "decay", "--context", "10000"],
}


def png(pixels, cells=(1, 1)):
    """Rows of (r, g, b) as a data URL, every one `cells` (across, down) large: not all viewers keep edges sharp."""
    pixels = [[p for p in row for _ in range(cells[0])] for row in pixels for _ in range(cells[1])]
    raw = b"".join(b"\0" + bytes(v for p in row for v in p) for row in pixels)

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", len(pixels[0]), len(pixels), 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(data).decode()


def colour(t):
    t = max(-1.0, min(1.0, t))
    end = ORANGE if t > 0 else BLUE
    return tuple(round(255 + abs(t) * (e - 255)) for e in end)


def text(x, y, words, size=11, anchor="middle", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" {more}>{escape(words)}</text>\n'


def page(width, height, title, body):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'role="img" aria-label="{escape(title)}" font-family="Helvetica, Arial, sans-serif">\n'
            f"<title>{escape(title)}</title>\n"
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n'
            + text(24, 26, title, 16, "start", 'font-weight="bold"') + body + "</svg>\n")


def maps(title, panels, label, height=240, widths=None):
    """Heat maps side by side: panels of (name, rows, x label, y label), one colour scale for all."""
    limit = max(abs(v) for _, rows, _, _ in panels for row in rows for v in row)
    widths = widths or [height] * len(panels)
    top, body, x = 74, "", 58
    for (name, rows, across, down), width in zip(panels, widths):
        body += text(x + width / 2, top - 10, name, 12)
        cells = (max(1, width // len(rows[0])), max(1, height // len(rows)))
        body += (f'<image x="{x}" y="{top}" width="{width}" height="{height}" preserveAspectRatio="none" '
                 f'href="{png([[colour(v / limit) for v in row] for row in rows], cells)}"/>\n'
                 f'<rect x="{x}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#333"/>\n')
        body += text(x, top + height + 14, "0") + text(x + width, top + height + 14, str(len(rows[0]) - 1))
        body += text(x + width / 2, top + height + 28, across, 12)
        body += text(x - 6, top + 8, "0", 11, "end") + text(x - 6, top + height, str(len(rows) - 1), 11, "end")
        body += (f'<text font-size="12" text-anchor="middle" transform="translate({x - 24} {top + height / 2}) '
                 f'rotate(-90)">{escape(down)}</text>\n')
        x += width + 58
    key = [[colour(1 - 2 * i / 63)] for i in range(64)]
    x -= 28
    body += (f'<image x="{x}" y="{top + 20}" width="14" height="{height - 40}" preserveAspectRatio="none" href="{png(key)}"/>\n')
    body += text(x + 20, top + 28, f"{limit:.3g}", 11, "start") + text(x + 20, top + height / 2 + 4, "0", 11, "start")
    body += text(x + 20, top + height - 22, f"{-limit:.3g}", 11, "start") + text(x - 4, top + 8, label, 12, "start")
    return page(max(x + 74, 48 + int(9.4 * len(title))), top + height + 42, title, body)


def lines(title, series, across, up, radius=(), height=300, numbered=True):
    """series of (name, [x], [y]); `radius`: dots (negative: rings) instead of lines; not `numbered`: no scale upwards."""
    left, top, width = 70, 50, 660
    xs, ys = [v for s in series for v in s[1]], [v for s in series for v in s[2]]
    low, high = min(ys), max(ys)
    if numbered:
        low, high = min(low, 0), max(high, 0)
    pad = 0.05 * (high - low)
    low, high = low - pad, high + pad
    side = 0.01 * (max(xs) - min(xs)) if radius else 0
    x0, x1 = min(xs) - side, max(xs) + side

    def px(v):
        return left + width * (v - x0) / (x1 - x0)

    def py(v):
        return top + height * (high - v) / (high - low)

    body = f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#333"/>\n'
    for v in ticks(x0, x1):
        body += f'<path d="M{px(v):.1f} {top}v{height}" stroke="#ddd"/>\n' + text(px(v), top + height + 16, f"{v:g}")
    for v in ticks(low, high) if numbered else ():
        body += f'<path d="M{left} {py(v):.1f}h{width}" stroke="#ddd"/>\n' + text(left - 6, py(v) + 4, f"{v:g}", 11, "end")
    at = left
    for i, ((name, x, y), c) in enumerate(zip(series, COLOURS)):
        if radius:
            fill = f'fill="{c}"' if radius[i] > 0 else f'fill="none" stroke="{c}" stroke-width="2"'
            body += f"<g {fill}>" + "".join(f'<circle cx="{px(a):.1f}" cy="{py(b):.1f}" r="{abs(radius[i])}"/>'
                                           for a, b in zip(x, y)) + "</g>\n"
        else:
            path = "L".join(f"{px(a):.1f} {py(b):.1f}" for a, b in zip(x, y))
            body += f'<path d="M{path}" fill="none" stroke="{c}" stroke-width="1.6"/>\n'
        body += f'<path d="M{at} {top + height + 52}h18" stroke="{c}" stroke-width="3"/>\n'
        body += text(at + 24, top + height + 56, name, 12, "start")
        at += 46 + 6.4 * len(name)
    body += text(left + width / 2, top + height + 34, across, 12)
    body += (f'<text font-size="12" text-anchor="middle" transform="translate(20 {top + height / 2}) rotate(-90)">'
             f"{escape(up)}</text>\n")
    return page(int(max(left + width + 24, at + 24)), top + height + 72, title, body)


def ticks(low, high):
    step = 10.0 ** len(str(int((high - low) / 5))) / 10 if high - low >= 5 else 1.0
    while (high - low) / step < 4:
        step /= 2
    while (high - low) / step > 10:
        step *= 2
    first = int(low / step) - 1
    return [round(k * step, 9) for k in range(first, first + 40) if low <= k * step <= high]


def compose(n):
    return maps("x of ones, composed with a sinusoid", [
        (how, n["compose_" + how], "channel", "position") for how in ("add", "multiply", "one_plus")], "y")


def sinusoidal_nd(n):
    return maps("A sinusoid of two axes on 15 × 15 patches", [
        ("channel 3: sine of x", n["nd_sin_x"], "column", "row"),
        ("channel 35: sine of y", n["nd_sin_y"], "column", "row"),
        ("likeness to the middle, base 10000", n["nd_10000"], "column", "row"),
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
    return maps("Likeness to the middle of 15 × 15 patches, tables as they start", [
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
    return maps("Likeness of the rows of 48 tokens in 4 paragraphs", [
        ("omega = 0: position alone", n["paragraph_none"], "token", "token"),
        ("omega = 200", n["paragraph_shift"], "token", "token")], "cosine", 288)


def local_window(n):
    return maps("Bias of 24 tokens in 3 sentences, window = 3", [
        ("near = 1 − 0.25 |delta|, far = −0.6", n["local_window"], "key", "query")], "bias", 264)


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
    return lines("Likeness to the word at 1.5 s", series, "seconds", "cosine", (2, -9, -5))


def mrope(n):
    names = ["chunked [16,24,24]", "interleaved [24,20,20]", "ernie [22,22,20]", "openpangu [24,20,20]"]
    return maps("Which stream turns each pair: t blue, h white, w orange", [
        ("rows: " + ", ".join(names), n["mrope"], "pair", "layout")], "stream", 120, [640])


def axial(n):
    return maps("Score of equal q and k with the middle of 15 × 15 patches", [
        ("axial, base 10000", n["axial_10000"], "column", "row"), ("axial, base 100", n["axial_100"], "column", "row"),
        ("mixed axes, base 100", n["mixed_axes"], "column", "row")], "score", 220)


def scalings(n):
    names = ["linear", "ntk alpha", "ntk fixed", "yarn", "llama3"]
    return lines("Frequency after over before, factor 4", [
        (name, list(range(64)), row) for name, row in zip(names, n["scalings"])], "pair", "ratio")


ROTARY = ["rope", "rope_rows", "xpos", "dynamic", "yarn", "llama3", "proportional", "mrope", "axial", "scalings"]
DRAWN = [mrope, axial, scalings, compose, sinusoidal_nd, fourier_features, learnable_fourier, learned_axes, coordinates, cape, cape2d,
         drawn_positions, extend, extend_down, hierarchy, paragraph_offset, local_window, distance_offset, complex_order,
         convolutional, crossmodal]


def numbers(args):
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "numbers"
        subprocess.run([args.compiler, "-std=c++20", "-O0", f"-I{ROOT}/include", f"-I{args.build}/include",
                        str(ROOT / "tools/docs_images/numbers.cpp"), "-o", str(program),
                        args.library or f"{args.build}/src/libposenc.a", "-lhwy", "-lfmt", "-pthread"], check=True)
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
    parser.add_argument("--library", help="default: BUILD/src/libposenc.a")
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
        new, kept = ({f"{p.parent.name}/{p.name}": p.stat().st_size for p in pathlib.Path(f).glob("*/*.svg")}
                     for f in (folder, KEPT))
    wrong = sorted(new.keys() ^ kept.keys()) + [n for n in new if n in kept and abs(new[n] - kept[n]) > 0.1 * kept[n]]
    sys.exit(f"not as kept in docs/images: {', '.join(wrong)}" if wrong else 0)


def draw(args):
    drawn = {f.__name__: f for f in DRAWN}
    wanted = args.names or [*PLOTTED, *drawn]
    unknown = [n for n in wanted if n not in drawn and n not in PLOTTED]
    if unknown:
        sys.exit(f"no picture called {', '.join(unknown)}; there are {', '.join([*PLOTTED, *drawn])}")
    values = numbers(args) if any(n in drawn for n in wanted) else {}
    for name in wanted:
        file = pathlib.Path(args.out) / ("rotary" if name in ROTARY else "absolute") / f"{name}.svg"
        file.parent.mkdir(parents=True, exist_ok=True)
        if name in PLOTTED:
            subprocess.run([f"{args.build}/bin/posenc", "plot", *PLOTTED[name], "-o", str(file)], check=True, cwd=ROOT)
        else:
            file.write_text(drawn[name](values))
        print(f"{file}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
