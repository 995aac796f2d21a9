# SPDX-License-Identifier: Apache-2.0
"""Pictures of docs/concepts.md and docs/misconceptions.md: diagrams, and curves of published formulas in plain Python."""
from math import cos, exp, log, sin

from svg import COLOURS, lines, maps, page, text

BLUE, ORANGE, GREEN, PINK = COLOURS[:4]
GREY = "#666"


def box(x, y, width, height, words, stroke="#333", fill="#fff"):
    """A box with one or two lines of words in its middle."""
    body = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" fill="{fill}" stroke="{stroke}" stroke-width="1.5"/>\n'
    rows = words.split("\n")
    for i, row in enumerate(rows):
        body += text(x + width / 2, y + height / 2 + 4 + 16 * (i - (len(rows) - 1) / 2), row, 12)
    return body


def arrow(*points, stroke="#333"):
    """A line through the points with a head at its end; its last piece is level or upright."""
    (a, b), (x, y) = points[-2:]
    right, down = (x > a) - (x < a), (y > b) - (y < b)
    path = "L".join(f"{p} {q}" for p, q in points[:-1]) + f"L{x - 5 * right} {y - 5 * down}"
    wing = 4
    head = f"{x},{y} {x - 8 * right - wing * down},{y - 8 * down - wing * right} {x - 8 * right + wing * down},{y - 8 * down + wing * right}"
    return f'<path d="M{path}" fill="none" stroke="{stroke}" stroke-width="1.5"/>\n<polygon points="{head}" fill="{stroke}"/>\n'


def place(x, y, number, words, formula, stroke):
    """A numbered note of one of the four places, with its formula below."""
    return (f'<circle cx="{x}" cy="{y}" r="11" fill="{stroke}"/>\n' + text(x, y + 4, str(number), 12, more='fill="#fff" font-weight="bold"')
            + text(x + 18, y + 4, words, 12, "start", f'fill="{stroke}" font-weight="bold"') + text(x + 18, y + 22, formula, 12, "start"))


def places():
    body = box(24, 174, 74, 44, "tokens\nx") + arrow((98, 196), (132, 196))
    body += box(132, 174, 84, 44, "x′ = x + P", BLUE, "#eaf3fa") + arrow((174, 106), (174, 174), stroke=BLUE)
    for y, name in ((134, "q"), (196, "k"), (258, "v")):
        body += arrow((216, 196), (246, 196), (246, y), (274, y)) if y != 196 else arrow((216, 196), (274, 196))
        body += box(274, y - 18, 50, 36, name)
    for y, words in ((134, "R(p) q"), (196, "R(p) k")):
        body += arrow((324, y), (356, y)) + box(356, y - 18, 84, 36, words, ORANGE, "#fbeee6")
    body += arrow((398, 88), (398, 116), stroke=ORANGE)
    body += arrow((440, 134), (468, 134), (468, 165), (496, 165)) + arrow((440, 196), (468, 196), (468, 171), (496, 171))
    body += box(496, 146, 98, 44, "S = s q·k + b", GREEN, "#e6f5f0") + arrow((545, 88), (545, 146), stroke=GREEN)
    body += arrow((594, 168), (622, 168)) + box(622, 146, 78, 44, "softmax")
    body += arrow((324, 258), (728, 258)) + box(728, 236, 98, 44, "Σ w (v + C)", PINK, "#f9eef4") + arrow((700, 168), (777, 168), (777, 236))
    body += arrow((777, 316), (777, 280), stroke=PINK) + arrow((826, 258), (858, 258)) + box(858, 240, 44, 36, "o")
    body += place(36, 76, 1, "at the input: absolute", "a row for each position", BLUE)
    body += place(268, 58, 2, "on q and k: rotary", "an angle for each position and pair", ORANGE)
    body += place(532, 58, 3, "in the score: relative", "a number or a row for each distance", GREEN)
    body += place(640, 328, 4, "in the output: relative", "a row for each distance, seldom used", PINK)
    return page(926, 368, "The four places where position enters one layer of attention", body)


def pairing(x, y, pairs, name):
    """Eight channels in a row with an arc for each pair."""
    step, body = 40, text(x, y - 58, name, 13, "start", 'font-weight="bold"')
    for (a, b), c in zip(pairs, COLOURS):
        left, right = x + step * a + 14, x + step * b + 14
        rise = 16 + 7 * (b - a) if b - a > 1 else 18
        body += f'<path d="M{left} {y}C{left} {y - rise} {right} {y - rise} {right} {y}" fill="none" stroke="{c}" stroke-width="2"/>\n'
        for channel in (a, b):
            body += f'<rect x="{x + step * channel}" y="{y}" width="28" height="28" fill="{c}" fill-opacity="0.18" stroke="{c}"/>\n'
            body += text(x + step * channel + 14, y + 19, str(channel), 12)
    return body


