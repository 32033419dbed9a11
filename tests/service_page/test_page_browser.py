"""The page as a person meets it, in Chromium: asked, read, opened, reloaded, compared, stopped, voted on, by key and by
keyboard. That nothing goes wrong in the browser and nothing leaves the host is checked for each of them (`tab`)."""

import re

import httpx
import pytest
from page_fake_engine import PIECES, SOURCES, TEXT
from page_visits import DESK, SURGEON, WAIT_MS, Served, Watched
from playwright.sync_api import Page, expect

from dmnrag.service.page_texts import EN, ZH, Texts

pytestmark = [
    pytest.mark.service,
    # The page's library and pandas, which it loads, do not agree.
    pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning"),
]

QUESTION = "高血压早上头晕怎么办？"
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
ENGLISH = {"locale": "en-US"}
expect.set_options(timeout=WAIT_MS)


def ask(page: Page, question: str = QUESTION, panels: int = 1) -> None:
    """Ask and wait for the end of the new answers.

    On a machine whose cores are taken the page's library now and then loses the last update; a person asks again.
    """
    for patience_ms in (WAIT_MS / 3, WAIT_MS / 3, WAIT_MS):
        page.evaluate("document.querySelectorAll('[data-done]').forEach(old => old.removeAttribute('data-done'))")
        page.fill("#question textarea", question)
        page.keyboard.press("Enter")
        try:
            expect(page.locator(".panel [data-done=true]")).to_have_count(panels, timeout=patience_ms)
            break
        except AssertionError:
            if patience_ms == WAIT_MS:
                raise
    expect(page.locator("#stop")).to_be_disabled()


def choose(page: Page, control: str, option: str) -> None:
    page.click(f"#{control} input")
    page.locator("[role=option]", has_text=option).first.click()


def test_an_answer_streams_and_its_citation_opens_what_the_llm_was_given(service: Served, tab: Watched) -> None:
    page = tab.open(service.url)
    page.fill("#question textarea", "wait")
    page.keyboard.press("Enter")
    expect(page.locator("#panel0 .text")).to_have_text(PIECES[0])
    expect(page.locator("#status")).to_have_text(ZH.working)
    page.locator("#panel0 .cite").focus()  # and it stays there while the answer grows
    service.engine.gate.set()
    expect(page.locator("#panel0 .text")).to_have_text(TEXT + ZH.unsupported)
    expect(page.locator("#status")).to_have_text(ZH.finished)
    expect(page.locator("#panel0 .cite").first).to_be_focused()
    expect(page.locator("#panel0 .unsupported")).to_have_text("每天跑十公里。" + ZH.unsupported)
    expect(page.locator("#panel0 .domain")).to_have_text("领域：内科 / 心血管内科（自动判断，93%）")
    page.locator("#panel0 .cite", has_text="[1]").first.click()
    source = page.locator("dialog#source")
    expect(source).to_be_visible()
    expect(source.locator(".excerpt")).to_have_text(SOURCES[0].excerpt, use_inner_text=True)
    for shown in (
        "内科 / 心血管内科",
        "7.25",
        "med-7",
        "2020-12-31",
        "三级甲等",
        ZH.cut,
        ZH.outdated,
        *SOURCES[0].answers,
    ):
        expect(source).to_contain_text(shown)


def test_answer_and_citations_survive_a_reload(service: Served, tab: Watched) -> None:
    page = tab.open(service.url)
    ask(page)
    expect(page).to_have_url(re.compile(r"/zh/\?answer=a\d+$"))
    asked = len(service.engine.asked)
    page.reload()
    expect(page.locator("#panel0 .text")).to_have_text(TEXT + ZH.unsupported)
    expect(page.locator("#question textarea")).to_have_value(QUESTION)
    page.locator("#panel0 .cite", has_text="[2]").click()
    expect(page.locator("dialog .excerpt")).to_have_text(SOURCES[1].excerpt, use_inner_text=True)
    assert len(service.engine.asked) == asked  # shown again, not asked again


def test_an_answer_that_is_not_kept_says_so(service: Served, tab: Watched) -> None:
    page = tab.open(f"{service.url}/zh/?answer=none")
    expect(page.locator("#panel0")).to_contain_text(ZH.answer_gone)


@pytest.mark.parametrize(
    ("tab", "texts"), [({"locale": "zh-CN"}, ZH), (ENGLISH, EN), ({"locale": "fr-FR"}, EN)], indirect=["tab"]
)
def test_the_language_is_the_browsers_at_first(service: Served, tab: Watched, texts: Texts) -> None:
    page = tab.open(service.url)
    expect(page.locator("h1")).to_have_text(texts.title)
    expect(page.locator("html")).to_have_attribute("lang", texts.html_lang)


