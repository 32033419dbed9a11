"""Whatever stands in a file, a reader gives a value or a DataError, never another error."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmnrag.data.exchange import (
    read_answers,
    read_beir,
    read_dpr_json,
    read_gold,
    read_judgements,
    read_qrels,
    read_run,
)
from dmnrag.errors import DataError

DPR = {
    "question": "q",
    "answers": ["a"],
    "positive_ctxs": [{"title": "", "text": "t", "passage_id": "1", "score": 1}],
    "negative_ctxs": [],
    "hard_negative_ctxs": [],
}
VALID = {
    "run": b"q1 Q0 d1 1 2.5 tag\nq1 Q0 d2 2 1e-3 tag\n",
    "qrels": b"q1 0 d1 1\nq1 0 d2 0\n",
    "tsv": b"query-id\tcorpus-id\tscore\nq1\td1\t1\n",
    "rows": b'{"_id": "q1", "title": "t", "text": "x", "metadata": {"domain": ["a"], "n": 1}}\n',
    "dpr": json.dumps([DPR, DPR]).encode(),
    "answers": '{"query_id": "1", "answer": "好"}\n{"query_id": 2, "answer": ""}\n'.encode(),
    "gold": '{"query_id": "1", "question": "问", "domain": ["a"], "references": ["r"]}\n'.encode(),
}
READERS: dict[str, Callable[[Path], object]] = {
    "run": read_run,
    "qrels": read_qrels,
    "tsv": read_judgements,
    "dpr": lambda path: list(read_dpr_json(path)),
    "answers": read_answers,
    "gold": read_gold,
}
_SHORT = b'|\n|\t|\r| |"|{|}|[|]|,|:|null|NaN|-1|1e999|true|\x00|\xff\xfe|\xef\xbb\xbf|\\ud800|\xe3\x80\x80|[]|{}|"x"'
PIECES = st.sampled_from([*_SHORT.split(b"|"), b"9" * 5000])
"""What a damaged stretch becomes: nothing, syntax in the wrong place, odd bytes, an overlong number."""


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """The content with a few stretches replaced by something else."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(content)))
        end = draw(st.integers(start, min(len(content), start + 20)))
        content = content[:start] + draw(PIECES | st.binary(max_size=4)) + content[end:]
    return content


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused_clearly(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "file.jsonl"
    path.write_bytes(data.draw(damaged(VALID[name])))
    with suppress(DataError):
        READERS[name](path)


@given(data=st.data(), name=st.sampled_from(["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"]))
def test_a_damaged_folder_is_read_or_refused_clearly(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, name: str
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "qrels").mkdir()
    files = {"corpus.jsonl": VALID["rows"], "queries.jsonl": VALID["rows"], "qrels/test.tsv": VALID["tsv"]}
    files[name] = data.draw(damaged(files[name]))
    for file, content in files.items():
        (folder / file).write_bytes(content)
    with suppress(DataError):
        read_beir(folder)
