"""The HTML page: self-contained, escaped, with its languages, and readable in a real browser."""

import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_builder import cell, questions, write

from dmnrag.experiments.records import Cell
from dmnrag.experiments.reporting.contents import Report, build_report
from dmnrag.experiments.reporting.figures import draw
from dmnrag.experiments.reporting.measures.more import with_measures
from dmnrag.experiments.reporting.page import render_page, repeat_command
from dmnrag.experiments.reporting.study import read_study
from dmnrag.experiments.reporting.write import write_report
from dmnrag.experiments.results import ResultsFolder
from dmnrag.types import Example, Query

EVIL = "<script>alert('x')</script>\"&{{7*7}}"


class Page(HTMLParser):
    """Tags with their attributes, and whether every tag is closed."""

    VOID = frozenset({"meta", "link", "br", "img", "input", "path", "use", "image"})

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(content.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def page_of(report: Report) -> bytes:
    return render_page(report, {plan.name: draw(plan) for plan in report.figures})


@pytest.fixture(scope="module")
def page(paper_report: Report) -> bytes:
    return page_of(paper_report)


def test_every_tag_is_closed_in_order(page: bytes) -> None:
    assert Page(page).open == []


def test_nothing_comes_from_elsewhere_and_no_script_runs(page: bytes) -> None:
    parsed = Page(page)
    assert not [tag for tag, _ in parsed.tags if tag in ("script", "link", "iframe", "img", "object")]
    for _, attributes in parsed.tags:
        for name in ("href", "src", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#")
        assert not [name for name in attributes if name.startswith("on")]
    assert b"@import" not in page
    assert re.findall(rb"url\((?!#)", page) == []


def test_every_section_claim_table_and_figure_is_there(page: bytes, paper_report: Report) -> None:
    text = page.decode()
    for table in paper_report.tables:
        assert table.name == "claims" or f'id="table-{table.name}"' in text
    for plan in paper_report.figures:
        assert f'id="figure-{plan.name}"' in text
    for section in paper_report.sections:
        assert f'href="#{section.name}"' in text
        assert f'id="{section.name}"' in text
    assert text.count('class="claim ') == 9


def test_the_command_that_repeats_it_is_one_that_can_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "my results", [cell("no-Dmn")], lambda _: 0.5, n=3)
    # Nothing writes these: they change nothing.
    (folder.path / "spec.toml").write_text("", encoding="utf-8")
    folder.write_spec({**folder.spec, "name": "other"}, folder.cells())
    monkeypatch.chdir(folder.path)
    study = read_study(ResultsFolder.open("."))
    assert study.name == "my results"
    assert repeat_command(study) == "dmnrag experiment SPEC --out 'my results'"
    text = page_of(build_report(study)).decode()
    assert "what it resolved to is in spec.json of the folder" in text
    assert "&#34;corpus&#34;" in text


def test_ids_of_the_page_are_unique_outside_the_drawings(page: bytes) -> None:
    text = re.sub(rb"<svg.*?</svg>", b"", page, flags=re.DOTALL)
    ids = re.findall(rb' id="([^"]*)"', text)
    assert len(ids) == len(set(ids))


def test_a_figure_can_be_read_out(page: bytes) -> None:
    labels = [attributes["aria-label"] for tag, attributes in Page(page).tags if tag == "figure"]
    assert len(labels) == 4
    assert all("ROUGE-L" in (label or "") for label in labels)


def test_chinese_text_carries_its_language(page: bytes) -> None:
    assert '<span lang="zh-Hans">内科</span>'.encode() in page
    outside = re.sub(r'<span lang="zh-Hans">[^<]*</span>', "", page.decode())
    assert not re.findall(r"[\u4e00-\u9fff]", outside)


def evil_report(folder: Path) -> Report:
    asked = [
        Example(Query(f"q{i}", EVIL + str(i), (EVIL,)), (EVIL + "甲。乙。丙。", "x"), ("g",), f"c{i}") for i in range(4)
    ]

    def texts(one: Cell, example: Example) -> str:
        return EVIL + ("甲。乙。" if one.row == "no-Dmn" else "\x00 丙")

    cells = [cell(row, EVIL, llm=EVIL, table=("methods", "temperature")) for row in ("no-Dmn", "Dmn-ques-front", EVIL)]
    cells = [replace(c, parameters=replace(c.parameters, temperature=0.2)) for c in cells]
    cells = [replace(c, corpus="evil") for c in cells]
    return build_report(with_measures(read_study(write(folder, cells, lambda _: 0.5, examples=asked, texts=texts))))


def test_text_from_data_is_never_markup_or_template(tmp_path: Path) -> None:
    report = evil_report(tmp_path)
    content = page_of(report)
    parsed = Page(content)
    assert parsed.open == []
    assert not [tag for tag, _ in parsed.tags if tag == "script"]
    assert "{{7*7}}" in "".join(parsed.text)
    assert b"49</" not in content
    assert len(report.examples) == 1


def test_characters_that_html_cannot_hold_are_replaced(tmp_path: Path) -> None:
    content = page_of(evil_report(tmp_path))
    assert b"\x00" not in content
    assert "\ufffd" in content.decode()


def test_examples_show_documents_with_their_domains(tmp_path: Path) -> None:
    cells = [cell("no-Dmn"), cell("Dmn-ques-front")]
    report = build_report(read_study(write(tmp_path, cells, lambda _: 0.5, examples=questions(9))))
    (group,) = report.examples
    assert 1 < len(group.differences) <= 6
    for difference in group.differences:
        better, worse = difference.sides
        assert better.points > worse.points
        assert {better.name, worse.name} == {"no-Dmn", "Dmn-ques-front"}
        assert [d.doc_id for d in better.documents] == [difference.example.gold_doc_ids[0], "other"]
    assert "毫不相干的一段话。" in page_of(report).decode()


def test_the_same_results_give_the_same_files_and_old_tables_go(tmp_path: Path) -> None:
    report = build_report(read_study(write(tmp_path / "r", [cell("no-Dmn"), cell("Dmn")], lambda _: 0.5)))
    write_report(report, tmp_path / "out")
    first = {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()}
    stale = tmp_path / "out" / "tables" / "methods-9.md"
    stale.write_text("old")
    notes = tmp_path / "out" / "tables" / "notes.txt"
    notes.write_text("a person's own")
    write_report(report, tmp_path / "out")
    assert not stale.exists()
    assert notes.exists()
    assert {p: p.read_bytes() for p in first} == first


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.service
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
def test_a_browser_shows_it_on_a_phone_without_sideways_scrolling(page: bytes, tmp_path: Path) -> None:
    path = tmp_path / "index.html"
    script = "<script>document.title = String(document.documentElement.scrollWidth <= window.innerWidth)</script>"
    path.write_bytes(page.replace(b"</body>", script.encode() + b"</body>"))
    assert CHROMIUM is not None
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
         "--window-size=500,900", "--dump-dom", path.as_uri()],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    assert "<title>true</title>" in done.stdout
