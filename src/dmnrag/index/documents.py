"""The documents of an index as Parquet: written once in a stream, read back by ordinal or in order.

Row groups are small so that showing a hit decodes a few hundred rows, not the whole corpus.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dmnrag._io import fault_point, fsync_path
from dmnrag.errors import IndexDamagedError
from dmnrag.types import Document

SCHEMA = pa.schema(
    [
        ("doc_id", pa.string()),
        ("question", pa.string()),
        ("answers", pa.list_(pa.string())),
        ("domain", pa.list_(pa.string())),
        ("metadata", pa.map_(pa.string(), pa.string())),
    ]
)
ROWS_PER_GROUP = 256
"""About 100 kB of text: a hit costs under a millisecond to read."""
_CHUNK = 16 * ROWS_PER_GROUP

_DAMAGE = (OSError, KeyError, UnicodeDecodeError, pa.ArrowException)
"""What reading a spoilt Parquet file raises."""


def write_documents(path: Path, documents: Iterable[Document]) -> int:
    """Write documents in order, in constant memory; returns how many there were."""
    rows = iter(documents)
    n_written = 0
    fault_point("write", path)
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        while chunk := list(islice(rows, _CHUNK)):
            writer.write_table(_to_table(chunk), row_group_size=ROWS_PER_GROUP)
            n_written += len(chunk)
    fsync_path(path)
    return n_written


def _to_table(documents: Sequence[Document]) -> pa.Table:
    columns = [
        [d.doc_id for d in documents],
        [d.question for d in documents],
        [list(d.answers) for d in documents],
        [list(d.domain) for d in documents],
        [list(d.metadata.items()) for d in documents],
    ]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def _to_documents(table: pa.Table | pa.RecordBatch) -> list[Document]:
    return [
        Document(r["doc_id"], r["question"], tuple(r["answers"]), tuple(r["domain"]), dict(r["metadata"] or ()))
        for r in table.to_pylist()
    ]


class DocumentStore:
    """Reads the documents of one generation, over all its segments."""

    def __init__(self, paths: Sequence[Path]) -> None:
        try:
            self._files = [pq.ParquetFile(path, memory_map=True) for path in paths]
        except _DAMAGE as error:
            raise _damaged(error) from error
        self._starts = [0]
        self._groups: list[tuple[int, int]] = []
        for number, file in enumerate(self._files):
            for group in range(file.num_row_groups):
                self._groups.append((number, group))
                self._starts.append(self._starts[-1] + file.metadata.row_group(group).num_rows)
        self._read_group = lru_cache(maxsize=64)(self._load_group)

    def __len__(self) -> int:
        """Rows, removed documents included."""
        return self._starts[-1]

    def segment_sizes(self) -> list[int]:
        """Rows of each segment."""
        return [file.metadata.num_rows for file in self._files]

    def column(self, name: str) -> pa.Array:
        """One whole column over all segments."""
        try:
            columns = [file.read([name]).column(name) for file in self._files]
        except _DAMAGE as error:
            raise _damaged(error) from error
        chunks = [chunk for column in columns for chunk in column.chunks]
        return pa.concat_arrays(chunks) if chunks else pa.array([], SCHEMA.field(name).type)

    def get(self, ordinal: int) -> Document:
        """The document at a global ordinal."""
        group = bisect_right(self._starts, ordinal) - 1
        table = self._read_group(group)
        return _to_documents(table.slice(ordinal - self._starts[group], 1))[0]

    def _load_group(self, group: int) -> pa.Table:
        number, local = self._groups[group]
        try:
            return self._files[number].read_row_group(local)
        except _DAMAGE as error:
            raise _damaged(error) from error

    def __iter__(self) -> Iterator[Document]:
        """All documents in order, removed ones included, in constant memory."""
        for file in self._files:
            for batch in _batches(file):
                yield from _to_documents(batch)


def _batches(file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    try:
        yield from file.iter_batches(batch_size=_CHUNK)
    except _DAMAGE as error:
        raise _damaged(error) from error


def _damaged(error: Exception) -> IndexDamagedError:
    why = " ".join(str(error).split())
    return IndexDamagedError(
        f"the documents of the index cannot be read ({why}); restore the folder or build the index again"
    )
