"""What one run of the command gave, and the type of the fixture that runs it."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """Exit code and both streams."""

    code: int
    out: str
    err: str


RunCli = Callable[..., Outcome]