def test_the_language_is_switched_and_remembered_with_answer_and_question(service: Served, tab: Watched) -> None:
    page = tab.open(service.url)
    ask(page)
    page.fill("#question textarea", "下一个问题")
    page.click("#head nav a[lang=en]")
    expect(page.locator("h1")).to_have_text(EN.title)
    expect(page.locator("html")).to_have_attribute("lang", "en")
    expect(page.locator("#panel0 .domain")).to_have_text("Domain: 内科 / 心血管内科 (inferred, 93 %)")
    expect(page.locator("#panel0 .text")).to_have_attribute("lang", "zh-CN")
    expect(page.locator("#question textarea")).to_have_value("下一个问题")
    page.goto(service.url)
    expect(page.locator("h1")).to_have_text(EN.title)


def test_domain_and_method_are_chosen(service: Served, tab: Watched) -> None:
    page = tab.open(service.url)
    choose(page, "domain", "外科")
    choose(page, "method", "Dmn-ques-rear")
    ask(page)
    assert (service.engine.asked[-1].domain, service.engine.asked[-1].method) == (("外科",), "Dmn-ques-rear")
    expect(page.locator("#panel0 .domain")).to_have_text("领域：外科")
    choose(page, "domain", ZH.domain_none)
    ask(page)
    expect(page.locator("#panel0 .domain")).to_have_text(ZH.no_domain)
    assert service.engine.asked[-1].domain is None


def test_two_methods_answer_side_by_side(service: Served, tab: Watched) -> None:
    page = tab.open(service.url)
    page.check("#compare input")
    choose(page, "second", "ques-rear")
    ask(page, panels=2)
    assert {asked.method for asked in service.engine.asked[-2:]} == {None, "ques-rear"}
    expect(page.locator("#panel1 .method")).to_have_text("ques-rear")
    boxes = [page.locator(f"#panel{number}").bounding_box() for number in (0, 1)]
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[1]["x"] >= boxes[0]["x"] + boxes[0]["width"]
    expect(page).to_have_url(re.compile(r"answer=a\d+&answer=a\d+$"))
    page.reload()
    expect(page.locator("#panel1 .method")).to_have_text("ques-rear")
    page.locator("#panel1 .cite").last.click()
    expect(page.locator("dialog .excerpt")).to_have_text(SOURCES[1].excerpt, use_inner_text=True)


def test_stop_ends_the_generation_and_the_next_question_is_answered(service: Served, tab: Watched) -> None:
    page = tab.open(service.url)
    page.fill("#question textarea", "wait")
    page.keyboard.press("Enter")
    expect(page.locator("#panel0 .text")).to_have_text(PIECES[0])
    page.click("#stop")
    expect(page.locator("#status")).to_have_text(ZH.stopped)
    assert service.engine.closed.wait(60)
    expect(page.locator("#panel0 .text")).to_have_text(PIECES[0])
    ask(page)
    expect(page.locator("#panel0 .text")).to_have_text(TEXT + ZH.unsupported)


def test_a_visitor_who_leaves_ends_the_generation(service: Served, tab: Watched) -> None:
    page = tab.open(service.url)
    page.fill("#question textarea", "wait")
    page.keyboard.press("Enter")
    expect(page.locator("#panel0 .text")).to_have_text(PIECES[0])
    page.goto("about:blank")
    assert service.engine.closed.wait(60)


def test_votes_with_comments_are_kept(service: Served, tab: Watched) -> None:
    page = tab.open(service.url)
    ask(page)
    page.click("#votes0 .bad")
    expect(page.locator("#votes0 .block.vote-note")).to_have_text(ZH.vote_kept)
    page.fill("#votes0 textarea", "剂量不对 <b>")
    page.get_by_role("button", name=ZH.send_comment).click()
    answer_id = page.url.rpartition("=")[2]
    assert service.engine.store is not None
    for _ in range(600):  # the page says the same as for the vote before
        found = service.engine.store.answer(answer_id, "")
        assert found is not None
        assert found.feedback is not None
        if found.feedback.comment:
            break
        page.wait_for_timeout(100)
    assert (found.feedback.good, found.feedback.comment) == (False, "剂量不对 <b>")


def test_what_goes_wrong_is_said_and_the_page_goes_on(service: Served, tab: Watched) -> None:
    page = tab.open(service.url)
    for question, words in {
        "full": ZH.queue_full.format(seconds=8),
        "busy": ZH.busy.format(seconds=3),
        "timeout": ZH.timeout,
        "down": ZH.llm_failed,
        "unknown domain": ZH.domain_unknown,
        " ": ZH.question_empty,
    }.items():
        page.fill("#question textarea", question)
        page.keyboard.press("Enter")
        expect(page.locator("#panel0 .problem")).to_have_text(words)
        expect(page.locator("#status")).to_have_text(words)
        expect(page.locator("#stop")).to_be_disabled()
    ask(page)
    expect(page.locator("#panel0 .text")).to_contain_text(TEXT)


