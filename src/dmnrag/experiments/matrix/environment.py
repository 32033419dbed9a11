"""What an experiment runs on, written down before its work."""

import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

_LIBRARIES = (
    "dmnrag", "numpy", "scipy", "pyarrow", "rjieba", "rapidfuzz", "faiss-cpu", "sentence-transformers", "torch",
    "transformers", "peft", "openai", "openvino",
)  # fmt: skip
_TIMEOUT_S = 10.0


def describe_environment() -> dict[str, Any]:
    """Time, versions and machine; nothing that names a person, a host or a folder."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "versions": _versions(),
        "machine": {
            "system": f"{platform.system()} {platform.release()}",
            "processor": _processor(),
            "cores": os.cpu_count(),
            "memory_gb": _memory_gb(),
            "gpus": _gpus(),
        },
        "threads": os.environ.get("OMP_NUM_THREADS"),
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (ValueError, OSError, AttributeError):
        return None


def _gpus() -> list[str]:
    """Asked of the driver's own tool: torch takes seconds to load, and may not be needed."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    command = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines()
