"""Load the server with wrk: throughput with batching and one at a time, refusals, memory.

    python benchmarks/serve_load.py MODEL --texts FILE              throughput
    python benchmarks/serve_load.py MODEL --texts FILE --saturate   a full server for a minute
    python benchmarks/serve_load.py MODEL --texts FILE --memory     memory over 100,000 requests

With `minilm` for MODEL, an untrained `glocalxml` model of that encoder with 4,108 labels and 128
tokens is served: it is as fast as a trained one.

Batching and one-at-a-time servers run side by side in turns, three rounds each; the best round
counts. `wrk` comes from the system's packages. Everything stays on this machine.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import httpx2
from tests.serve.live import live_server, wait_until

from glocal.data.readers import read_corpus

ROUNDS = 3
WORDS = 100  # about 128 tokens
TEXTS = 200  # different requests
ROOM = 16  # requests in flight of the server that is saturated

SCRIPT = """
local bodies = {}
for line in io.lines("%s") do bodies[#bodies + 1] = line end
local place = 0
local runners = {}
function setup(thread) runners[#runners + 1] = thread end
function init() refused, failed = 0, 0 end
function request()
  place = place %% #bodies + 1
  return wrk.format("POST", "/v1/predict", {["content-type"] = "application/json"}, bodies[place])
end
function response(status)
  if status == 429 then refused = refused + 1 elseif status ~= 200 then failed = failed + 1 end
end
function done(summary, latency)
  local refusals, failures = 0, 0
  for _, runner in ipairs(runners) do
    refusals = refusals + runner:get("refused")
    failures = failures + runner:get("failed")
  end
  local broken = summary.errors.timeout + summary.errors.connect + summary.errors.read
  io.write(string.format("RESULT %%d %%f %%f %%f %%d %%d %%d\\n", summary.requests,
    summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    refusals, failures, broken))
end
"""


def wrk(server, script, *, connections, seconds):
    """Return what wrk measured: requests, refusals, failures and latencies in milliseconds."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "60s"]
    done = subprocess.run(
        [*command, "-s", script, server.url], capture_output=True, text=True, check=True
    )
    values = re.search(r"RESULT (.*)", done.stdout)[1].split()
    names = ("requests", "seconds", "p50", "p99", "refused", "failed", "timeouts")
    return {name: float(value) for name, value in zip(names, values, strict=True)}


def untrained(path):
    """Store a model that was never trained."""
    from batcher_speed import untrained_model
    from glocal.storage.model_directory import save_model

    model = untrained_model("glocalxml", encoder="minilm", n_labels=4_108, tokens=128, device="cpu")
    save_model(path, model)
    return path


def write_requests(folder, texts):
    """Write the requests and the script that makes wrk send them in turn."""
    corpus = read_corpus(texts)
    words = (word for document in corpus.documents() for word in document.text.split()[:WORDS])
    rows = [" ".join(islice(words, WORDS)) for _ in range(TEXTS)]  # short texts are joined
    requests = folder / "requests.jsonl"
    requests.write_text("".join(json.dumps({"texts": [t], "k": 5}) + "\n" for t in rows))
    script = folder / "load.lua"
    script.write_text(SCRIPT % requests)
    return script


def measure_throughput(arguments, folder, script):
    """Compare a server that batches with one that does not, at 1 and 16 connections."""
    rounds = {}
    kinds = {"batched": [], "one at a time": ["--limit", "max_batch=1"]}
    with (
        live_server(arguments.model, folder=folder) as batched,
        live_server(arguments.model, folder=folder, options=kinds["one at a time"]) as single,
    ):
        for server in (batched, single):  # loads the model
            wrk(server, script, connections=1, seconds=2)
        turns = list(zip(kinds, (batched, single), strict=True))
        for _ in range(ROUNDS):
            turns.reverse()
            for connections in (1, 16):
                for kind, server in turns:
                    wait_until_idle(batched, single)
                    found = wrk(server, script, connections=connections, seconds=arguments.seconds)
                    if found["requests"] > 1:  # a machine that stood still measures nothing
                        rounds.setdefault((kind, connections), []).append(found)
    rate = {key: max(r["requests"] / r["seconds"] for r in own) for key, own in rounds.items()}
    median = {key: min(r["p50"] for r in own) for key, own in rounds.items()}
    for key, own in sorted(rounds.items(), key=str):
        print(
            f"{key[0]}, {key[1]} connections: {rate[key]:.1f} requests/s, "
            f"p50 {median[key]:.1f} ms, "
            f"p99 {min(r['p99'] for r in own):.1f} ms, {sum(r['failed'] for r in own):.0f} failed"
        )
    ratio = rate["batched", 16] / rate["one at a time", 16]
    medians = median["batched", 1] / median["one at a time", 1]
    print(f"batching at 16 connections: {ratio:.2f}x; median at 1 connection: {medians:.2f}x")


def wait_until_idle(*servers):
    """Wait until nothing is computed of what wrk asked for last."""
    for server in servers:
        wait_until(lambda s=server: "glocal_requests_in_flight 0" in s.client.get("/metrics").text)


def measure_saturation(arguments, folder, script):
    """A full server: twice as many connections as it has room for, and other clients beside."""
    options = ["--limit", f"max_in_flight={ROOM}"]
    with live_server(arguments.model, folder=folder, options=options) as server:
        wrk(server, script, connections=1, seconds=2)
        with Clients(server) as patient, Clients(server, count=2, pause=0) as impatient:
            found = wrk(server, script, connections=2 * ROOM, seconds=arguments.saturation)
    print(
        f"saturated for {arguments.saturation} s: {found['requests']:,.0f} answers, "
        f"{found['refused']:,.0f} refused (429), {found['failed']:.0f} others failed, "
        f"{found['timeouts']:.0f} broken"
    )
    for when, clients in (("after a second", patient), ("at once", impatient)):
        counts = ", ".join(f"{n:,} of {status}" for status, n in sorted(clients.statuses.items()))
        print(
            f"clients that try again {when} got {counts}; their refusals took "
            f"p50 {at(clients.refusals, 0.5):.1f} ms, p99 {at(clients.refusals, 0.99):.1f} ms, "
            f"at most {at(clients.refusals, 1):.1f} ms"
        )


def at(times, share):
    """Return a percentile in milliseconds; NaN of nothing."""
    return 1e3 * sorted(times)[round(share * (len(times) - 1))] if times else float("nan")


class Clients:
    """Clients that wait a while after each answer, and how long their refusals take."""

    def __init__(self, server, count=8, pause=1):
        self.url, self.stop, self.pause = server.url, threading.Event(), pause
        self.statuses, self.refusals = {}, []
        self.threads = [threading.Thread(target=self.run) for _ in range(count)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
            time.sleep(1 / len(self.threads))
        return self

    def __exit__(self, *problem):
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def run(self):
        """Send requests until told to stop."""
        with httpx2.Client(base_url=self.url, timeout=60) as client:
            while not self.stop.wait(self.pause):
                start = time.perf_counter()
                answer = client.post("/v1/predict", json={"texts": ["a text"], "k": 5})
                if answer.status_code == 429:
                    self.refusals.append(time.perf_counter() - start)
                status = answer.status_code
                self.statuses[status] = self.statuses.get(status, 0) + 1


def measure_memory(arguments, folder, script):
    """Watch the memory of the server over many requests."""
    with live_server(arguments.model, folder=folder) as server:
        wrk(server, script, connections=16, seconds=5)
        done, start, began = 0, server.memory(), time.monotonic()
        while done < arguments.requests and time.monotonic() - began < arguments.most:
            found = wrk(server, script, connections=16, seconds=20)
            done += found["requests"]
            print(f"{done:,.0f} requests: {server.memory():.0f} MiB ({start:.0f} at the start)")


def main():
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--texts", required=True, help="a file of texts")
    parser.add_argument("--seconds", type=int, default=10, help="length of a round")
    parser.add_argument("--saturate", action="store_true")
    parser.add_argument("--saturation", type=int, default=60, help="seconds of --saturate")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--most", type=int, default=500, help="seconds for --memory at most")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = write_requests(folder, arguments.texts)
        if str(arguments.model) == "minilm":
            arguments.model = untrained(folder / "minilm")
        if arguments.memory:
            measure_memory(arguments, folder, script)
        elif arguments.saturate:
            measure_saturation(arguments, folder, script)
        else:
            measure_throughput(arguments, folder, script)


if __name__ == "__main__":
    main()