def test_an_answer_that_breaks_off_keeps_what_there_is(service: Served, tab: Watched) -> None:
    page = tab.open(service.url)
    ask(page, "break")
    expect(page.locator("#panel0 .text")).to_have_text(PIECES[0])
    expect(page.locator("#panel0 .problem")).to_have_text(ZH.llm_failed)


def test_a_fault_of_the_service_shows_a_number_and_no_more(service: Served, tab: Watched) -> None:
    page = tab.open(service.url)
    ask(page, "fault")
    expect(page.locator("#panel0 .problem")).to_have_text(
        re.compile(r"^服务出错。请把这个编号告诉管理员：[0-9a-f]{32}$")
    )


@pytest.mark.parametrize("tab", [ENGLISH], indirect=True)
def test_a_question_without_evidence_is_refused_with_score_and_threshold(service: Served, tab: Watched) -> None:
    page = tab.open(service.url)
    ask(page, "refuse")
    state = page.locator("#panel0 .state")
    expect(state).to_contain_text(EN.refused)
    expect(state).to_contain_text("score 0.12, threshold 0.40")
    page.click("#panel0 .source >> nth=0")
    expect(page.locator("dialog")).to_contain_text(EN.no_excerpt)


def test_notices_and_withheld_answers_say_what_they_are(service: Served, tab: Watched) -> None:
    page = tab.open(service.url)
    ask(page, "notice")
    expect(page.locator("#panel0 .state")).to_have_text(ZH.notice)
    expect(page.locator("#panel0 .text")).to_have_text("请立即拨打120。")
    ask(page, "withheld")
    expect(page.locator("#panel0 .state")).to_have_text(ZH.withheld)
    ask(page, "unclear")
    expect(page.locator("#panel0 .domain")).to_have_text("领域：没有足够可能的领域 (内科 41%)")


def test_index_and_llm_that_are_not_there_are_said_until_they_are(service: Served, tab: Watched) -> None:
    engine = service.engine
    engine.state, engine.llm_state = "loading", "loading"
    page = tab.open(service.url)
    banner = page.locator("#banner")
    expect(banner).to_have_text(ZH.index_loading)
    engine.state = "failed"
    expect(banner).to_have_text(ZH.index_failed)
    engine.state = "ready"
    expect(banner).to_have_text(ZH.llm_loading)
    engine.llm_state = "down"
    expect(banner).to_have_text(ZH.llm_down)
    page.fill("#question textarea", QUESTION)
    page.click("#search")
    expect(page.locator("#status")).to_have_text(ZH.found.format(n=2))
    engine.llm_state, engine.documents = "ready", 0
    expect(banner).to_have_text(ZH.index_empty)
    engine.documents = 5
    expect(banner).to_be_hidden()


def test_searching_alone_lists_documents(service: Served, tab: Watched) -> None:
    page = tab.open(service.url)
    page.fill("#question textarea", "nothing")
    page.click("#search")
    expect(page.locator("#panel0")).to_contain_text(ZH.nothing_found)
    page.fill("#question textarea", QUESTION)
    page.click("#search")
    expect(page.locator("#panel0 .source")).to_have_count(2)
    page.click("#panel0 .source >> nth=1")
    expect(page.locator("dialog")).to_contain_text("不建议喝酒。")
    expect(page.locator("#votes0")).to_be_hidden()


def test_texts_are_never_html(service: Served, tab: Watched) -> None:
    page = tab.open(service.url)
    ask(page, "attack")
    page.click("#panel0 .cite")
    expect(page.locator("dialog .excerpt")).to_have_text(SOURCES[2].excerpt, use_inner_text=True)
    assert page.evaluate("window.attacked") is None
    assert page.locator(".panel script, .panel img, dialog script, dialog img").count() == 0
    page.reload()
    expect(page.locator("#panel0 .text")).to_contain_text("<script>window.attacked=1</script>")
    assert page.evaluate("window.attacked") is None


@pytest.mark.parametrize("tab", [PHONE, {**PHONE, **ENGLISH}], indirect=True)
def test_a_phone_shows_all_without_scrolling_sideways(service: Served, tab: Watched) -> None:
    page = tab.open(service.url)
    page.check("#compare input")
    expect(page.locator("#second input")).to_be_visible()
    ask(page, panels=2)

    assert page.evaluate("document.documentElement.scrollWidth") == 360
    visible = "[...document.querySelectorAll('.gradio-container *')].filter(e => e.getClientRects().length)"
    assert page.evaluate(f"Math.max(...{visible}.map(e => e.getBoundingClientRect().right))") <= 360
    page.tap("#panel1 .cite >> nth=0")
    box = page.locator("dialog").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360
    assert box["y"] + box["height"] <= 740
    ask_box = page.locator("#ask").bounding_box()
    assert ask_box is not None
    assert ask_box["height"] >= 36


