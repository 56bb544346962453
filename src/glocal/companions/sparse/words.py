"""Splitting of texts into words, by Arrow's string functions or, for a few texts, Python's.

- A word is a run of letters, digits and combining marks of any script, lower-cased. Words longer
  than `MAX_CHARACTERS` (base64, tables glued together) are skipped.
- A batch of texts becomes word ids in the batch's own dictionary: only distinct words become Python
  strings. Texts are split byte by byte at ASCII separators; only distinct pieces with other
  characters are split further, by Arrow's slower regular expressions. Arrow has a start-up cost of
  milliseconds, too much for a single text: it classifies each character once, and few texts are
  split by the result. Its functions are imported where they are used, since that takes a tenth of a
  second.
- `split_pieces` splits words further into runs of a few characters, which related words share.
- `word_spans` splits one text the same way and keeps the places, for explanations.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glocal.arrays import ranges

SEPARATORS = r"[^\pL\pN\pM]+"
_WORD_CHARACTER = r"[\pL\pN\pM]"
_ASCII_WORD = re.compile(r"[a-z0-9]+")  # in lower-cased text
_FEW_TEXTS = 8
_FEW_CHARACTERS = 20_000  # of non-ASCII texts; with more, Arrow is worth its start-up cost
MAX_CHARACTERS = 64
PIECE_CHARACTERS = 4
# A record without line breaks is all title, up to this many characters.
TITLE_CHARACTERS = 400


@dataclass(frozen=True)
class WordBatch:
    """The words of some texts.

    Attributes:
        lengths: (texts,) number of words.
        codes: (words of all texts,) the position of each in `words`.
        words: The distinct words, lower-cased.
    """

    lengths: NDArray[np.int64]
    codes: NDArray[np.int32]
    words: list[str]


def split_words(texts: Sequence[str] | pa.Array) -> WordBatch:
    """Split texts into words."""
    if len(texts) <= _FEW_TEXTS:
        few = texts.to_pylist() if isinstance(texts, pa.Array) else texts
        if sum(0 if text.isascii() else len(text) for text in few) <= _FEW_CHARACTERS:
            return _split_few(few)
    return _split_any(texts)


def _split_few(texts: Sequence[str]) -> WordBatch:
    distinct: dict[str, int] = {}
    codes: list[int] = []
    lengths = np.zeros(len(texts), dtype=np.int64)
    for place, text in enumerate(texts):
        words = [word for word in _pieces(text) if _is_word(word)]
        lengths[place] = len(words)
        codes.extend(distinct.setdefault(word, len(distinct)) for word in words)
    return WordBatch(lengths, np.array(codes, dtype=np.int32), list(distinct))


def _pieces(text: str) -> list[str]:
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return text.translate(_characters(text)).split(" ")


_CHARACTERS: dict[int, str] = {}  # character → lower case, or a space if it separates words


def _characters(text: str) -> dict[int, str]:
    """Return the replacement of each character of a text; Arrow classifies new ones."""
    new = [character for character in set(text) if ord(character) not in _CHARACTERS]
    if new:
        import pyarrow.compute as pc

        array = pa.array(new, pa.string())
        lowered = pc.utf8_lower(array).to_pylist()
        are_word = pc.match_substring_regex(array, _WORD_CHARACTER).to_pylist()
        for character, lower, is_word in zip(new, lowered, are_word, strict=True):
            _CHARACTERS[ord(character)] = lower if is_word else " "
    return _CHARACTERS


def _split_any(texts: Sequence[str] | pa.Array) -> WordBatch:
    """Split texts at ASCII separators, and then their distinct pieces at all others."""
    content, bounds = _bytes_of(_as_array(texts))
    lowered = _ASCII[content]
    in_piece = lowered != 0
    starts = in_piece.copy()  # a piece starts after a separator, or with its text
    starts[1:] &= ~in_piece[:-1]
    first = bounds[:-1][bounds[:-1] < len(content)]
    starts[first] = in_piece[first]
    places = np.flatnonzero(starts)
    ends = np.cumsum(in_piece)
    offsets = np.append(ends[places] - 1, ends[-1] if len(ends) else 0).astype(np.int64)
    buffers = pa.py_buffer(offsets), pa.py_buffer(lowered[in_piece])
    encoded = pa.LargeStringArray.from_buffers(len(places), *buffers).dictionary_encode()
    n_pieces = np.diff(np.searchsorted(places, bounds))
    return _split_pieces(encoded.dictionary, _integers(encoded.indices), n_pieces)


def _split_pieces(
    pieces: pa.Array, codes: NDArray[np.int32], n_pieces: NDArray[np.int64]
) -> WordBatch:
    """Split the distinct pieces of texts into words.

    Args:
        pieces: Distinct pieces, lower-cased where they are ASCII.
        codes: The position of each piece of every text among them.
        n_pieces: (texts,) number of pieces.
    """
    content, bounds = _bytes_of(pieces)
    plain = np.diff(bounds) <= MAX_CHARACTERS
    plain[np.searchsorted(bounds, np.flatnonzero(content >= 128), side="right") - 1] = False
    if plain.all():
        return WordBatch(n_pieces, codes, pieces.to_pylist())
    words: list[str] = pieces.filter(pa.array(plain)).to_pylist()
    distinct = dict(zip(words, range(len(words)), strict=True))
    parts, n_parts = _unicode_words(pieces.filter(pa.array(~plain)).to_pylist())
    # The words of each piece, first of the plain ones; -1 for a part that is no word.
    numbers = [distinct.setdefault(w, len(distinct)) if _is_word(w) else -1 for w in parts]
    flat = np.concatenate([np.arange(len(words)), numbers]).astype(np.int32)
    counts = np.ones(len(pieces), dtype=np.int64)
    counts[~plain] = n_parts
    starts = np.cumsum(plain) - 1
    starts[~plain] = len(words) + np.cumsum(n_parts) - n_parts
    per_piece = counts[codes]
    found = flat[ranges(starts[codes], per_piece)]
    kept = np.concatenate([[0], np.cumsum(found >= 0)])
    last = np.concatenate([[0], np.cumsum(per_piece)])[np.cumsum(n_pieces)]
    lengths = np.diff(kept[last], prepend=0)
    return WordBatch(lengths, found[found >= 0], list(distinct))


def _unicode_words(pieces: list[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the parts of all pieces, lower-cased, some of them empty; and how many each has."""
    characters = _characters("".join(pieces))
    parts = [piece.translate(characters).split(" ") for piece in pieces]
    counts = np.array([len(words) for words in parts], dtype=np.int64)
    return [word for words in parts for word in words], counts


