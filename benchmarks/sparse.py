"""The sparse model beside Omikuji's Bonsai and PECOS one-vs-all: quality and training time.

    python benchmarks/sparse.py DATA --threads 2 --pecos /path/to/other-env/bin/python

DATA is a folder with train, dev and test files (Parquet or JSON lines) and perhaps a labels.jsonl.
Every system is trained in a process of its own, one after the other. The peers get unigram TF-IDF
features (sublinear, l2, fitted on train), whose making is timed apart; ours times everything from
the texts, also stage by stage. Times are wall and processor time: on a busy machine the latter is
the fairer ratio. Then the `K` best labels of single texts are asked for in the warm process, one
after the other: the median time counts, for the peers without making features of the text.
`--device cuda --skip bonsai pecos` times our training on a GPU.
PECOS wants numpy < 2 and so an environment of its own (`pip install libpecos`); without
`--pecos` it is left out. Prints a table with ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SYSTEMS = ("ours", "bonsai", "pecos")
K = 5
SINGLE = 200  # texts predicted one at a time


class Clock:
    """Wall and processor time of training, wall time of prediction."""

    def __init__(self):
        self.started = time.perf_counter(), time.process_time()

    def trained(self):
        """Training is over, prediction begins."""
        self.middle = time.perf_counter(), time.process_time()

    def seconds(self):
        """What was measured, up to now."""
        wall, cpu = (after - before for before, after in zip(self.started, self.middle))  # noqa: B905 (runs on PECOS's Python too)
        return {"train": wall, "cpu": cpu, "predict": time.perf_counter() - self.middle[0]}


def median_seconds(predict, texts):
    """The median time of predicting one text, in a warm process."""
    seconds = []
    for text in texts[:SINGLE]:
        started = time.perf_counter()
        predict(text)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[len(seconds) // 10 :])


class Stages:
    """Wall time of each stage of training, as its progress tells."""

    def __init__(self):
        self.seconds, self.current = {}, "preparing"
        self.started = time.perf_counter()

    def __call__(self, stage):
        """A stage begins."""
        self.end()
        self.current = stage
        return lambda done, total: None

    def end(self):
        """The current stage is over."""
        now = time.perf_counter()
        self.seconds[self.current] = self.seconds.get(self.current, 0) + now - self.started
        self.started = now


def files(folder, split):
    """The file of a split."""
    return next(p for p in sorted(Path(folder).glob(f"{split}.*")) if p.suffix != ".tmp")


def prepare(args, work):
    """Write the peers' features and the labels of both splits; return how long it took."""
    from scipy.sparse import save_npz

    from glocal.companions.sparse.vectoriser import Vectoriser
    from glocal.config import SparseConfig
    from glocal.data.readers import read_corpus
    from glocal.vocabulary.label_space import LabelSpace

    train, test = (read_corpus(files(args.data, split)) for split in (args.train, args.split))
    labels = LabelSpace.build(train)
    save_npz(work / "y-train.npz", labels.encode(train), compressed=False)
    save_npz(work / "y-test.npz", labels.encode(test), compressed=False)
    if peers(args) == ["ours"]:
        return 0.0
    started = time.perf_counter()
    config = SparseConfig(pairs=False, pieces="off", title_weight=0.0, min_words=1, max_words=1.0)
    vectoriser, features = Vectoriser.fit(train, config, threads=args.threads)
    seconds = time.perf_counter() - started
    save_npz(work / "x-train.npz", features, compressed=False)
    save_npz(work / "x-test.npz", vectoriser.transform(test.texts()), compressed=False)
    return seconds


def peers(args):
    """The systems to train."""
    skipped = {*args.skip, *(() if args.pecos else ("pecos",))}
    return [system for system in SYSTEMS if system not in skipped]


def load(work, name):
    """A matrix that `prepare` wrote."""
    from scipy.sparse import load_npz

    return load_npz(work / f"{name}.npz").tocsr()


def ours(args, work):
    """Train and predict from the texts."""
    from glocal.companions.sparse.sparse_model import SparseModel
    from glocal.config import SparseConfig
    from glocal.data.readers import read_corpus
    from glocal.vocabulary.label_space import LabelSpace
    from glocal.vocabulary.label_table import read_label_table

    train, test = (read_corpus(files(args.data, split)) for split in (args.train, args.split))
    table = Path(args.data) / "labels.jsonl"
    labels = LabelSpace.build(train, table=read_label_table(table) if table.exists() else None)
    config = SparseConfig(**json.loads(args.config))
    clock, stages = Clock(), Stages()
    model = SparseModel.fit(
        train, labels, config, threads=args.threads, device=args.device, progress=stages
    )
    stages.end()
    clock.trained()
    texts = list(test.texts())
    indices, _ = model.topk(texts, K, threads=args.threads)
    seconds = {**clock.seconds(), "stages": stages.seconds}
    single = median_seconds(lambda text: model.topk([text], K, threads=1), texts)
    return indices, seconds | {"single": single}


