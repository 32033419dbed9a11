"""Which arms stand in one table.

The paper has a table per LLM. Where a spec compares more, such as layers or k, there is a table for each setting:
attributes of which the same row has several values divide the tables, and those that all rows share do not.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import get_args

from dmnrag.experiments.records import Control
from dmnrag.experiments.reporting.study import Arm, Study
from dmnrag.methods import METHODS


def domain_text(arm: Arm) -> str:
    """Whose domain the arm works with."""
    cell = arm.cell
    return f"wrong for {cell.domain_noise:.0%}" if cell.domain == "wrong" else cell.domain


_ATTRIBUTES: tuple[tuple[str, Callable[[Arm], object]], ...] = (
    ("layer", lambda arm: arm.cell.layer),
    ("k", lambda arm: arm.cell.k),
    ("hard domain filter", lambda arm: arm.cell.domain_filter),
    ("domain weight", lambda arm: arm.cell.domain_weight),
    ("domain in the document", lambda arm: arm.cell.domain_in_document),
    ("candidates", lambda arm: arm.cell.candidates),
    ("reranker", lambda arm: arm.cell.reranker),
    ("retriever", lambda arm: arm.cell.retriever),
    ("documents brought in", lambda arm: arm.cell.evidence),
    ("domain", domain_text),
    ("temperature", lambda arm: arm.cell.parameters.temperature),
    ("top_k", lambda arm: arm.cell.parameters.top_k),
    ("top_p", lambda arm: arm.cell.parameters.top_p),
    ("repetition penalty", lambda arm: arm.cell.parameters.repetition_penalty),
    ("max_tokens", lambda arm: arm.cell.parameters.max_tokens),
    ("stop", lambda arm: arm.cell.parameters.stop or None),
)

_Setting = tuple[object, ...]
_CONTROLS: tuple[str, ...] = get_args(Control)


def _control_place(arm: Arm) -> int:
    """0 for what is no control; controls in one order in every table."""
    return 0 if arm.cell.control is None else 1 + _CONTROLS.index(arm.cell.control)


@dataclass(frozen=True, slots=True)
class Panel:
    """The arms of one table: one LLM, one setting, all corpora, zero-shot and LoRA."""

    llm: str
    setting: str
    """What tells it from the other tables of the LLM, such as "layer dense"; empty where it is the only one."""
    arms: tuple[Arm, ...]

    @property
    def title(self) -> str:
        """For people."""
        return ", ".join(filter(None, (self.llm, self.setting)))

    def titled(self, what: str) -> str:
        """A heading that names the LLM and the setting, where there are any."""
        return ": ".join(filter(None, (what, self.title)))

    @property
    def rows(self) -> list[str]:
        """Names of the rows: methods in the paper's order, then the others as the spec has them, then controls."""
        names = dict.fromkeys(arm.cell.row for arm in sorted(self.arms, key=_control_place))
        methods = [method.name for method in METHODS if method.name in names]
        return methods + [name for name in names if name not in methods]

    def find(self, corpus: str, row: str, generation: str = "zero-shot") -> Arm | None:
        """The arm of a place in the table; None where the spec has none."""
        for arm in self.arms:
            if (arm.cell.corpus, arm.cell.row, arm.cell.generation) == (corpus, row, generation):
                return arm
        return None

    def corpora(self) -> list[str]:
        """Names of the corpora that have an arm."""
        return list(dict.fromkeys(arm.cell.corpus for arm in self.arms))

    def generations(self, corpus: str) -> list[str]:
        """Zero-shot, LoRA, or both."""
        found = {arm.cell.generation for arm in self.arms if arm.cell.corpus == corpus}
        return [name for name in ("zero-shot", "lora") if name in found]


def panels(study: Study, table: str) -> list[Panel]:
    """The tables made of the cells that name `table`, an LLM after the other."""
    return panels_of([arm for arm in study.arms if table in arm.cell.table])


def panels_of(arms: Sequence[Arm]) -> list[Panel]:
    """A panel for each LLM and setting; an arm without an LLM stands in those of every LLM."""
    llms = dict.fromkeys(arm.cell.llm for arm in arms if arm.cell.llm is not None) or {"": None}
    found = []
    for llm in llms:
        found += _of_llm(llm, [arm for arm in arms if arm.cell.llm in (llm, None)])
    return found


def telling_apart(arms: Sequence[Arm]) -> list[str]:
    """For each arm what tells it from the others, such as "layer dense, no hard domain filter"; empty where it is the
    only one.
    """
    dividing = [i for i, (_, read) in enumerate(_ATTRIBUTES) if len({read(arm) for arm in arms}) > 1]
    return [_setting_text(_setting(arm, dividing), dividing) for arm in arms]


def _of_llm(llm: str, arms: Sequence[Arm]) -> list[Panel]:
    dividing = _dividing(arms)
    varied = [arm for arm in arms if len(_rivals(arm, arms)) > 1]
    settings = dict.fromkeys(_setting(arm, dividing) for arm in varied)
    if not settings:
        return [Panel(llm, "", tuple(arms))] if arms else []
    # A row of a single arm (closed book beside three layers) is the same thing in every setting.
    single = [arm for arm in arms if arm not in varied]
    return [
        Panel(
            llm,
            _setting_text(setting, dividing),
            tuple([a for a in varied if _setting(a, dividing) == setting] + single),
        )
        for setting in settings
    ]


def _dividing(arms: Sequence[Arm]) -> list[int]:
    """Numbers of the attributes that differ between arms of the same row."""
    found: set[int] = set()
    for _, group in groupby(sorted(arms, key=_place), key=_place):
        rivals = list(group)
        found |= {i for i, (_, read) in enumerate(_ATTRIBUTES) if len({read(arm) for arm in rivals}) > 1}
    return sorted(found)


def _rivals(arm: Arm, arms: Iterable[Arm]) -> list[Arm]:
    return [other for other in arms if _place(other) == _place(arm)]


def _place(arm: Arm) -> tuple[str, str, str]:
    return arm.cell.corpus, arm.cell.row, arm.cell.generation


def _setting(arm: Arm, dividing: Sequence[int]) -> _Setting:
    return tuple(_ATTRIBUTES[i][1](arm) for i in dividing)


def _setting_text(setting: _Setting, dividing: Sequence[int]) -> str:
    named = [(_ATTRIBUTES[i][0], value) for i, value in zip(dividing, setting, strict=True)]
    return ", ".join(filter(None, (_attribute_text(name, value) for name, value in named)))


def _attribute_text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return name if value else f"no {name}"
    if value is None:
        # A layer without vectors has no retriever; a decoding parameter that is not set is the model's own.
        return {"retriever": "", "reranker": "no reranker", "documents brought in": "own retrieval"}.get(
            name, f"{name} default"
        )
    return f"{name} {value}"
