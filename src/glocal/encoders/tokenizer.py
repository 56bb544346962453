"""A fast tokenizer and the few facts about it that batching and pooling need.

- Reads `tokenizer.json`; transformers is used only for models without such a file.
- The padding token is the declared one: that of `tokenizer_config.json`, `special_tokens_map.json`
  or `tokenizer.json` itself; usual names are tried last.
- The position of [CLS] (XLNet: last) and its segment id are read off an encoded empty text.
- Its fingerprint is part of the key of the token cache.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal.config import EncoderConfig
from glocal.data.chunks import Chunking
from glocal.errors import ConfigError, ModelError, require, unreadable

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from glocal.encoders.piece_tokens import PieceTokens

_PAD_TOKENS = ("[PAD]", "<pad>", "<|padding|>", "<|endoftext|>", "</s>")
_CLS_TOKENS = ("[CLS]", "<cls>", "<s>")
_SPARE_IDS = 1000
_FEW_TEXTS = 64  # texts up to which the tokens of pieces are not worth looking up


@dataclass(frozen=True)
class TokenizerFacts:
    """Facts that batching and pooling depend on; stored in the model directory."""

    pad_id: int
    cls_last: bool = False
    cls_type_id: int = 0


class TextTokenizer:
    """Turns texts into token ids, special tokens included.

    Args:
        backend: The tokenizer proper. Its own padding and truncation are switched off.
        facts: Its facts; detected by default.
        pad_token: The declared padding token.
    """

    def __init__(
        self,
        backend: Tokenizer,
        facts: TokenizerFacts | None = None,
        *,
        pad_token: str | None = None,
    ) -> None:
        declared = [pad_token, (backend.padding or {}).get("pad_token")]
        backend.no_padding()
        backend.no_truncation()
        self.backend = backend
        self._lock = threading.Lock()  # its truncation must not change while it is used
        self.facts = _find_facts(backend, declared) if facts is None else facts
        self.id_bound = 1 + max(backend.get_vocab(with_added_tokens=True).values(), default=-1)
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)
        self.fingerprint = hashlib.blake2b(backend.to_str().encode(), digest_size=16).hexdigest()

    @classmethod
    def load(cls, folder: str | Path, facts: Mapping[str, Any] | None = None) -> TextTokenizer:
        """Read a folder with a `tokenizer.json`, or with files transformers can convert.

        Args:
            folder: A model directory or an encoder's folder.
            facts: The facts stored in a model directory.
        """
        path = Path(folder) / "tokenizer.json"
        known = None if facts is None else TokenizerFacts(**facts)
        if not path.is_file():
            if known is not None:
                raise ModelError(f"there is no {path}; the model directory is incomplete")
            return _convert(str(folder))
        # The package tokenizers raises plain Exception.
        with unreadable(f"cannot read the tokenizer {path}", Exception):
            backend = read_backend(path)
            return cls(backend, known, pad_token=_declared_pad_token(Path(folder)))

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy in another process needs."""
        left_out = "_lock", "_pieces"
        return {name: value for name, value in vars(self).items() if name not in left_out}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def save(self, path: Path) -> None:
        """Write the `tokenizer.json`."""
        path.write_text(self.backend.to_str(), encoding="utf-8")

    def facts_mapping(self) -> dict[str, Any]:
        """Return the facts for the model directory."""
        return asdict(self.facts)

    def special_tokens(self) -> tuple[int, int]:
        """Return the number of special tokens before a text, and after it."""
        self.backend.no_truncation()
        mask = self.backend.encode("a").special_tokens_mask
        if 0 not in mask:
            raise ConfigError(
                "the encoder's tokenizer has no token for 'a', so its special tokens cannot be "
                "detected; set encoder.document_length=0"
            )
        return mask.index(0), mask[::-1].index(0)

    def chunking(self, config: EncoderConfig) -> Chunking | None:
        """Return how documents beyond `max_length` are cut; None where only their start is read."""
        if not config.document_length:
            return None
        return Chunking(config.max_length, config.overlap, *self.special_tokens())

    def encode_batch(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Return the token ids of each text, truncated so that special tokens still fit."""
        if len(texts) > _FEW_TEXTS and self._pieces is not None:
            found = self._pieces.encode_batch(texts, max_length)
            if found is not None:
                return found
        with self._lock, _readable_errors():
            self.backend.enable_truncation(max_length)
            return [e.ids for e in self.backend.encode_batch_fast(list(texts))]

    @functools.cached_property
    def _pieces(self) -> PieceTokens | None:
        """A quicker way to tokenise many texts; None where its kind allows none."""
        from glocal.encoders.piece_tokens import piece_tokens

        return piece_tokens(self.backend.to_str())

    def encode_with_offsets(
        self, text: str, max_length: int
    ) -> tuple[list[int], list[tuple[int, int]], list[int | None]]:
        """Return ids, character spans and word numbers; special tokens have an empty span."""
        with self._lock, _readable_errors():
            self.backend.enable_truncation(max_length)
            encoding = self.backend.encode(text)
        return encoding.ids, encoding.offsets, encoding.word_ids


def read_backend(path: Path) -> Tokenizer:
    """Read a `tokenizer.json`.

    Raises:
        ModelError: It is damaged. Token ids are checked first, as compiled code makes room for
            every id up to the largest.
    """
    tokenizers = require("tokenizers", extra="runtime", purpose="models with an encoder")
    kinds = OSError, ValueError, TypeError, AttributeError, RecursionError
    with unreadable(f"the tokenizer {path} is damaged", *kinds):
        content = path.read_text("utf-8")
        _check_ids(json.loads(content))
    with _readable_errors():
        backend: Tokenizer = tokenizers.Tokenizer.from_str(content)
    return backend


def _check_ids(document: Any) -> None:
    vocabulary, added = document["model"]["vocab"], document.get("added_tokens") or []
    listed = vocabulary.values() if isinstance(vocabulary, Mapping) else range(len(vocabulary))
    ids = [*listed, *(token["id"] for token in added)]
    most = 2 * len(ids) + _SPARE_IDS  # few tokenizers skip ids
    for number in ids:
        if not isinstance(number, int) or not 0 <= number < most:
            raise ValueError(f"it has the token id {number!r}, but only {len(ids)} tokens")


@contextlib.contextmanager
def _readable_errors() -> Iterator[None]:
    """Report any failure of the compiled tokenizer, which raises bare and unusual exceptions."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a panic of the Rust code is no Exception
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(f"the model's tokenizer is damaged: {reason}") from error


def _convert(name: str) -> TextTokenizer:
    from transformers import AutoTokenizer

    with unreadable(f"cannot load the tokenizer of '{name}'", OSError, ValueError, ImportError):
        converted = AutoTokenizer.from_pretrained(name)
    backend: Tokenizer | None = getattr(converted, "backend_tokenizer", None)
    if backend is None:
        raise ModelError(f"'{name}' has no fast tokenizer (a tokenizer.json is needed)")
    return TextTokenizer(backend, pad_token=converted.pad_token)


def _declared_pad_token(folder: Path) -> str | None:
    """Return the padding token that an encoder's files declare."""
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        try:
            token = json.loads((folder / name).read_text("utf-8")).get("pad_token")
        except (OSError, ValueError, AttributeError):
            continue
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            return token
    return None


def _find_facts(backend: Tokenizer, declared: Sequence[str | None]) -> TokenizerFacts:
    tokens = [token for token in (*declared, *_PAD_TOKENS) if token is not None]
    pad = next((i for t in tokens if (i := backend.token_to_id(t)) is not None), 0)
    empty = backend.encode("")
    cls = next((i for t in _CLS_TOKENS if (i := backend.token_to_id(t)) in empty.ids), None)
    position = empty.ids.index(cls) if cls is not None else 0
    last = len(empty.ids) > 1 and position == len(empty.ids) - 1
    type_id = empty.type_ids[position] if empty.ids else 0
    return TokenizerFacts(pad_id=pad, cls_last=last, cls_type_id=type_id)
