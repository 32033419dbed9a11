"""Where the cluster is and who asks: three sources, clear refusals, and secrets that no text shows."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dmnrag.cli.cluster_options import ClusterOptions
from dmnrag.errors import ConfigError
from dmnrag.retrieval.elastic import ConnectionSettings, check_borrowed_urls

URL = "https://es.hospital.example:9200"
SECRET = "s3cr3t-Value"


def load(options: dict[str, Any] | None = None, **variables: str) -> ConnectionSettings:
    return ConnectionSettings.load(options, environment=variables)


def test_options_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "es.toml"
    file.write_text('urls = ["https://file:1"]\ndeadline_s = 7\nrequest_timeout_s = 2\nconcurrency = 3\n')
    variables = {"DMNRAG_ES_CONFIG": str(file), "DMNRAG_ES_DEADLINE_S": "8", "DMNRAG_ES_REQUEST_TIMEOUT_S": "4"}
    settings = ConnectionSettings.load({"request_timeout_s": 5.0, "user": None}, environment=variables)
    assert settings.urls == ("https://file:1",)
    assert (settings.concurrency, settings.deadline_s, settings.request_timeout_s) == (3, 8.0, 5.0)


def test_json_file_and_several_urls(tmp_path: Path) -> None:
    file = tmp_path / "es.json"
    file.write_text(json.dumps({"urls": "https://a:9200, https://b:9200/", "verify_tls": False}))
    settings = ConnectionSettings.load(environment={}, file=file)
    assert settings.urls == ("https://a:9200", "https://b:9200")
    assert not settings.verify_tls


def test_key_of_a_nearer_source_takes_the_place_of_a_user_of_a_farther_one(tmp_path: Path) -> None:
    file = tmp_path / "es.toml"
    file.write_text(f'urls = ["{URL}"]\nuser = "u"\npassword = "p"\n')
    settings = ConnectionSettings.load(environment={"DMNRAG_ES_API_KEY": "abc"}, file=file)
    assert (settings.api_key, settings.user, settings.password) == ("abc", None, None)
    settings = ConnectionSettings.load({"user": "v", "password": "q"}, environment={}, file=file)
    assert (settings.user, settings.password) == ("v", "q")


def test_tls_is_verified_by_default() -> None:
    assert load({"urls": URL}).verify_tls


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "no Elasticsearch server is named"),
        ({"urls": "localhost:9200"}, "not the URL of a server"),
        ({"urls": "ftp://a:1"}, "not the URL of a server"),
        ({"urls": "https://a:99999"}, "not the URL of a server"),
        ({"urls": URL, "api_key": "a", "user": "u", "password": "p"}, "give one of them"),
        ({"urls": URL, "user": "u"}, "belong together"),
        ({"urls": URL, "fingerprint": "ab:cd"}, "64 hexadecimal digits"),
        ({"urls": URL, "ca_cert": "/no/such/file.pem"}, "not a file"),
        ({"urls": "http://a:1", "fingerprint": "ab" * 32}, "nothing is checked against it"),
        ({"urls": URL, "deadline_s": 0}, "deadline_s is 0"),
        ({"urls": URL, "concurrency": "many"}, "concurrency has a value of the wrong kind"),
        ({"urls": URL, "verify_tls": "perhaps"}, "verify_tls has a value of the wrong kind"),
        ({"urls": URL, "apikey": "x"}, "did you mean 'api_key'"),
    ],
)
def test_settings_that_cannot_be_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(options)


def test_file_that_is_missing_or_no_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(DMNRAG_ES_CONFIG=str(tmp_path / "none.toml"))
    spoilt = tmp_path / "spoilt.toml"
    spoilt.write_text(f"password = {SECRET}")
    with pytest.raises(ConfigError, match="not TOML or JSON") as caught:
        load(DMNRAG_ES_CONFIG=str(spoilt))
    assert caught.value.__cause__ is None


def test_fingerprint_is_taken_as_openssl_prints_it() -> None:
    assert load({"urls": URL, "fingerprint": ":".join(["AB"] * 32)}).fingerprint == "ab" * 32


@pytest.mark.parametrize(
    "options",
    [
        {"urls": f"https://user:{SECRET}@a:9200"},
        {"urls": URL, "api_key": SECRET, "user": "u"},
        {"urls": URL, "api_key": f"{SECRET}\n broken"},
        {"urls": URL, "password": SECRET},
        {"urls": URL, "password": [SECRET]},
        {"urls": URL, "api_key": {"id": SECRET}},
    ],
)
def test_no_refusal_shows_a_secret(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(options)
    assert SECRET not in f"{caught.value!r} {caught.value} {caught.value.__cause__}"


def test_repr_shows_no_secret() -> None:
    settings = load({"urls": URL, "user": "u", "password": SECRET})
    assert SECRET not in f"{settings!r} {settings}"
    assert SECRET not in repr(replace(settings, user=None, password=None, api_key=SECRET))


@pytest.mark.parametrize(
    ("urls", "variables", "refused"),
    [
        ("http://es:9200", {"API_KEY": "k"}, True),
        ("http://es:9200", {"USER": "u", "PASSWORD": "p"}, True),
        ("http://es:9200", {}, False),
        ("http://es:9200", {"API_KEY": "k", "URLS": "http://es:9200"}, False),
        ("https://es:9200", {"API_KEY": "k"}, False),
        ("http://localhost:9200", {"API_KEY": "k"}, False),
    ],
)
def test_a_key_does_not_go_in_clear_to_a_server_that_only_the_folder_names(
    urls: str, variables: dict[str, str], refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"DMNRAG_ES_{name}", value)
    settings = ConnectionSettings.load(defaults={"urls": urls})
    if refused:
        with pytest.raises(ConfigError, match=r"unencrypted.*set DMNRAG_ES_URLS"):
            check_borrowed_urls(settings)
    else:
        check_borrowed_urls(settings)


def test_an_index_is_not_built_where_later_commands_would_not_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMNRAG_ES_URLS", "http://a:9200")
    given = ClusterOptions("http://a:9200/", None, None, None, None, None, replace=False)
    same = given.target(tmp_path / "medical", "elasticsearch", "--backend")
    assert same is not None
    with pytest.raises(ConfigError, match="later commands would look in http://a:9200"):
        replace(given, url="http://b:9200").target(tmp_path / "medical", "elasticsearch", "--backend")
