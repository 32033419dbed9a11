"""A table as a value, and its Markdown, CSV and LaTeX.

Knows nothing of experiments. Figures are kept as numbers: CSV gives them as they are, with the bounds of their
interval in columns of their own; the others print them with the decimals that the column asks for.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

Mark = str
"""A word or sign behind a figure, explained in the table's notes; empty for none."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its interval."""

    value: float
    low: float | None = None
    high: float | None = None
    mark: Mark = ""
    decimals: int = 2
    signed: bool = False

    @property
    def text(self) -> str:
        """The number with its mark."""
        return f"{_number(self.value, self.decimals, self.signed)}{self.mark}"

    @property
    def interval(self) -> str:
        """`[low, high]`, or nothing."""
        if self.low is None or self.high is None:
            return ""
        return f"[{_number(self.low, self.decimals, self.signed)}, {_number(self.high, self.decimals, self.signed)}]"


Entry = Figure | str
"""A figure, or text such as "incomplete: 87 of 100 answered"."""


@dataclass(frozen=True, slots=True)
class Table:
    """Columns have a path of headings: neighbours with the same beginning are shown under one heading."""

    name: str
    """Of its files: letters, digits and hyphens."""
    title: str
    columns: tuple[tuple[str, ...], ...]
    rows: tuple[tuple[Entry, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def levels(self) -> int:
        """Lines of headings."""
        return max(map(len, self.columns))

    @property
    def numeric(self) -> list[bool]:
        """Whether a column holds figures."""
        return [any(isinstance(row[i], Figure) for row in self.rows) for i in range(len(self.columns))]

    def heading(self, level: int) -> list[tuple[str, int]]:
        """(text, number of columns) of a line of headings, from the top; short paths stand at the bottom."""
        paths = [("",) * (self.levels - len(path)) + path for path in self.columns]
        groups = groupby(paths, key=lambda path: path[: level + 1])
        return [(path[level], len(list(members))) for path, members in groups]


def to_markdown(table: Table) -> str:
    """A pipe table with its title and notes."""
    header = [_md(" ".join(filter(None, path))) for path in table.columns]
    rule = ["---:" if numeric else "---" for numeric in table.numeric]
    lines = [f"### {table.title}", "", _md_row(header), _md_row(rule)]
    lines += [_md_row([_md(_plain(entry)) for entry in row]) for row in table.rows]
    lines += ["", *(f"- {note}" for note in table.notes)] if table.notes else []
    return "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    """Comma-separated, UTF-8 with a byte order mark (Excel then reads Chinese); numbers unrounded."""
    header: list[str] = []
    for path, has_numbers in zip(table.columns, table.numeric, strict=True):
        name = " ".join(filter(None, path))
        header += [name, f"{name} low", f"{name} high", f"{name} mark"] if has_numbers else [name]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    for row in table.rows:
        writer.writerow([cell for i, entry in enumerate(row) for cell in _csv_cells(entry, table.numeric[i])])
    return "\ufeff" + out.getvalue()


def to_latex(table: Table) -> str:
    r"""A `booktabs` table; Chinese text needs `\usepackage{xeCJK}` or `ctex`."""
    alignment = "".join("r" if numeric else "l" for numeric in table.numeric)
    lines = [
        r"\begin{table}[ht]",
        r"\centering",
        rf"\caption{{{_tex(table.title)}}}",
        rf"\label{{tab:{table.name}}}",
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
    ]
    for level in range(table.levels):
        lines.append(" & ".join(_tex_heading(text, span) for text, span in table.heading(level)) + r" \\")
    lines.append(r"\midrule")
    lines += [" & ".join(_tex_entry(entry) for entry in row) + r" \\" for row in table.rows]
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\footnotesize {_tex(note)}" for note in table.notes]
    lines.append(r"\end{table}")
    return "\n".join(lines) + "\n"


def _number(value: float, decimals: int, signed: bool) -> str:
    text = f"{value:+.{decimals}f}" if signed else f"{value:.{decimals}f}"
    return text.replace("-", "−")  # a minus sign, as wide as the plus


def _plain(entry: Entry) -> str:
    return entry if isinstance(entry, str) else " ".join(filter(None, (entry.text, entry.interval)))


def _csv_cells(entry: Entry, numeric: bool) -> list[str]:
    if isinstance(entry, Figure):
        bounds = ("" if bound is None else repr(bound) for bound in (entry.low, entry.high))
        return [repr(entry.value), *bounds, entry.mark]
    # A text that begins like a formula must not become one in a spreadsheet.
    text = f"'{entry}" if entry[:1] in ("=", "+", "-", "@", "\t", "\r") else entry
    return [text, "", "", ""] if numeric else [text]


def _md_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _md(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


_TEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": r"$-$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "→": r"$\to$",
}


def _tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in text)


def _tex_heading(text: str, span: int) -> str:
    return rf"\multicolumn{{{span}}}{{c}}{{{_tex(text)}}}" if span > 1 else _tex(text)


def _tex_entry(entry: Entry) -> str:
    if isinstance(entry, str):
        return _tex(entry)
    interval = rf" {{\scriptsize {_tex(entry.interval)}}}" if entry.interval else ""
    return _tex(entry.text) + interval
