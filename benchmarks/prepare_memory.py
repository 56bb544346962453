"""How much memory and time it takes to prepare a large corpus.

Generates documents of a few words and a few labels each, reads them, builds the label space,
encodes the labels and tokenises the texts, and prints the time and the peak resident memory after
each step (memory-mapped pages included). The tokenizer is a whitespace one, so that no model is
needed, or that of a `tokenizer.json`.

    python benchmarks/prepare_memory.py --documents 1000000
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenizers import Tokenizer

N_WORDS = 30_000


class FastTokenizer:
    """A tokenizer of the tokenizers library, as `tokenise` wants it."""

    def __init__(self, tokenizer: Tokenizer, fingerprint: str) -> None:
        self.tokenizer = tokenizer
        self.fingerprint = fingerprint
        self.vocab_size = self.id_bound = tokenizer.get_vocab_size()

    def encode_batch(self, texts: list[str], max_length: int) -> list[list[int]]:
        """The token ids of each text."""
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(max_length)
        return [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts)]


def load_tokenizer(path: Path | None) -> FastTokenizer:
    """A tokenizer from a file, or one that knows the generated words."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    if path is not None:
        return FastTokenizer(Tokenizer.from_file(str(path)), str(path))
    vocabulary = {"[UNK]": 0, **{f"word{i}": i + 1 for i in range(N_WORDS)}}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return FastTokenizer(tokenizer, f"whitespace-{N_WORDS}")


def generate(path: Path, *, n_documents: int, n_labels: int, n_words: int) -> None:
    """Write JSON lines with words and labels drawn from a long-tailed distribution."""
    rng = np.random.default_rng(0)
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, n_documents, 10_000):
            size = min(10_000, n_documents - start)
            words = (N_WORDS * rng.random((size, n_words)) ** 3).astype(int)
            labels = (n_labels * rng.random((size, 5)) ** 2).astype(int)
            for row in range(size):
                text = " ".join(f"word{w}" for w in words[row])
                names = [f"label{label}" for label in set(labels[row].tolist())]
                document = {"id": f"doc{start + row}", "text": text, "labels": names}
                file.write(json.dumps(document) + "\n")


def peak_mib() -> float:
    """The peak resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    """Time a step and print the peak memory after it."""
    started = time.perf_counter()
    yield
    print(f"{name:28s} {time.perf_counter() - started:7.1f} s   peak {peak_mib():7.0f} MiB")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--labels", type=int, default=500_000)
    parser.add_argument("--words", type=int, default=30)
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json; whitespace by default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GLOCAL_CACHE"] = str(Path(folder) / "cache")
        path = Path(folder) / "train.jsonl"
        with step("generate"):
            generate(
                path,
                n_documents=options.documents,
                n_labels=options.labels,
                n_words=options.words,
            )
        print(f"{path.stat().st_size / (1 << 20):.0f} MiB of JSON lines")
        prepare(path, options.tokenizer)


def prepare(path: Path, tokenizer_path: Path | None) -> None:
    """Read, build the label space, encode and tokenise."""
    with step("import"):
        from glocal.data.readers import read_corpus
        from glocal.data.tokens import tokenise
        from glocal.vocabulary.label_space import LabelSpace

        tokenizer = load_tokenizer(tokenizer_path)
    with step("read"):
        corpus = read_corpus(path, require_labels=True)
    with step("label space"):
        space = LabelSpace.build(corpus)
    with step("encode labels"):
        matrix = space.encode(corpus)
    with step("tokenise"):
        store = tokenise(corpus, tokenizer, max_length=128)
    with step("tokenise, from the cache"):
        store = tokenise(corpus, tokenizer, max_length=128)
    print(
        f"{len(corpus)} documents, {len(space)} labels, {matrix.nnz} positives, "
        f"{int(store.lengths.sum())} tokens"
    )


if __name__ == "__main__":
    main()
