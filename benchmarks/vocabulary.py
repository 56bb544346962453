"""Time and memory of reading a large SKOS vocabulary, first and from the cache.

    python benchmarks/vocabulary.py --concepts 1300000

Writes a generated vocabulary (Turtle, some eight triples a concept: names in two languages,
alternative names, notations, broader concepts, notes, deprecated concepts) and reads it twice, each
time in a process of its own. Reports seconds and the largest resident memory. With `--file FILE`
the vocabulary stays there and is written only once.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HEAD = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix : <https://vocabulary.example/id/> .
:all a skos:ConceptScheme .
"""
SYLLABLES = [first + second for first in "bdklmnprst" for second in "aeiou"]


def write_vocabulary(path: Path, n_concepts: int) -> None:
    """Write a vocabulary in Turtle."""
    rng = random.Random(0)

    def word() -> str:
        return "".join(rng.choices(SYLLABLES, k=4))

    with path.open("w", encoding="utf-8") as file:
        file.write(HEAD)
        for concept in range(n_concepts):
            lines = [
                f":{concept} a skos:Concept ; skos:inScheme :all",
                f'skos:prefLabel "{word()} {word()}"@de , "{word()} {word()}"@en',
                f'skos:notation "{concept // 100}.{concept % 100}"',
            ]
            lines += [f'skos:altLabel "{word()} {word()}"@de' for _ in range(rng.randrange(4))]
            if concept:
                lines.append(f"skos:broader :{rng.randrange(concept)}")
            if concept % 5 == 0:
                lines.append(f'skos:scopeNote "{" ".join(word() for _ in range(12))}"@de')
            if concept % 50 == 7:
                lines.append("owl:deprecated true")
            file.write(" ;\n  ".join(lines) + " .\n")


def read(path: str) -> None:
    """Read a vocabulary and print the seconds, the processor's seconds and the memory in MB."""
    from glocal.vocabulary.concept_choice import ConceptChoice
    from glocal.vocabulary.label_table import read_label_table

    start, busy = time.perf_counter(), time.process_time()
    table = read_label_table(path, choice=ConceptChoice(languages=("de", "en")))
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{len(table):,} labels: {seconds:.1f} s ({busy:.1f} s busy), {memory:.0f} MB")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--concepts", type=int, default=1_300_000)
    parser.add_argument("--file", type=Path, help="file of the vocabulary")
    parser.add_argument("--only-write", action="store_true", help="write the file, read nothing")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        return read(arguments.read)
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.file or Path(folder) / "vocabulary.ttl"
        if not path.exists():
            write_vocabulary(path, arguments.concepts)
        print(f"{arguments.concepts:,} concepts, {path.stat().st_size / 1e6:.0f} MB of Turtle")
        environment = {**os.environ, "GLOCAL_CACHE": folder}
        for name in () if arguments.only_write else ("first", "from the cache"):
            print(f"{name}: ", end="", flush=True)
            command = [sys.executable, __file__, "--read", str(path)]
            subprocess.run(command, env=environment, check=True)
    return None


if __name__ == "__main__":
    main()
