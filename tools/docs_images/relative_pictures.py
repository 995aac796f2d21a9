# SPDX-License-Identifier: Apache-2.0
"""The maps of docs/relative, a function a scheme; relative.py runs posenc for them."""
from math import atan2, cos, exp, hypot, log, pi, sin

from relative import cells, grids, normal, on_grid, pairs, smooth, tokens
from svg import lines


def window_table(height, width, slope, shift=0.0):
    """[(2 H - 1) (2 W - 1)]: falls with the length of the offset, one side a little more."""
    return [-slope * hypot(y, x) + shift * x for y in range(1 - height, height) for x in range(1 - width, width)]


def beit(p):
    table = window_table(4, 4, .5) + [1.5, -1.5, .7]
    classes = [1] + [0] * 16
    at = [[0] + axis for axis in cells(4, 4)]
    inputs = {n: ((1, 17), classes, True) for n in ("query_class", "key_class")}
    b = p.bias("beit height=4 width=4", at, arrays={"table": ((52, 1), table)}, inputs=inputs)
    return pairs("A class token and 4 × 4 patches, row by row", [("bias, made-up table", b[0])], "bias", 240)


def bros(p):
    boxes, words = [], [(r, c) for r in range(5) for c in range(6)]
    for r, c in words:
        left, top, right, bottom = .05 + .15 * c, .1 + .15 * r, .17 + .15 * c, .18 + .15 * r
        boxes += [left, top, right, top, right, bottom, left, bottom]
    inputs = {n: ((1, 30, 8), boxes, False) for n in ("query_bbox", "key_bbox")}
    got = p.attend("bros frequencies=4", ["query_position"], tokens(30), arrays={"w_bbox": ((8, 64), normal(4, 512, .3))},
                   inputs=inputs)["query_position"][0]
    return grids("What three words add for every word of a page of 5 × 6", [
        (f"word {i}: row {i // 6}, column {i % 6}", on_grid(got[i], 6)) for i in (0, 15, 29)])


def clipped(p):
    at = list(range(-20, 21))
    series = []
    for h, (near, side) in enumerate([(1, 0), (.3, .04), (-.6, -.03)]):
        table = [near * exp(-abs(d) / 3) + side * d for d in range(-12, 13)]
        b = p.bias("clipped clip=12", "-20:21", arrays={"table": ((25, 1), table)}, key_positions="0")
        series.append((f"head {h}, made up", at, [row[0] for row in b[0]]))
    return lines("A table of 25 numbers: the last ones hold for all distances beyond 12", series, "distance, query − key", "bias")


def xl_panels(p, scheme, n=32, **more):
    """The three position terms of a scheme of Transformer-XL's kind, of random tokens."""
    got = p.attend(scheme, ["query_position", "position_key", "position_position"], tokens(n), dim=16, **more)
    return got["query_position"][0], got["position_key"][0], got["position_position"][0]


def xl_arrays(width=32, dim=16):
    return {"w_kr": ((dim, width), normal(5, dim * width, .25)), "u": ((1, dim), normal(6, dim)), "v_bias": ((1, dim), normal(7, dim))}


def transformer_xl(p):
    query, key, place = xl_panels(p, "transformer_xl d_model=32", arrays=xl_arrays(), mask=["causal"])
    return pairs("The position terms of 32 random tokens with a causal mask", [
        ("q · W R", query), ("u · k", key), ("v · W R", place)])


def conformer(p):
    a, b = ([m for m in xl_panels(p, s, arrays={**xl_arrays(), **more})] for s, more in (
        ("conformer d_model=32", {}), ("conformer_absolute_key d_model=32 rows=32", {"P": ((32, 32), smooth(8, 32, 32))})))
    return pairs("Distances on both sides, and WeNet's form by the key's place", [
        ("q · W R, conformer", a[0]), ("v · W R, conformer", a[2]), ("q · W P, absolute key", b[0]), ("v · W P, absolute key", b[2])],
                 height=176)


def enformer(p):
    arrays = {"w_r": ((16, 24), normal(40, 384, .3)), "u": ((1, 16), normal(6, 16)), "v_bias": ((1, 16), normal(7, 16))}
    query, key, place = xl_panels(p, "enformer length=32 features=24", arrays=arrays)
    return pairs("The position terms of 32 random tokens", [("q · W f", query), ("u · k", key), ("v · W f", place)])