def test_everything_is_done_by_keyboard_alone(service: Served, tab: Watched) -> None:
    page = tab.open(service.url)

    def tab_to(selector: str, most: int = 25) -> None:
        """Along the tab order, as it is."""
        for _ in range(most):
            if page.evaluate("s => document.activeElement.matches(s)", selector):
                outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                assert outline == "solid"
                return
            page.keyboard.press("Tab")
        raise AssertionError(f"{selector} is not reached")

    page.evaluate("document.activeElement.blur()")
    tab_to("#head nav a")
    tab_to("#question textarea")
    page.keyboard.type("keyboard")
    tab_to("#domain input")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    tab_to("#method input")
    tab_to("#compare input")
    page.keyboard.press("Space")
    expect(page.locator("#second input")).to_be_visible()
    page.keyboard.press("Space")
    expect(page.locator("#second input")).to_be_hidden()
    tab_to("#ask")
    page.keyboard.press("Enter")
    expect(page.locator(".panel [data-done=true]")).to_have_count(1)
    expect(page.locator("#stop")).to_be_disabled()
    assert service.engine.asked[-1].question == "keyboard"
    tab_to("#panel0 .cite")
    page.keyboard.press("Enter")
    expect(page.locator("dialog#source")).to_be_visible()
    assert page.evaluate("document.activeElement.closest('dialog') !== null")
    page.keyboard.press("Escape")
    expect(page.locator("dialog#source")).to_be_hidden()
    expect(page.locator("#panel0 .cite").first).to_be_focused()
    tab_to("#votes0 .good")
    page.keyboard.press("Enter")
    expect(page.locator("#votes0 .block.vote-note")).to_have_text(ZH.vote_kept)


def test_a_key_signs_in_and_its_limits_hold(keyed_service: Served, tab: Watched) -> None:
    page = tab.page
    page.goto(f"{keyed_service.url}/zh/?answer=x")
    expect(page.locator("h1")).to_have_text(ZH.title)
    with page.expect_response("**/sign-in"):
        page.fill("#key", "wrong-0123456789abcdef")
        page.keyboard.press("Enter")
    expect(page.locator("[role=alert]")).to_have_text(ZH.key_wrong)
    assert len(tab.faults) == 1  # the browser tells of the status 401
    tab.faults.clear()
    page.fill("#key", SURGEON)
    page.keyboard.press("Enter")
    expect(page.locator("#panel0")).to_contain_text(ZH.answer_gone)
    assert page.url == f"{keyed_service.url}/zh/?answer=x"
    page.click("#domain input")
    expect(page.locator("[role=option]")).to_contain_text([ZH.domain_auto, ZH.domain_none, "外科"])
    expect(page.locator("[role=option]")).to_have_count(3)
    page.keyboard.press("Escape")
    ask(page)
    assert (keyed_service.engine.asked[-1].owner, keyed_service.engine.asked[-1].allowed_domains) == (
        "surgeon",
        {"外科"},
    )
    expect(page.locator("#votes0")).to_contain_text(ZH.vote_impossible)
    assert page.evaluate("document.cookie").find("key") == -1
    page.get_by_role("button", name=ZH.sign_out).click()
    expect(page.locator("#key")).to_be_visible()
    page.goto(keyed_service.url)
    expect(page.locator("#key")).to_be_visible()


def test_the_keys_rate_counts_questions_and_nothing_else(keyed_service: Served, tab: Watched) -> None:
    page = tab.page
    page.goto(keyed_service.url)
    page.fill("#key", DESK)
    page.keyboard.press("Enter")
    page.wait_for_selector("#question textarea")
    page.reload()
    page.wait_for_selector("#question textarea")
    page.check("#compare input")
    expect(page.locator("#second input")).to_be_visible()

    def listed() -> int:
        domains = f"{keyed_service.url}/v1/domains"
        return httpx.get(domains, headers={"authorization": f"Bearer {DESK}"}).status_code

    assert listed() == 200  # the one request of this minute: all of the above cost nothing
    for _ in range(20):  # a minute may pass meanwhile
        while listed() == 200:
            pass
        ask(page, panels=2)
        if page.locator(".panel .problem").count() == 2:
            break
    for problem in page.locator(".panel .problem").all():
        expect(problem).to_have_text(re.compile(r"^您提问太频繁，请在 \d+ 秒后再问。$"))
    expect(page.locator(".panel .problem")).to_have_count(2)
