"""People as judges: a blind sheet of pairs of answers, and what their marks say.

The sheet shows a question, its domain and two answers in random order; which is whose stands in a key that raters
do not get. A rater fills the columns `better` and `domain` of a copy of the CSV, or the HTML page, which saves such a
CSV. An item's name begins with its sheet's, so that marks are never read against the key of another one. Agreement:
Krippendorff's alpha over all raters, Cohen's kappa where there are two.

Sources: Cohen 1960; Krippendorff, "Content analysis", 2004.
"""

import csv
import hashlib
import io
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dmnrag._io import write_bytes_atomic, write_json_atomic
from dmnrag._optional import require
from dmnrag.errors import ConfigError, DataError
from dmnrag.experiments.reporting.contents import Section
from dmnrag.experiments.reporting.page import render
from dmnrag.experiments.reporting.pairing import Item
from dmnrag.experiments.reporting.preferences import (
    Preference,
    corrected_together,
    preference,
    preference_row,
    preferences_table,
)

QUESTIONS: Mapping[str, str] = {
    "better": "Which answer is better?",
    "domain": "Which answer keeps closer to the domain?",
}
"""Column of the sheet -> what is asked. Marks are 1, 2, or 0 for no difference."""
_MARKS = ("1", "2", "0")
_DIGITS = 6
SHEET, PAGE, KEY = "sheet.csv", "sheet.html", "key.json"
_HEADER = ("item", "question", "domain_label", "answer_1", "answer_2", *QUESTIONS, "comment")


@dataclass(frozen=True, slots=True)
class Rated:
    """What the raters said of one question of the sheet."""

    asked: str
    preference: Preference
    raters: int
    cohen: float | None
    """None unless two raters marked items in common."""
    krippendorff: float | None
    """None with one rater, or where all marks are the same, which leaves no chance to agree against."""


def write_sheet(folder: Path, items: Sequence[Item], names: tuple[str, str], *, seed: int = 0) -> None:
    """The CSV, the HTML page and the key; of a sheet that is there already, only the files that are missing.

    Raises:
        ConfigError: the folder holds the key of another sheet.
        MissingDependencyError: the extra `report` is not installed.
    """
    rng = random.Random(seed)
    # As many of the first system on either side, in random order: a rater who favours a side favours no system.
    swapped = [i % 2 == 1 for i in range(len(items))]
    rng.shuffle(swapped)
    texts = []
    entries = []
    for item, swap in zip(items, swapped, strict=True):
        answers = (item.b, item.a) if swap else (item.a, item.b)
        texts.append((item.example.query.text, " > ".join(item.example.query.domain), *answers))
        shown = list(reversed(names)) if swap else list(names)
        entries.append({"corpus": item.corpus, "query_id": item.example.query.query_id,
                        "cluster": item.cluster, "answers": shown})  # fmt: skip
    item_names = _item_names(entries, texts)
    rows = [(name, *shown) for name, shown in zip(item_names, texts, strict=True)]
    key = {
        "names": list(names),
        "items": [{"item": name, **entry} for name, entry in zip(item_names, entries, strict=True)],
    }
    known = _is_known(folder / KEY, key)
    page = render("sheet.html", rows=rows, questions=QUESTIONS, header=_HEADER)
    folder.mkdir(parents=True, exist_ok=True)
    sheet = _csv([_HEADER, *((*row, "", "", "") for row in rows)])
    for path, content in ((folder / SHEET, sheet), (folder / PAGE, page)):
        if not (known and path.is_file()):  # someone may have filled it where it lies
            write_bytes_atomic(path, content)
    # Last: a sheet without its key is not finished, and is written anew.
    write_json_atomic(folder / KEY, key)


def _item_names(entries: Sequence[Mapping[str, object]], texts: Sequence[Sequence[str]]) -> list[str]:
    """The sheet's digest and a number. The letter before it keeps spreadsheets from reading 12345e-1 as a figure."""
    digest = hashlib.sha256(json.dumps([entries, texts]).encode()).hexdigest()[:_DIGITS]
    return [f"s{digest}-{number}" for number in range(1, len(entries) + 1)]


def _is_known(path: Path, key: Mapping[str, object]) -> bool:
    """Whether the key is there already; another one is refused."""
    if not path.is_file():
        return False
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if found != key:
        raise ConfigError(
            f"{path} belongs to another sheet, whose marks need it: move {path.parent} away, or name another folder "
            "with --out"
        )
    return True


def read_marks(path: Path, known: Sequence[str]) -> dict[str, dict[str, str]]:
    """column -> item -> mark of one rater; empty cells are left out.

    Raises:
        DataError: a column is missing, an item is unknown, of another sheet or twice, or a mark is not 1, 2 or 0;
            names the line.
    """
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a CSV file in UTF-8 ({error}): save the sheet as CSV UTF-8") from error
    marks: dict[str, dict[str, str]] = {column: {} for column in QUESTIONS}
    seen: set[str] = set()
    for number, row in enumerate(rows, start=2):
        where = f"{path}, row {number}"
        missing = [column for column in ("item", *QUESTIONS) if row.get(column) is None]
        if missing:
            raise DataError(f"{where}: column {missing[0]!r} is missing; needed are item, {', '.join(QUESTIONS)}")
        item = row["item"].strip()
        if item not in known or item in seen:
            raise DataError(f"{where}: item {item!r} {'stands there twice' if item in seen else _unknown(item, known)}")
        seen.add(item)
        for column in QUESTIONS:
            mark = row[column].strip()
            if mark and mark not in _MARKS:
                raise DataError(f"{where}: {column} is {mark!r}: allowed are 1, 2, and 0 for no difference")
            if mark:
                marks[column][item] = mark
    return marks


