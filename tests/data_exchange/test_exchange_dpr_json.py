"""DPR JSON in and out."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmnrag.data.exchange import DprContext, DprInstance, read_dpr_json, write_dpr_json
from dmnrag.errors import DataError

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
NONEMPTY = TEXTS.filter(lambda text: bool(text.strip()))
EXTRA = st.dictionaries(st.sampled_from(["dataset", "title_score"]), st.none() | TEXTS | st.integers())
CONTEXTS = st.builds(
    DprContext,
    TEXTS,
    NONEMPTY,
    st.just("") | NONEMPTY,
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    EXTRA,
)
INSTANCES = st.builds(
    DprInstance,
    NONEMPTY,
    st.lists(TEXTS, max_size=2).map(tuple),
    st.lists(CONTEXTS, min_size=1, max_size=2).map(tuple),
    st.lists(CONTEXTS, max_size=2).map(tuple),
    st.lists(CONTEXTS, max_size=2).map(tuple),
    st.lists(NONEMPTY, max_size=2).map(tuple),
    EXTRA,
)


def entry(**changes: Any) -> dict[str, Any]:
    return {
        "question": "问",
        "answers": ["答"],
        "positive_ctxs": [{"title": "", "text": "正", "passage_id": "p1"}],
        "negative_ctxs": [],
        "hard_negative_ctxs": [{"title": "", "text": "难", "passage_id": "p2", "score": "1.5"}],
    } | changes


def read(folder: Path, value: Any) -> list[DprInstance]:
    path = folder / "file.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return list(read_dpr_json(path))


@settings(max_examples=50)
@given(st.lists(INSTANCES, min_size=1, max_size=3), st.sampled_from(["set.json", "set.jsonl"]))
def test_instances_read_back_equal_from_an_array_and_from_lines(
    tmp_path_factory: pytest.TempPathFactory, instances: list[DprInstance], name: str
) -> None:
    path = tmp_path_factory.mktemp("dpr") / name
    assert write_dpr_json(path, iter(instances)) == len(instances)
    assert list(read_dpr_json(path)) == instances


def test_the_array_is_the_standard_file(tmp_path: Path) -> None:
    context = DprContext("题", "文", "p1", 2.0, {"title_score": 1})
    path = tmp_path / "set.json"
    write_dpr_json(path, [DprInstance("问", ("答",), (context,), domain=("内科",), extra={"dataset": "x"})] * 2)
    row = {
        "question": "问",
        "answers": ["答"],
        "domain": ["内科"],
        "positive_ctxs": [{"title": "题", "text": "文", "passage_id": "p1", "score": 2.0, "title_score": 1}],
        "negative_ctxs": [],
        "hard_negative_ctxs": [],
        "dataset": "x",
    }
    assert json.loads(path.read_text(encoding="utf-8")) == [row, row]
    write_dpr_json(tmp_path / "set.jsonl", read_dpr_json(path))
    lines = (tmp_path / "set.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [row, row]


def test_published_habits_are_read(tmp_path: Path) -> None:
    passage = {"title": "", "text": "正", "psg_id": 7}
    (found,) = read(tmp_path, [entry(positive_ctxs=[passage])])
    assert found.positive_ctxs == (DprContext("", "正", "7"),)
    assert found.hard_negative_ctxs[0].score == 1.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answers": "答"}, "entry 2: 'answers' is '答'; a list of texts is needed"),
        ({"answers": [None]}, "entry 2: 'answers' holds None"),
        ({"positive_ctxs": []}, "entry 2: 'positive_ctxs' is empty"),
        ({"positive_ctxs": "正"}, "entry 2, 'positive_ctxs' is the text '正'; a list of passages is needed"),
        ({"negative_ctxs": {"text": "x"}}, "entry 2, 'negative_ctxs' is dict; a list of passages"),
        ({"negative_ctxs": ["x"]}, "entry 2, 'negative_ctxs' passage 1: an object with title"),
        ({"negative_ctxs": [{"title": "", "passage_id": "1"}]}, "'negative_ctxs' passage 1: no 'text'"),
        ({"negative_ctxs": [{"text": "x", "passage_id": "1"}]}, "'negative_ctxs' passage 1: no 'title'"),
        ({"negative_ctxs": [{"text": "x", "title": ""}]}, "'negative_ctxs' passage 1: no 'passage_id'"),
        (
            {"hard_negative_ctxs": [{"text": "x", "title": "", "passage_id": "1", "score": "high"}]},
            "'hard_negative_ctxs' passage 1: 'score' is \"high\"",
        ),
        (
            {"hard_negative_ctxs": [{"text": "x", "title": "", "passage_id": "1", "score": float("nan")}]},
            "passage 1: 'score' is nan",
        ),
        ({"question": " "}, "entry 2: 'question' is empty"),
        ({"question": None}, "entry 2: 'question' is None"),
        ({"domain": "内科"}, "entry 2: 'domain' is '内科'; a list"),
    ],
)
def test_a_wrong_entry_is_an_error_that_names_its_number_and_key(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path, [entry(), entry(**change)])
    assert message in str(error.value)


@pytest.mark.parametrize("key", ["question", "answers", "positive_ctxs", "negative_ctxs", "hard_negative_ctxs"])
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    wrong = entry()
    del wrong[key]
    with pytest.raises(DataError, match=f"entry 1: no '{key}'; its keys are"):
        read(tmp_path, [wrong])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no entry"),
        ("[]", "holds no entry"),
        ("[1]", "entry 1: an object is needed, found int"),
        ('[{"question": "a"},', "not JSON"),
        (json.dumps(entry()) + "\n\n{", "line 3: not JSON"),
        (json.dumps(entry()) + "\n[]", "line 2, entry 2: an object is needed, found list"),
        ("[" * 100_000, "nested too deeply"),
        ('[{"question": "\\ud800"}]', "half a surrogate pair"),
        ('{"n": ' + "1" * 5000 + "}", "not usable JSON"),
    ],
)
def test_a_file_that_is_no_dpr_json_is_a_clear_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path, text)
    assert message in str(error.value)


def test_an_instance_is_checked_when_it_is_made() -> None:
    passage = DprContext("", "文", "1")
    with pytest.raises(DataError, match="'answers' is the text"):
        DprInstance("问", "答", (passage,))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="'positive_ctxs' is empty"):
        DprInstance("问", (), ())
    with pytest.raises(DataError, match="'text' is empty"):
        DprContext("", " ", "1")
    with pytest.raises(DataError, match="'question' stands among the further keys"):
        DprInstance("问", (), (passage,), extra={"question": "x"})


def test_nothing_and_what_json_lacks_is_not_written(tmp_path: Path) -> None:
    passage = DprContext("", "文", "1")
    with pytest.raises(DataError, match="would hold no entry"):
        write_dpr_json(tmp_path / "set.json", [])
    with pytest.raises(DataError, match="entry 1 cannot be written as JSON"):
        write_dpr_json(tmp_path / "set.json", [DprInstance("问", (), (passage,), extra={"x": float("nan")})])
    assert list(tmp_path.iterdir()) == []
