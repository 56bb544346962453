"""Memory that training the model of words takes, beside its formula.

    python benchmarks/words_memory.py --texts 100000 300000 --labels 25000 [--words 12]

Made-up texts (`made_up_products.py`) are written to a temporary folder; each size is trained in a
process of its own. Prints what the formula of docs/concepts/sparse.md counts, its result, and the
peak that the system saw.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FIXED, PER_THREAD = 700e6, 700e6  # Python, its libraries, buffers; one problem of the solver
PER_TEXT_FEATURE, PER_WEIGHT, PER_KNOWN_WORD = 16, 20, 150


def formula(counts, threads):
    """Return the bytes that training takes at most."""
    texts = PER_TEXT_FEATURE * counts["features of texts"]
    words = PER_KNOWN_WORD * counts["words and pairs"]
    kept = counts["file"] + texts + PER_WEIGHT * counts["weights"] + words
    return FIXED + PER_THREAD * threads + kept


def train(path, threads):
    """Train on a file in this process; print what was counted as JSON."""
    import pyarrow.parquet as pq

    from glocal.companions.sparse import sparse_model
    from glocal.data.readers import read_corpus
    from glocal.lab.machine import peak_memory
    from glocal.vocabulary.label_space import LabelSpace

    counts, metadata = {}, pq.ParquetFile(path).metadata
    counts["file"] = sum(
        metadata.row_group(g).total_byte_size for g in range(metadata.num_row_groups)
    )
    corpus = read_corpus(path)
    labels = LabelSpace.build(corpus)
    fit = sparse_model.Vectoriser.fit

    def counted(*args, **options):
        vectoriser, features = fit(*args, **options)
        counts["features of texts"] = features.nnz
        return vectoriser, features

    sparse_model.Vectoriser.fit = counted
    started = time.perf_counter(), time.process_time()
    model = sparse_model.SparseModel.fit(corpus, labels, threads=threads)
    now = time.perf_counter(), time.process_time()
    counts["seconds"], counts["processor"] = (b - a for a, b in zip(started, now, strict=True))
    groups = model.scorer.groups
    counts["weights"] = model.scorer.weights.nnz + (groups.weights.nnz if groups else 0)
    counts["words and pairs"] = model.vectoriser.n_features
    counts["peak"] = peak_memory()
    print(json.dumps(counts))


def main():
    """Train on each size and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, nargs="+", default=[100_000, 300_000])
    parser.add_argument("--labels", type=int, default=25_000)
    parser.add_argument("--words", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.file:
        train(args.file, args.threads)
        return
    for n_texts in args.texts:
        with tempfile.TemporaryDirectory() as folder:
            make = [sys.executable, Path(__file__).with_name("made_up_products.py"), folder]
            make += ["--texts", n_texts, "--labels", args.labels, "--words", args.words]
            subprocess.run([str(part) for part in make], check=True)
            command = [sys.executable, __file__, "--file", f"{folder}/train.parquet"]
            command += ["--threads", str(args.threads)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            counts = json.loads(done.stdout.splitlines()[-1])
        shown = ", ".join(f"{name} {value:,.0f}" for name, value in counts.items())
        print(f"{n_texts:,} texts: {shown}")
        expected = formula(counts, args.threads) / 1e9
        print(f"    formula {expected:.2f} GB, peak {counts['peak'] / 1e9:.2f} GB", flush=True)


if __name__ == "__main__":
    main()