def bonsai(args, work):
    """Omikuji with Bonsai's settings; it predicts one text a call."""
    import omikuji

    features, labels = load(work, "x-train"), load(work, "y-train")
    filled = np.flatnonzero(np.diff(features.indptr))  # Omikuji refuses texts without features
    features, labels = features[filled], labels[filled]
    path = work / "train.txt"
    with path.open("w") as out:
        out.write(f"{features.shape[0]} {features.shape[1]} {labels.shape[1]}\n")
        for row in range(features.shape[0]):
            gold = labels.indices[labels.indptr[row] : labels.indptr[row + 1]]
            span = slice(features.indptr[row], features.indptr[row + 1])
            cells = zip(features.indices[span], features.data[span], strict=True)
            out.write(",".join(map(str, gold)) + " ")
            out.write(" ".join(f"{i}:{v:.6f}" for i, v in cells) + "\n")
    del features, labels  # Omikuji reads the file
    settings = omikuji.Model.default_hyper_param()
    settings.cluster_balanced, settings.cluster_k, settings.max_depth = False, 100, 3
    clock = Clock()
    model = omikuji.Model.train_on_data(str(path), settings, args.threads)
    clock.trained()
    test = load(work, "x-test")
    indices = np.full((test.shape[0], K), -1)
    texts = []
    for row in range(test.shape[0]):
        span = slice(test.indptr[row], test.indptr[row + 1])
        cells = list(zip(test.indices[span].tolist(), test.data[span].tolist(), strict=True))
        texts.append(cells)
        found = model.predict(cells, top_k=K) if cells else []
        indices[row, : len(found)] = [label for label, _ in found]
    seconds = clock.seconds()
    single = median_seconds(lambda text: model.predict(text, top_k=K), list(filter(None, texts)))
    return indices, seconds | {"single": single}


def pecos(args, work):
    """PECOS, every label against every text."""
    from pecos.xmc.xlinear.model import XLinearModel

    features, labels = load(work, "x-train"), load(work, "y-train")
    clock = Clock()
    model = XLinearModel.train(features, labels, C=None, threads=args.threads)
    clock.trained()
    test = load(work, "x-test")
    found = model.predict(test, only_topk=K, threads=args.threads).tocsr()
    indices = np.full((found.shape[0], K), -1)
    for row in range(found.shape[0]):
        span = slice(found.indptr[row], found.indptr[row + 1])
        best = found.indices[span][np.argsort(-found.data[span])]
        indices[row, : len(best)] = best
    seconds = clock.seconds()
    rows = [test[row] for row in range(min(SINGLE, test.shape[0]))]
    single = median_seconds(lambda row: model.predict(row, only_topk=K, threads=1), rows)
    return indices, seconds | {"single": single}


def peak_megabytes():
    """The most memory this process had; getrusage would count its parent's before the start."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    found = [int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")]
    return found[0] if found else float("nan")


def measure(args, work):
    """One system, in this process; prints a line of JSON."""
    indices, seconds = globals()[args.system](args, work)
    gold = load(work, "y-test")
    hits = np.array(
        [np.isin(r, gold.indices[a:b]) for r, a, b in zip(indices, gold.indptr, gold.indptr[1:])]  # noqa: B905 (runs on PECOS's Python too)
    )
    precision = [100 * float(hits[:, :k].mean()) for k in (1, 3, 5)]
    print(json.dumps(seconds | {"peak": peak_megabytes(), "P": precision}))


def in_own_process(args, work, system):
    """Run one system in its interpreter and return what it measured."""
    python = args.pecos if system == "pecos" else sys.executable
    command = [python, __file__, args.data, "--system", system, "--work", str(work)]
    command += ["--threads", str(args.threads), "--split", args.split, "--config", args.config]
    command += ["--train", args.train, "--device", args.device]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    # What they say of their progress is not shown, unless they fail.
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{system} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    """Train all systems in turn and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--train", default="train", help="file to train on, without its suffix")
    parser.add_argument("--split", default="dev", choices=("dev", "test"))
    parser.add_argument("--pecos", help="the Python of an environment with libpecos")
    parser.add_argument("--config", default="{}", help="settings of ours, as JSON")
    parser.add_argument("--skip", nargs="*", default=[], choices=SYSTEMS)
    parser.add_argument("--device", default="cpu", help="where ours is trained: cpu, cuda or auto")
    parser.add_argument("--system", choices=SYSTEMS, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.system:
        measure(args, args.work)
        return
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        feature_seconds = prepare(args, work)
        print(f"{args.split}, {args.threads} threads, load {os.getloadavg()[0]:.1f} at the start; "
              f"the peers' features took {feature_seconds:.1f} s")  # fmt: skip
        own = None
        for system in peers(args):
            found = in_own_process(args, work, system)
            own = found if system == "ours" else own
            ratios = [own[kind] / found[kind] for kind in ("train", "cpu")] if own else []
            ratio = " and ".join(f"{value:.2f}" for value in ratios)
            shown = " / ".join(f"{value:.1f}" for value in found["P"])
            print(f"  {system:8} train {found['train']:7.1f} s (cpu {found['cpu']:7.1f} s)  "
                  f"predict {found['predict']:6.1f} s, one text {1000 * found['single']:.2f} ms  "
                  f"peak {found['peak']:5.0f} MB  "
                  f"P@1/3/5 {shown}  ours in {ratio} of its time and cpu", flush=True)  # fmt: skip
            for stage, seconds in found.get("stages", {}).items():
                print(f"    {stage:22} {seconds:6.1f} s")


if __name__ == "__main__":
    main()
