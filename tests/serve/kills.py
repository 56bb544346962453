"""Kill the server at random moments while clients send feedback; no acknowledged row may be lost.

python -m tests.serve.kills MODEL [KILLS]
"""

import json
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx2

from glocal.data.readers import read_corpus
from tests.serve.live import live_server

CLIENTS = 4


def kill_and_check(model, folder, *, kills, seed):
    """Return the ids of the acknowledged rows and of the rows in the file, after some kills."""
    draw, acknowledged = random.Random(seed), set()
    target = folder / "rows"
    for number in range(kills):
        with live_server(model, folder=folder, options=["--feedback", target]) as server:
            server.load()
            senders = [
                threading.Thread(target=send, args=(server.url, f"{number}-{client}", acknowledged))
                for client in range(CLIENTS)
            ]
            for sender in senders:
                sender.start()
            time.sleep(draw.uniform(0.05, 0.5))
            server.process.kill()
            for sender in senders:
                sender.join()
    # The next server cuts off half a row, if there is one.
    with live_server(model, folder=folder, options=["--feedback", target]) as server:
        server.load()
        server.client.post("/v1/feedback", json={"text": "the end", "labels": [], "id": "end"})
    (file,) = target.glob("*.jsonl")
    kept = {document.id for document in read_corpus(file).documents()}
    for line in file.read_text(encoding="utf-8").splitlines():
        json.loads(line)
    return acknowledged, kept


def send(url, name, acknowledged):
    with httpx2.Client(base_url=url, timeout=10) as client:
        for number in range(100_000):
            row = {"text": f"a cat {number}", "labels": ["cat"], "id": f"{name}-{number}"}
            try:
                answer = client.post("/v1/feedback", json=row)
            except httpx2.TransportError:
                return
            if answer.status_code == 201:
                acknowledged.add(row["id"])


if __name__ == "__main__":
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    with tempfile.TemporaryDirectory() as place:
        sent, stored = kill_and_check(Path(sys.argv[1]), Path(place), kills=count, seed=0)
    lost = len(sent - stored)
    sys.stderr.write(f"{count} kills: {len(sent):,} rows acknowledged, {lost} of them lost\n")
    sys.exit(1 if sent - stored else 0)
