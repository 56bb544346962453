import base64
import gzip
import json

import pytest

from glocal.errors import ConfigError
from glocal.serve.guard import SECURITY_HEADERS
from glocal.serve.serve_settings import Limits, ServeSettings, parse_limits, read_api_keys
from tests.serve.conftest import problem

KEY, OTHER = "k" * 32, "o" * 32
TEXTS = {"texts": ["the red cat"]}


@pytest.fixture
def keyed(serving):
    return serving(api_keys=(OTHER, KEY))


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {KEY}"},
        {"authorization": f"bearer {OTHER}"},
        {"x-api-key": KEY},
        {"authorization": "Basic " + base64.b64encode(f"user:{KEY}".encode()).decode()},
    ],
)
def test_a_key_opens(keyed, headers):
    assert keyed.post("/v1/predict", json=TEXTS, headers=headers).status_code == 200
    assert keyed.get("/metrics", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": f"Bearer {KEY[:-1]}"},
        {"authorization": "Basic !!!"},
        {"x-api-key": "ÿ".encode("latin-1")},
        {"authorization": KEY},
    ],
)
def test_without_a_key_nothing_of_a_model_is_shown(keyed, headers):
    for path in ("/v1/models", "/v1/labels", "/metrics", "/v1/projects", "/label-studio/health"):
        answer = keyed.get(path, headers=headers)
        assert problem(answer).status == 401
        assert "animals" not in answer.text
    assert problem(keyed.post("/v1/predict", json=TEXTS, headers=headers)).status == 401
    for path in ("/", "/healthz", "/readyz", "/docs", "/openapi.json", "/static/docs.css"):
        assert keyed.get(path, headers=headers).status_code == 200
    assert not any(KEY[:-1] in line for line in keyed.log)


def test_other_addresses_need_a_key(model):
    with pytest.raises(ConfigError, match="needs an API key"):
        ServeSettings(models=(model,), host="0.0.0.0").check()
    ServeSettings(models=(model,), host="0.0.0.0", api_keys=(KEY,)).check()
    for host in ("127.0.0.1", "localhost", "::1"):
        ServeSettings(models=(model,), host=host).check()


def test_key_files(tmp_path):
    file = tmp_path / "keys"
    file.write_text(f"# ours\n{KEY}\n\n{OTHER}\n")
    assert read_api_keys(file) == (KEY, OTHER)
    for wrong in ("", "short\n", "k" * 20 + " x\n"):
        file.write_text(wrong)
        with pytest.raises(ConfigError) as caught:
            read_api_keys(file)
        assert not wrong or wrong.strip() not in str(caught.value)


def test_feedback_stays_outside_the_model(model):
    with pytest.raises(ConfigError, match="inside the model directory"):
        ServeSettings(models=(model,), feedback=model / "rows").check()


def test_limits_by_name():
    assert parse_limits(["max_texts=8", "body_seconds=0.5"]) == Limits(
        max_texts=8, body_seconds=0.5
    )
    with pytest.raises(ConfigError) as caught:
        parse_limits(["max_text=8", "max_texts=x", "max_texts=0", "body_seconds=nan"])
    assert len(caught.value.problems) == 4
    assert "did you mean 'max_texts'" in str(caught.value)


def test_the_documented_defaults():
    limits = Limits()
    assert (limits.max_in_flight, limits.max_texts, limits.max_body_bytes) == (512, 32, 2_000_000)


def test_security_headers_and_no_cookies(client):
    for answer in (client.get("/"), client.get("/nope"), client.post("/v1/predict", json=TEXTS)):
        for name, value in SECURITY_HEADERS.items():
            assert answer.headers[name] == value
        assert "set-cookie" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers
    assert "unsafe" not in SECURITY_HEADERS["content-security-policy"]


def test_other_web_sites_are_refused(client):
    for headers in ({"origin": "http://evil.example"}, {"origin": "null"}):
        assert problem(client.post("/v1/predict", json=TEXTS, headers=headers)).status == 403
    own = client.post("/v1/predict", json=TEXTS, headers={"origin": "http://localhost"})
    assert own.status_code == 200
    # A name that was pointed at this machine after the page was loaded.
    assert problem(client.get("/v1/models", headers={"host": "evil.example"})).status == 403
    assert problem(client.get("/v1/models", headers={"host": "["})).status == 403


def test_bodies_are_bounded(serving):
    client = serving(limits={"max_body_bytes": 1_000})
    json_type = {"content-type": "application/json"}
    large = json.dumps({"texts": ["a" * 2_000]}).encode()

    def chunks():
        yield large[:600]
        yield large[600:]

    gzipped = {**json_type, "content-encoding": "gzip"}
    bomb = gzip.compress(b" " * 10_000_000)
    assert problem(client.post("/v1/predict", content=large, headers=json_type)).status == 413
    assert problem(client.post("/v1/predict", content=chunks(), headers=json_type)).status == 413
    assert problem(client.post("/v1/predict", content=bomb, headers=gzipped)).status == 413
    small = gzip.compress(json.dumps(TEXTS).encode())
    assert client.post("/v1/predict", content=small, headers=gzipped).status_code == 200
    for wrong in (b"not gzip", small[:-9]):
        assert problem(client.post("/v1/predict", content=wrong, headers=gzipped)).status == 400
    other = {**json_type, "content-encoding": "br"}
    assert problem(client.post("/v1/predict", content=small, headers=other)).status == 415


def test_a_full_server_refuses_with_429(serving):
    client = serving(limits={"max_queued_texts": 1})
    answer = client.post("/v1/predict", json={"texts": ["a", "b"]})
    assert problem(answer).status == 429
    assert answer.headers["retry-after"] == "1"
    assert client.post("/v1/predict", json=TEXTS).status_code == 200


def test_a_request_that_takes_too_long(serving):
    client = serving(limits={"request_seconds": 0.001})
    answer = client.post("/v1/predict", json=TEXTS)
    assert problem(answer).status == 503
    assert answer.headers["retry-after"]


def test_the_log_has_ids_and_no_texts(client):
    secret = "a very secret text"
    given = client.post("/v1/predict", json={"texts": [secret]}, headers={"x-request-id": "abc-1"})
    assert given.headers["x-request-id"] == "abc-1"
    other = client.get(
        "/v1/labels", params={"q": secret}, headers={"x-request-id": "a b\u202e".encode()}
    )
    assert other.headers["x-request-id"] != "a b"
    client.get("/v1/models/%0d%0aSet-Cookie:%20x%1b[2J\u202e")
    entries = [json.loads(line) for line in client.log]
    assert entries[0]["request_id"] == "abc-1"
    assert entries[0]["status"] == 200
    assert entries[0]["route"] == "/v1/predict"
    assert not any(secret in line for line in client.log)
    assert all(line.isascii() and line.isprintable() for line in client.log)


def test_metrics_count_requests(client):
    client.post("/v1/predict", json={"texts": ["a", "b"]})
    for number in range(50):
        client.get(f"/v1/unknown/{number}")
    text = client.get("/metrics").text
    assert 'glocal_requests_total{method="POST",route="/v1/predict",status="200"} 1' in text
    assert 'glocal_requests_total{method="GET",route="other",status="404"} 50' in text
    assert 'glocal_texts_total{model="animals"} 2' in text
    assert 'glocal_batch_texts_bucket{model="animals",le="2"} 1' in text
    assert "glocal_requests_in_flight 0" in text
