"""The reader of tokenizer.model, and the order of merges."""

import struct
from pathlib import Path

import pytest

from dmnrag.errors import ConfigError, DataError
from dmnrag.llm.convert.fast_tokenizer import byte_pair_backend, merges_by_score
from dmnrag.llm.convert.sentencepiece_file import BYTE, CONTROL, NORMAL, UNKNOWN, PieceTable, read_pieces

PIECES = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
PIECES += [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]
PIECES += [("ab", -2.0, NORMAL), ("bc", -1.0, NORMAL), ("a", -3.0, NORMAL), ("b", -4.0, NORMAL), ("c", -5.0, NORMAL)]


def text_field(number: int, content: bytes) -> bytes:
    assert len(content) < 128, "one byte of length"
    return bytes([number << 3 | 2, len(content)]) + content


def number_field(number: int, value: int) -> bytes:
    return bytes([number << 3, value])


def model_file(path: Path, *, kind: int = 2, dummy_prefix: int = 0, remove_spaces: int = 0) -> Path:
    parts = []
    for text, score, own in PIECES:
        piece = text_field(1, text.encode()) + bytes([2 << 3 | 5]) + struct.pack("<f", score) + number_field(3, own)
        parts.append(text_field(1, piece))
    parts.append(text_field(2, number_field(3, kind)))
    parts.append(text_field(3, number_field(3, dummy_prefix) + number_field(4, remove_spaces)))
    path.write_bytes(b"".join(parts))
    return path


@pytest.mark.parametrize("dummy_prefix", [0, 1])
def test_pieces_are_read_with_score_and_type(tmp_path: Path, dummy_prefix: int) -> None:
    table = read_pieces(model_file(tmp_path / "tokenizer.model", dummy_prefix=dummy_prefix))
    assert list(zip(table.texts, table.scores, table.types, strict=True)) == PIECES
    assert table.dummy_prefix is bool(dummy_prefix)
    assert table.of_type(NORMAL) == ["ab", "bc", "a", "b", "c"]


def test_other_kinds_of_vocabularies_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    for change in ({"kind": 1}, {"remove_spaces": 1}):
        with pytest.raises(ConfigError, match="kind or settings"):
            read_pieces(model_file(path, **change))


def test_a_file_cut_anywhere_is_never_taken_for_a_whole_one(tmp_path: Path) -> None:
    path = model_file(tmp_path / "tokenizer.model")
    content = path.read_bytes()
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises((DataError, ConfigError)):
            read_pieces(path)


def test_merges_follow_the_scores_and_not_the_ids(tmp_path: Path) -> None:
    table = read_pieces(model_file(tmp_path / "tokenizer.model"))
    # bc has the higher score and the higher id: sentencepiece merges it first.
    assert merges_by_score(table) == [("b", "c"), ("a", "b")]
    assert byte_pair_backend(table).encode("abc").tokens == ["a", "bc"]
    by_id = PieceTable(table.texts, tuple(-float(i) for i in range(len(table.texts))), table.types, False)
    assert byte_pair_backend(by_id).encode("abc").tokens == ["ab", "c"]
