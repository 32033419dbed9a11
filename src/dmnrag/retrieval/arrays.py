"""Arrays on disk: `.npy` without pickle, durable when written, memory-mapped when read."""

from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from dmnrag._io import fault_point, fsync_path
from dmnrag.errors import IndexDamagedError

Array = npt.NDArray[Any]


def save_array(path: Path, array: Array) -> None:
    """Write one array; it is on the disk when this returns."""
    with ArrayWriter(path, array.dtype, array.shape[1:]) as writer:
        writer.append(array)


def open_array(path: Path, kind: str) -> Array:
    """Map a one-dimensional array of `kind` (numpy's letters: "i" signed, "u" unsigned) into memory.

    Raises:
        IndexDamagedError: missing, cut short or not such an array; names the file.
    """
    try:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise IndexDamagedError(f"{path} cannot be read ({error}); restore it or rebuild the index") from error
    if not isinstance(mapped, np.ndarray) or mapped.ndim != 1 or mapped.dtype.kind != kind:
        raise IndexDamagedError(f"{path} does not hold the expected numbers; restore it or rebuild the index")
    # A plain view: slicing np.memmap itself costs a microsecond more, and a search slices hundreds of times.
    return mapped.view(np.ndarray)


class ArrayWriter:
    """Writes an array piece by piece, in the memory of one piece. Never through a map: a full disk is an error."""

    def __init__(self, path: Path, dtype: npt.DTypeLike, row_shape: tuple[int, ...] = ()) -> None:
        """`row_shape` is that of one entry: () for numbers, (dimension,) for vectors."""
        self._path = path
        self._dtype = np.dtype(dtype)
        self._row_shape = row_shape
        self._length = 0
        fault_point("write", path)
        self._file = path.open("wb")
        self._write_header()

    def append(self, piece: Array) -> None:
        """Add entries at the end."""
        self._file.write(np.ascontiguousarray(piece, dtype=self._dtype).data)
        self._length += len(piece)

    def _write_header(self) -> None:
        # numpy pads the header so that the length can be written over an earlier one of fewer digits.
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": (self._length, *self._row_shape)}
        np.lib.format.write_array_header_1_0(self._file, header)

    def __enter__(self) -> "ArrayWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            if kind is None:
                self._file.seek(0)
                self._write_header()
        if kind is None:
            fsync_path(self._path)
