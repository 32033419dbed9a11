"""Where converted models are kept between runs."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """`DMNRAG_CACHE`, else `dmnrag` in the user's cache folder. Not created here."""
    named = os.environ.get("DMNRAG_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dmnrag"
