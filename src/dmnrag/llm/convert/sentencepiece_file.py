"""Reads a sentencepiece `tokenizer.model` without sentencepiece or protobuf.

The file is a protocol buffer `ModelProto` (sentencepiece_model.proto): field 1 the pieces {1 text, 2 score, 3 type},
field 2 the TrainerSpec {3 model type}, field 3 the NormalizerSpec {1 name, 2 character map, 3 dummy prefix,
4 remove extra spaces}.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dmnrag.errors import ConfigError, DataError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
_BPE = 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LFS = b"version https://git-lfs"

Value = int | bytes


@dataclass(frozen=True, slots=True)
class PieceTable:
    """A byte-pair vocabulary in order of ids."""

    texts: tuple[str, ...]
    scores: tuple[float, ...]
    types: tuple[int, ...]
    dummy_prefix: bool
    """A space is put in front of every text."""

    def of_type(self, kind: int) -> list[str]:
        """The pieces of one type."""
        return [text for text, own in zip(self.texts, self.types, strict=True) if own == kind]


def read_pieces(path: Path) -> PieceTable:
    """The vocabulary of a sentencepiece BPE model with byte fallback and no text normalisation.

    Raises:
        DataError: no such file, or it is damaged.
        ConfigError: another kind of sentencepiece model.
    """
    if not path.is_file():
        raise DataError(f"{path.parent} has no {path.name}: copy it from the original model, the vocabulary is in it")
    content = path.read_bytes()
    if content.startswith(_LFS):
        raise DataError(f"{path} is a Git LFS pointer, not the file itself: fetch it with `git lfs pull`")
    try:
        table, kind, normaliser = _parsed(content)
    except (ValueError, IndexError, struct.error, TypeError) as error:
        raise DataError(f"{path} is damaged or no sentencepiece model ({error}): copy it again") from error
    # Fields that are absent have the defaults of the proto file: unigram; a dummy prefix; spaces removed.
    plain = not normaliser.get(2) and normaliser.get(4, 1) == 0
    if kind != _BPE or not plain or len(table.of_type(BYTE)) != 256 or table.texts[:3] != ("<unk>", "<s>", "</s>"):
        raise ConfigError(f"{path} is not the vocabulary of ChatGLM2 or Baichuan2: its kind or settings are others")
    return table


def _parsed(content: bytes) -> tuple[PieceTable, int, dict[int, Value]]:
    pieces = []
    trainer: dict[int, Value] = {}
    normaliser: dict[int, Value] = {}
    for number, value in _fields(content):
        if number == 1:
            pieces.append(_piece(_bytes(value)))
        elif number == 2:
            trainer = dict(_fields(_bytes(value)))
        elif number == 3:
            normaliser = dict(_fields(_bytes(value)))
    if not pieces:
        raise ValueError("it holds no pieces")
    texts, scores, types = zip(*pieces, strict=True)
    if len(set(texts)) != len(texts):
        raise ValueError("a piece occurs twice")
    return PieceTable(texts, scores, types, bool(normaliser.get(3, 1))), int(trainer.get(3, 1)), normaliser


def _piece(content: bytes) -> tuple[str, float, int]:
    found = dict(_fields(content))
    (score,) = struct.unpack("<f", _bytes(found.get(2, bytes(4))))
    return _bytes(found[1]).decode(), score, int(found.get(3, NORMAL))


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("a number where text was expected")
    return value


def _fields(content: bytes) -> Iterator[tuple[int, Value]]:
    """(number, value) of each field of a message, in order."""
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(content, at)
            yield number, value
            continue
        if wire == _BYTES:
            length, at = _varint(content, at)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"unknown wire type {wire}")
        if at + length > len(content):
            raise ValueError("it is cut short")
        yield number, content[at : at + length]
        at += length


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
