"""The domains of questions from the command line: named, none, or inferred; and what is said of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dmnrag.cli.console import talk
from dmnrag.cli.render import domain_text
from dmnrag.domain import Inference
from dmnrag.index.labels import parse_domain
from dmnrag.pipeline import AUTO, Pipeline, abstention_text
from dmnrag.types import Query

_NONE = "none"


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its domain."""

    query: Query
    inferred: Inference | None = None
    """None where the domain was not inferred."""


def with_domains(
    pipeline: Pipeline, queries: Sequence[Query], option: str | None, *, allow_unknown: bool
) -> list[Asked]:
    """The questions with the domains that the search uses.

    Args:
        pipeline: of the index.
        queries: with their own domains, where they have some.
        option: labels, for all of them; `none`; `auto`: their own, else inferred; None: their own, else none.
        allow_unknown: take labels that no document carries.

    Raises:
        DomainUnknownError: a label that no document carries.
    """
    chosen = None if option is None or option.lower() not in (AUTO, _NONE) else option.lower()
    if chosen == _NONE:
        return [Asked(replace(query, domain=())) for query in queries]
    named = None if option is None or chosen is not None else parse_domain(option)
    resolved = [
        replace(q, domain=pipeline.resolve(q.domain if named is None else named, allow_unknown=allow_unknown))
        for q in queries
    ]
    if chosen != AUTO or not _can_infer(pipeline):
        return [Asked(query) for query in resolved]
    found = iter(pipeline.infer([query.text for query in resolved if not query.domain]))
    return [Asked(query) if query.domain else _inferred(query, next(found)) for query in resolved]


def tell_inferred(asked: Iterable[Asked]) -> None:
    """Say what was inferred: of one question the domain, of many how many got one."""
    found = [one.inferred for one in asked if one.inferred is not None]
    if len(found) > 1:
        given = sum(not inferred.abstained for inferred in found)
        talk(f"domain inferred for {given:,} of {len(found):,} questions that have none")
    for inferred in found if len(found) == 1 else ():
        share = f"{100 * inferred.probability:.0f} %"
        shown = f"domain {domain_text(inferred.domain)} inferred ({share})"
        talk(abstention_text(inferred) if inferred.abstained else shown)


def _inferred(query: Query, inferred: Inference) -> Asked:
    return Asked(replace(query, domain=inferred.domain), inferred)


def _can_infer(pipeline: Pipeline) -> bool:
    """Whether the index has a model; says so where only an older release is the reason that it has none."""
    index = pipeline.index
    if index.lacks_domain_model:
        talk(
            f"no domain is inferred: an older release built {index.folder}; `dmnrag upgrade {index.folder}` adds "
            "what it takes"
        )
    return index.domain_model is not None
