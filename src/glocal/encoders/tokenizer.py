"""A fast tokenizer and the few facts about it that batching and pooling need.

- reads `tokenizer.json`; transformers is asked only when a model has no such file;
- finds out by encoding an empty text where [CLS] stands (XLNet: last) and which segment id it has;
- its fingerprint keys the token cache.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from glocal.errors import ConfigError, ModelError

__all__ = ["TextTokenizer", "TokenizerFacts"]

_PAD_TOKENS = ("[PAD]", "<pad>", "<|padding|>", "<|endoftext|>", "</s>")
_CLS_TOKENS = ("[CLS]", "<cls>", "<s>")


@dataclass(frozen=True)
class TokenizerFacts:
    """What batching and pooling must know; stored in the model directory."""

    pad_id: int
    cls_last: bool = False
    cls_type_id: int = 0


class TextTokenizer:
    """Turns texts into token ids, special tokens included.

    Args:
        backend: The tokenizer proper. Its own padding and truncation are switched off.
        facts: Where known already; found out otherwise.
    """

    def __init__(self, backend: Tokenizer, facts: TokenizerFacts | None = None) -> None:
        backend.no_padding()
        backend.no_truncation()
        self.backend = backend
        self._lock = threading.Lock()  # its truncation must not change while it is used
        self.facts = _find_facts(backend) if facts is None else facts
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)
        self.fingerprint = hashlib.blake2b(backend.to_str().encode(), digest_size=16).hexdigest()

    @classmethod
    def load(cls, folder: str | Path, facts: Mapping[str, Any] | None = None) -> TextTokenizer:
        """From a folder with a `tokenizer.json`, or with files transformers can convert.

        Args:
            folder: A model directory or an encoder's folder.
            facts: What a model directory says about its tokenizer, which it always carries.
        """
        path = Path(folder) / "tokenizer.json"
        known = None if facts is None else TokenizerFacts(**facts)
        if not path.is_file():
            if known is not None:
                raise ModelError(f"there is no {path}; the model directory is incomplete")
            return cls(_convert(str(folder)))
        try:
            return cls(Tokenizer.from_file(str(path)), known)
        except Exception as error:  # tokenizers raises plain Exception
            raise ModelError(f"cannot read the tokenizer {path}: {error}") from error

    def save(self, path: Path) -> None:
        """Write the `tokenizer.json`."""
        path.write_text(self.backend.to_str(), encoding="utf-8")

    def facts_mapping(self) -> dict[str, Any]:
        """The facts as a plain mapping, for the model directory."""
        return asdict(self.facts)

    def special_tokens(self) -> tuple[int, int]:
        """How many special tokens are put before a text, and how many after it."""
        self.backend.no_truncation()
        mask = self.backend.encode("a").special_tokens_mask
        if 0 not in mask:
            raise ConfigError(
                "the encoder's tokenizer has no token for 'a', so its special tokens cannot be "
                "told from a text's; set encoder.document_length=0"
            )
        return mask.index(0), mask[::-1].index(0)

    def encode_batch(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Token ids of each text, cut so that special tokens still fit."""
        with self._lock:
            self.backend.enable_truncation(max_length)
            return [e.ids for e in self.backend.encode_batch_fast(list(texts))]

    def encode_with_offsets(
        self, text: str, max_length: int
    ) -> tuple[list[int], list[tuple[int, int]], list[int | None]]:
        """Ids, character spans and word numbers; special tokens have an empty span."""
        with self._lock:
            self.backend.enable_truncation(max_length)
            encoding = self.backend.encode(text)
        return encoding.ids, encoding.offsets, encoding.word_ids


def _convert(name: str) -> Tokenizer:
    from transformers import AutoTokenizer

    try:
        converted = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError, ImportError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"cannot load the tokenizer of '{name}': {reason}") from error
    backend: Tokenizer | None = getattr(converted, "backend_tokenizer", None)
    if backend is None:
        raise ModelError(f"'{name}' has no fast tokenizer (a tokenizer.json is needed)")
    return backend


def _find_facts(backend: Tokenizer) -> TokenizerFacts:
    pad = next((i for t in _PAD_TOKENS if (i := backend.token_to_id(t)) is not None), 0)
    empty = backend.encode("")
    cls = next((i for t in _CLS_TOKENS if (i := backend.token_to_id(t)) in empty.ids), None)
    position = empty.ids.index(cls) if cls is not None else 0
    last = len(empty.ids) > 1 and position == len(empty.ids) - 1
    type_id = empty.type_ids[position] if empty.ids else 0
    return TokenizerFacts(pad_id=pad, cls_last=last, cls_type_id=type_id)
