"""Arrays on disk: `.npy` without pickle, durable when written, memory-mapped when read.

Headers are read here and not by `np.load`: it parses them as Python source, which in several threads at once
fails now and then on Python 3.11 before 3.11.8 (SystemError, cpython issue 106905), and costs as much as the rest
of opening. Every array here has a header of version 1 that numpy wrote.
"""

import math
import re
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from dmnrag._io import fault_point, fsync_path
from dmnrag.errors import IndexDamagedError

Array = npt.NDArray[Any]

_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER_BYTES = 10
"""Magic, version, and the length of what follows in two bytes."""
_HEADER = re.compile(
    rb"\{'descr': '(?P<dtype>[<>|=]?[biufc][0-9]{1,2})', 'fortran_order': False, "
    rb"'shape': \((?P<shape>[0-9]+(?:, [0-9]+)*),?\), *\} *\n"
)


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
        mapped = map_array(path)
    except (OSError, ValueError) as error:
        raise IndexDamagedError(f"{path} cannot be read ({error}); restore it or rebuild the index") from error
    if mapped.ndim != 1 or mapped.dtype.kind != kind:
        raise IndexDamagedError(f"{path} does not hold the expected numbers; restore it or rebuild the index")
    return mapped


def map_array(path: Path) -> Array:
    """Map an array of plain numbers into memory. Safe in several threads.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is cut short, or holds something else.
    """
    with path.open("rb") as file:
        start = file.read(_HEADER_BYTES)
        if len(start) < _HEADER_BYTES or not start.startswith(_MAGIC):
            raise ValueError("it is no array of numbers")
        length = int.from_bytes(start[len(_MAGIC) :], "little")
        header = _HEADER.fullmatch(file.read(length))
        if header is None:
            raise ValueError("its header is cut short, or is not one of plain numbers")
        dtype = np.dtype(header["dtype"].decode())
        shape = tuple(map(int, header["shape"].split(b", ")))
        wanted = _HEADER_BYTES + length + dtype.itemsize * math.prod(shape)
        found = path.stat().st_size
        if found != wanted:
            raise ValueError(f"it has {found} bytes where {wanted} belong")
        mapped = np.memmap(file, dtype, mode="r", offset=_HEADER_BYTES + length, shape=shape)
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
