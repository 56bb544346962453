"""Requests that Schemathesis makes from the server's own OpenAPI document."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.core.failures import Failure, FailureGroup

from tests.serve.live import live_server

EXAMPLES = 4


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("schema")
    with live_server(model, folder=folder, options=["--feedback", folder / "rows"]) as running:
        running.load()
        yield running


def try_document(document, base_url, examples):
    """Send valid and wrong requests for each operation; return a line for each broken promise."""
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=base_url, request_timeout=100.0)  # on a busy machine
    problems, tried = [], 0
    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in schemathesis.GenerationMode:
            strategy = operation.as_strategy(generation_mode=mode)
            try:
                try_requests(strategy, examples)
                tried += 1
            except Unsatisfiable:  # nothing about this operation can be wrong
                assert mode is schemathesis.GenerationMode.NEGATIVE
            except (Failure, FailureGroup) as error:
                problems.append(f"{operation.label} ({mode.value}): {describe(error)}")
    return problems, tried


def describe(error):
    parts = getattr(error, "exceptions", [error])
    notes = getattr(error, "__notes__", [])
    return "\n".join([*map(str, parts), *notes])


def try_requests(strategy, examples):
    @given(case=strategy)
    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def run(case):
        try:
            case.call_and_validate()
        except (Failure, FailureGroup) as error:
            error.add_note(case.as_curl_command())
            raise

    run()


def test_every_operation_keeps_its_promise(server):
    document = server.client.get("/openapi.json").json()
    problems, tried = try_document(document, server.url.rstrip("/"), EXAMPLES)
    assert not problems, "\n\n".join(problems)
    assert tried > 20
    assert server.client.get("/healthz").status_code == 200
