"""The manifest of a generation: what belongs to it, with which settings it was built, and hashes.

Written last, so a generation without a whole manifest does not exist.
"""

import hashlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from dmnrag._io import write_json_atomic
from dmnrag.errors import IndexDamagedError, IndexVersionError

FORMAT_VERSION = 1
"""Raised by every change that an older release could not read."""

FILE_NAME = "manifest.json"

_LIBRARIES = ("numpy", "pyarrow", "rjieba", "faiss-cpu", "sentence-transformers", "torch", "transformers")


class Part(BaseModel):
    """One file of a generation."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    bytes: int
    sha256: str


class Segment(BaseModel):
    """Documents that were added together."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    n_documents: int
    n_removed: int = 0


class ClusterPart(BaseModel):
    """Where a generation's documents, terms and vectors are when they are not in the folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: Literal["elasticsearch"] = "elasticsearch"
    urls: list[str]
    """Of the nodes, as the writer reached them; readers may name others. Never a user, password or key."""
    name: str
    """The alias."""
    physical: str
    """The one index that this generation searches, whatever the alias points at."""
    build: str
    """What identifies that index; it stands in the index too."""
    shards: int
    replicas: int
    """As it was built; in the cluster the replicas can be changed at any time."""
    vector_kind: str
    oversample: float
    dimensions: dict[str, int]
    """Of each retriever's vectors."""


class Manifest(BaseModel):
    """Everything about one generation but the data."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    format_version: int = FORMAT_VERSION
    generation: int
    created: str
    """UTC, ISO 8601."""
    library_versions: dict[str, str]
    settings: dict[str, Any]
    source: dict[str, Any]
    """Where the documents came from and how they were split."""
    segments: list[Segment]
    domains: list[tuple[list[str], int]]
    """Each distinct domain with its number of documents, most frequent first."""
    n_examples: int
    retrievers: dict[str, dict[str, Any]]
    """Second layers by name: their settings, and for trained ones their folder and dev figures."""
    parts: dict[str, Part]
    backend: ClusterPart | None = None
    """None where everything is in the folder."""

    @property
    def n_documents(self) -> int:
        """Documents that can be found."""
        return sum(s.n_documents - s.n_removed for s in self.segments)

    def save(self, folder: Path) -> None:
        """Write into a generation's folder."""
        write_json_atomic(folder / FILE_NAME, self.model_dump(exclude=None if self.backend else {"backend"}))

    @classmethod
    def load(cls, folder: Path) -> "Manifest":
        """Read and check a generation's manifest.

        Raises:
            IndexDamagedError: missing or not a manifest.
            IndexVersionError: written by another format version; an older one can be upgraded.
        """
        path = folder / FILE_NAME
        content = read_content(folder)
        found = read_version(content, path)
        if found < FORMAT_VERSION:
            raise IndexVersionError(
                f"{path} has index format {found}, this release reads {FORMAT_VERSION}; bring it up to date with: "
                f"dmnrag upgrade {folder.parent.parent}"
            )
        try:
            return cls.model_validate_json(content)
        except ValidationError as error:
            raise _no_manifest(path, error) from error


class _Version(BaseModel):
    format_version: int


def read_content(folder: Path) -> bytes:
    """A generation's manifest as it stands, of any version.

    Raises:
        IndexDamagedError: it cannot be read.
    """
    path = folder / FILE_NAME
    try:
        return path.read_bytes()
    except OSError as error:
        raise IndexDamagedError(f"{path} cannot be read ({error.strerror}); the index is damaged") from error


def read_version(content: bytes, path: Path) -> int:
    """The format version of a manifest, from 1 to the one that this release writes.

    Raises:
        IndexDamagedError: no manifest.
        IndexVersionError: a newer version, or one that never existed.
    """
    try:
        found = _Version.model_validate_json(content).format_version
    except ValidationError as error:
        raise _no_manifest(path, error) from error
    if found > FORMAT_VERSION:
        raise IndexVersionError(
            f"{path} has index format {found}, this release reads up to {FORMAT_VERSION}; install a newer dmnrag"
        )
    if found < 1:
        raise IndexVersionError(f"{path} has index format {found}, which never existed; the file was altered")
    return found


def _no_manifest(path: Path, error: ValidationError) -> IndexDamagedError:
    first = error.errors()[0]
    where = ".".join(str(p) for p in first["loc"])
    return IndexDamagedError(f"{path} is not a manifest: {where} {first['msg']}; restore it or rebuild")


def library_versions() -> dict[str, str]:
    """Installed versions of the libraries that shape an index."""
    found = {}
    for name in ("dmnrag", *_LIBRARIES):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def describe_part(path: Path) -> Part:
    """Size and hash of a file."""
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return Part(bytes=path.stat().st_size, sha256=digest)


def check_parts(folder: Path, parts: dict[str, Part], *, hashes: bool) -> None:
    """Compare the files of a generation with its manifest.

    Raises:
        IndexDamagedError: a part is missing, has another size, or (with `hashes`) other content.
    """
    for name, part in parts.items():
        path = folder / name
        try:
            size = path.stat().st_size
        except OSError as error:
            raise IndexDamagedError(f"{path} is missing ({error.strerror}); restore it or rebuild the index") from error
        if size != part.bytes:
            raise IndexDamagedError(
                f"{path} has {size} bytes, the manifest says {part.bytes}: cut short or altered; restore it or rebuild"
            )
        if hashes and describe_part(path).sha256 != part.sha256:
            raise IndexDamagedError(f"{path} was altered: its sha256 is not the manifest's; restore it or rebuild")
