"""Optional libraries: a clear message, with the cure, where one is missing."""

from importlib import import_module
from typing import Any

from dmnrag.errors import MissingDependencyError


def require(module: str, extra: str) -> Any:
    """Import `module`, or say which extra of dmnrag brings it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and not module.startswith(error.name):
            raise
        raise MissingDependencyError(
            f"this needs the library {module!r}, which is not installed; install it with: pip install 'dmnrag[{extra}]'"
        ) from error
