"""The page over the real engine and a real index, with a fake LLM and encoder."""

import json
import logging
from collections.abc import Iterator

import httpx
import pytest
from page_visits import WAIT_MS, Watched, served
from playwright.sync_api import expect

from dmnrag.index import IndexSettings, build_index
from dmnrag.llm.fake import FakeGenerator
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.service.engine import Engine
from dmnrag.service.keys import KeyRing
from dmnrag.service.page_texts import ZH
from dmnrag.service.settings import ServeSettings
from dmnrag.testing.fakes import HashEncoder
from dmnrag.types import Document

pytestmark = [pytest.mark.service, pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning")]

DOCUMENTS = [
    Document("med-1", "高血压患者早上头晕怎么办", ("先测血压，再调药。",), ("内科", "心血管内科"), {"来源": "门诊"}),
    Document("med-2", "孩子发烧怎么办", ("多喝水，物理降温。",), ("儿科",)),
    Document("med-3", "骨折后多久能走路", ("一般要六到八周。",), ("外科", "骨科")),
]


@pytest.fixture(scope="module")
def llm() -> FakeGenerator:
    return FakeGenerator(["先测血压，再调药。[1]辣椒能治好骨折[9]。"])


@pytest.fixture(scope="module")
def url(llm: FakeGenerator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("real") / "index"
    build_index(folder, DOCUMENTS, IndexSettings(dense=DenseSettings(encoder="fake")), encoder=HashEncoder())
    settings = ServeSettings()
    with served(Engine(folder, llm, settings), settings, KeyRing()) as found:
        yield found


def test_requests_written_by_hand_are_refused_without_quoting_them_in_the_log(
    url: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("dmnrag"), "propagate", True)

    def ask(number: int, *values: object) -> str:
        joined = {"session_hash": f"hand{number}", "fn_index": 0, "data": values}
        httpx.post(f"{url}/zh/gradio_api/queue/join", json=joined).raise_for_status()
        with httpx.stream("GET", f"{url}/zh/gradio_api/queue/data", params=joined, timeout=WAIT_MS / 1000) as events:
            return next(line for line in events.iter_lines() if "process_completed" in line)

    assert ZH.invalid_question in json.loads(ask(1, "头晕", 5, "", False, "").removeprefix("data: "))["output"]["data"]
    assert not json.loads(ask(2, "头晕").removeprefix("data: "))["success"]  # values are missing
    assert "Traceback" not in capsys.readouterr().err
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert told == ["the page's library failed"]  # and nothing of the first


def test_a_citation_opens_the_excerpt_of_the_prompt_also_after_a_reload(
    url: str, llm: FakeGenerator, tab: Watched
) -> None:
    expect.set_options(timeout=WAIT_MS)
    page = tab.open(url)
    expect(page.locator("#banner")).to_be_hidden()  # loaded
    page.fill("#question textarea", "高血压早上头晕")
    page.keyboard.press("Enter")
    for _ in range(2):
        expect(page.locator("#panel0 .text")).to_have_text(f"先测血压，再调药。[1]辣椒能治好骨折。{ZH.unsupported}")
        page.click("#panel0 .cite")
        expect(page.locator("dialog .excerpt")).to_have_text(llm.prompts[-1].excerpts[0].text, use_inner_text=True)
        expect(page.locator("dialog")).to_contain_text("门诊")
        page.reload()
