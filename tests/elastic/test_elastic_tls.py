"""Through a proxy that ends TLS and knows one API key, as a cluster with security does, to a real node."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from elastic_builder import build, layout_of, rows_of, sparse_of
from elastic_fake import Certificate, make_certificate, pass_on, serve

from dmnrag.errors import ClusterAccessError, ClusterUnreachableError, DmnragError
from dmnrag.retrieval.elastic import Cluster, ConnectionSettings, connect, connection, diagnose, open_index
from dmnrag.testing.sparse_contract import DOCUMENTS
from dmnrag.types import Query

pytestmark = pytest.mark.service

ENCODED, PLAIN = "aWQ6czNjcjN0LVZhbHVl", "id:s3cr3t-Value"
"""One key in both its forms."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("authority"), "authority")


@pytest.fixture(scope="module")
def secured(server_url: str, authority: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    certificate = make_certificate(tmp_path_factory.mktemp("node"), "localhost", authority)
    with serve(pass_on(server_url, ENCODED), certificate) as url:
        yield url


def settings_of(**options: Any) -> ConnectionSettings:
    return ConnectionSettings.load(options, environment={})


@pytest.mark.parametrize("key", [ENCODED, PLAIN])
def test_authority_and_key_open_the_way(
    cluster: Cluster, name: str, secured: str, authority: Certificate, key: str
) -> None:
    build(cluster, name, rows_of(DOCUMENTS))
    with connect(settings_of(urls=secured, ca_cert=str(authority.path), api_key=key)) as through:
        build(through, name, rows_of(DOCUMENTS))
        opened = open_index(through, name, layout_of())
        hits = sparse_of(through, opened).search([Query("q", "chest")], 3)[0]
    assert opened.physical == f"{name}-000002"
    assert [hit.doc_id for hit in hits] == ["d1", "d2"]


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"api_key": "d3Jvbmc6d3Jvbmc="}, ClusterAccessError, r"does not know this user or key \(401"),
        ({"api_key": None}, ClusterAccessError, r"does not know this user or key \(401"),
        ({"ca_cert": "other"}, ClusterUnreachableError, r"TLS .*CERTIFICATE_VERIFY_FAILED.*ca_cert"),
        ({"ca_cert": None}, ClusterUnreachableError, r"TLS .*CERTIFICATE_VERIFY_FAILED.*ca_cert"),
        ({"urls": "http"}, ClusterUnreachableError, "where it expects TLS, its URL begins with https://"),
    ],
    ids=["wrong key", "no key", "another authority", "no authority", "http to https"],
)
def test_what_does_not_fit_is_said_without_the_key(
    secured: str,
    authority: Certificate,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    change: dict[str, str | None],
    kind: type[DmnragError],
    words: str,
) -> None:
    # A closed connection is tried again until then; all else is known at the first answer.
    monkeypatch.setattr(connection, "FIRST_CONTACT_S", 3.0 if "urls" in change else 60.0)
    caplog.set_level(logging.DEBUG)
    options = {"urls": secured, "ca_cert": str(authority.path), "api_key": PLAIN} | change
    if change.get("ca_cert"):
        options["ca_cert"] = str(make_certificate(tmp_path, "other").path)
    if change.get("urls"):
        options |= {"urls": secured.replace("https:", "http:"), "ca_cert": None}
    settings = settings_of(**options)
    with pytest.raises(kind, match=words) as caught:
        connect(settings)
    report = diagnose(settings)
    assert [finding.ok for finding in report] == [False]
    shown = [str(caught.value), repr(caught.value), repr(caught.value.__cause__), repr(settings), repr(report)]
    shown.append(caplog.text)
    secrets = [s for key in (PLAIN, options["api_key"]) if key for s in (key, key.rpartition(":")[2])] + [ENCODED]
    assert not [(secret, text) for text in shown for secret in secrets if secret in text]
