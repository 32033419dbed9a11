"""What goes wrong between client and server has its own error that says what to do; what passes is tried again."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from elastic_fake import INFO, Answer, Certificate, Reply, Request, error, make_certificate, serve
from elastic_servers import free_port

from dmnrag.errors import (
    ClusterAccessError,
    ClusterBlockedError,
    ClusterError,
    ClusterIndexError,
    ClusterUnreachableError,
    ConfigError,
    DmnragError,
)
from dmnrag.retrieval.elastic import Cluster, ConnectionSettings, connect, connection, diagnose
from dmnrag.retrieval.elastic.searches import dump, search_all

SECRET = "s3cr3t-Value"


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "FIRST_CONTACT_S", 1.0)


def always(reply: Reply) -> Answer:
    return lambda request: reply


def after_info(answer: Answer) -> Answer:
    """The greeting of a healthy server, and what the test says for everything else."""
    return lambda request: Reply(INFO) if request.path == "/" else answer(request)


def settings_of(url: str, **options: Any) -> ConnectionSettings:
    return ConnectionSettings((url,), **({"deadline_s": 1.0, "request_timeout_s": 0.5} | options))


def ask(url: str, **options: Any) -> list[Any]:
    with connect(settings_of(url, **options)) as cluster:
        return list(search_all(cluster, "x-000001", [dump({"size": 1})] * 3, ("hits.hits",)))


def sequence(*replies: Reply) -> tuple[Answer, Callable[[], int]]:
    """One reply after the other, the last one for ever; and how many requests there were."""
    requests: list[Request] = []

    def answer(request: Request) -> Reply:
        requests.append(request)
        return replies[min(len(requests), len(replies)) - 1]

    return after_info(answer), lambda: len(requests)


def hit(number: int) -> dict[str, Any]:
    return {"status": 200, "hits": {"hits": [number]}, "timed_out": False, "_shards": {"failed": 0}}


WHOLE = Reply({"responses": [hit(0), hit(1), hit(2)]})


def test_no_server_is_said_with_the_url() -> None:
    url = f"http://localhost:{free_port()}"
    with pytest.raises(ClusterUnreachableError, match=f"{url}.*is the server running"):
        connect(settings_of(url))


def test_a_dead_node_among_several_does_not_matter() -> None:
    with serve(after_info(always(WHOLE))) as url:
        settings = ConnectionSettings((f"http://localhost:{free_port()}", url), deadline_s=5)
        with connect(settings) as cluster:
            assert cluster.version == (9, 5, 3)
            for _ in range(4):
                assert len(search_all(cluster, "x", [dump({})] * 3, ("hits.hits",))) == 3


@pytest.mark.parametrize(
    "reply",
    [
        Reply(b"<html>login</html>", content_type="text/html"),
        Reply({"version": {"number": "2.19.0", "distribution": "opensearch"}}, product=False),
        Reply({"hello": "world"}, product=False),
        Reply({"hello": "world"}),
    ],
)
def test_another_product_behind_the_url_is_recognised(reply: Reply) -> None:
    with (
        serve(always(reply)) as url,
        pytest.raises(ClusterError, match=r"not Elasticsearch|is it Elasticsearch|not speak"),
    ):
        connect(settings_of(url))


def test_client_that_is_newer_than_the_server_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    media = error(400, "media_type_header_exception", "Accept version must be either version 8 or 7, but found 9")
    with (
        serve(always(media)) as url,
        pytest.raises(ConfigError, match=r"pip install 'elasticsearch\[orjson\]>=8.19,<9'"),
    ):
        connect(settings_of(url))
    monkeypatch.setattr("elasticsearch.__version__", (9, 1, 0))
    with (
        serve(always(Reply({"version": {"number": "8.19.21"}}))) as url,
        pytest.raises(ConfigError, match=r"is version 8.19.21, the installed client is 9.1.0.*pip install"),
    ):
        connect(settings_of(url))


@pytest.mark.parametrize("number", ["7.17.0", "8.10.1", "10.0.0"])
def test_server_of_another_age_is_refused_with_the_range(number: str) -> None:
    with (
        serve(always(Reply({"version": {"number": number}}))) as url,
        pytest.raises(ConfigError, match=r"works with 8.19.0 up to, but not including, 10.0.0"),
    ):
        connect(settings_of(url))


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (error(401, "security_exception"), ClusterAccessError, "does not know this user or key"),
        (error(403, "security_exception"), ClusterAccessError, "lacks a right"),
        (
            error(
                429,
                "cluster_block_exception",
                "index [x] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark];",
            ),
            ClusterBlockedError,
            "free space or add a node",
        ),
        (
            error(403, "cluster_block_exception", "blocked by: [FORBIDDEN/12/index read-only / allow delete (api)];"),
            ClusterBlockedError,
            "free space or add a node",
        ),
        (
            error(404, "index_not_found_exception", "no such index [x]"),
            ClusterIndexError,
            "deleted or closed meanwhile",
        ),
        (error(400, "index_closed_exception", "closed"), ClusterIndexError, "deleted or closed meanwhile"),
        (error(413, "too_large"), ClusterError, "takes no request of that size"),
        (error(400, "parsing_exception", "unknown query [x]"), ClusterError, r"unknown query \[x\] \(400"),
        (error(503, "no_shard_available_action_exception"), ClusterBlockedError, "its health is red"),
        (error(503, "unavailable", "busy"), ClusterUnreachableError, "went on refusing"),
    ],
)
def test_refusals_are_translated(reply: Reply, kind: type[DmnragError], words: str) -> None:
    with serve(after_info(always(reply))) as url, pytest.raises(kind, match=words) as caught:
        ask(url)
    assert type(caught.value) is kind


def test_the_same_refusals_are_found_inside_a_batch() -> None:
    gone = {"status": 404, "error": {"type": "index_not_found_exception", "reason": "no such index [x]"}}
    with (
        serve(after_info(always(Reply({"responses": [hit(0), gone, hit(2)]})))) as url,
        pytest.raises(ClusterIndexError, match="no such index"),
    ):
        ask(url)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_passing_refusals_are_tried_again(status: int) -> None:
    answer, n_requests = sequence(error(status, "busy"), error(status, "busy"), WHOLE)
    with serve(answer) as url:
        assert [a["hits"]["hits"] for a in ask(url, deadline_s=30.0)] == [[0], [1], [2]]
    assert n_requests() == 3


@pytest.mark.parametrize(
    "poor",
    [
        {"status": 200, "hits": {"hits": [9]}, "timed_out": True},
        {"status": 200, "hits": {"hits": [9]}, "_shards": {"failed": 1}},
        {"status": 503, "error": {"type": "search_phase_execution_exception", "reason": "all shards failed"}},
        {
            "status": 404,
            "error": {
                "type": "search_phase_execution_exception",
                "reason": "Partial shards failure",
                "root_cause": [{"type": "search_context_missing_exception", "reason": "No search context found"}],
            },
        },
    ],
)
def test_only_the_partial_answers_of_a_batch_are_asked_again(poor: dict[str, Any]) -> None:
    bodies: list[bytes] = []

    def answer(request: Request) -> Reply:
        bodies.append(request.body)
        return Reply({"responses": [hit(0), poor, hit(2)] if len(bodies) == 1 else [hit(1)]})

    with serve(after_info(answer)) as url:
        assert [a["hits"]["hits"] for a in ask(url, deadline_s=30.0)] == [[0], [1], [2]]
    assert [body.count(b"\n") for body in bodies] == [6, 2]


def test_partial_answers_are_an_error_at_the_deadline_and_never_a_shorter_list() -> None:
    partial = {"status": 200, "hits": {"hits": []}, "_shards": {"failed": 1}}

    def answer(request: Request) -> Reply:
        return Reply({"responses": [partial] * (request.body.count(b"\n") // 2)})

    with serve(after_info(answer)) as url, pytest.raises(ClusterUnreachableError, match="some shards did not answer"):
        ask(url)


def test_what_a_shard_says_is_shown() -> None:
    failed = {
        "status": 400,
        "error": {
            "type": "search_phase_execution_exception",
            "reason": "all shards failed",
            "root_cause": [{"type": "query_shard_exception", "reason": "failed to find field [v9.vector]"}],
        },
    }
    with (
        serve(after_info(always(Reply({"responses": [failed] * 3})))) as url,
        pytest.raises(ClusterError, match=r"failed to find field \[v9.vector\]"),
    ):
        ask(url)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def test_tls_with_the_authority_or_the_fingerprint(certificate: Certificate) -> None:
    with serve(after_info(always(WHOLE)), certificate) as url:
        assert len(ask(url, ca_cert=str(certificate.path))) == 3
        loaded = ConnectionSettings.load({"urls": url, "fingerprint": certificate.fingerprint}, environment={})
        with connect(loaded) as cluster:
            assert cluster.version == (9, 5, 3)
        assert len(ask(url, verify_tls=False)) == 3


def test_tls_is_refused_where_the_certificate_is_not_trusted(certificate: Certificate, tmp_path: Path) -> None:
    other = make_certificate(tmp_path, "elsewhere")
    with serve(after_info(always(WHOLE)), certificate) as url:
        with pytest.raises(ClusterUnreachableError, match=r"TLS .* fails.*ca_cert"):
            ask(url)
        with pytest.raises(ClusterUnreachableError, match="another fingerprint"):
            ask(url, fingerprint="ab" * 32)
        with pytest.raises(ClusterUnreachableError, match="TLS"):
            ask(url, ca_cert=str(other.path))
    with (
        serve(after_info(always(WHOLE)), other) as url,
        pytest.raises(ClusterUnreachableError, match="certificate is for another name"),
    ):
        ask(url, ca_cert=str(other.path))


def test_https_to_a_server_without_tls_says_so() -> None:
    with serve(after_info(always(WHOLE))) as url, pytest.raises(ClusterUnreachableError, match="use http://"):
        ask(url.replace("http:", "https:"))


def test_file_that_is_no_certificate_is_refused(tmp_path: Path) -> None:
    spoilt = tmp_path / "ca.pem"
    spoilt.write_text("no certificate")
    with pytest.raises(ConfigError, match=r"ca\.pem cannot be used"):
        connect(settings_of("https://localhost:1", ca_cert=str(spoilt)))


@pytest.mark.parametrize("options", [{"api_key": f"id:{SECRET}"}, {"user": "u", "password": SECRET}])
def test_no_error_and_no_log_shows_a_secret(options: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    seen: list[str] = []

    def answer(request: Request) -> Reply:
        seen.append(request.headers["authorization"])
        return error(401, "security_exception", "unable to authenticate")

    with serve(answer) as url, pytest.raises(ClusterAccessError) as caught:
        connect(settings_of(url, **options))
    texts = [repr(caught.value), str(caught.value), repr(caught.value.__cause__), caplog.text]
    sent = seen[0].split()[1]
    assert not [text for text in texts if SECRET in text or sent in text]


def test_diagnosis_says_what_is_wrong_instead_of_raising() -> None:
    [finding] = diagnose(settings_of(f"http://localhost:{free_port()}"))
    assert (finding.name, finding.ok) == ("reachable", False)


def test_diagnosis_lists_the_rights_that_are_missing_and_full_disks() -> None:
    def answer(request: Request) -> Reply:
        path = request.path.partition("?")[0]
        if path == "/_cluster/health":
            return Reply({"status": "red", "number_of_data_nodes": 2})
        if path == "/_nodes/stats/fs":
            total = {"total_in_bytes": 100 * 10**9, "available_in_bytes": 4 * 10**9}
            return Reply({"nodes": {"a": {"name": "n1", "fs": {"total": total}}}})
        if path == "/_security/user/_has_privileges":
            index = {"med*": {"read": True, "manage": False}}
            return Reply({"has_all_requested": False, "cluster": {"monitor": False}, "index": index})
        return error(404, "index_not_found_exception")

    with serve(after_info(answer)) as url:
        found = {f.name: f for f in diagnose(settings_of(url, api_key="k"), "med")}
    assert not found["tls"].ok
    assert found["version"].ok
    assert "red" in found["health"].text
    assert "96 % used, 4 GB free" in found["disk"].text
    assert found["rights"].text == "lacks monitor (cluster), manage"
    assert not found["index"].ok
    assert all(f.cure or f.name == "index" for f in found.values() if f.ok is False)


def test_a_cluster_closes_its_connections() -> None:
    with serve(after_info(always(WHOLE))) as url:
        cluster = connect(settings_of(url))
        assert isinstance(cluster, Cluster)
        cluster.close()