def pairs():
    body = pairing(24, 136, [(0, 4), (1, 5), (2, 6), (3, 7)], "half_split: (i, i + d/2)")
    body += pairing(24, 284, [(0, 1), (2, 3), (4, 5), (6, 7)], "interleaved: (2i, 2i + 1)")
    body += text(24, 342, "channel of a head of 8; one colour, one pair", 12, "start", f'fill="{GREY}"')
    left, top, step, radius = 470, 112, 56, 22
    places_shown = (0, 1, 2, 4, 8, 16, 32, 64)
    for i, p in enumerate(places_shown):
        body += text(left + step * i, top - 36, str(p), 12)
    body += text(left + step * 3.5, top - 54, "position", 12)
    for pair, c in zip(range(4), COLOURS):
        y = top + 60 * pair
        body += text(left - 34, y + 4, f"pair {pair}", 12, "end", f'fill="{c}"')
        for i, p in enumerate(places_shown):
            x, angle = left + step * i, p * 10000 ** (-pair / 4)
            body += f'<circle cx="{x}" cy="{y}" r="{radius}" fill="none" stroke="#bbb"/>\n'
            body += f'<path d="M{x} {y}h{radius}" stroke="#ccc" stroke-dasharray="3 3"/>\n'
            body += f'<path d="M{x} {y}L{x + radius * cos(angle):.1f} {y - radius * sin(angle):.1f}" stroke="{c}" stroke-width="2.5"/>\n'
    body += text(left - 34, top + 230, "base 10000: frequencies 1, 0.1, 0.01 and 0.001 rad a position", 12, "start", f'fill="{GREY}"')
    return page(914, 364, "Which channels are a pair, and how far each pair rotates", body)


def t5_bucket(n, buckets, most=128):
    """T5's entry of a distance n ≥ 0: the first half one each, then logarithmic up to `most`."""
    exact = buckets // 2
    if n < exact:
        return n
    k = 0
    while k + 1 < buckets - exact and n ** (buckets - exact) * exact ** (k + 1) >= most ** (k + 1) * exact ** (buckets - exact):
        k += 1
    return exact + k


def scores():
    n = 48
    sines = [sum(cos(d * 10000 ** (-m / 32)) for m in range(32)) / 32 for d in range(n)]
    # The score of one query and one key that looks for what stands 8 places before it.
    eight_back = [sum(cos((d - 8) * 10000 ** (-m / 32)) for m in range(32)) / 32 for d in range(-n, n)]
    cells = range(n)
    return maps("What position alone says about a query i and a key j, each scaled to 1", [
        ("1: rows of a sinusoid", [[sines[abs(i - j)] for j in cells] for i in cells], "key", "query"),
        ("2: rotary, q and k for 8 back", [[eight_back[i - j + n] for j in cells] for i in cells], "key", "query"),
        ("3: ALiBi, −m (i − j), causal", [[(j - i) / (n - 1) if j <= i else 0 for j in cells] for i in cells], "key", "query"),
        ("3: T5's entry, causal", [[t5_bucket(i - j, 32) / 31 if j <= i else 0 for j in cells] for i in cells], "key", "query")], "score", 192)


def product_law():
    frequencies = [10000 ** (-2 * m / 512) for m in range(256)]
    x = list(range(1, 101))
    products = [sum(cos(d * f) for f in frequencies) for d in x]
    law = [256 * (1 - (log(d) + .5772156649) / log(10000)) for d in x]
    return lines("Product of two rows of a sinusoid over that at distance 1, d = 512", [
        ("computed", x, [v / products[0] for v in products]),
        ("(d/2)(1 − (ln Δ + γ) / ln base)", x, [v / products[0] for v in law]),
        ("1/Δ, as it is often said", x, [1 / d for d in x])], "distance Δ", "ratio")


def alibi_weights():
    x = list(range(0, 201))
    return lines("ALiBi: what the bias leaves of a key's weight, six of 8 heads", [
        (f"m = 1/{m}", x, [exp(-d / m) for d in x]) for m in (2, 4, 8, 16, 64, 256)], "distance Δ", "factor exp(−m Δ)")


def t5_buckets():
    x = [d + side for d in range(0, 141) for side in (-.5, .5)]
    return lines("T5: which of its 32 entries a distance reads", [
        ("causal: 32 for the past", x, [t5_bucket(d // 2, 32) for d in range(len(x))]),
        ("both directions: 16 for each side", x, [t5_bucket(d // 2, 16) for d in range(len(x))])], "distance", "entry")


FOLDERS = {"concepts": [places, pairs, scores], "misconceptions": [product_law, alibi_weights, t5_buckets]}
