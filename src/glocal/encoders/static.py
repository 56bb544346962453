"""Static word vectors: one vector for each token, independent of its context.

- They come from an encoder's token embeddings, from a word2vec or GloVe text file, or from training
  on a corpus with gensim (`word_vectors.py`).
- A text is read word by word, split at white space, and a word's tokens do not depend on its
  neighbours: each distinct word is looked up once, so that 45,000 texts of 500 words take seconds.
- The vector of a text is the mean of its tokens' vectors (TReaderXML Eq. 1), weighted by rarity if
  asked. It depends on the text alone, to the last bit, not on the other texts of a batch.
- Tokens without a vector are skipped; a text without any other has the zero vector.
- On disk: a JSON file, a safetensors file, and the tokenizer or the words; nothing is executed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glocal.arrays import Floats32, Ints, ranges
from glocal.encoders.word_lookup import LOOKUPS, EncoderLookup, WordLookup
from glocal.errors import unreadable
from glocal.progress import Progress

if TYPE_CHECKING:
    from glocal.config import EncoderConfig, TeacherConfig
    from glocal.data.corpus import Corpus

WEIGHTINGS = ("mean", "idf", "tfidf")
BATCH_TEXTS = 1024
MOST_CACHED_WORDS = 1_000_000
LONGEST_CACHED_WORD = 64  # characters; longer words rarely occur again
FORMAT_VERSION = 1
FILE_ENDINGS = (".txt", ".vec", ".gz", ".bin")  # no encoder has such a name
META_FILE, TENSORS_FILE = "vectors.json", "vectors.safetensors"


class StaticVectors:
    """A vector for each token, and how texts are made of tokens.

    Args:
        lookup: Returns the tokens of a word.
        matrix: (V, D) the vector of each token.
        weights: (V,) the weight of each token in a text's vector; equal by default.
        damped: Whether a token that occurs c times in a text counts 1 + ln c times.
        max_words: Number of words read of each text.
    """

    def __init__(
        self,
        lookup: WordLookup,
        matrix: NDArray[Any],
        *,
        weights: NDArray[Any] | None = None,
        damped: bool = False,
        max_words: int = 500,
    ) -> None:
        self.lookup = lookup
        self.matrix: Floats32 = np.ascontiguousarray(matrix, dtype=np.float32)
        given = np.ones(len(matrix)) if weights is None else weights
        self.weights: Floats32 = np.asarray(given, dtype=np.float32)
        self.damped, self.max_words = damped, max_words
        self._cache: dict[str, Sequence[int]] = {}
        self._fingerprint: str | None = None

    @classmethod
    def of_encoder(cls, model: Any, tokenizer: Any, *, max_words: int = 500) -> StaticVectors:
        """Take the token embeddings of an encoder.

        Args:
            model: A Hugging Face encoder.
            tokenizer: Its `glocal.encoders.tokenizer.TextTokenizer`.
            max_words: Number of words read of each text.
        """
        matrix = model.get_input_embeddings().weight.detach().cpu().float().numpy().copy()
        return cls(EncoderLookup(tokenizer.backend, len(matrix)), matrix, max_words=max_words)

    @property
    def dimensions(self) -> int:
        """Width of a vector."""
        return int(self.matrix.shape[1])

    def token_ids(
        self, texts: Sequence[str], max_words: int | None = None
    ) -> list[NDArray[np.int32]]:
        """Return the tokens of each text that have a vector, in order.

        Args:
            texts: The texts.
            max_words: Number of words read of each; that of `embed` by default.
        """
        flat, offsets = self._tokens(texts, self.max_words if max_words is None else max_words)
        return np.split(flat, offsets[1:-1]) if texts else []

    def counts(self, texts: Sequence[str]) -> Any:
        """Return the count of each token in each text: a float32 CSR matrix (n, V)."""
        from scipy.sparse import csr_matrix

        flat, offsets = self._tokens(texts, self.max_words)
        shape = (len(texts), len(self.matrix))
        matrix = csr_matrix((np.ones(len(flat), dtype=np.float32), flat, offsets), shape=shape)
        matrix.sum_duplicates()
        return matrix

    def weigh(self, texts: Sequence[str]) -> Any:
        """Return the weight of each token in each text, counts damped: float32 CSR (n, V)."""
        counts = self.counts(texts)
        counts.data = (1 + np.log(counts.data)) * self.weights[counts.indices]
        return counts

    def embed(self, texts: Sequence[str]) -> Floats32:
        """Return the vector of each text, (n, D); zero where no word is known."""
        found = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for start in range(0, len(texts), BATCH_TEXTS):
            stop = start + BATCH_TEXTS
            found[start:stop] = self._embed(self.counts(texts[start:stop]))
        return found

    def _embed(self, counts: Any) -> Floats32:
        if self.damped:
            counts.data = 1 + np.log(counts.data)
        counts.data *= self.weights[counts.indices]
        total = np.asarray(counts.sum(axis=1), dtype=np.float32)  # (n, 1)
        return np.asarray(counts @ self.matrix / np.where(total > 0, total, 1), dtype=np.float32)

    def weighted(self, weighting: str, *, frequencies: Ints, n_texts: int) -> StaticVectors:
        """Return the same vectors with other weights of tokens.

        Args:
            weighting: `mean` (equal weights, as in the paper), `idf`, or `tfidf` (counts damped).
            frequencies: (V,) number of training texts with each token.
            n_texts: Number of training texts.
        """
        assert weighting in WEIGHTINGS, weighting
        # Above 0 even for a token of every text, so that a text of nothing else has a vector.
        rarity = np.log((1 + n_texts) / (0.5 + frequencies))
        weights = None if weighting == "mean" else rarity
        damped = weighting == "tfidf"
        other = StaticVectors(
            self.lookup, self.matrix, weights=weights, damped=damped, max_words=self.max_words
        )
        other._cache = self._cache  # the words counted before occur again
        return other

    def fingerprint(self) -> str:
        """Identify the vectors: changes whenever the vector of some text does."""
        if self._fingerprint is None:
            digest = hashlib.blake2b(digest_size=16)
            digest.update(f"{self.lookup.fingerprint} {self.damped} {self.max_words}".encode())
            digest.update(np.array(self.matrix.shape).tobytes())
            digest.update(self.matrix.tobytes())
            digest.update(self.weights.tobytes())
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def save(self, folder: str | Path) -> None:
        """Write the vectors into a folder, which is created if need be."""
        from safetensors.numpy import save

        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        self.lookup.save(target)
        tensors = {"matrix": self.matrix, "weights": self.weights}
        (target / TENSORS_FILE).write_bytes(save(tensors))
        meta = {
            "format_version": FORMAT_VERSION,
            "lookup": self.lookup.kind,
            "damped": self.damped,
            "max_words": self.max_words,
        }
        (target / META_FILE).write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> StaticVectors:
        """Read vectors written by `save`.

        Raises:
            ModelError: The folder holds none, or they are damaged.
        """
        from safetensors.numpy import load_file

        source = Path(folder)
        # Any failure means that the folder is not what was saved.
        with unreadable(f"cannot read the word vectors in {source}", Exception):
            meta = json.loads((source / META_FILE).read_text(encoding="utf-8"))
            tensors = load_file(source / TENSORS_FILE)
            lookup = LOOKUPS[meta["lookup"]].load(source, len(tensors["matrix"]))
            damped, max_words = bool(meta["damped"]), int(meta["max_words"])
            matrix, weights = tensors["matrix"], tensors["weights"]
            if matrix.ndim != 2 or weights.shape != (len(matrix),) or matrix.dtype != np.float32:
                raise ValueError(f"the shapes are {matrix.shape} and {weights.shape}")
            if not 0 < max_words < 1 << 31:
                raise ValueError(f"max_words is {max_words}")
            return cls(lookup, matrix, weights=weights, damped=damped, max_words=max_words)

    def _tokens(self, texts: Sequence[str], max_words: int) -> tuple[NDArray[np.int32], Ints]:
        """Return the tokens of all texts one after another, and the bounds of each text."""
        import pyarrow as pa
        import pyarrow.compute as pc

        # Arrow splits and numbers the words: with Python strings this was the slowest part.
        trimmed = pc.utf8_trim_whitespace(pa.array(texts, pa.large_string()))
        split = pc.utf8_split_whitespace(trimmed, max_splits=max_words)
        words = pc.list_slice(split, 0, max_words)
        n_words = pc.list_value_length(words).to_numpy(zero_copy_only=False).astype(np.int64)
        numbered = pc.list_flatten(words).dictionary_encode()
        pieces = self._pieces(numbered.dictionary.to_pylist())
        tokens, ends = _ragged_take(pieces, numbered.indices.to_numpy().astype(np.int64))
        return tokens, np.append(0, ends)[np.append(0, np.cumsum(n_words))]

    def _pieces(self, words: list[str]) -> list[Sequence[int]]:
        """Return the tokens of each word, from the cache where it occurred before."""
        if len(self._cache) > MOST_CACHED_WORDS:
            self._cache = {}
        cache = self._cache
        new = [word for word in words if word not in cache]
        found = dict(zip(new, self.lookup(new), strict=True))
        cache.update((w, ids) for w, ids in found.items() if len(w) <= LONGEST_CACHED_WORD)
        return [cache[word] if word in cache else found[word] for word in words]


def build_vectors(
    config: TeacherConfig,
    encoder: EncoderConfig,
    train: Corpus,
    *,
    extra: Sequence[str] = (),
    progress: Progress | None = None,
) -> StaticVectors:
    """Build the word vectors of a recipe, weighted by the rarity of tokens in the training texts.

    Args:
        config: Source and weighting of the vectors.
        encoder: The run's encoder, whose token embeddings are the default.
        train: The training texts.
        extra: More texts whose words are read from a file, such as the names of labels.
        progress: Called with (done, total) while vectors are trained.
    """
    words = config.text_words
    if config.vectors == "corpus":
        from glocal.encoders.word_vectors import train_word_vectors

        vectors = train_word_vectors(
            train, dimensions=config.dimensions, max_words=words, progress=progress
        )
    elif is_vector_file(config.vectors):
        from glocal.encoders.word_vectors import read_word_vectors, words_of

        keep = words_of(train, extra, max_words=words)
        vectors = read_word_vectors(config.vectors, keep=keep, max_words=words)
    else:
        from glocal.encoders.loading import load_pretrained

        named = encoder if config.vectors == "encoder" else replace(encoder, name=config.vectors)
        vectors = StaticVectors.of_encoder(*load_pretrained(named), max_words=words)
    if config.weighting == "mean":
        return vectors
    frequencies = np.zeros(len(vectors.matrix), dtype=np.int64)
    for texts in train.iter_texts(BATCH_TEXTS):
        frequencies += np.bincount(vectors.counts(texts).indices, minlength=len(frequencies))
    return vectors.weighted(config.weighting, frequencies=frequencies, n_texts=len(train))


def is_vector_file(source: str) -> bool:
    """Return whether `teacher.vectors` names a file, not an encoder."""
    return Path(source).is_file() or source.endswith(FILE_ENDINGS)


def _ragged_take(rows: Sequence[Sequence[int]], positions: Ints) -> tuple[NDArray[np.int32], Ints]:
    """Return the rows at some positions, one after another, and the end of each."""
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    flat = np.fromiter(itertools.chain.from_iterable(rows), np.int32, count=int(lengths.sum()))
    starts = np.cumsum(lengths) - lengths
    taken = lengths[positions]
    return flat[ranges(starts[positions], taken)], np.cumsum(taken)
