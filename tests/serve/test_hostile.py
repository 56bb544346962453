"""Hostile clients against a server in a process of its own: it refuses, and goes on."""

import gzip
import json
import signal
import socket
import time

import pytest

from tests.serve.live import live_server, receive_all, wait_until

pytestmark = pytest.mark.dist

GOOD = json.dumps({"texts": ["the red cat"], "k": 1}).encode()
LIMITS = ("header_seconds=1", "body_seconds=1", "max_connections=40")


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    limits = [part for limit in LIMITS for part in ("--limit", limit)]
    with live_server(model, folder=folder, options=["--feedback", folder / "r", *limits]) as run:
        run.load()
        yield run


@pytest.fixture(autouse=True)
def goes_on(server):
    """After each test the server answers, and has not grown."""
    before = server.memory()
    yield
    answer = server.client.post("/v1/predict", json={"texts": ["the red cat"], "k": 2})
    assert {tag["id"] for tag in answer.json()["results"][0]["tags"]} == {"red", "cat"}
    assert server.memory() < before + 60


def head(length=None, *extra, path=b"/v1/predict", method=b"POST"):
    lines = [method + b" " + path + b" HTTP/1.1", b"host: localhost", *extra]
    lines += [b"content-type: application/json"]
    lines += [] if length is None else [b"content-length: %d" % length]
    return b"\r\n".join([*lines, b"", b""])


def status(answer):
    assert answer.startswith(b"HTTP/1.1 "), answer[:200]
    return int(answer.split()[1])


def test_a_hundred_megabytes(server):
    assert status(server.exchange(head(100_000_000) + b" " * 1_000_000)) == 413
    chunk = b"%x\r\n" % 65_536 + b" " * 65_536 + b"\r\n"
    streamed = head(None, b"transfer-encoding: chunked") + chunk * 1_600
    assert b"HTTP/1.1 413" in (server.exchange(streamed) or b"HTTP/1.1 413")


def test_a_gzip_bomb(server):
    bomb = gzip.compress(b" " * 100_000_000)
    assert status(server.exchange(head(len(bomb), b"content-encoding: gzip") + bomb)) == 413


def test_slow_clients_are_cut_off(server):
    with socket.create_connection(server.address, timeout=10) as slow:
        slow.sendall(b"POST /v1/predict HTTP/1.1\r\nhost: loc")
        assert receive_all(slow) == b""  # closed after header_seconds
    with socket.create_connection(server.address, timeout=10) as slow:
        slow.sendall(head(len(GOOD)) + GOOD[:5])
        answer = slow.recv(65_536)
        assert status(answer) == 408


def test_many_idle_connections(server):
    idle = [socket.create_connection(server.address, timeout=10) for _ in range(60)]
    time.sleep(0.3)
    refused = [connection for connection in idle if _has_answer(connection)]
    assert refused
    assert all(b"429" in connection.recv(200) for connection in refused)
    for connection in idle:
        connection.close()
    wait_until(
        lambda: server.exchange(head(len(GOOD), b"connection: close") + GOOD)[9:12] == b"200"
    )


def _has_answer(connection):
    connection.settimeout(0.01)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except TimeoutError:
        return False


def test_half_closed_and_vanished_clients(server):
    server.exchange(head(len(GOOD)) + GOOD, half_close=True)
    server.exchange(head(len(GOOD)) + GOOD[:4], half_close=True)
    for _ in range(20):
        with socket.create_connection(server.address) as connection:
            connection.sendall(head(len(GOOD)) + GOOD)


@pytest.mark.parametrize(
    "raw",
    [
        b"GARBAGE\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx-evil: a\rb\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx: \x00\r\n\r\n",
        b"GET /healthz\r\nset-cookie: x HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
        head(10, b"content-length: 99") + b"0123456789",
        b"GET / HTTP/9.9\r\nhost: localhost\r\n\r\n",
    ],
)
def test_broken_requests(server, raw):
    answer = server.exchange(raw, half_close=True, wait=3)
    assert not answer or 400 <= status(answer) < 500


