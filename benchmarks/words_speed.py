"""Prediction speed of the sparse model beside another commit's, with the same weights and texts.

    git worktree add /tmp/before e35a16d
    python benchmarks/words_speed.py MODEL/sparse dev.parquet --before /tmp/before/src

MODEL/sparse is the folder of a stored sparse model. Each measurement is a process of its own; the
two versions take turns, three times, and the best of the three counts, with one thread allowed and
with two, of which each version uses as many as it chooses. Bulk is the 200 best
labels of all texts, wall and processor time; single is the median time of one text in a warm
process. Checks that both versions return the same labels and probabilities, unless the model adds
to the scores of names that it finds in texts, which earlier versions do not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

BEST = 200
SINGLE = 200
ROUNDS = 3


def sparse_model():
    """Return the class of this process's version."""
    try:
        from glocal.companions.sparse.sparse_model import SparseModel
    except ImportError:  # before packages were arranged by idea
        from glocal.sparse.model import SparseModel
    return SparseModel


def measure(args):
    """Measure one version in this process; print a line of JSON."""
    import pyarrow.parquet as pq

    texts = pq.read_table(args.texts, columns=["text"]).column("text").to_pylist()[: args.most]
    model = sparse_model().load(args.model)
    threads = 0 if args.threads > 1 else 1  # 0 lets the version choose
    model.topk(texts[:300], BEST, threads=threads)  # reads the weights
    started, processor = time.perf_counter(), time.process_time()
    labels, probabilities = model.topk(texts, BEST, threads=threads)
    bulk, processor = time.perf_counter() - started, time.process_time() - processor
    single = []
    for text in texts[:SINGLE]:
        started = time.perf_counter()
        model.topk([text], BEST, threads=threads)
        single.append(time.perf_counter() - started)
    np.savez(args.out, labels=labels, probabilities=probabilities)
    single = statistics.median(single)
    print(json.dumps({"bulk": bulk, "cpu": processor, "single": single, "texts": len(texts)}))


def in_own_process(args, source, model, threads, out):
    """Measure one version with a number of threads."""
    command = [sys.executable, __file__, str(model), args.texts, "--measure", "--out", str(out)]
    command += ["--threads", str(threads), "--most", str(args.most)]
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{source} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def readable_copy(model, folder):
    """Copy a model without groups of labels so that the first version can read it."""
    from glocal.companions.sparse.sparse_files import read_model
    from glocal.companions.sparse.sparse_rows import as_csr

    copy = shutil.copytree(model, folder / "model")
    about = json.loads((copy / "sparse.json").read_text())
    if about.get("n_groups"):
        sys.exit(f"{model} has groups of labels, which the other version cannot read")
    for later in ("negatives", "stems", "memory"):
        about["config"].pop(later, None)
    weights = as_csr(read_model(model)[1].weights)
    np.save(copy / "weights-data.npy", weights.data)
    np.save(copy / "weights-indices.npy", weights.indices.astype(np.int32))
    (copy / "sparse.json").write_text(json.dumps(about | {"format": 1}))
    return copy


def finds_names(model):
    """Return whether a stored model looks for names in texts."""
    from glocal.companions.sparse.sparse_files import read_model

    return read_model(model)[1].names is not None


def main():
    """Measure both versions in turn and print the best times with their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("texts")
    parser.add_argument("--before", help="folder src of the other version")
    parser.add_argument("--most", type=int, default=3000, help="texts to predict")
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure(args)
        return
    versions = {"before": args.before, "now": Path(__file__).resolve().parents[1] / "src"}
    best = {}
    with tempfile.TemporaryDirectory() as folder:
        models = {"before": readable_copy(args.model, Path(folder)), "now": args.model}
        for _ in range(ROUNDS):
            for threads in (1, 2):
                for version, source in versions.items():
                    out = Path(folder) / f"{version}.npz"
                    found = in_own_process(args, source, models[version], threads, out)
                    kept = best.setdefault((version, threads), found)
                    for kind in ("bulk", "cpu", "single"):
                        kept[kind] = min(kept[kind], found[kind])
        outputs = [np.load(Path(folder) / f"{version}.npz") for version in versions]
        if finds_names(args.model):
            before, now = (found["labels"][:, :1] for found in outputs)
            same = (before == now).mean()
            print(f"this version also looks for names; {same:.1%} of the best labels are the same")
        else:
            for kind in ("labels", "probabilities"):
                np.testing.assert_array_equal(outputs[0][kind], outputs[1][kind])
            print("the same labels and probabilities")
    print(f"load {os.getloadavg()[0]:.1f} at the end")
    for (version, threads), found in sorted(best.items()):
        print(f"  {version:6} {threads} threads: {found['texts']} texts in {found['bulk']:.2f} s "
              f"(cpu {found['cpu']:.2f} s), one text {1000 * found['single']:.2f} ms")  # fmt: skip
    for kind in ("bulk", "cpu"):
        before, now = (min(best[v, t][kind] for t in (1, 2)) for v in ("before", "now"))
        print(f"  {kind}: best before / best now = {before / now:.2f}")


if __name__ == "__main__":
    main()
