"""Where the parts of a generation are in its folder."""

from pathlib import Path

EXAMPLES_FILE = "examples.jsonl"


def document_file(generation: Path, segment: str) -> Path:
    """Where a segment's documents are."""
    return generation / f"documents-{segment}.parquet"


def removed_file(generation: Path, segment: str) -> Path:
    """Where the ordinals of a segment's removed documents are."""
    return generation / f"removed-{segment}.npy"


def sparse_folder(generation: Path, segment: str) -> Path:
    """Where a segment's postings are."""
    return generation / "sparse" / segment


def dense_folder(generation: Path, retriever: str, segment: str) -> Path:
    """Where a segment's vectors of one retriever are."""
    return generation / "dense" / retriever / segment
