"""Requests made from the API's own description, sent to a real server of the real engine."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from http_fake_engine import FakeEngine, serving
from http_real_engine import real_service
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup, ServerError
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from dmnrag.service.app import create_app
from dmnrag.service.keys import KeyRing
from dmnrag.service.settings import ServeSettings

KEY = "desk-0123456789abcdef"
KEYS = KeyRing.load(None, {"DMNRAG_API_KEYS": f"desk:{KEY}"})
HEADERS = {"authorization": f"Bearer {KEY}"}
CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
N_EXAMPLES = 40
"""Of valid and of invalid requests for each of the operations."""

OPERATIONS = [
    ("/v1/answer", "POST"),
    ("/v1/search", "POST"),
    ("/v1/domains", "GET"),
    ("/v1/answers/{answer_id}", "GET"),
    ("/v1/answers/{answer_id}", "DELETE"),
    ("/v1/me", "DELETE"),
    ("/v1/feedback", "POST"),
    ("/v1/chat/completions", "POST"),
    ("/v1/models", "GET"),
    ("/v1/models/{model}", "GET"),
    ("/healthz", "GET"),
    ("/readyz", "GET"),
    ("/metrics", "GET"),
]


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with real_service(tmp_path_factory.mktemp("service"), KEYS) as url:
        yield schemathesis.openapi.from_url(f"{url}/openapi.json", headers=HEADERS)


def fuzz(operation: Any, mode: GenerationMode, checks: list[Any]) -> None:
    @settings(max_examples=N_EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
    @given(operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        case.call_and_validate(headers=HEADERS, checks=checks)

    run()


@pytest.mark.slow
def test_every_documented_operation_is_fuzzed(schema: Any) -> None:
    found = {(result.ok().path, result.ok().method.upper()) for result in schema.get_all_operations()}
    assert found == set(OPERATIONS)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_valid_requests_are_answered_as_documented(schema: Any, path: str, method: str) -> None:
    fuzz(schema[path][method], GenerationMode.POSITIVE, CHECKS)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "method"), [operation for operation in OPERATIONS if operation[1] == "POST"])
def test_invalid_requests_are_refused_as_documented(schema: Any, path: str, method: str) -> None:
    fuzz(schema[path][method], GenerationMode.NEGATIVE, [*CHECKS, negative_data_rejection])


def test_the_fuzzing_would_find_a_planted_fault() -> None:
    engine = FakeEngine([ZeroDivisionError("planted")])
    with serving(create_app(engine, ServeSettings(), KeyRing())) as url:  # type: ignore[arg-type]
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
        with pytest.raises(FailureGroup) as found:
            fuzz(schema["/v1/search"]["POST"], GenerationMode.POSITIVE, CHECKS)
    assert any(isinstance(failure, ServerError) for failure in found.value.exceptions)
