"""From what a person types as a domain to the labels that the index has."""

import difflib
from collections.abc import Mapping

from dmnrag.errors import DomainUnknownError
from dmnrag.types import Domain

_SHOWN = 5


def parse_domain(text: str) -> Domain:
    """Labels from a command line: `内科,心血管内科` (either comma)."""
    return tuple(label.strip() for label in text.replace("，", ",").split(",") if label.strip())


_CURE = "`dmnrag info` lists all, --allow-unknown-domain takes any text"


def resolve_domain(
    given: Domain, known: Mapping[Domain, int], *, allow_unknown: bool = False, cure: str = _CURE
) -> Domain:
    """The domain of the index that `given` means.

    A single label that stands at the end of just one known path stands for that path
    (`心血管内科` for `内科 > 心血管内科`), so that a person need not spell it out.

    Args:
        given: labels as the caller has them.
        known: the index's domains with their number of documents.
        allow_unknown: take labels that no document carries as they are.
        cure: what whoever gave them can do, for the message.

    Raises:
        DomainUnknownError: a label that no document carries; offers near ones.
    """
    if given in known or not given:
        return given
    labels = {label for path in known for label in path}
    unknown = [label for label in given if label not in labels]
    if unknown and not allow_unknown:
        raise DomainUnknownError(f"no document carries the domain {unknown[0]!r}; {_near(unknown[0], known)}; {cure}")
    if len(given) == 1:
        paths = [path for path in known if path[-1] == given[0]]
        if len(paths) == 1:
            return paths[0]
    return given


def _near(label: str, known: Mapping[Domain, int]) -> str:
    labels = list(dict.fromkeys(name for path in known for name in path))
    near = difflib.get_close_matches(label, labels, n=_SHOWN, cutoff=0.3)
    near += [name for name in labels if set(label) & set(name) and name not in near][: _SHOWN - len(near)]
    if near:
        return f"near to it: {', '.join(near)}"
    return f"the index has: {', '.join(labels[:_SHOWN])}{' ...' if len(labels) > _SHOWN else ''}"
