"""An evidence model on disk: one JSON file beside the generations of its index, nothing that executes on load."""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dmnrag._io import write_json_atomic
from dmnrag.errors import IndexDamagedError, IndexVersionError
from dmnrag.refusal.features import NAMES
from dmnrag.refusal.figures import Figures
from dmnrag.types import Layer

FILE_NAME = "refusal.json"
FORMAT_VERSION = 1
"""Raised by every change that an older release could not read."""


class Stored(BaseModel):
    """`refusal.json`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    format_version: int = FORMAT_VERSION
    generation: int
    """Of the index, when it was calibrated."""
    created: str
    layer: Layer
    k: int = Field(ge=1)
    """Hits that are judged."""
    target_risk: float | None
    """What the thresholds were chosen for; None: balanced."""
    features: list[str]
    means: list[float]
    scales: list[float]
    weights: list[float]
    intercept: float
    threshold: float
    thresholds: dict[str, float]
    """Of top labels with cases enough for their own."""
    n_questions: int
    """Asked in calibration; each gives a case with and one without its documents."""
    figures: Figures
    """On held-out folds."""
    figures_by_label: dict[str, Figures]
    """Of the labels that have their own threshold."""


def write_stored(folder: Path, stored: Stored) -> None:
    """Write into an index folder, atomically."""
    write_json_atomic(folder / FILE_NAME, stored.model_dump())


def read_stored(folder: Path) -> Stored | None:
    """What `write_stored` wrote; None where there is no file.

    Raises:
        IndexDamagedError: the file cannot be used.
        IndexVersionError: written by another release.
    """
    path = folder / FILE_NAME
    try:
        content: Any = json.loads(path.read_bytes())
        version = content["format_version"]
        if isinstance(version, int) and version > FORMAT_VERSION:
            raise IndexVersionError(
                f"{path} has format {version}, this release reads up to {FORMAT_VERSION}; use a newer release of "
                f"dmnrag, or make it again: dmnrag calibrate {folder}"
            )
        stored = Stored.model_validate(content)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError, TypeError, KeyError) as error:
        raise _damaged(path, error) from error
    if tuple(stored.features) != NAMES:
        raise IndexVersionError(
            f"{path} weighs other features than this release knows; make it again: dmnrag calibrate {folder}"
        )
    if not len(stored.features) == len(stored.means) == len(stored.scales) == len(stored.weights):
        raise _damaged(path, ValueError("its weights do not fit its features"))
    if not all(scale > 0 for scale in stored.scales):
        raise _damaged(path, ValueError("a scale is not above 0"))
    return stored


def _damaged(path: Path, error: Exception) -> IndexDamagedError:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        why = f"{'.'.join(str(part) for part in first['loc'])} {first['msg']}"
    else:
        why = (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
    return IndexDamagedError(
        f"{path} is not a usable evidence model ({why}); make it again: dmnrag calibrate {path.parent}, or delete it"
    )
