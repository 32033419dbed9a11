from hypothesis import example, given
from hypothesis import strategies as st

from dmnrag.llm.stopping import TextStream, first_stop


def test_the_earliest_stop_wins_whatever_its_place_in_the_list() -> None:
    assert first_stop("甲乙丙", ("丙", "乙")) == 1
    assert first_stop("甲乙丙", ("丁",)) is None
    assert first_stop("甲乙丙", ()) is None


def test_the_stop_that_is_complete_first_wins_over_one_that_begins_before_it() -> None:
    assert first_stop("a：a", ("：", "a：a")) == 1
    assert first_stop("a：a", ("：", "a：")) == 0


def test_what_may_become_a_stop_string_is_held_back() -> None:
    stream = TextStream(("\n问：",))
    assert stream.feed("答") == "答"
    assert stream.feed("答\n") == ""
    assert stream.feed("答\n问") == ""
    assert stream.feed("答\n问题") == "\n问题"
    assert stream.feed("答\n问题\n问：后") == ""
    assert stream.stopped
    assert stream.close() == ""
    assert stream.text == "答\n问题"


def test_what_was_held_back_comes_at_the_end_when_no_stop_string_came() -> None:
    stream = TextStream(("\n\n",))
    stream.feed("答\n")
    assert stream.close() == "\n"
    assert stream.text == "答\n"


def test_half_a_character_never_leaves() -> None:
    stream = TextStream()
    assert stream.feed("三\ufffd") == "三"
    assert stream.feed("三\ufffd\ufffd") == ""
    assert stream.feed("三鹿") == "鹿"
    stream.feed("三鹿\ufffd")
    assert stream.close() == ""


@example("a：a", ["：", "a：a"], [2])
@given(
    st.text(alphabet="ab\n问：", max_size=30),
    st.lists(st.text(alphabet="ab\n问：", min_size=1, max_size=4), max_size=3),
    st.lists(st.integers(1, 5), max_size=30),
)
def test_streamed_text_equals_the_whole_cut_at_the_first_stop(text: str, stops: list[str], steps: list[int]) -> None:
    stream = TextStream(stops)
    pieces, at = [], 0
    for step in [*steps, len(text)]:
        at = min(len(text), at + step)
        pieces.append(stream.feed(text[:at]))
    pieces.append(stream.close())
    end = first_stop(text, stops)
    assert "".join(pieces) == stream.text == (text if end is None else text[:end])
    assert stream.stopped is (end is not None)
