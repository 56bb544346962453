"""Speed of bulk prediction: the path of `glocal predict`, with the time that each stage worked.

    python benchmarks/bulk_prediction.py MODEL texts.parquet --texts 100000 --batch-size 256

The texts of the Parquet file are repeated up to the number asked for; nothing is cached between
repeats. Reading and writing (JSON lines, -k 5) are included, loading the model and one warm-up
chunk are not, and are reported. Stages overlap: the longest one is the limit. `prepare` is split
into tokens and words (vectorising and scoring), which also overlap; `tag` is encoder, experts and
top-k; `write` makes the rows. `--workers N` measures the command with as many processes: once with
a tenth of the texts and once with all; the difference excludes loading.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path


def repeated(path, n_texts, out):
    """Write the texts of a Parquet file, repeated, to another one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = pq.read_table(path, columns=["text"])
    times = -(-n_texts // len(texts))
    pq.write_table(pa.concat_tables([texts] * times).slice(0, n_texts), out, row_group_size=4096)


class Watch:
    """Adds up how long functions run, whatever threads call them."""

    def __init__(self):
        self.seconds = Counter()

    def __call__(self, name, function):
        """The function, watched."""

        def watched(*args, **kwargs):
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[name] += time.perf_counter() - started

        return watched


def watch_stages(predictor, watch):
    """Watch the parts of preparing texts."""
    from glocal.companions.sparse.sparse_model import SparseModel
    from glocal.companions.sparse.vectoriser import Vectoriser
    from glocal.predict.overlap import Overlap

    tokenizer = type(predictor.tokenizer)
    tokenizer.encode_batch = watch("  tokens", tokenizer.encode_batch)
    SparseModel.topk = watch("  words", SparseModel.topk)
    Vectoriser.rows = watch("    vectorise", Vectoriser.rows)
    put = Overlap.put

    def timed(self, chunk):
        watch.overlap = self
        put(self, chunk)

    Overlap.put = watch("waiting to read on", timed)
    Overlap.drain = watch("waiting to read on", Overlap.drain)


def in_this_process(args, texts, tags):
    """Tag the texts here; return what was measured."""
    from glocal.cli.predict import _return_freed_memory

    _return_freed_memory()
    started = time.perf_counter()
    from glocal.predict.bulk import CHUNK, WORDS_CHUNK, predict_file
    from glocal.predict.predictor import Predictor
    from glocal.predict.tag_files import open_writer

    predictor = Predictor.load(
        args.model, device=args.device, batch_size=args.batch_size, precision=args.precision
    )
    loading = time.perf_counter() - started
    chunk = WORDS_CHUNK if predictor.recipe.reads_words_alone else CHUNK
    watch = Watch()
    watch_stages(predictor, watch)
    started = time.perf_counter()
    few = Path(tags).with_name("few.parquet")
    repeated(args.file, min(2 * chunk, args.texts), few)
    predict_file(predictor, few, lambda rows: list(rows), k=5, chunk_size=chunk)
    warming = time.perf_counter() - started
    watch.seconds.clear()
    cpu, started = time.process_time(), time.perf_counter()
    with open_writer(tags) as write:
        predict_file(predictor, texts, write, k=5, chunk_size=chunk)
    seconds = time.perf_counter() - started
    stages = {**watch.overlap.seconds, **watch.seconds}
    stages["reading"] = seconds - stages.pop("waiting to read on")
    return {
        "loading": loading,
        "warming": warming,
        "seconds": seconds,
        "cpu": time.process_time() - cpu,
        "stages": stages,
    }


def in_workers(args, texts, tags):
    """Tag a tenth of the texts and all of them on several processes; return the difference."""
    few = Path(tags).with_name("few.parquet")
    repeated(args.file, args.texts // 10, few)
    loading = by_command(args, few, Path(tags).with_name("few.jsonl"))
    whole = by_command(args, texts, tags)
    return {"seconds": (whole - loading) / 0.9, "whole": whole, "tenth": loading}


def by_command(args, texts, tags):
    """Tag texts by the command; return the seconds."""
    command = [sys.executable, "-m", "glocal", "predict", args.model, str(texts), "-o", str(tags)]
    command += ["-k", "5", "--workers", str(args.workers), "--device", args.device]
    command += ["--batch-size", str(args.batch_size), "--precision", args.precision]
    started = time.perf_counter()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def main():
    """Measure and print one report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("file", help="Parquet file with a column text")
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        texts, tags = Path(folder) / "texts.parquet", Path(folder) / "tags.jsonl"
        repeated(args.file, args.texts, texts)
        found = (in_workers if args.workers else in_this_process)(args, texts, tags)
        with tags.open("rb") as lines:
            n_rows = sum(1 for _ in lines)
    found["docs_per_s"] = n_rows / found["seconds"]
    if args.json:
        print(json.dumps(found))
        return
    print(f"{n_rows} texts in {found['seconds']:.1f} s: {found['docs_per_s']:.0f} docs/s "
          f"(load {os.getloadavg()[0]:.1f} at the end)")  # fmt: skip
    if args.workers:
        print(f"  {args.workers} workers: {found['whole']:.1f} s with loading, "
              f"a tenth of the texts {found['tenth']:.1f} s")  # fmt: skip
    if "loading" in found:
        print(f"  loading {found['loading']:.1f} s, warm-up {found['warming']:.1f} s, "
              f"processor time {found['cpu']:.1f} s")  # fmt: skip
    for stage, seconds in found.get("stages", {}).items():
        print(f"  {stage:14} {seconds:7.1f} s  {1e6 * seconds / n_rows:6.0f} us/text")


if __name__ == "__main__":
    main()
