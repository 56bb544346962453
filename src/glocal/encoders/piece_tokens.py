"""Tokens of many texts from the tokens of their distinct pieces, for BERT's kind of tokenizer.

BERT's tokenizer cuts a text at white space and around every punctuation mark, and looks no further:
a piece between ASCII white space and punctuation has the same tokens in every text. So each piece
is tokenised once and remembered, and texts are put together from them by numpy, four to eight times
as fast. A text that spells out a special token, such as [SEP], is left to the tokenizer itself.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_AT_ONCE = 512  # texts put together at a time
_MOST_PIECES = 1 << 20  # pieces remembered before it starts again
_SPACE, _WORD, _MARK = 0, 1, 2


def _byte_kinds() -> NDArray[np.uint8]:
    """Return whether each byte is white space, an ASCII punctuation mark, or part of a word."""
    kinds = np.full(256, _WORD, np.uint8)
    kinds[[ord(mark) for mark in r"""!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~"""]] = _MARK
    kinds[[ord(space) for space in " \t\n\r"]] = _SPACE
    return kinds


_KINDS = _byte_kinds()


class PieceTokens:
    """Tokenises texts by their pieces; use `piece_tokens`.

    Args:
        backend: The tokenizer.
        special: Tokens that texts may spell out.
        before: Token ids before every text.
        after: Token ids after every text.
    """

    def __init__(
        self, backend: Tokenizer, special: Sequence[str], before: list[int], after: list[int]
    ) -> None:
        self._backend, self._special = backend, tuple(special)
        self._before, self._after = (np.array(ids, np.uint32) for ids in (before, after))
        self._memory = _Memory(backend)

    def encode_batch(self, texts: Sequence[str], max_length: int) -> list[list[int]] | None:
        """Return the token ids of each text; None where a text has to be read as a whole."""
        room = max_length - len(self._before) - len(self._after)
        if room < 0 or any(token in text for text in texts for token in self._special):
            return None
        if len(self._memory) > _MOST_PIECES:
            self._memory = _Memory(self._backend)
        memory, found = self._memory, []
        for start in range(0, len(texts), _AT_ONCE):
            try:
                ids, bounds = memory.tokens(texts[start : start + _AT_ONCE])
            except UnicodeEncodeError:  # a lone surrogate, which the tokenizer reports
                return None
            for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
                own = ids[first : min(last, first + room)]
                found.append(np.concatenate([self._before, own, self._after]).tolist())
        return found


class _Memory:
    """The tokens of the pieces seen so far."""

    def __init__(self, backend: Tokenizer) -> None:
        self._backend, self._lock = backend, threading.Lock()
        self._places: dict[str, int] = {}
        # Where the tokens of each piece start, how many they are, and the tokens of all pieces.
        self._table = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint32)

    def __len__(self) -> int:
        return len(self._places)

    def tokens(self, texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the token ids of all texts, and where each text starts."""
        pieces, codes, n_pieces = _pieces_of(texts)
        places = np.array([self._places.get(piece, -1) for piece in pieces], np.int64)
        if (places < 0).any():
            self._learn([pieces[place] for place in np.flatnonzero(places < 0)])
            places = np.array([self._places[piece] for piece in pieces], np.int64)
        starts, counts, ids = self._table
        chosen = places[codes]
        lengths = counts[chosen]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        source = np.repeat(starts[chosen] - ends[:-1], lengths) + np.arange(ends[-1])
        return ids[source], ends[np.concatenate([[0], np.cumsum(n_pieces)])]

    def _learn(self, pieces: list[str]) -> None:
        with self._lock:
            new = [piece for piece in pieces if piece not in self._places]
            if not new:
                return
            encoded = self._backend.encode_batch_fast(new, add_special_tokens=False)
            found = [encoding.ids for encoding in encoded]
            own = np.array([len(ids) for ids in found], np.int64)
            starts, counts, ids = self._table
            flat = np.array([token for some in found for token in some], np.uint32)
            # The table first: another thread may look up a piece as soon as it has a place.
            self._table = (
                np.concatenate([starts, len(ids) + np.cumsum(own) - own]),
                np.concatenate([counts, own]),
                np.concatenate([ids, flat]),
            )
            first = len(starts)
            self._places.update((piece, first + place) for place, piece in enumerate(new))


def _pieces_of(texts: Sequence[str]) -> tuple[list[str], NDArray[Any], NDArray[np.int64]]:
    """Return distinct pieces, the piece at each place of all texts, and the number of each text."""
    encoded = [text.encode() for text in texts]
    content = np.frombuffer(b"".join(encoded), np.uint8)
    bounds = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(text) for text in encoded], out=bounds[1:])
    kinds = _KINDS[content]
    kept, in_word = kinds != _SPACE, kinds == _WORD
    starts = kept.copy()
    starts[1:] &= ~(in_word[1:] & in_word[:-1])
    first = bounds[:-1][bounds[:-1] < len(content)]
    starts[first] = kept[first]
    places, ends = np.flatnonzero(starts), np.cumsum(kept)
    offsets = np.append(ends[places] - 1, ends[-1] if len(ends) else 0).astype(np.int64)
    buffers = pa.py_buffer(offsets), pa.py_buffer(content[kept])
    coded = pa.LargeStringArray.from_buffers(len(places), *buffers).dictionary_encode()
    codes = np.zeros(0, np.int64)
    if len(coded):
        codes = np.frombuffer(coded.indices.buffers()[1], np.int32, len(coded)).astype(np.int64)
    pieces: list[str] = coded.dictionary.to_pylist()
    return pieces, codes, np.diff(np.searchsorted(places, bounds))


def piece_tokens(stored: str) -> PieceTokens | None:
    """Return what tokenises by pieces; None for other kinds of tokenizers than BERT's.

    Args:
        stored: The tokenizer as JSON.
    """
    parts = json.loads(stored)
    kinds = [(parts.get(name) or {}).get("type") for name in ("normalizer", "pre_tokenizer")]
    added = parts.get("added_tokens") or []
    processor = (parts.get("post_processor") or {}).get("type", "TemplateProcessing")
    if (
        kinds != ["BertNormalizer", "BertPreTokenizer"]
        or (parts.get("model") or {}).get("type") != "WordPiece"
        or processor not in ("TemplateProcessing", "BertProcessing")
        or any(token["normalized"] for token in added)
    ):
        return None
    from tokenizers import Tokenizer

    backend = Tokenizer.from_str(stored)  # a copy that nobody sets to cut texts
    backend.no_padding()
    backend.no_truncation()
    whole = backend.encode("a")
    mask, ids = list(whole.special_tokens_mask), list(whole.ids)
    if 0 not in mask:
        return None
    first, last = mask.index(0), len(mask) - mask[::-1].index(0)
    return PieceTokens(backend, [token["content"] for token in added], ids[:first], ids[last:])
