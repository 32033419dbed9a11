"""Which two ways of answering people and LLMs compare, and on which questions."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from dmnrag.errors import ConfigError
from dmnrag.experiments.records import METHODS_TABLE
from dmnrag.experiments.reporting.panels import Panel, panels
from dmnrag.experiments.reporting.study import Corpus, Study
from dmnrag.methods import BASELINE, DEFAULT
from dmnrag.types import Example


@dataclass(frozen=True, slots=True)
class Item:
    """A question with the answers of both."""

    corpus: str
    example: Example
    cluster: str
    a: str
    b: str


def chosen_names(study: Study, pair: tuple[str, str] | None) -> tuple[str, str]:
    """The pair that was asked for, or the paper's best method and its baseline.

    Raises:
        ConfigError: a row that is not there, the same one twice, or no pair where there is no default.
    """
    rows = list(dict.fromkeys(arm.cell.row for arm in _panel(study).arms))
    names = pair or (DEFAULT.name, BASELINE.name)
    unknown = [name for name in names if name not in rows]
    if unknown or names[0] == names[1]:
        asked = " ".join(names)
        raise ConfigError(f"--pair {asked}: two different rows of the folder are needed; it has {', '.join(rows)}")
    return names


def items(study: Study, names: tuple[str, str], n: int, *, seed: int = 0) -> list[Item]:
    """`n` questions of all corpora together on which both answered and not the same, drawn at random.

    Zero-shot answers of the first seed and the first table of methods. Fewer where there are fewer.

    Raises:
        ConfigError: n below 1, or no such question.
    """
    if n < 1:
        raise ConfigError(f"{n} questions to compare: allowed are whole numbers from 1")
    panel = _panel(study)
    found = [item for corpus in study.corpora for item in _of_corpus(corpus, panel, names)]
    if not found:
        raise ConfigError(f"there is no question that {names[0]} and {names[1]} both answered, and differently")
    order = random.Random(seed).sample(range(len(found)), min(n, len(found)))
    return [found[i] for i in order]


def _panel(study: Study) -> Panel:
    found: Sequence[Panel] = [] if study.foreign else panels(study, METHODS_TABLE)
    return found[0] if found else Panel("", "", tuple(study.arms))


def _of_corpus(corpus: Corpus, panel: Panel, names: tuple[str, str]) -> list[Item]:
    first, second = (panel.find(corpus.name, name) for name in names)
    if first is None or second is None:
        return []
    rows = zip(corpus.questions, corpus.clusters, first.answers[0], second.answers[0], strict=True)
    return [
        Item(corpus.name, example, cluster, a, b)
        for example, cluster, a, b in rows
        if a is not None and b is not None and a.strip() != b.strip()
    ]
