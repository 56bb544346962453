"""Serve a model with a million labels: loading, tagging, and searching labels as the page does.

    python benchmarks/million_labels.py [--labels 1000000] [--keep DIR]

A small model of words is trained and given a million labels with names, other names and parents.
Prints the time of each request to a server of its own (best and worst of five different ones) and
the server's memory. With `--keep`, the model stays, to open it in a browser.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.serve.live import live_server
from tests.tiny import tiny_corpus

from glocal.config import load_recipe
from glocal.train.run import fit
from glocal.update.label_update import add_labels
from glocal.vocabulary.label_table import LabelEntry, LabelTable

KINDS = "ancient modern coastal northern applied digital industrial legal medical public urban"
THINGS = (
    "agriculture archives astronomy bridges ceramics chemistry courts dialects economics energy "
    "fisheries folklore forests geology glass harbours hospitals insects languages law libraries "
    "maps markets mining music paintings plants poetry ports railways rivers schools ships trade"
)
ENDINGS = "in Europe|in the 19th century|and society|of Africa|before 1500|after 1945|on islands"
REQUESTS = {
    "the first page of all labels": [{"page": page} for page in range(1, 6)],
    "one word": [{"q": word} for word in ("ports", "mining", "law", "glass", "maps")],
    "a letter": [{"q": letter} for letter in "aesrx"],
    "three words": [
        {"q": f"digital {word} islands"} for word in ["law", "maps", "trade", "ships", "poetry"]
    ],
    "an other name": [{"q": f"trade of place{number}"} for number in (1, 20, 300, 4000, 5000)],
    "no such name": [{"q": word} for word in ("zzz", "qqq", "xyzzy", "jjj", "vvv")],
    "labels below another": [{"parent": f"c{number}"} for number in (0, 1, 2, 3, 4)],
}


def make_labels(count, seed=0):
    """Return labels with names, other names and parents."""
    draw = random.Random(seed)
    kinds, things, endings = KINDS.split(), THINGS.split(), ENDINGS.split("|")
    return LabelTable.from_entries(
        [
            LabelEntry(
                f"c{number}",
                f"{draw.choice(kinds)} {draw.choice(things)} {draw.choice(endings)}, {number}",
                parents=(f"c{draw.randrange(max(1, number // 40))}",) if number >= 20 else (),
                alt_names=(f"{draw.choice(things)} of place{draw.randrange(20_000)}",),
            )
            for number in range(count)
        ]
    )


def make_model(path, count):
    """Train a small model and give it labels."""
    fit(load_recipe("fast"), tiny_corpus(96), out=path, dev=tiny_corpus(32, 1))
    start = time.perf_counter()
    add_labels(path, make_labels(count))
    print(f"{count:,} labels added in {time.perf_counter() - start:.0f} s")


def timed(call):
    """Return a result and the milliseconds it took."""
    start = time.perf_counter()
    answer = call()
    return answer, 1e3 * (time.perf_counter() - start)


def measure(path, folder):
    """Time requests to a server."""
    with live_server(path, folder=folder, options=["--limit", "request_seconds=600"]) as server:
        server.client.timeout = 600
        body = {"texts": ["the red cat and maps of digital trade"], "k": 10}
        answer, first = timed(lambda: server.client.post("/v1/predict", json=body))
        assert answer.status_code == 200, answer.text
        times = [timed(lambda: server.client.post("/v1/predict", json=body))[1] for _ in range(5)]
        print(f"loading and tagging {first / 1e3:.1f} s; tagging {min(times):.0f} ms")
        _, first = timed(lambda: server.client.get("/v1/labels", params={"q": "first"}))
        print(f"the first search, which makes the index, {first / 1e3:.1f} s")
        for name, queries in REQUESTS.items():
            found = [timed(lambda q=q: server.client.get("/v1/labels", params=q)) for q in queries]
            assert all(answer.status_code == 200 for answer, _ in found)
            total = max(answer.json()["total"] for answer, _ in found)
            took = sorted(took for _, took in found)
            print(f"{name}: {took[0]:.0f} to {took[-1]:.0f} ms, up to {total:,} labels")
        print(f"memory of the server: {server.memory():,.0f} MiB")


def main():
    """Make the model and measure it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="folder that keeps the model")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path = (arguments.keep or Path(name)) / "model"
        if not path.exists():
            make_model(path, arguments.labels)
        measure(path, Path(name))


if __name__ == "__main__":
    main()
