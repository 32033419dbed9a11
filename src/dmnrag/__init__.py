"""dmnrag: retrieval-augmented question answering with domain knowledge (Zhang et al. 2025).

Importing this package is cheap: heavy libraries load when the part that needs them is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmnrag.pipeline import Pipeline as Pipeline
    from dmnrag.types import Answer as Answer
    from dmnrag.types import Document as Document
    from dmnrag.types import Hit as Hit
    from dmnrag.types import Query as Query

__version__ = "0.1.0"

_EXPORTS = {
    "Pipeline": "dmnrag.pipeline",
    "Answer": "dmnrag.types",
    "Document": "dmnrag.types",
    "Hit": "dmnrag.types",
    "Query": "dmnrag.types",
}

__all__ = ["Answer", "Document", "Hit", "Pipeline", "Query", "__version__"]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'dmnrag' has no attribute {name!r}")