def longt5(p):
    n, blocks = 32, 4
    at = [list(range(n)) + [0] * blocks, [i // 8 for i in range(n)] + list(range(blocks))]
    table = {"table": ((32, 1), smooth(41, 32, 1)), "global_table": ((32, 1), smooth(42, 32, 1))}
    b = p.bias("longt5", at, arrays=table, inputs={"key_global": ((1, n + blocks), [0] * n + [1] * blocks, True)})
    return pairs("32 tokens, and four summaries of eight tokens as the last keys", [("bias, made-up tables", b[0][:n])], "bias", 240)


def irpe(p):
    panels = []
    for k, (method, rows) in enumerate((("euclidean", 7), ("quantised", 7), ("product", 49))):
        table = {"table": ((1, rows), normal(43 + k, rows))}
        b = p.bias(f"irpe meets=nothing method={method} height=9 width=9", cells(9, 9), arrays=table)
        panels.append((method, on_grid(b[0][40], 9)))
    return grids("Bias of the middle patch of 9 × 9 for all, random tables: a colour a bucket", panels, "bias")


def xlnet(p):
    arrays = {n: (s, v) for n, (s, v) in xl_arrays().items()}
    arrays["w_kr"] = ((32, 1, 16), normal(5, 512, .25))
    arrays["s_bias"], arrays["seg_embed"] = ((1, 16), normal(9, 16)), ((2, 1, 16), normal(10, 32))
    segment = [0] * 20 + [1] * 12
    inputs = {n: ((1, 32), segment, True) for n in ("query_segment", "key_segment")}
    query, key, place = xl_panels(p, "xlnet d_model=32 segments=2", arrays=arrays, inputs=inputs)
    return pairs("The position terms of 32 random tokens, 20 of one segment and 12 of another", [
        ("q · (R W + e)", query), ("u · k", key), ("v · R W + b · e", place)])


def tener(p):
    arrays = {"u": ((1, 16), normal(6, 16)), "v_bias": ((1, 16), normal(7, 16))}
    paper, code = (xl_panels(p, s, arrays=arrays) for s in ("tener preset=paper", "tener"))
    return pairs("The position terms of 32 random tokens: the paper's and the released code's", [
        ("paper: q · R", paper[0]), ("code: q · R", code[0]), ("paper: u · k", paper[1]), ("code: u · k + k · R", code[1])], height=176)


def cope(p):
    table, n = smooth(11, 16, 8, 3), 32
    arrays = {"pos_emb": ((1, 8, 16), [table[m * 8 + c] for c in range(8) for m in range(16)])}
    got = p.attend("cope positions=16", ["scores"], tokens(n), arrays=arrays, mask=["causal"])["scores"][0]
    plain = p.attend("nope", ["scores"], tokens(n), mask=["causal"])["scores"][0]
    added = [[a - b for a, b in zip(x, y)] for x, y in zip(got, plain)]
    return pairs("32 random tokens, 16 rows: beyond 15 open gates a query adds the same for all keys", [("q · k", plain), ("what CoPE adds", added)],
                 "score")


def cpmant(p):
    table = [-.25 * (b % 16) - .3 * (b >= 16) for b in range(32)] + [0, -3, -1.5, 0]
    segment = [0] * 14 + [1] * 10
    inputs = {n: ((1, 24), segment, True) for n in ("query_segment", "key_segment")}
    b = p.bias("cpmant num_buckets=32 segments=2", tokens(24), arrays={"table": ((36, 1), table)}, inputs=inputs)
    return pairs("14 tokens of one segment and 10 of another", [("bias, made-up table", b[0])], "bias", 240)


def deberta(p):
    arrays = {n: ((1, 32, 16), smooth(s, 32, 16)) for n, s in (("pos_key", 12), ("pos_query", 13))}
    query, key, _ = xl_panels(p, "deberta max_relative_positions=16 position_buckets=0 projection=tables", n=40, arrays=arrays)
    return pairs("40 random tokens, S = 16: beyond that distance the last row holds", [("c2p: q · K by distance", query), ("p2c: k · Q by distance", key)])


def decomposed(p):
    arrays = {n: ((17, 8), smooth(s, 17, 8, 6)) for n, s in (("rel_pos_h", 14), ("rel_pos_w", 15))}
    got = p.attend("decomposed size=[9,9]", ["query_position"], cells(9, 9), arrays=arrays)["query_position"][0]
    return grids("What three queries of 9 × 9 patches add: a row's number and a column's", [
        (f"query in row {i // 9}, column {i % 9}", on_grid(got[i], 9)) for i in (0, 40, 71)])


def fire(p):
    b = p.bias("fire initial_length=16", "0:64", start=1)
    hidden = [[v if j <= i else 0 for j, v in enumerate(row)] for i, row in enumerate(b[0])]
    from_end = [[hidden[i][i - d] for d in range(i + 1)] for i in (15, 31, 63)]
    return lines("Before training: the same network, stretched with the position of the query", [
        (f"query {i}", list(range(i + 1)), row) for i, row in zip((15, 31, 63), from_end)], "distance, query − key", "bias")


def forgetting(p):
    gates = [-.02] * 32
    for at, v in ((9, -1.5), (10, -.8), (21, -3.0)):
        gates[at] = v
    got = p.attend("forgetting", ["position_position"], tokens(32), mask=["causal"],
                   inputs={"log_gate": ((1, 32, 1), gates, False)})["position_position"][0]
    return pairs("32 tokens; the gates of tokens 9, 10 and 21 close", [("sum of log gates", got)], "bias", 240)


def indexed(p):
    at, n = cells(7, 7), 49

    def rows(pick):
        return [pick(at[0][i] - at[0][j], at[1][i] - at[1][j]) for i in range(n) for j in range(n)]

    kinds = [("product: row and column", rows(lambda y, x: (y + 6) * 13 + x + 6), 169),
             ("Euclidean: length, to 6", rows(lambda y, x: min(round(hypot(y, x)), 6)), 7),
             ("direction: eight of them", rows(lambda y, x: round(atan2(y, x) * 4 / pi) % 8), 8)]
    panels = []
    for k, (name, index, count) in enumerate(kinds):
        b = p.bias(f"indexed rows={count}", tokens(n), arrays={"table": ((1, count), normal(16 + k, count))}, inputs={"index": ((n, n), index, True)})
        panels.append((name, on_grid(b[0][24], 7)))
    return grids("Bias of the middle patch of 7 × 7 for all: three indices, random tables", panels)


def layoutlm(p):
    at = [list(range(24)), [150 * (i % 6) for i in range(24)], [100 * (i // 6) for i in range(24)]]
    fall = [-.2 * (b % 16) for b in range(32)]
    place = [-.2 * (b % 32) for b in range(64)]
    zero = {"table_1d": ((32, 1), [0] * 32), "table_x": ((64, 1), [0] * 64), "table_y": ((64, 1), [0] * 64)}
    panels = []
    for name, key, table in (("order of reading", "table_1d", fall), ("left edge", "table_x", place), ("lower edge", "table_y", place)):
        panels.append((name, p.bias("layoutlm", at, arrays={**zero, key: ((len(table), 1), table)})[0]))
    return pairs("24 words in four lines of six: the three parts of the bias, made-up tables", panels, "bias")


def levit(p):
    b = p.bias("levit height=7 width=7", cells(7, 7), arrays={"table": ((1, 49), normal(19, 49))})
    return grids("Bias of three patches of 7 × 7 for all: the same on both sides", [
        (f"query in row {i // 7}, column {i % 7}", on_grid(b[0][i], 7)) for i in (24, 8, 0)], "bias")


def modality_pairs(p):
    at = [list(range(8)) + [0] * 16, [0] * 8 + [i // 4 for i in range(16)], [0] * 8 + [i % 4 for i in range(16)]]
    kind = [0] * 8 + [1] * 16
    arrays = {"pairs": ((2, 2, 1), [0, -1.5, -.8, .3]), "table_0": ((15, 1), [-.3 * abs(d) for d in range(-7, 8)]),
              "table_1": ((7, 1), [-.5 * abs(d) for d in range(-3, 4)]), "table_2": ((7, 1), [-.25 * abs(d) for d in range(-3, 4)])}
    inputs = {n: ((1, 24), kind, True) for n in ("query_modality", "key_modality")}
    b = p.bias("modality_pairs query_modality=[0,1,1] key_modality=[0,1,1] axis=[0,1,2] clip=[7,3,3]", at, arrays=arrays, inputs=inputs)
    return pairs("8 words and 4 × 4 patches of an image", [("bias, made-up numbers", b[0])], "bias", 240)


def prophetnet(p):
    arrays = {"bias_weight": ((16, 8), normal(20, 128, .5)), "bias_bias": ((16,), [-.2 * b for b in range(16)])}
    got = p.attend("prophetnet d_model=8 num_buckets=16 max_distance=32", ["position_position"], tokens(32), arrays=arrays,
                   inputs={"hidden": ((1, 32, 8), normal(21, 256), False)}, mask=["causal"])["position_position"][0]
    return pairs("32 random tokens: each chooses its own numbers for 16 buckets", [("(W x + c) [bucket]", got)], height=240)


def relative_projection(p):
    bank = [cos(b * d / 6) * exp(-d / 12) for b in range(4) for d in range(32)]
    arrays = {"distance_bank": ((4, 32), bank), "w_r": ((4, 8), normal(22, 32, .4)), "b_r": ((4,), [.5, 0, 0, 0])}
    got = p.attend("relative_projection width=8 basis=4 max_distance=32", ["position_position"], tokens(40), arrays=arrays,
                   inputs={"hidden": ((1, 40, 8), normal(23, 320), False)}, mask=["causal"])["position_position"][0]
    return pairs("40 random tokens mix four curves of 32 distances, beyond which there is nothing", [("mixed curves", got)], height=240)


def shaw(p):
    arrays = {"table": ((9, 8), normal(24, 72))}
    panels = []
    for name, scheme in (("clipped at 4", "shaw left=4 right=4 values=none"), ("nothing beyond 4", "shaw left=4 right=4 values=none beyond=zero")):
        panels.append((name, p.attend(scheme, ["query_position"], tokens(24), arrays=arrays)["query_position"][0]))
    return pairs("q · A by distance, of 24 random tokens", panels)


def stick_breaking(p):
    n = 32
    panels = []
    for name, scheme, mask in (("softmax", "nope", "causal"), ("stick-breaking", "stick_breaking", "window=31,-1")):
        panels.append((name, p.attend(scheme, ["probabilities"], tokens(n), mask=[mask])["probabilities"][0]))
    return pairs("Weights of 32 random tokens", panels, "weight")


def swin(p):
    panels = []
    for name, table in (("falls with the length", window_table(7, 7, .4)), ("one side more", window_table(7, 7, .15, -.3))):
        b = p.bias("swin", cells(7, 7), arrays={"table": ((169, 1), table)})
        panels += [(f"{name}, query {i // 7}, {i % 7}", on_grid(b[0][i], 7)) for i in (24, 8)]
    return grids("Bias of a patch for all of its window, 7 × 7: two made-up tables", panels, "bias", 176)


def swin_v2(p):
    w1, w2 = normal(25, 64, .8), normal(26, 32, .12)
    arrays = {"logit_scale": ((1, 1, 1), [log(10)]), "w1": ((32, 2), w1), "b1": ((32,), normal(27, 32, .5)), "w2": ((1, 32), w2)}
    panels = []
    for size in (8, 16):
        scheme = f"swin_v2 height={size} width={size} pretrained_height=8 pretrained_width=8 hidden=32"
        b = p.bias(scheme, cells(size, size), arrays=arrays)
        middle = b[0][size * size // 2 + size // 2]
        panels.append((f"window of {size} × {size}", on_grid([v - 8 for v in middle], size)))
    return grids("One random network, trained for 8 × 8 and asked for 16 × 16: bias of the middle patch, less 8", panels, "bias − 8")


def tupe(p):
    width = 16
    rows = [f(r * 100 ** (-m / 8)) for r in range(26) for m in range(8) for f in (sin, cos)]
    arrays = {"pos": ((26, width), rows), "ln_weight": ((width,), [1] * width), "ln_bias": ((width,), [0] * width),
              "w_q": ((width, width), [float(i == j) for i in range(width) for j in range(width)]),
              "w_k": ((width, width), [float(i == j) for i in range(width) for j in range(width)]), "b_q": ((width,), [0] * width), "b_k": ((width,), [0] * width)}
    inputs = {n: ((1, 24), [1] + [0] * 23, True) for n in ("query_class", "key_class")}
    got = p.attend("tupe positions=25", ["position_position"], tokens(24), dim=16, arrays=arrays, inputs=inputs)["position_position"][0]
    return pairs("A class token and 23 words; sinusoids for P, no weights", [("x · y, with reset", got)], height=240)


def udop(p):
    at = [[float(i) for i in range(24)], [.1 + .15 * (i % 6) for i in range(24)], [.1 + .2 * (i // 6) for i in range(24)]]
    fall = [-.2 * (b % 16) for b in range(32)]
    zero = {n: ((32, 1), [0] * 32) for n in ("table_1d", "table_horizontal", "table_vertical")}
    panels = [(name, p.bias("udop", at, arrays={**zero, key: ((32, 1), fall)})[0]) for name, key in (
        ("order of reading", "table_1d"), ("centres, across", "table_horizontal"), ("centres, down", "table_vertical"))]
    return pairs("24 words in four lines of six: the three parts of the bias, made-up tables", panels, "bias")


def wavlm(p):
    fall = [1 - .15 * (b % 160) for b in range(320)]
    arrays = {"table": ((320, 1), fall), "gate_const": ((1, 1, 1, 1), [1]), "gate_weight": ((8, 8), normal(28, 64, .5)), "gate_bias": ((8,), [0] * 8)}
    got = p.attend("wavlm", ["position_position"], tokens(32), arrays=arrays,
                   inputs={"hidden": ((1, 32, 8), normal(29, 256), False)})["position_position"][0]
    return pairs("32 random frames, a made-up table: each opens its gate by itself", [("gate × number", got)], height=240)


DRAWN = [enformer, longt5, irpe, beit, bros, clipped, transformer_xl, conformer, xlnet, tener, cope, cpmant, deberta, decomposed, fire, forgetting, indexed, layoutlm, levit,
         modality_pairs, prophetnet, relative_projection, shaw, stick_breaking, swin, swin_v2, tupe, udop, wavlm]
