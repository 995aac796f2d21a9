# SPDX-License-Identifier: Apache-2.0
"""Pictures of docs/attention_engine.md: how blocks of a call become strips, and how terms enter them. Diagrams, no numbers of the library."""
from concepts import BLUE, GREEN, GREY, ORANGE, PINK, arrow, box
from svg import page, text

HIDDEN, WHOLE, MIXED = "#ececec", "#cfe3f3", "#f6d3b8"


def square(x, y, width, height, fill, stroke="#fff"):
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}" stroke="{stroke}"/>\n'


def legend(x, y, fill, words):
    return square(x, y - 11, 14, 14, fill, "#999") + text(x + 20, y, words, 12, "start")


def blocks():
    """A causal window of 4 blocks: blocks of queries by blocks of keys, a block as strips, a strip as tiles in registers."""
    left, top, side, count, window = 64, 92, 32, 9, 4
    body = text(left + side * count / 2, top - 28, "blocks of keys", 12) + text(24, top - 10, "blocks of", 12, "start")
    body += text(24, top + 6, "rows", 12, "start")
    for i in range(count):
        for j in range(count):
            fill = MIXED if j == i or i - j == window else WHOLE if 0 < i - j < window else HIDDEN
            body += square(left + side * j, top + side * i, side - 2, side - 2, fill)
    row = top + side * 6
    body += f'<rect x="{left - 3}" y="{row - 3}" width="{side * count + 4}" height="{side + 4}" fill="none" stroke="{BLUE}" stroke-width="2"/>\n'
    foot = top + side * count + 26
    for n, (fill, words) in enumerate(((HIDDEN, "hidden: skipped"), (WHOLE, "whole: no mask"), (MIXED, "mixed: −∞ where hidden"))):
        body += legend(left + [0, 128, 262][n], foot, fill, words)
    body += text(left, foot + 26, "One block of rows passes over its blocks of keys. K and V of a block are packed once.", 12, "start", f'fill="{GREY}"')
    x, y, width, height = 452, 92, 150, 160
    body += arrow((left + side * 5 - 2, row + 14), (424, row + 14), (424, y + 60), (x, y + 60), stroke=BLUE)
    body += text(x + width / 2, y - 28, "a block: strips of 12 rows", 12)
    for n in range(5):
        body += square(x, y + 32 * n, width, 30, WHOLE if n != 1 else "#9cc7e8", "#fff")
    body += text(x + width / 2, y + height + 20, "6 with 16 registers; the last", 12, more=f'fill="{GREY}"')
    body += text(x + width / 2, y + height + 36, "strip may have 8, or 4", 12, more=f'fill="{GREY}"')
    x2 = 682
    body += arrow((x + width, y + 46), (x2, y + 46), stroke=BLUE)
    body += text(x2 + 130, y - 28, "a tile: 12 rows × 2 vectors of keys, in registers", 12)
    for r in range(6):
        for c in range(2):
            body += square(x2 + 132 * c, y + 18 * r, 128, 15, "#9cc7e8")
    steps = (("1", "start values: 0, a line, or a buffer", GREEN), ("2", "+ q · k", BLUE), ("3", "2^x, written once to a small buffer", ORANGE),
             ("4", "weights · values, and their sum", PINK))
    for n, (number, words, stroke) in enumerate(steps):
        at = y + 138 + 30 * n
        body += f'<circle cx="{x2 + 10}" cy="{at - 4}" r="10" fill="{stroke}"/>\n' + text(x2 + 10, at, number, 12, more='fill="#fff" font-weight="bold"')
        body += text(x2 + 28, at, words, 12, "start")
    return page(968, 440, "From blocks to registers: a causal window of four blocks", body)


def line_slices(x, y):
    """A line of numbers by distance, and the rows of a strip that begin one number earlier each."""
    cell, count = 26, 11
    body = text(x, y, "by distance: slices of a line", 13, "start", 'font-weight="bold"')
    body += text(x, y + 18, "ALiBi, T5, KERPLE, Swin's lines", 12, "start", f'fill="{GREY}"')
    for n in range(count):
        body += square(x + cell * n, y + 40, cell - 2, 24, "#d9efe8") + text(x + cell * n + 12, y + 56, str(3 - n).replace("-", "−"), 11)
    for r in range(4):
        top = y + 84 + 30 * r
        begin = 3 - r
        body += f'<rect x="{x + cell * begin - 1}" y="{top}" width="{cell * 8}" height="22" fill="#d9efe8" stroke="{GREEN}"/>\n'
        for n in range(8):
            body += text(x + cell * (begin + n) + 12, top + 15, str(3 - begin - n).replace("-", "−"), 11)
        body += text(x + cell * count + 6, top + 15, f"row i + {r}" if r else "row i", 12, "start")
    return body


def products_by_step(x, y):
    """Products of a strip of queries with rows of a table, read like the line."""
    body = text(x, y, "rows of a table: products first", 13, "start", 'font-weight="bold"')
    body += text(x, y + 18, "Shaw, Transformer-XL, XLNet, DeBERTa", 12, "start", f'fill="{GREY}"')
    body += box(x, y + 48, 70, 92, "q of\n12 rows", BLUE, "#eaf3fa") + text(x + 84, y + 98, "·", 20) + box(x + 98, y + 48, 134, 92, "rows of the table\nthat the block reads", GREEN, "#e6f5f0")
    body += arrow((x + 232, y + 94), (x + 262, y + 94))
    for r in range(4):
        for n in range(6):
            chosen = 3 - r <= n
            body += square(x + 264 + 18 * n, y + 50 + 22 * r, 16, 20, "#9cd7c5" if chosen else "#edf3f1")
    return body + text(x + 264, y + 158, "each row reads from its", 12, "start") + text(x + 264, y + 174, "first step on", 12, "start")


def wider_products(x, y):
    """Products of vectors as further channels."""
    body = text(x, y, "products of vectors: more channels", 13, "start", 'font-weight="bold"')
    body += text(x, y + 18, "TUPE, BROS, u · k of Transformer-XL", 12, "start", f'fill="{GREY}"')
    for n, (left, right) in enumerate((("scale · q", "x"), ("k", "y"))):
        top = y + 44 + 52 * n
        body += box(x, top, 130, 36, left, BLUE, "#eaf3fa") + box(x + 134, top, 70, 36, right, GREEN, "#e6f5f0")
    return body + text(x + 226, y + 92, "one product:", 12, "start") + text(x + 226, y + 110, "scale q · k + x · y", 12, "start")


def small_buffer(x, y):
    """Everything else is written to a buffer of one strip and block."""
    body = text(x, y, "all others: a buffer of one strip", 13, "start", 'font-weight="bold"')
    body += text(x, y + 18, "sums of terms, masks by pair, FIRE, grids, forgetting gates", 12, "start", f'fill="{GREY}"')
    for r in range(4):
        for n in range(12):
            hidden = n > 7 + r
            body += square(x + 22 * n, y + 40 + 24 * r, 20, 22, HIDDEN if hidden else "#f6e3ec")
            if hidden:
                body += text(x + 22 * n + 10, y + 55 + 24 * r, "−∞", 10)
    return body + text(x + 280, y + 92, "12 rows × 128 keys,", 12, "start") + text(x + 280, y + 110, "for all blocks", 12, "start")


def start_values():
    body = line_slices(24, 66) + products_by_step(470, 66) + wider_products(24, 304) + small_buffer(470, 304)
    return page(930, 460, "How a position term enters a strip: the start value of its registers, or more channels", body)


FOLDERS = {"attention": [blocks, start_values]}
