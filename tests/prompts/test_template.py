from pathlib import Path

import pytest

from dmnrag.errors import PromptError
from dmnrag.prompts import load_template, template_names
from dmnrag.prompts.template import Template

WITH_DOMAIN = "{domain}{question}{documents}"
OWN = """
name = "own"
front = "{domain} {question} {documents}"
rear = "{question} {domain} {documents}"
none = "{question} {documents}"
document = "{answers}"
"""


@pytest.mark.parametrize("name", template_names())
def test_shipped_templates_load_under_their_own_name(name: str) -> None:
    template = load_template(name)
    assert template.name == name
    assert template.description


def test_the_three_shipped_templates_are_there() -> None:
    assert template_names() == ("base", "cited", "paper")


def test_fences_of_shipped_templates_stand_in_every_pattern() -> None:
    for name in template_names():
        template = load_template(name)
        for mark in template.fence:
            for pattern in (template.front, template.rear, template.none):
                assert mark in pattern


def test_a_template_of_ones_own_is_loaded_from_its_path(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text("\ufeff" + OWN, encoding="utf-8")  # Editors on Windows write a mark in front.
    assert load_template(path).name == "own"
    assert load_template(str(path)) == load_template(path)


def test_an_unknown_name_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(PromptError, match=r"no template 'papr'.*base, cited, paper.*Did you mean 'paper'"):
        load_template("papr")


def test_all_key_faults_are_named_at_once(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text('name = "x"\nfrnt = "a"\ndocument = 3\nstop = "one"\n', encoding="utf-8")
    with pytest.raises(PromptError) as caught:
        load_template(path)
    message = str(caught.value)
    assert "unknown key 'frnt' (did you mean 'front'?)" in message
    for part in ("missing key 'front'", "missing key 'rear'", "missing key 'none'"):
        assert part in message
    assert "document must be a string, found int" in message
    assert "stop must be a list of strings" in message


def test_all_place_faults_are_named_at_once() -> None:
    with pytest.raises(PromptError) as caught:
        Template("x", "{question}{documents}", "{domain}{qestion}{documents}", "{question}{domain}", "{number}")
    message = str(caught.value)
    for part in (
        "front: missing {domain}",
        "rear: missing {question}",
        "rear: unknown {qestion}",
        "none: missing {documents}",
        "none: unknown {domain}",
        "document: needs one of {answer} and {answers}",
    ):
        assert part in message


def test_a_place_that_stands_twice_is_refused() -> None:
    with pytest.raises(PromptError, match=r"none: more than once \{question\}"):
        Template("x", WITH_DOMAIN, WITH_DOMAIN, "{question}{question}{documents}", "{answers}")


@pytest.mark.parametrize("pattern", ["{question", "{question!r}{documents}", "{question:>9}{documents}", "{}", "{a.b}"])
def test_anything_but_a_plain_name_in_braces_is_refused(pattern: str) -> None:
    with pytest.raises(PromptError, match="braces"):
        Template("x", "{domain}{question}{documents}", "{domain}{question}{documents}", pattern, "{answers}")


def test_a_fence_that_a_space_could_not_break_is_refused() -> None:
    with pytest.raises(PromptError, match="fence: marks"):
        Template("x", WITH_DOMAIN, WITH_DOMAIN, "{question}{documents}", "{answers}", fence=("a b",))


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(b"\xff\xfe = ")
    with pytest.raises(PromptError, match=r"bad\.toml: not a TOML file in UTF-8"):
        load_template(path)