def _bytes_of(array: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of texts one after another, and where each starts."""
    kind = np.dtype(np.int64 if pa.types.is_large_string(array.type) else np.int32)
    _, offsets, content = array.buffers()
    if not len(array) or content is None:
        return np.empty(0, np.uint8), np.zeros(len(array) + 1, np.int64)
    bounds = np.frombuffer(offsets, kind, len(array) + 1, array.offset * kind.itemsize)
    inside = np.frombuffer(content, np.uint8)[bounds[0] : bounds[-1]]
    return inside, bounds.astype(np.int64) - bounds[0]


def _ascii_table() -> NDArray[np.uint8]:
    """Return the lower-case form of each ASCII letter, 0 for separators; other bytes stay."""
    table = np.arange(256, dtype=np.uint8)
    table[:128] = 0
    for code in b"abcdefghijklmnopqrstuvwxyz0123456789":
        table[[code, ord(chr(code).upper())]] = code
    return table


_ASCII = _ascii_table()


def _integers(array: pa.Array) -> NDArray[Any]:
    """Return whole numbers without missing ones; `to_numpy` would import pandas."""
    kind = np.dtype(array.type.to_pandas_dtype())
    if not len(array):  # which may have no buffer
        return np.empty(0, kind)
    return np.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize)


def _as_array(texts: Sequence[str] | pa.Array) -> pa.Array:
    """Return texts as an Arrow array; `pa.array` would import pandas where it is installed."""
    if isinstance(texts, pa.Array):
        return texts
    encoded = [text.encode() for text in texts]
    offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    buffers = pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))
    return pa.LargeStringArray.from_buffers(len(encoded), *buffers)


def pieces_of(word: str) -> list[str]:
    """Return the runs of `PIECE_CHARACTERS` characters in a word; spaces mark its ends."""
    padded = f" {word} "
    last = max(1, len(padded) - PIECE_CHARACTERS + 1)
    return [padded[start : start + PIECE_CHARACTERS] for start in range(last)]


def split_pieces(texts: Sequence[str] | pa.Array) -> WordBatch:
    """Split texts into pieces of words; each distinct word is split once."""
    batch = split_words(texts)
    distinct: dict[str, int] = {}
    cut = [[distinct.setdefault(p, len(distinct)) for p in pieces_of(w)] for w in batch.words]
    sizes = np.array([len(pieces) for pieces in cut], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    flat = np.fromiter((p for pieces in cut for p in pieces), np.int32, int(sizes.sum()))
    per_word = sizes[batch.codes]  # of every word of every text
    codes = flat[ranges(starts[batch.codes], per_word)]
    documents = np.repeat(np.arange(len(batch.lengths)), batch.lengths)
    lengths = np.bincount(documents, per_word, minlength=len(batch.lengths)).astype(np.int64)
    return WordBatch(lengths, codes, list(distinct))


def _is_word(piece: str) -> bool:
    return 0 < len(piece) <= MAX_CHARACTERS


def first_lines(texts: Sequence[str] | pa.Array) -> Sequence[str] | pa.Array:
    """Return the first line of each text, the title of a library record or a law."""
    if len(texts) <= _FEW_TEXTS:
        few = texts.to_pylist() if isinstance(texts, pa.Array) else texts
        return [text[:TITLE_CHARACTERS].split("\n", 1)[0] for text in few]
    import pyarrow.compute as pc

    array = _as_array(texts)
    # Cut first, so that a long text is not searched to its end for a line break.
    heads = pc.utf8_slice_codeunits(array, 0, TITLE_CHARACTERS)
    lines = pc.split_pattern(heads, "\n", max_splits=1)
    return lines.values.take(lines.offsets[:-1])  # `list_element` would import pandas


def word_spans(text: str) -> list[tuple[str, int, int]]:
    """Return the words of one text, lower-cased, with their places.

    Returns:
        (word, start, stop) in text order; `text[start:stop]` is the word as written.
    """
    import pyarrow.compute as pc

    pieces = pc.list_flatten(pc.split_pattern_regex(pa.array([text]), SEPARATORS))
    spans, place = [], 0
    for written, word in zip(pieces.to_pylist(), pc.utf8_lower(pieces).to_pylist(), strict=True):
        if not written:
            continue
        start = text.index(written, place)
        place = start + len(written)
        if _is_word(word):
            spans.append((word, start, place))
    return spans
