"""The HTML of one answer, without a browser."""

from hypothesis import given
from hypothesis import strategies as st
from page_fake_engine import ATTACK, LAST, PIECES, SOURCES, TEXT

from dmnrag.service.events import Delta, Finished, Source, Sources, Started, Unsupported
from dmnrag.service.page_panel import Panel, Part, Stretch, stretches
from dmnrag.service.page_texts import EN, TEXTS, Texts, preferred

STARTED = Started("a1", "q", ("内科",), None, "Dmn", "fake")


def test_text_is_cut_at_citations_and_unsupported_sentences() -> None:
    # 0 1 2 3 4 5 6 7 8 9: ab[1]。cd[2]。 is 6 + 6 characters; the second sentence is unsupported.
    text = "ab[1]。cd[2]。"
    assert stretches(text, [Unsupported(6, 12)], {1, 2}) == [
        Stretch((Part("ab"), Part("[1]", 1), Part("。")), False),
        Stretch((Part("cd"), Part("[2]", 2), Part("。")), True),
    ]


def test_numbers_of_no_excerpt_are_text() -> None:
    assert stretches("[3] [1]", [], {1}) == [Stretch((Part("[3] "), Part("[1]", 1)), False)]


@given(st.text("ab[12]。", max_size=30), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=4))
def test_nothing_is_lost_or_doubled(text: str, spans: list[tuple[int, int]]) -> None:
    cut = stretches(text, [Unsupported(*sorted(span)) for span in spans], {1, 2})
    assert "".join(part.text for stretch in cut for part in stretch.parts) == text


def test_no_text_becomes_html() -> None:
    panel = Panel(EN)
    panel.take(Started(ATTACK, ATTACK, (ATTACK,), None, ATTACK, ATTACK))
    panel.take(Sources(SOURCES))
    panel.take(Delta(ATTACK))
    panel.problem = ATTACK
    html = panel.html()
    assert "<script" not in html
    assert "<img" not in html
    assert html.count("</template>") == len(SOURCES)


def test_a_panel_grows_with_its_events_and_ends_as_the_whole_answer() -> None:
    panel = Panel(EN)
    assert panel.html() == ""
    panel.take(STARTED)
    panel.take(Sources(SOURCES[:2]))
    assert "<div class=" not in panel.html()
    for piece in PIECES:
        panel.take(Delta(piece))
    assert 'data-done="false"' in panel.html()
    assert "no source says this" not in panel.html()
    panel.take(LAST)
    assert panel.html().count(EN.unsupported) == 1
    panel.take(Finished("a1", TEXT, "answered", "length", (1, 2), (LAST,)))
    html = panel.html()
    assert 'data-answer="a1"' in html
    assert 'data-done="true"' in html
    assert EN.cut_off in html
    assert html.count(EN.unsupported) == 1
    assert html.count('class="cite"') == 3


def test_a_source_without_excerpt_is_no_citation() -> None:
    panel = Panel(EN)
    panel.take(STARTED)
    panel.take(Sources((Source(1, "d", (), 1.0, "q", ("a",), {}, ""),)))
    panel.take(Delta("x[1]"))
    assert 'class="cite"' not in panel.html()
    assert EN.no_excerpt in panel.html()


def test_both_languages_say_everything_with_the_same_values() -> None:
    names = {name for name in Texts.__slots__ if name not in {"language", "html_lang", "methods"}}
    for name in names:
        english, chinese = getattr(TEXTS["en"], name), getattr(TEXTS["zh"], name)
        assert english, name
        assert chinese, name
        assert sorted(part[1] for part in _parsed(english)) == sorted(part[1] for part in _parsed(chinese)), name
    assert TEXTS["en"].methods.keys() == TEXTS["zh"].methods.keys()


def _parsed(text: str) -> list[tuple[str, str]]:
    from string import Formatter

    return [(literal, field or "") for literal, field, _, _ in Formatter().parse(text) if field]


def test_the_browsers_languages_count_in_their_order() -> None:
    cases = {
        "": "en",
        "zh-CN,zh;q=0.9,en;q=0.8": "zh",
        "en-GB, zh;q=0.9": "en",
        "fr, zh;q=0.4, en;q=0.7": "en",
        "fr, en;q=0.4, zh-TW;q=0.7": "zh",
        "de": "en",
        "zh;q=x, en;q=0.1": "en",
    }
    assert {header: preferred(header) for header in cases} == cases
