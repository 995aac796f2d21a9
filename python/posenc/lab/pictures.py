# SPDX-License-Identifier: Apache-2.0
"""The pictures of the report as SVG text: lines with bands, shares of attention, cost. Plain Python, no packages.

Colours are those of Okabe and Ito, which colour-blind readers tell apart. Dashes and marks repeat the distinction in print.
"""
from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from typing import Iterable, Mapping, Sequence

BLACK, ORANGE, SKY, GREEN, BLUE, RED, PINK, GREY = "#222222", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", "#777777"
SOLID, DASHED, DOTTED, MIXED = "", "7 4", "2 3", "9 3 2 3"
Style = tuple[str, str, str]  # colour, dashes, mark
STYLES: dict[str, Style] = {  # the same scheme looks the same in every picture
    "none": (BLACK, DOTTED, "cross"), "sinusoidal": (ORANGE, DASHED, "triangle"), "learned": (RED, MIXED, "square"),
    "rope": (BLUE, SOLID, "circle"), "alibi": (GREEN, SOLID, "diamond"), "t5": (PINK, SOLID, "square"), "kerple": (SKY, DASHED, "circle"),
    "alibi_half": (GREEN, DASHED, "triangle"), "linear": (ORANGE, DASHED, "triangle"), "ntk": (RED, MIXED, "square"),
    "by_parts": (SKY, DASHED, "circle"), "yarn": (BLUE, SOLID, "circle"), "yarn_default": (GREEN, SOLID, "diamond"),
    "yarn_rotations": (PINK, DOTTED, "square"), "longrope": (GREY, MIXED, "cross"), "letter frequencies": (GREY, DOTTED, ""),
}
SPARE = [(c, d, m) for d, m in ((DOTTED, "diamond"), (MIXED, "triangle"), (DASHED, "square"), (SOLID, "cross"))
         for c in (ORANGE, BLUE, GREEN, RED, SKY, PINK, GREY, BLACK)]
BAND = 0.11  # opacity
LONGEST = 36  # letters of a label
NARROWEST = 0.4  # nats from the lower to the upper edge, so that noise does not fill a picture
HIGHEST = 2.5  # a loss this far above the least is not drawn to scale: how far a curve exploded says nothing


@dataclass(frozen=True)
class Line:
    """Points (length, mean, least, most) of one scheme, the lengths growing."""
    label: str
    points: Sequence[tuple[int, float, float, float]]


@dataclass(frozen=True)
class Panel:
    lines: Sequence[Line]
    title: str = ""


@dataclass
class Axes:
    left: float
    right: float
    top: float
    bottom: float
    lengths: list[int]
    low: float
    high: float
    body: list[str] = field(default_factory=list)

    def x(self, length: float) -> float:
        first, last = math.log2(self.lengths[0]), math.log2(self.lengths[-1])
        part = (math.log2(length) - first) / (last - first) if last > first else 0.5
        return self.left + 14 + (self.right - self.left - 28) * part

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * (value - self.low) / (self.high - self.low)


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """A style for each label: its own where it has one, else the next that is free."""
    spare = iter(SPARE * 8)
    return {label: STYLES.get(label) or next(spare, SPARE[0]) for label in labels}


def curves(title: str, panels: Sequence[Panel], *, up: str, across: str, trained: int | None = None,
           share: bool = False) -> str:
    """Numbers by length on a binary logarithmic axis, with bands from least to most. `share`: from 0 to 1."""
    lines = [line for panel in panels for line in panel.lines]
    lengths = sorted({point[0] for line in lines for point in line.points} | ({trained} if trained else set()))
    low, high = (0.0, 1.0) if share else _range(lines)
    names = max(len(_name(line, high)) for line in lines)
    room = 50 + 7.6 * names  # of the labels
    wide = 470 if len(panels) == 1 else 250
    height, top = 430, 84 if len(panels) > 1 else 62
    looks = styles(dict.fromkeys(line.label for line in lines))
    body, left = [], 66.0
    for i, panel in enumerate(panels):
        axes = Axes(left, left + wide, top, height - 58, lengths, low, high)
        _frame(axes, across, up if i == 0 else "", trained, share)
        if panel.title:
            axes.body.append(_text((left + axes.right) / 2, top - 26, panel.title, 14, "middle"))
        for line in panel.lines:
            _line(axes, line, looks[line.label])
        _names(axes, panel.lines, looks)
        body += axes.body
        left += wide + room + 40
    return _page(max(left - 40, 9.6 * len(title) + 40), height, title, body)


