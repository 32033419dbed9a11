"""The paper's methods as values (tables 3 and 4). A method says where the domain acts, nothing else."""

import difflib
from dataclasses import dataclass

from dmnrag.errors import ConfigError
from dmnrag.types import JOINT, PLAIN, DomainUse, Position


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the paper's tables."""

    name: str
    joint: bool
    """The domain joins the first layer (eq. 2)."""
    position: Position
    """Where the domain stands in the prompt (eq. 3 and 4)."""

    @property
    def needs_domain(self) -> bool:
        """Whether the method means anything without a domain."""
        return self.joint or self.position != "none"

    @property
    def use(self) -> DomainUse:
        """How the domain acts in the first layer."""
        return JOINT if self.joint else PLAIN


BASELINE = Method("no-Dmn", joint=False, position="none")
"""Conventional hybrid retrieval, the paper's baseline."""

DEFAULT = Method("Dmn-ques-front", joint=True, position="front")
"""The paper's best method; used where a domain is known."""

METHODS = (
    BASELINE,
    Method("Dmn", joint=True, position="none"),
    Method("ques-front", joint=False, position="front"),
    Method("ques-rear", joint=False, position="rear"),
    DEFAULT,
    Method("Dmn-ques-rear", joint=True, position="rear"),
)


def find_method(name: str) -> Method:
    """The method of that name; case does not matter.

    Raises:
        ConfigError: there is none; offers the nearest.
    """
    by_name = {method.name.lower(): method for method in METHODS}
    found = by_name.get(name.strip().lower())
    if found is None:
        near = difflib.get_close_matches(name.lower(), by_name, n=1)
        hint = f" Did you mean {by_name[near[0]].name}?" if near else ""
        raise ConfigError(f"there is no method {name!r}: allowed are {', '.join(m.name for m in METHODS)}.{hint}")
    return found
