"""Imports go down only: the floors of the package, held by reading the source."""

import ast
import subprocess
import sys
from pathlib import Path

import dmnrag

PACKAGE = Path(dmnrag.__file__).parent

FLOORS = {
    "errors": 0, "types": 0, "protocols": 0, "_optional": 0, "_io": 0, "_cache": 0, "_settings": 0,
    "_onednn": 0, "_openvino": 0,
    "text": 1, "metrics": 1, "prompts": 1,
    "data": 2, "retrieval": 2, "llm": 2,
    "index": 3, "domain": 3, "grounding": 3,
    "methods": 4, "pipeline": 4,
    "training": 5, "refusal": 5,
    "experiments": 6, "bundle": 6,
    "service": 7, "cli": 7,
}  # fmt: skip
ALLOWED_ON_A_FLOOR = {("pipeline", "methods"), ("index", "domain"), ("cli", "service")}
"""The pipeline runs methods, both single files; a domain model is a part of an index; a command starts the service."""
HEAVY = (
    "torch",
    "transformers",
    "sentence_transformers",
    "faiss",
    "openai",
    "sklearn",
    "ir_measures",
    "pandas",
    "elasticsearch",
    "openvino",
    "peft",
)


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "dmnrag":
            inside = node.module.split(".")[1:]
            names |= {inside[0]} if inside else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {a.name.split(".")[1] for a in node.names if a.name.startswith("dmnrag.")}
    return names & FLOORS.keys()


def sources() -> list[Path]:
    return [p for p in PACKAGE.rglob("*.py") if part_of(p) in FLOORS]


def test_every_module_has_a_floor() -> None:
    known = {*FLOORS, "__init__", "samples", "testing"}
    assert {part_of(p) for p in PACKAGE.rglob("*.py")} <= known


def test_imports_go_down_only() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in sources()
        for name in imported_parts(path) - {part_of(path)}
        if FLOORS[name] >= FLOORS[part_of(path)]
        and FLOORS[part_of(path)] > 0
        and (part_of(path), name) not in ALLOWED_ON_A_FLOOR
    ]
    assert wrong == []


def test_importing_every_light_module_loads_no_heavy_library() -> None:
    modules = sorted(
        "dmnrag." + ".".join(p.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        for p in sources()
        if part_of(p) not in {"service"}
    )
    code = (
        f"import importlib, sys\nfor m in {modules!r}: importlib.import_module(m)\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_package_loads_only_the_standard_library() -> None:
    code = "import sys, dmnrag; print([m for m in ('numpy', 'pyarrow', 'typer', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