@pytest.mark.parametrize(
    "path",
    [
        b"/v1/models/../../etc/passwd",
        b"/v1/models/..%2f..%2fetc%2fpasswd",
        b"/v1/models/%00",
        b"/static/..%2fapp.py",
        b"/static/%2e%2e/%2e%2e/glocal.toml",
        b"/static//etc/passwd",
        b"/v1/projects/%0d%0aset-cookie:x",
    ],
)
def test_path_tricks(server, path):
    answer = server.exchange(
        head(None, b"connection: close", path=path, method=b"GET"), half_close=False
    )
    assert status(answer) == 404
    assert b"set-cookie" not in answer.lower().split(b"\r\n\r\n")[0]


@pytest.mark.parametrize(
    "body",
    [
        b'{"texts": ["' + b"a" * 150_000 + b'"]}',
        json.dumps({"texts": ["a"] * 10_000}).encode(),
        b'{"texts": ["\\ud800"]}',
        b'{"texts": ["a"',
        b"texts=a",
        b"null",
        b'{"texts": "a"}',
        b'{"texts": [1]}',
        b'{"texts": [null]}',
        b'{"texts": ["a"], "k": "many"}',
        b'{"texts": ["a"], "k": 1.5}',
        b'{"texts": ["a"], "k": -1}',
        b'{"texts": ["a"], "only": {"cat": 1}}',
        b'{"texts": ["a"], "model": "../../etc/passwd"}',
        b'{"texts": ["a"], "model": "animals\\u0000"}',
        b'{"texts": ["a"], "threshold": NaN}',
        b'{"texts": ["a"], "threshold": 1e300}',
        b'{"texts": ["a"], "threshold": 1e999}',
        b'{"texts": ["a"], "threshold": -Infinity}',
        b'{"texts": ["a"], "k": ' + b"9" * 4_000 + b"}",
        b"[" * 100_000,
        b'{"texts": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b"\xff\xfe",
        b'{"texts": ["a"], "texts": 1}',
    ],
)
def test_hostile_bodies(server, body):
    answer = server.exchange(head(len(body), b"connection: close") + body)
    assert 400 <= status(answer) < 500
    assert b"application/problem+json" in answer


def test_line_breaks_do_not_reach_the_headers_of_an_answer(server):
    smuggled = b"x-request-id: abc\r\n x-evil: 1"  # a header over two lines, as once allowed
    answer = server.exchange(
        head(None, b"connection: close", smuggled, path=b"/healthz", method=b"GET")
    )
    assert b"x-evil" not in answer
    id_ = server.client.get("/healthz", headers={"x-request-id": "a%0d%0ax-evil: 1"})
    assert "x-evil" not in id_.headers["x-request-id"]


def test_clients_that_hammer_a_full_server_are_held_back(model, tmp_path):
    options = ["--limit", "max_queued_texts=1"]
    with live_server(model, folder=tmp_path, options=options) as server:
        started = time.monotonic()
        for _ in range(4):
            assert server.client.post("/v1/predict", json={"texts": ["a", "b"]}).status_code == 429
        assert time.monotonic() - started > 3 * 0.019
        # Another client is not.
        assert status(server.exchange(head(len(GOOD), b"connection: close") + GOOD)) == 200


def test_control_characters_and_markup_are_data(server):
    text = "\x00\x1b[2J\u202e<script>alert(1)</script>\x85"
    answer = server.client.post("/v1/predict", json={"texts": [text], "k": 1})
    assert answer.status_code == 200
    server.client.get("/v1/labels", params={"q": text})
    assert "script" not in server.log.read_text()


def test_a_stopped_server_finishes_what_it_accepted(model, tmp_path):
    # The request loads the model, which takes long enough to stop the server meanwhile.
    options = ["--limit", "request_seconds=300", "--limit", "shutdown_seconds=300"]
    with live_server(model, folder=tmp_path, options=options) as server:
        with socket.create_connection(server.address, timeout=300) as connection:
            connection.sendall(head(len(GOOD)) + GOOD)
            wait_until(lambda: "glocal_requests_in_flight 1" in server.client.get("/metrics").text)
            server.process.terminate()
            assert status(connection.recv(65_536)) == 200
        server.process.wait(timeout=60)


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])
def test_an_interrupt_ends_it_with_130_also_where_the_shell_ignores_it(model, tmp_path, handler):
    before = signal.signal(signal.SIGINT, handler)  # children inherit that it is ignored
    try:
        with live_server(model, folder=tmp_path) as server:
            server.process.send_signal(signal.SIGINT)
            assert server.process.wait(timeout=60) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert "Traceback" not in server.log.read_text()