def _unknown(item: str, known: Sequence[str]) -> str:
    sheets = {name.rpartition("-")[0] for name in known}
    sheet = item.rpartition("-")[0]
    if sheet in sheets:
        return "is not on the sheet of this folder"
    return (
        f"is of another sheet ({sheet or 'without a name'}) than the key of this folder "
        f"({', '.join(sorted(sheets))}): read these marks with the folder that their sheet was written to"
    )


def rate(key: Mapping[str, object], marks: Sequence[Mapping[str, Mapping[str, str]]]) -> list[Rated]:
    """Preference and agreement for each question of the sheet, over all raters.

    An item's value is the mean of its raters' marks: 1 for the first system, -1 for the second, 0 for none.

    Args:
        key: as `write_sheet` wrote it.
        marks: of each rater, as `read_marks` gives them.

    Raises:
        MissingDependencyError: the extra `report` is not installed.
    """
    names, entries = _key_parts(key)
    found: list[Rated] = []
    for column, asked in QUESTIONS.items():
        of_raters = [_signed(rater[column], entries, names[0]) for rater in marks]
        items = [item for item in entries if any(item in rater for rater in of_raters)]
        values = []
        for item in items:
            given = [rater[item] for rater in of_raters if item in rater]
            values.append(sum(given) / len(given))
        if values:
            result = preference(names, values, [entries[item][0] for item in items])
            found.append(Rated(asked, result, len(marks), _cohen(of_raters), _krippendorff(of_raters, items)))
    together = corrected_together([rated.preference for rated in found])
    return [replace(rated, preference=p) for rated, p in zip(found, together, strict=True)]


def ratings_section(rated: Sequence[Rated], names: tuple[str, str]) -> Section:
    """What the raters said, for the report."""
    rows = [
        preference_row(
            one.asked, one.preference, (str(one.raters), _agreement(one.cohen), _agreement(one.krippendorff))
        )
        for one in rated
    ]
    more = ("raters", "Cohen's kappa", "Krippendorff's alpha")
    table = preferences_table("raters", f"People: {names[0]} and {names[1]}", names, rows, more)
    return Section("raters", "Judged by people", (table,))


def _agreement(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


_Entries = Mapping[str, tuple[str, str]]
"""item -> (cluster, system of the first answer)."""


def _key_parts(key: Mapping[str, object]) -> tuple[tuple[str, str], _Entries]:
    names, items = key.get("names"), key.get("items")
    try:
        assert isinstance(names, list)
        assert isinstance(items, list)
        first, second = names
        return (str(first), str(second)), {str(i["item"]): (str(i["cluster"]), str(i["answers"][0])) for i in items}
    except (AssertionError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"the key of the sheet cannot be used ({error!r}): write the sheet anew") from error


def key_items(key: Mapping[str, object]) -> list[str]:
    """Names of the items of a sheet."""
    return list(_key_parts(key)[1])


def _signed(marks: Mapping[str, str], entries: _Entries, first: str) -> dict[str, int]:
    """item -> 1 where the first system is preferred, -1 where the second, 0 for no difference."""
    signs = {}
    for item, mark in marks.items():
        shown_first = 1 if entries[item][1] == first else -1
        signs[item] = {"1": shown_first, "2": -shown_first, "0": 0}[mark]
    return signs


def _cohen(raters: Sequence[Mapping[str, int]]) -> float | None:
    if len(raters) != 2:
        return None
    common = [item for item in raters[0] if item in raters[1]]
    a, b = ([rater[item] for item in common] for rater in raters)
    if len(set(a) | set(b)) < 2:
        return None
    return float(require("sklearn.metrics", "report").cohen_kappa_score(a, b))


def _krippendorff(raters: Sequence[Mapping[str, int]], items: Sequence[str]) -> float | None:
    if len(raters) < 2:
        return None
    common = [item for item in items if sum(item in rater for rater in raters) > 1]
    if len({rater[item] for rater in raters for item in common if item in rater}) < 2:
        return None
    table = [[float(rater[item]) if item in rater else float("nan") for item in common] for rater in raters]
    library = require("krippendorff", "report")
    return float(library.alpha(reliability_data=table, level_of_measurement="nominal"))


def _csv(rows: Sequence[Sequence[str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows([[_harmless(cell) for cell in row] for row in rows])
    return ("\ufeff" + out.getvalue()).encode("utf-8", "replace")


def _harmless(text: str) -> str:
    """A text that begins like a formula must not become one in a rater's spreadsheet."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