def _range(lines: Sequence[Line]) -> tuple[float, float]:
    numbers = [number for line in lines for point in line.points for number in point[1:]]
    low = min(numbers)
    least = min(point[1] for line in lines for point in line.points)
    high = min(max(numbers), max(least + HIGHEST, *(line.points[0][1] + 0.1 for line in lines)))
    pad = max(0.06 * (high - low), (NARROWEST - (high - low)) / 2)
    return max(0.0, low - pad), high + pad


def _frame(axes: Axes, across: str, up: str, trained: int | None, share: bool) -> None:
    draw = axes.body.append
    if trained and trained < axes.lengths[-1]:
        x = axes.x(trained)
        draw(f'<rect x="{axes.left}" y="{axes.top}" width="{x - axes.left:.1f}" height="{axes.bottom - axes.top}" fill="#f3f5f8"/>')
    ticks = _ticks(axes.low, axes.high)
    decimals = max(len(f"{value:g}".partition(".")[2]) for value in ticks)
    for value in ticks:
        y = axes.y(value)
        draw(f'<line x1="{axes.left}" x2="{axes.right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e2e2e2"/>')
        draw(_text(axes.left - 8, y + 4, f"{100 * value:.0f} %" if share else f"{value:.{decimals}f}", 12, "end"))
    for length in axes.lengths:
        x = axes.x(length)
        draw(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{axes.bottom}" y2="{axes.bottom + 5}" stroke="#888"/>')
    for length in _apart(axes):
        draw(_text(axes.x(length), axes.bottom + 20, str(length), 12, "middle"))
    draw(_text((axes.left + axes.right) / 2, axes.bottom + 42, across, 13, "middle"))
    if up:
        middle = (axes.top + axes.bottom) / 2
        draw(f'<text x="18" y="{middle}" font-size="13" fill="#222" text-anchor="middle" transform="rotate(-90 18 {middle})">{escape(up)}</text>')
    if trained:
        x = axes.x(trained)
        draw(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{axes.top}" y2="{axes.bottom}" stroke="#666" stroke-dasharray="4 3"/>')
        draw(_text(x + (4 if trained < axes.lengths[-1] else 0), axes.top - 8, f"trained on {trained}", 12, "start" if trained < axes.lengths[-1] else "end", "#555"))


def _apart(axes: Axes) -> list[int]:
    """The lengths whose labels do not touch."""
    shown: list[int] = []
    for length in axes.lengths:
        if not shown or axes.x(length) - axes.x(shown[-1]) >= 4 + 4 * (len(str(length)) + len(str(shown[-1]))):
            shown.append(length)
    return shown


def _line(axes: Axes, line: Line, style: Style) -> None:
    colour, dashes, mark = style
    if any(least < most for _, _, least, most in line.points) and len(line.points) > 1:
        upper = _clipped(axes, [(length, most) for length, _, _, most in line.points], cut=False)
        lower = _clipped(axes, [(length, least) for length, _, least, _ in line.points], cut=False)
        axes.body.append(f'<polygon points="{_path(upper + lower[::-1])}" fill="{colour}" opacity="{BAND:g}"/>')
    for part in _parts(_clipped(axes, [(length, mean) for length, mean, _, _ in line.points])):
        axes.body.append(f'<polyline points="{_path(part)}" fill="none" stroke="{colour}" stroke-width="2.2" stroke-linejoin="round"'
                         + (f' stroke-dasharray="{dashes}"' if dashes else "") + "/>")
    for length, mean, _, _ in line.points:
        if mean <= axes.high:
            axes.body.append(_mark(axes.x(length), axes.y(mean), mark, colour))


def _clipped(axes: Axes, points: Sequence[tuple[int, float]], cut: bool = True) -> list[tuple[float, float]]:
    """The points on the page. Above the axes a line ends at the edge (NaN parts it); without `cut` it follows the edge."""
    page: list[tuple[float, float]] = []
    for i, (length, value) in enumerate(points):
        above = value > axes.high
        if i and above != (points[i - 1][1] > axes.high):
            before = points[i - 1]
            part = (axes.high - before[1]) / (value - before[1])
            edge = (axes.x(before[0]) + part * (axes.x(length) - axes.x(before[0])), axes.top)
            page += [(math.nan, 0), edge] if cut and not above else [edge]
        if not above or not cut:
            page.append((axes.x(length), axes.y(min(value, axes.high))))
    return page


def _parts(page: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    parts: list[list[tuple[float, float]]] = [[]]
    for point in page:
        if math.isnan(point[0]):
            parts.append([])
        else:
            parts[-1].append(point)
    return [part for part in parts if len(part) > 1]


def _names(axes: Axes, lines: Sequence[Line], looks: Mapping[str, Style]) -> None:
    """The labels at the ends of the lines, moved apart, each with a piece of its line."""
    ends = sorted(((axes.y(min(line.points[-1][1], axes.high)), -line.points[-1][1], line) for line in lines), key=lambda end: end[:2])
    places: list[float] = []
    step = min(17.0, (axes.bottom - axes.top + 20) / max(1, len(ends)))
    for wanted, _, _ in ends:
        places.append(max(wanted, places[-1] + step) if places else max(wanted, axes.top))
    limit = axes.bottom
    for i in reversed(range(len(places))):
        places[i] = min(places[i], limit)
        limit = places[i] - step
    for place, (wanted, _, line) in zip(places, ends):
        colour, dashes, mark = looks[line.label]
        x = axes.x(line.points[-1][0])
        axes.body.append(f'<path d="M{x + 6:.1f} {wanted:.1f}L{axes.right + 4:.1f} {place:.1f}" stroke="{colour}" stroke-width="0.8" fill="none" opacity=".6"/>')
        axes.body.append(f'<line x1="{axes.right + 6}" x2="{axes.right + 32}" y1="{place:.1f}" y2="{place:.1f}" stroke="{colour}" stroke-width="2.2"'
                         + (f' stroke-dasharray="{dashes}"' if dashes else "") + "/>")
        axes.body.append(_mark(axes.right + 19, place, mark, colour))
        axes.body.append(_text(axes.right + 38, place + 4, _name(line, axes.high), 13, "start"))


def _name(line: Line, high: float) -> str:
    """The label; a line that left the picture has its last number beside it."""
    last = line.points[-1][1]
    label = line.label if len(line.label) <= LONGEST else line.label[:LONGEST - 1] + "…"
    return f"{label} ↑ {last:.1f}" if last > high else label


def attention(title: str, shares: Mapping[str, Sequence[Sequence[Sequence[float]]]], distances: Sequence[float]) -> str:
    """One map a scheme: a row for each head of each layer, a column for each bin of distances, darker for more attention."""
    across, cell, row = 3, 18, 14
    tall = row * max(sum(map(len, layers)) + len(layers) for layers in shares.values()) + 66
    wide = cell * len(distances)
    panel, body = max(wide + 104, 280), []
    for i, (label, layers) in enumerate(shares.items()):
        left, top = 84 + panel * (i % across), 92 + tall * (i // across)
        body.append(_text(left, top - 8, label, 14, "start"))
        for number, layer in enumerate(layers, 1):
            body.append(_text(left - 18, top + row * len(layer) / 2 + 4, f"layer {number}", 11, "end", "#555"))
            for head, shown in enumerate(layer, 1):
                body.append(_text(left - 5, top + 11, str(head), 10, "end", "#555"))
                body += [f'<rect x="{left + cell * j}" y="{top}" width="{cell - 1}" height="{row - 1}" fill="{_shade(part)}"/>' for j, part in enumerate(shown)]
                top += row
            body.append(f'<rect x="{left - 1}" y="{top - row * len(layer) - 1}" width="{wide + 1}" height="{row * len(layer) + 1}" fill="none" stroke="#aaa"/>')
            top += row // 2
        body += [_text(left + cell * (j + 0.5), top + 7, f"{end:g}", 10, "middle") for j, end in enumerate(distances) if j % 2 == 0]
        body.append(_text(left, top + 23, "distance back, from" + (" (negative: ahead)" if distances[0] < 0 else ""), 11, "start", "#555"))
    columns = min(across, len(shares))
    key = [f'<rect x="{84 + 6 * j}" y="43" width="6" height="10" fill="{_shade(j / 31)}"/>' for j in range(32)]
    key.append(_text(78, 52, "0", 11, "end") + _text(282, 52, "1: all attention of the head falls into this bin", 11, "start"))
    return _page(max(74 + panel * columns - 30, 660), 92 + tall * math.ceil(len(shares) / across) - 14, title, key + body)


def cost(title: str, seconds: Mapping[str, Mapping[str, float]]) -> str:
    """Processor time of a run: rows are schemes, columns are tasks, bars compare the schemes of one task."""
    tasks = list(dict.fromkeys(task for found in seconds.values() for task in found))
    left, wide, tall, across = 30 + 7.4 * max(map(len, seconds)), 128, 19, 6
    body, top = [], 74.0
    for start in range(0, len(tasks), across):
        block = tasks[start:start + across]
        labels = [label for label, found in seconds.items() if set(block) & set(found)]
        for column, task in enumerate(block):
            x, most = left + wide * column, max(found.get(task, 0) for found in seconds.values()) or 1
            body.append(_text(x, top - 10, task, 13, "start"))
            for i, label in enumerate(labels):
                y = top + tall * i
                if task in seconds[label]:
                    part = (wide - 62) * seconds[label][task] / most
                    body.append(f'<rect x="{x}" y="{y}" width="{max(part, 1):.1f}" height="13" fill="{BLUE}" opacity=".75"/>')
                    body.append(_text(x + max(part, 1) + 5, y + 11, f"{seconds[label][task]:.1f} s", 11, "start"))
        body += [_text(left - 10, top + tall * i + 11, label, 12, "end") for i, label in enumerate(labels)]
        top += tall * len(labels) + 44
    return _page(max(left + wide * min(across, len(tasks)), 480), top - 24, title, body)


def _shade(share: float) -> str:
    """White for 0, dark blue for 1, by the square root: small shares stay visible."""
    part = math.sqrt(min(max(share, 0.0), 1.0))
    return "#" + "".join(f"{round(255 + part * (end - 255)):02x}" for end in (8, 48, 107))


def _ticks(low: float, high: float) -> list[float]:
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (m * step) <= 6)
    return [round(i * step, 10) for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _mark(x: float, y: float, mark: str, colour: str) -> str:
    if mark == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.6" fill="{colour}"/>'
    if mark == "":
        return ""
    if mark == "cross":
        return f'<path d="M{x - 3.4:.1f} {y - 3.4:.1f}l6.8 6.8m0-6.8l-6.8 6.8" stroke="{colour}" stroke-width="2" fill="none"/>'
    shape = {"square": "m-3.4-3.4h6.8v6.8h-6.8z", "diamond": "m0-4.8l4.4 4.8-4.4 4.8-4.4-4.8z", "triangle": "m0-4.4l4.2 7.4h-8.4z"}[mark]
    return f'<path d="M{x:.1f} {y:.1f}{shape}" fill="{colour}"/>'


def _path(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _text(x: float, y: float, words: str, size: int, anchor: str, colour: str = "#222") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'


def _page(width: float, height: float, title: str, body: Sequence[str]) -> str:
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
            f'aria-label="{escape(title)}" font-family="Helvetica, Arial, sans-serif"><title>{escape(title)}</title>\n'
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>\n<text x="20" y="26" font-size="16" font-weight="bold" fill="#222">{escape(title)}</text>\n'
            + "\n".join(body) + "\n</svg>\n")
