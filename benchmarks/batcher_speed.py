"""Measure the server's batcher alone: throughput with batches and one at a time.

    python benchmarks/batcher_speed.py                   MiniLM's shape, 4,108 labels, 128 tokens
    python benchmarks/batcher_speed.py --model MODEL     a stored model

Callers wait for each answer before they send the next text, as clients of a server do. Both
batchers are measured in turns, three rounds each; the best round counts. Needs neither a web server
nor the packages of one. Random weights are as fast as trained ones.
"""

import argparse
import statistics
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from glocal.config import load_recipe
from glocal.config.resolve import check, resolve
from glocal.data.corpus import Corpus
from glocal.encoders.read_facts import read_encoder_facts
from glocal.lab.synthetic_steps import shape_folder
from glocal.predict.predictor import Predictor
from glocal.serve.batching import Batcher, Choice
from glocal.storage.model_directory import StoredModel
from glocal.systems.registry import build_system
from glocal.systems.system import LabelStatistics
from glocal.vocabulary.label_space import LabelSpace

ROUNDS = 3
KINDS = {"batched": 64, "one at a time": 1}  # by the largest batch


def untrained_model(recipe, *, encoder, n_labels, tokens, device):
    """Return a model that was never trained, which is as fast as one that was."""
    every = [[f"l{number}" for number in range(n_labels)]]
    labels = LabelSpace.build(Corpus.from_texts(["text"], every))
    overrides = [f"encoder.name={encoder}", f"encoder.max_length={tokens}"]
    settled = resolve(
        check(load_recipe(recipe, overrides), read_encoder_facts),
        n_labels=n_labels,
        device_type=torch.device(device).type,
    )
    torch.manual_seed(0)
    system, tokenizer = build_system(settled, LabelStatistics(labels.counts, labels.n_documents))
    return StoredModel(system, settled, labels, tokenizer)


def make_texts(count, tokens):
    """Return texts of random words, each of which is one token."""
    random = np.random.default_rng(0)
    return [" ".join(f"w{i}" for i in random.integers(0, 20_000, tokens)) for _ in range(count)]


def measure(predictor, texts, *, callers, largest, seconds):
    """Return texts per second, the latencies and the mean size of a batch."""
    sizes, times, begin = [], [[] for _ in range(callers)], threading.Barrier(callers + 1)
    batcher = Batcher(predictor, max_batch=largest, max_queued=2048, on_batch=sizes.append)
    stop = threading.Event()

    def call(number):
        begin.wait()
        place = number
        while not stop.is_set():
            start = time.perf_counter()
            batcher.predict([texts[place % len(texts)]], Choice(k=5)).result()
            times[number].append(time.perf_counter() - start)
            place += callers

    threads = [threading.Thread(target=call, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    begin.wait()
    start = time.perf_counter()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - start
    batcher.close()
    for thread in threading.enumerate():  # a worker must not end together with the program
        if thread.name == "glocal-batcher":
            thread.join()
    every = sorted(t for own in times for t in own)
    return SimpleNamespace(
        rate=len(every) / elapsed,
        p50=1e3 * statistics.median(every),
        p99=1e3 * every[int(0.99 * len(every))],
        batch=sum(sizes) / len(sizes),
    )


def main():
    """Measure one caller and many callers, with batches and without."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a model directory in place of random weights")
    parser.add_argument("--recipe", default="glocalxml", help="of the random model")
    parser.add_argument("--labels", type=int, default=4_108)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a round")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    if arguments.model:
        predictor = Predictor.load(arguments.model, device=arguments.device)
    else:
        with tempfile.TemporaryDirectory() as folder:
            model = untrained_model(
                arguments.recipe,
                encoder=f"random:{shape_folder('minilm', Path(folder))}",
                n_labels=arguments.labels,
                tokens=arguments.tokens,
                device=arguments.device,
            )
        predictor = Predictor(model, device=arguments.device)
    texts = make_texts(512, arguments.tokens)
    for size in (1, 16):
        predictor.predict(texts[:size])
    best = {}
    for _ in range(ROUNDS):
        for callers in (1, arguments.callers):
            for kind, largest in KINDS.items():
                found = measure(
                    predictor, texts, callers=callers, largest=largest, seconds=arguments.seconds
                )
                key = (kind, callers)
                if key not in best or found.rate > best[key].rate:
                    best[key] = found
    place = torch.cuda.get_device_name() if arguments.device.startswith("cuda") else "CPU"
    print(f"{place}, {len(predictor.labels):,} labels, {arguments.tokens} words a text")
    for (kind, callers), found in sorted(best.items(), key=str):
        print(
            f"{kind}, {callers} callers: {found.rate:.1f} texts/s, p50 {found.p50:.2f} ms, "
            f"p99 {found.p99:.2f} ms, {found.batch:.1f} texts in a batch"
        )
    many = arguments.callers
    ratio = best["batched", many].rate / best["one at a time", many].rate
    median = best["batched", 1].p50 / best["one at a time", 1].p50
    print(f"batching with {many} callers: {ratio:.2f}x; median of a lone caller: {median:.2f}x")


if __name__ == "__main__":
    main()
