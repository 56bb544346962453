"""Bulk prediction by shards: speed on two cores, and an output that kills do not change.

    python benchmarks/shards.py MODEL TEXTS --documents 100000           # speed
    python benchmarks/shards.py MODEL TEXTS --documents 100000 --kills   # workers killed at random
    python benchmarks/shards.py MODEL TEXTS --documents 100000 --ray     # and Ray's overhead
    python benchmarks/shards.py MODEL TEXTS --documents 100000 --driver  # texts that can be fed

Speed: one process pinned to one core beside two workers on two cores, and Ray's actors in their
place; whole commands, model loading included, taken in turns (`--repeats`); the ratio is the median
of each turn's. `most` is the ratio that CPU time allows, which other jobs hardly change. Kills: a
random worker is killed every few seconds, and once the whole command, which is then given again.
The driver's memory is its largest resident size, from the system.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq


def write_texts(source: str, path: Path, documents: int) -> None:
    """Write as many texts as asked for, repeating those of a file with other ids."""
    table = pq.read_table(source, columns=["text"])
    texts = table.column("text").to_pylist()
    with path.open("w", encoding="utf-8") as file:
        for number in range(documents):
            row = {"id": f"d{number}", "text": texts[number % len(texts)]}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def command(model: str, texts: Path, output: Path, *options: str) -> list[str]:
    """Return the command that tags the texts."""
    program = [sys.executable, "-m", "glocal", "--quiet", "predict", model, str(texts)]
    return [*program, "--output", str(output), *options]


def timed(words: list[str], *, cores: set[int]) -> tuple[float, float]:
    """Run a command on some cores; return its seconds, and those of CPU with its workers."""
    started, used = time.monotonic(), cpu_seconds()
    subprocess.run(words, check=True, preexec_fn=lambda: os.sched_setaffinity(0, cores))
    return time.monotonic() - started, cpu_seconds() - used


def cpu_seconds() -> float:
    """Return the CPU time of all processes that were started from here and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def workers_of(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def peak_memory(pid: int) -> int:
    """Return the largest resident size of a process so far, in MiB; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM")), 0)


def run_with_kills(words: list[str], *, every: float, seed: int) -> dict[str, object]:
    """Run a command while its workers are killed; it is killed itself once."""
    draw, killed, restarts, memory = random.Random(seed), 0, 0, []
    run = subprocess.Popen(words)
    next_kill = time.monotonic() + every
    while run.poll() is None:
        time.sleep(0.05)
        memory.append(peak_memory(run.pid))
        if time.monotonic() < next_kill:
            continue
        next_kill = time.monotonic() + every * draw.uniform(0.5, 1.5)
        workers = workers_of(run.pid)
        if killed == 5 and not restarts:
            run.send_signal(signal.SIGKILL)
            run.wait()
            restarts += 1
            run = subprocess.Popen(words)
        elif workers:
            try:
                os.kill(draw.choice(workers), signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                pass
    if run.returncode:
        raise SystemExit(f"the command ended with {run.returncode}")
    tenth = max(1, len(memory) // 10)
    return {
        "workers_killed": killed,
        "restarts": restarts,
        "driver_mib_early": max(memory[:tenth]),
        "driver_mib_peak": max(memory),
    }


def driver_rate(texts: Path, documents: int) -> float:
    """Return the texts that one process can read, cut into shards and encode for workers."""
    from glocal.data.readers import iter_documents
    from glocal.predict.shards import Shard

    started, rows, number = time.monotonic(), [], 0
    for document in iter_documents(texts):
        rows.append(document)
        if len(rows) == 2048:
            shard = Shard(number, rows)
            json.dumps([shard.file_name, shard.to_list()])
            rows, number = [], number + 1
    return documents / (time.monotonic() - started)


def check_rows(output: Path, documents: int) -> dict[str, int]:
    """Count the rows of an output, repeated ids and missing ones."""
    seen = set()
    rows = 0
    with output.open(encoding="utf-8") as file:
        for line in file:
            rows += 1
            seen.add(json.loads(line)["id"])
    return {"rows": rows, "repeated": rows - len(seen), "missing": documents - len(seen)}


def main() -> None:
    """Run one of the measurements and print it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("texts", help="Parquet with a column `text`")
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--kills", action="store_true")
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--driver", action="store_true")
    parser.add_argument("--every", type=float, default=6.0, help="seconds between two kills")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = folder / "texts.jsonl"
        write_texts(arguments.texts, texts, arguments.documents)
        if arguments.driver:
            rate = driver_rate(texts, arguments.documents)
            print(json.dumps({"documents": arguments.documents, "fed_per_second": round(rate)}))
            return
        one, two = folder / "one.jsonl", folder / "two.jsonl"
        plain = command(arguments.model, texts, one, "--threads", "1")
        sharded = command(arguments.model, texts, two, "--workers", "2")
        found: dict[str, object] = {"documents": arguments.documents}
        if arguments.kills:
            found["seconds_one"], _ = timed(plain, cores={0, 1})
            started = time.monotonic()
            found |= run_with_kills(sharded, every=arguments.every, seed=arguments.seed)
            found["seconds_with_kills"] = time.monotonic() - started
            found |= check_rows(two, arguments.documents)
        else:
            turns = []
            third = folder / "ray.jsonl"
            with_ray = command(arguments.model, texts, third, "--engine", "ray", "--workers", "2")
            for _ in range(arguments.repeats):
                seconds = {
                    "one": timed(plain, cores={0}),
                    "two_workers": timed(sharded, cores={0, 1}),
                }
                if arguments.ray:
                    seconds["ray"] = timed(with_ray, cores={0, 1})
                turns.append(seconds)
            found["seconds"] = [
                {name: round(wall, 2) for name, (wall, _) in t.items()} for t in turns
            ]
            found["cpu"] = [{name: round(cpu, 2) for name, (_, cpu) in t.items()} for t in turns]
            found["ratio"] = statistics.median(t["one"][0] / t["two_workers"][0] for t in turns)
            # What two cores could give with nothing beside: no core waits, and none does more.
            found["most"] = 2 * statistics.median(t["one"][1] / t["two_workers"][1] for t in turns)
            if arguments.ray:
                more = (t["ray"][0] - t["two_workers"][0] for t in turns)
                found["ray_seconds_more"] = statistics.median(more)
                found["ray_identical"] = third.read_bytes() == one.read_bytes()
            found["load"] = os.getloadavg()[0]
        found["identical"] = one.read_bytes() == two.read_bytes()
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        found["largest_child_mib"] = usage.ru_maxrss >> 10
        print(json.dumps({k: round(v, 2) if isinstance(v, float) else v for k, v in found.items()}))


if __name__ == "__main__":
    main()
