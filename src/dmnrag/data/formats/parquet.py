"""Parquet, parsed by pyarrow."""

from collections.abc import Iterator
from typing import Any

from dmnrag.data.options import ReadOptions
from dmnrag.data.tables import NumberedRow, Source, Table, named_columns
from dmnrag.errors import DataError


def read_parquet(source: Source, options: ReadOptions) -> Table:
    """All columns of the file. Row numbers count from 1. No option applies: the file says everything.

    Raises:
        DataError: damaged or of a kind that pyarrow does not read.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(pa.BufferReader(source.content))
        columns, repeated = named_columns(list(file.schema_arrow.names))
        facts = {"row_groups": str(file.num_row_groups)}
        return Table("Parquet", columns, _rows(file, columns, source.name), facts, repeated)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{source.name} is a damaged Parquet file ({error}); fetch or write it again") from error


def _rows(file: Any, columns: tuple[str, ...], name: str) -> Iterator[NumberedRow]:
    import pyarrow as pa

    number = 0
    try:
        for batch in file.iter_batches():
            cells = [column.to_pylist() for column in batch.columns]
            for row in zip(*cells, strict=True):
                number += 1
                yield number, dict(zip(columns, row, strict=True))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{name}, after row {number:,}: damaged Parquet file ({error}); write it again") from error
