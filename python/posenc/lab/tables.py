# SPDX-License-Identifier: Apache-2.0
"""A table of the report as HTML, CSV, LaTeX and text."""
from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from html import escape
from typing import Sequence, Union


@dataclass(frozen=True)
class Span:
    """A number of one run, or the mean of the same number over seeds with its least and most."""
    numbers: tuple[float, ...]

    @property
    def mean(self) -> float:
        return math.fsum(self.numbers) / len(self.numbers)

    @property
    def least(self) -> float:
        return min(self.numbers)

    @property
    def most(self) -> float:
        return max(self.numbers)


@dataclass(frozen=True)
class Long:
    """A text that HTML shows shortened; the files have all of it."""
    text: str
    shown: int = 12


Cell = Union[str, int, float, Span, Long, None]


@dataclass(frozen=True)
class Table:
    """`name` is that of its files. `best`: the column's "low" or "high" means are bold. `digits` after the point."""
    name: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    best: str = ""
    digits: int = 2
    caption: str = ""
    tall: bool = False  # scrolls within the page
    folded: bool = False  # shown when the reader opens it

    def html(self) -> str:
        best = [self._best(column) for column in range(len(self.head))]
        body = []
        for row in self.rows:
            cells = [f"<th scope=\"row\">{self._html(row[0])}</th>"]
            for column, cell in enumerate(row[1:], 1):
                bold = isinstance(cell, Span) and round(cell.mean, self.digits) == best[column]
                cells.append(f"<td{_word(cell)}>{self._html(cell, bold)}</td>")
            body.append(f"<tr>{''.join(cells)}</tr>")
        head = "".join(f'<th scope="col"{_word(self.rows[0][i])}>{escape(name)}</th>' for i, name in enumerate(self.head))
        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption and not self.folded else ""
        made = (f'<div class="table{" tall" if self.tall else ""}"><table>{caption}<thead><tr>{head}</tr></thead>\n<tbody>'
                + "\n".join(body) + "</tbody></table></div>\n")
        return f"<details><summary>{escape(self.caption)}</summary>\n{made}</details>\n" if self.folded else made

    def csv(self) -> str:
        """Numbers in full; a column of means over several seeds is followed by its least and its most."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        spread = [any(isinstance(row[i], Span) and len(row[i].numbers) > 1 for row in self.rows) for i in range(len(self.head))]  # type: ignore[union-attr]
        writer.writerow([word for i, name in enumerate(self.head) for word in ([name, f"{name} least", f"{name} most"] if spread[i] else [name])])
        for row in self.rows:
            cells: list[str] = []
            for i, cell in enumerate(row):
                if isinstance(cell, Span):
                    cells += [repr(x) for x in ((cell.mean, cell.least, cell.most) if spread[i] else (cell.mean,))]
                else:
                    cells += ["" if cell is None else cell.text if isinstance(cell, Long) else str(cell), *(["", ""] if spread[i] else [])]
            writer.writerow(cells)
        return text.getvalue()

    def latex(self) -> str:
        """A tabular without packages; a mean over seeds has its least and most in brackets."""
        lines = ["\\begin{tabular}{l" + "r" * (len(self.head) - 1) + "}", "\\hline", " & ".join(map(_tex, self.head)) + " \\\\", "\\hline"]
        lines += [" & ".join(_tex(self._words(cell)) for cell in row) + " \\\\" for row in self.rows]
        return "\n".join([*lines, "\\hline", "\\end{tabular}"]) + "\n"

    def text(self) -> str:
        """Columns for a terminal, means only."""
        rows = [list(self.head), *([self._words(cell, spread=False) for cell in row] for row in self.rows)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(self.head))]
        return "\n".join("  ".join([row[0].ljust(widths[0]), *(word.rjust(width) for word, width in zip(row[1:], widths[1:]))]).rstrip() for row in rows)

    def _best(self, column: int) -> float | None:
        means = [round(cell.mean, self.digits) for row in self.rows if isinstance(cell := row[column], Span)]
        return None if not self.best or len(means) < 2 else min(means) if self.best == "low" else max(means)

    def _words(self, cell: Cell, spread: bool = True) -> str:
        if isinstance(cell, Span):
            words = f"{cell.mean:.{self.digits}f}"
            return words + (f" [{cell.least:.{self.digits}f}, {cell.most:.{self.digits}f}]" if spread and len(cell.numbers) > 1 else "")
        if isinstance(cell, Long):
            return cell.text[:cell.shown]
        return "–" if cell is None else f"{cell:.{self.digits}f}" if isinstance(cell, float) else str(cell)

    def _html(self, cell: Cell, bold: bool = False) -> str:
        if isinstance(cell, Long):
            return f'<code title="{escape(cell.text)}">{escape(cell.text[:cell.shown])}</code>'
        words = escape(self._words(cell, spread=False))
        words = f"<b>{words}</b>" if bold else words
        if isinstance(cell, Span) and len(cell.numbers) > 1:
            words += f"<small>{cell.least:.{self.digits}f}–{cell.most:.{self.digits}f}</small>"
        return words


def _word(cell: Cell) -> str:
    """Columns of words are set to the left."""
    return ' class="word"' if isinstance(cell, str) and not cell.lstrip("> ")[:1].isdigit() else ""


def _tex(words: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "×": r"$\times$", "≥": r"$\geq$"}
    return "".join(special.get(c, "\\" + c if c in "&%$#_{}" else c) for c in words)
