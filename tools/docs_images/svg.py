# SPDX-License-Identifier: Apache-2.0
"""Heat maps, lines and their parts as SVG, for draw.py. Plain Python, no packages."""
import base64
import math
import struct
import zlib
from xml.sax.saxutils import escape

BLUE, ORANGE = (0, 96, 178), (213, 94, 0)  # Okabe and Ito, as `posenc plot`
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]


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


def maps(title, panels, label, height=240, widths=None, row_names=()):
    """Heat maps side by side: panels of (name, rows, x label, y label), one colour scale for all. `row_names` of one
    panel stand at its rows in place of numbers."""
    limit = max(abs(v) for _, rows, _, _ in panels for row in rows for v in row)
    widths = widths or [height] * len(panels)
    top, body, x = 74, "", 58 + 7 * max(map(len, row_names), default=0)
    for (name, rows, across, down), width in zip(panels, widths):
        body += text(x + width / 2, top - 10, name, 12)
        cells = (max(1, width // len(rows[0])), max(1, height // len(rows)))
        body += (f'<image x="{x}" y="{top}" width="{width}" height="{height}" preserveAspectRatio="none" '
                 f'href="{png([[colour(v / limit) for v in row] for row in rows], cells)}"/>\n'
                 f'<rect x="{x}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#333"/>\n')
        body += text(x, top + height + 14, "0") + text(x + width, top + height + 14, str(len(rows[0]) - 1))
        body += text(x + width / 2, top + height + 28, across, 12)
        for i, row in enumerate(row_names):
            body += text(x - 6, top + height * (i + 0.5) / len(rows) + 4, row, 11, "end")
        if not row_names:
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


def value_ticks(low, high):
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (m * step) <= 6)
    return [round(k * step, 9) for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
