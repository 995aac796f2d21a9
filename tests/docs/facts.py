#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Numbers in the docs, computed again: each must stand on its page, in a line that holds its anchor.

Plain Python in double, sharing nothing with the library. `--list` prints what is computed.
"""
import argparse
import math
import pathlib
import random
import struct
import sys
from math import ceil, cos, log, pi, sin, sqrt

MYTHS, SINE, ND, COMPOSE = "misconceptions.md", "absolute/sinusoidal.md", "absolute/sinusoidal_nd.md", "absolute/compose.md"
GAMMA = 0.5772156649015329


def paper(d, base=1e4):
    return [base ** (-2 * m / d) for m in range(d // 2)]


def t2t(d):
    return [1e4 ** (-m / (d // 2 - 1)) for m in range(d // 2)]


def product(d, delta):
    return sum(cos(delta * w) for w in paper(d))


def distance(d, delta):
    return sqrt(sum(2 - 2 * cos(delta * w) for w in paper(d)))


def row(d, p):
    return [f(p * w) for w in paper(d) for f in (sin, cos)]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def float32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def spaced(n):  # thin spaces from five digits on, as the pages write them
    whole, _, part = n.partition(".")
    return (f"{int(whole):,}".replace(",", " ") if len(whole) > 4 else whole) + ("." + part if part else "")


def sinusoids():
    yield MYTHS, "wavelengths", [f"{2 * pi:.3f}", spaced(f"{2 * pi / paper(512)[-1]:.1f}")]
    yield SINE, "Wavelengths run", [f"{2 * pi:.3f}", spaced(f"{2 * pi / paper(512)[-1]:.1f}"),
                                    spaced(f"{2 * pi / paper(64)[-1]:.1f}"), spaced(f"{2 * pi / t2t(512)[-1]:.2f}")]
    yield SINE, "has norm", [f"{sqrt(256):g}", f"{sqrt(384):.3f}"]
    yield SINE, "| 1 |", [f"{sin(1):.4f}", f"{cos(1):.4f}", f"{sin(.01):.4f}", f"{cos(.01):.4f}"]
    yield MYTHS, "cos 0.01", [f"{cos(.01):.5f}"]
    deltas = (1, 2, 5, 10, 20, 50, 100, 512, 1000, 5000, 10000)

    def short(x):
        return f"{x:.3f}".replace("0.", ".", 1).replace("-", "−")

    yield SINE, "PE(p) · PE(p + Δ) / 256", [" | ".join(short(product(512, d) / 256) for d in deltas)]
    yield SINE, "its law", [" | ".join(short(1 - (log(d) + GAMMA) / log(1e4)) for d in deltas)]
    yield MYTHS, "falls as 1/Δ", [short(product(512, d) / product(512, 1)) for d in (10, 100)]
    rises = [d for d in range(2, 513) if product(512, d) > product(512, d - 1)]
    negative = next(d for d in range(1, 10000) if product(512, d) < 0)
    yield MYTHS, "falls with distance", [str(rises[0]), f"{sum(d <= 100 for d in rises)} times", str(negative)]
    yield MYTHS, "the longest wavelength", [spaced(f"{2 * pi / paper(128)[-1]:.0f}"), spaced(f"{2e4 * pi:.0f}")]
    rises = [d for d in range(2, 101) if product(128, d) > product(128, d - 1)]
    negative = next(d for d in range(1, 10000) if product(128, d) < 0)
    yield MYTHS, "score decays", [f"at {rises[0]} ", f"{len(rises)} times", str(negative)]
    yield MYTHS, "binary digits", [f"{1e4 ** (2 / 512):.4f}"]
    nearest = min(distance(16, d) for d in range(1, 2000))
    yield MYTHS, "code of its own", [f"{distance(2, 103993):.1e}".replace("e-05", "e-5"), f"{nearest:.2f}"]
    for page, anchor in ((MYTHS, "disturb"), (COMPOSE, "unscaled embedding")):
        yield page, anchor, ["16", f"{0.02 * sqrt(512):.2f}", f"{16 / (0.02 * sqrt(512)):.0f}"]
    yield COMPOSE, "With √D on", [f"{0.02 * 512:.2f}"]
    for length, at in ((512, "512"), (5000, "5000")):
        share = sum(2 * pi / w > length for w in paper(512)) / 256
        yield MYTHS, "beyond the trained length", [f"{100 * share:.0f} % ", at]
    yield SINE, "A position too many", [f"{distance(512, 1) / 16:.3f}", f"{distance(512, 2) / 16:.3f}"]
    for p, digits in ((1, 4), (10, 3), (100, 2), (511, 2)):
        gap = max(abs(f(p * a) - f(p * b)) for a, b in zip(paper(512), t2t(512)) for f in (sin, cos))
        yield SINE, "largest difference of an entry" if p == 1 else "0.014 at 10", [f"{gap:.{digits}f} at"]


def float32_angles():
    rounded = [float32(1 / float32(w)) for w in (1e4 ** (2 * m / 512) for m in range(256))]
    for last, text in ((511, "511"), (5000, "5000"), (32767, "32 767")):
        worst = 0
        for p in range(max(0, last - 600), last + 1):
            for narrow, exact in zip(rounded, paper(512)):
                a, b = float32(p * narrow), p * exact
                worst = max(worst, abs(sin(a) - sin(b)), abs(cos(a) - cos(b)))
        yield SINE, "Angles in float32", [f"{worst:.1e}".replace("e-0", "e-") + " at " + text]
    yield "absolute/cape.md", "in float32", [f"{abs(sin(float32(1e4 + float32(pi / 2))) - cos(1e4)):.1e}".replace("e-0", "e-")]
    yield "absolute/cape.md", "grows with the position", [f"{10 * .03:.1f}", f"{127 * .03:.1f}"]


def shifts():
    """What projections leave of the shift, and what attention does to a permutation; numbers drawn from fixed seeds."""
    r = random.Random(1)
    w = [[r.gauss(0, 1 / 8) for _ in range(64)] for _ in range(64)]
    at = [dot(row(64, p), [dot(line, row(64, p + 3)) for line in w]) for p in (3, 10, 50, 200)]
    yield MYTHS, "how far apart", [", ".join(f"{x:.1f}".replace("-", "−") for x in at)]
    yield MYTHS, "which side", [f"{dot(row(512, 20), row(512, 23)):.2f}", f"{dot(row(512, 20), row(512, 17)):.2f}"]
    q, k, v = ([[r.gauss(0, 1) for _ in range(8)] for _ in range(6)] for _ in range(3))

    def attend(order, causal):
        out = []
        for i, a in enumerate(order):
            seen = order[: i + 1] if causal else order
            e = [math.exp(dot(q[a], k[b]) / sqrt(8)) for b in seen]
            out.append([sum(x * v[b][c] for x, b in zip(e, seen)) / sum(e) for c in range(8)])
        return out

    turned = [5, 2, 0, 4, 1, 3]
    for causal in (False, True):
        plain, moved = attend(list(range(6)), causal), attend(turned, causal)
        off = sqrt(sum((moved[i][c] - plain[a][c]) ** 2 for i, a in enumerate(turned) for c in range(8)))
        yield MYTHS, "permutation invariant", ["below 1e-14" if off < 1e-14 else f"{off:.1f}"]
    p = [r.gauss(0, 1) for _ in range(128)]
    w = [1e4 ** (-2 * m / 128) for m in range(64)]
    half, inter = [0.0] * 128, [0.0] * 128
    for m in range(64):
        c, s = cos(100 * w[m]), sin(100 * w[m])
        half[m], half[m + 64] = c * p[m] - s * p[m + 64], s * p[m] + c * p[m + 64]
        inter[2 * m], inter[2 * m + 1] = c * p[2 * m] - s * p[2 * m + 1], s * p[2 * m] + c * p[2 * m + 1]
    yield MYTHS, "two pairings", [f"{sqrt(sum((a - b) ** 2 for a, b in zip(half, inter)) / dot(p, p)):.2f}"]


def biases():
    def slopes(heads):
        whole = 2 ** int(log(heads, 2))
        return [2 ** (-8 * (h + 1) / whole) if h < whole else 2 ** (-4 * (2 * (h - whole) + 1) / whole) for h in range(heads)]

    def bucket(n, both):
        half = 16 if both else 32
        exact = half // 2
        if n < exact:
            return n
        k = 0
        while k + 1 < half - exact and n ** (half - exact) * exact ** (k + 1) >= 128 ** (k + 1) * exact ** (half - exact):
            k += 1
        return exact + k

    for both in (True, False):
        last = bucket(10000, both)
        yield MYTHS, "bias is monotone", [str(next(n for n in range(10000) if bucket(n, both) == last))]
    for heads in (12, 20):
        gap = max(abs(a - 2 ** (-8 * (h + 1) / heads)) for h, a in enumerate(slopes(heads)))
        yield MYTHS, "slopes are", [f"{gap:.2f}"]
    yield MYTHS, "only the trained length", [str(ceil(log(1000) / slope)) for slope in (slopes(8)[0], slopes(8)[-1])]  # the first whole distance


def rotary():
    x = list(range(1, 9))

    def turn(pairs, thetas):
        y = [float(v) for v in x]
        for (a, b), t in zip(pairs, thetas):
            c, s = cos(3 * t), sin(3 * t)
            y[a], y[b] = c * x[a] - s * x[b], s * x[a] + c * x[b]
        return " ".join(f"{v:.6f}".replace("-", "−") for v in y)

    yield "rotary/rope.md", "| interleaved |", [turn([(2 * k, 2 * k + 1) for k in range(4)], paper(8))]
    yield "rotary/rope.md", "| half_split |", [turn([(k, k + 4) for k in range(4)], paper(8))]
    yield "rotary/rope.md", "`rotary_dim=4` gives", [turn([(0, 2), (1, 3)], paper(4)).replace(".000000", "")]
    yield "rotary/mrope.md", "262 144", [f"{262144 * 5e6 ** (-122 / 128):.3f} rad"]
    zeta = [(2 * i / 64 + .4) / 1.4 for i in range(32)]
    yield "rotary/xpos.md", "At d = 64", [f"{z:.6f}" for i in (0, 31) for z in (zeta[i], zeta[i] ** 4)]
    yield "rotary/xpos.md", "16 bits", [f"{zeta[0] ** 16:.2e}".replace("e-0", "e-"), "5e8"]
    for model, d, base, length, s in (("Yarn-Llama-2", 128, 1e4, 4096, 16), ("Qwen-3", 128, 1e6, 32768, 4),
                                      ("DeepSeek-V3", 64, 1e4, 4096, 40), ("gpt-oss", 64, 150000, 4096, 32)):
        low, high = (d * log(length / (2 * pi * n)) / (2 * log(base)) for n in (32, 1))
        ends = f"{low:.6f}, {high:.6f}" if model == "gpt-oss" else f"{math.floor(low)}, {math.ceil(high)}"
        gain = .1 * log(s) + 1
        yield "rotary/yarn.md", "| " + model, [ends, f"{gain ** 2:.6f}" if s == 40 else f"{gain:.6f}"]
    low, high, theta = 20, 46, 1e4 ** (-76 / 128)
    turns = (4096 * theta / (2 * pi) - 1) / 31
    for weight in (min(max(turns, 0), 1), 1 - (38 - low) / (high - low)):
        yield "rotary/yarn.md", "pair 38", [f"{theta * weight + theta / 16 * (1 - weight):.6f}"]
    fast = sum(2048 * 1e4 ** (-2 * i / 128) / (2 * pi) >= 32 for i in range(64))
    yield "choosing.md", "of 64 pairs make 32 turns", [f"{fast} of 64"]
    yield "choosing.md", "the slowest pair makes one turn in", [spaced(f"{2 * pi * 1e4 ** (126 / 128):.0f}")]
    yield "choosing.md", "which is 1.139", [f"{.1 * log(4) + 1:.3f}"]
    for n in (5000, 8192, 16384):
        base = 1e4 * (2 * n / 4096 - 1) ** (128 / 126)
        yield "rotary/ntk.md", "`dynamic factor=2", [spaced(f"{base:.2f}")]
    yield "rotary/ntk.md", "alpha 1000", [f"{1e4 * 1000 ** (128 / 126):,.2f}".replace(",", " ")]
    ratios = []
    for i in range(64):
        wave = 2 * pi * 5e5 ** (2 * i / 128)
        m = min(max((8192 / wave - 1) / 3, 0), 1)
        ratios.append((1 - m) / 8 + m)
    between = [i for i, r in enumerate(ratios) if 1 / 8 < r < 1]
    yield "rotary/llama3.md", "(d = 128", [f"0 .. {between[0] - 1} stay", f"{between[-1] + 1} .. 63"]
    yield "rotary/llama3.md", "0.828168", [f"{ratios[i]:.6f}" for i in between]
    yield "rotary/longrope.md", "Phi-3 to", [f"{sqrt(1 + log(f) / log(n)):.6f}" for f, n in ((32, 4096), (16, 8192))]


def tables():
    for old, new in ((14, 28), (14, 24), (14, 7)):
        gap = max(abs((t + .5) * old / new - (t + .5) * old / (new + .1)) for t in range(new))
        yield "absolute/extend.md", "The +0.1", [f"{gap:.3f}"]
    yield "absolute/coordinates.md", "end at 0.27", [f"{2 * 7 / 11 - 1:.2f}"]
    yield "absolute/coordinates.md", "and end at 2.14", [f"{2 * 11 / 7 - 1:.2f}"]
    w = paper(16)
    for p, q in ((3, 5), (13, 15), (103, 105)):
        z = abs(sum(complex(cos(x * (p + q)), sin(x * (p + q))) for x in w))
        yield "absolute/complex_order.md", "2.96", [f"{z:.2f}"]
    z = abs(sum(complex(cos(2 * x), sin(2 * x)) for x in w))
    yield "absolute/complex_order.md", "2.96", [f"{z:.3f}"]
    yield MYTHS, "without conjugation", [f"{z:.3f}"]


def shares():
    """Words of mean square `words` beside a sinusoid's 1/2."""
    for words in (1, 1 / 512):
        share = 100 * words / (words + .5)
        yield "absolute/embed.md", "width 512" if words < 1 else "67 %", [f"{share:.1f} %" if words < 1 else f"{share:.0f} %"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    docs, wrong, count = pathlib.Path(args.source) / "docs", [], 0
    for group in (sinusoids, float32_angles, shifts, biases, rotary, tables, shares):
        for page, anchor, needed in group():
            if args.list:
                print(page, "|", anchor, "|", needed)
                continue
            lines = [line for line in (docs / page).read_text().split("\n") if anchor in line]
            for number in needed:
                count += 1
                if not any(number in line for line in lines):
                    wrong.append(f"docs/{page}: no line with \"{anchor}\" says {number}")
    print("\n".join(wrong) or f"{count} numbers stand as computed")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
