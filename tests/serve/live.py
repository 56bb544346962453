"""A server in a process of its own, as users start it."""

import contextlib
import json
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

import httpx2


class LiveServer:
    """A running `glocal serve`; `log` is the file of its stderr."""

    def __init__(self, process, url, log):
        self.process, self.url, self.log = process, url, log
        self.address = (urlsplit(url).hostname, urlsplit(url).port)
        self.client = httpx2.Client(base_url=url, timeout=100)

    def exchange(self, data, *, half_close=False, wait=10.0):
        """Send raw bytes on a connection of their own and return all that comes back."""
        with socket.create_connection(self.address, timeout=wait) as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(data)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
            return receive_all(connection)

    def load(self, model=None):
        """Make the server load a model, however long that takes on a busy machine."""
        body = {"texts": ["a"], "model": model}
        wait_until(lambda: self.client.post("/v1/predict", json=body).status_code == 200, 300)

    def memory(self):
        """Resident memory in MiB."""
        with open(f"/proc/{self.process.pid}/status") as status:
            line = next(line for line in status if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=60)


def receive_all(connection):
    """Return what comes back until the other side closes or the time-out is over."""
    received = b""
    with contextlib.suppress(TimeoutError, ConnectionResetError):
        while part := connection.recv(65_536):
            received += part
    return received


@contextlib.contextmanager
def live_server(*models, folder, options=()):
    """Start a server on a free port; stop it at the end."""
    log = open(folder / "server.log", "ab")  # noqa: SIM115
    process = subprocess.Popen(
        [sys.executable, "-m", "glocal", "serve", *map(str, models), "--port", "0", "--json"]
        + [str(option) for option in options],
        stdout=subprocess.PIPE,
        stderr=log,
    )
    log.close()
    try:
        started = process.stdout.readline()
        while started and not started.rstrip().endswith(b"}"):
            started += process.stdout.readline()
        assert started, (folder / "server.log").read_text()
        server = LiveServer(process, json.loads(started)["url"], folder / "server.log")
        wait_until(lambda: reachable(server))
        with contextlib.closing(server.client):
            yield server
        if process.poll() is None:
            server.stop()
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()


def reachable(server):
    try:
        return server.client.get("/healthz").status_code == 200
    except httpx2.TransportError:
        return False


def wait_until(condition, seconds=60):
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")
