"""Encoders by name, and encoders built from a stored configuration.

Names: a named encoder such as `minilm` (`glocal.encoders.named`), a local folder, a hub id, or
`random:tiny` / `random:FOLDER` for random weights from a configuration (for tests and trials).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from glocal.config import EncoderConfig
from glocal.encoders.named import NAMED_ENCODERS, encoder_folder
from glocal.encoders.tokenizer import TextTokenizer, TokenizerFacts
from glocal.errors import ModelError, unreadable

_RANDOM, _TINY_NAME = "random:", "random:tiny"
_WEIGHT_FILES = (".safetensors", ".bin")

_TINY = {
    "model_type": "bert",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 512,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def load_pretrained(config: EncoderConfig) -> tuple[Any, TextTokenizer]:
    """Return the encoder model (without task head) and its tokenizer."""
    source, is_random = _locate(config.name)
    tokenizer = load_encoder_tokenizer(config.name)
    if is_random:
        return model_from_config(read_config(config.name), config), tokenizer
    return _load_weights(source, config), tokenizer


def load_encoder_tokenizer(name: str) -> TextTokenizer:
    """Return the tokenizer of an encoder."""
    return _tiny_tokenizer() if name == _TINY_NAME else TextTokenizer.load(_snapshot(name))


def read_config(name: str) -> dict[str, Any]:
    """Return the `config.json` of an encoder as a mapping."""
    if name == _TINY_NAME:
        return {**_TINY, "vocab_size": _tiny_tokenizer().vocab_size}
    path = Path(_snapshot(name)) / "config.json"
    with unreadable(f"cannot read the encoder's configuration {path}", OSError, ValueError):
        mapping: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return mapping


def check_weights(name: str) -> None:
    """Check that a local folder has weights, before anything needs them.

    Raises:
        ModelError: There are none.
    """
    source, is_random = _locate(name)
    if is_random or not Path(source).is_dir():
        return
    if not any(file.suffix in _WEIGHT_FILES for file in Path(source).iterdir()):
        raise _not_found(source, FileNotFoundError("the folder holds no weights"))


def model_from_config(mapping: dict[str, Any], config: EncoderConfig) -> Any:
    """Build an encoder with random weights from a `config.json` mapping."""
    from transformers import AutoConfig, AutoModel

    fields = dict(mapping)
    model_type = fields.pop("model_type", None)
    if model_type is None:
        raise ModelError("the encoder's config.json has no 'model_type'")
    try:
        model_config = AutoConfig.for_model(model_type, **fields)
    except ValueError as error:
        raise ModelError(
            f"the encoder's config.json is of the type '{model_type}', which the installed "
            "transformers cannot build: upgrade it, or choose another encoder"
        ) from error
    build: Callable[..., Any] = AutoModel.from_config
    return build(_adapted(model_config, config), attn_implementation=_attention(config))


def _locate(name: str) -> tuple[str, bool]:
    """Return an encoder's folder or hub id, and whether its weights are to be random."""
    plain = name.removeprefix(_RANDOM)
    return (str(encoder_folder(plain)) if plain in NAMED_ENCODERS else plain), plain != name


def _snapshot(name: str) -> str:
    """Return a local folder with an encoder's configuration and tokenizer."""
    source, _ = _locate(name)
    if Path(source).is_dir():
        return source
    if Path(source).is_absolute() or source.startswith("."):
        raise _not_found(source, FileNotFoundError("there is no such folder"))
    from huggingface_hub import snapshot_download

    try:
        return snapshot_download(
            source, allow_patterns=["*token*", "*.model", "*.txt", "config.json"]
        )
    except Exception as error:  # the hub client raises many kinds
        raise _not_found(source, error) from error


def _load_weights(source: str, config: EncoderConfig) -> Any:
    import torch
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModel
    from transformers.utils import logging as transformers_logging

    hide_progress: Callable[[], None] = transformers_logging.disable_progress_bar
    hide_progress()
    try:
        return AutoModel.from_pretrained(
            source,
            config=_adapted(AutoConfig.from_pretrained(source), config),
            attn_implementation=_attention(config),
            dtype=torch.float32,
        )
    except (OSError, ValueError, ImportError, RuntimeError, SafetensorError) as error:
        raise _not_found(source, error) from error


def _adapted(model_config: Any, config: EncoderConfig) -> Any:
    """Return a transformer's configuration with the settings that a recipe changes."""
    for name in ("attention_probs_dropout_prob", "attention_dropout"):
        if not config.attention_dropout and hasattr(model_config, name):
            setattr(model_config, name, 0.0)
    return model_config


def _attention(config: EncoderConfig) -> str | None:
    """`None` is `sdpa` where the architecture has it (XLNet does not), else `eager`."""
    return None if config.attention == "sdpa" else config.attention


def _not_found(source: str, error: Exception) -> ModelError:
    return ModelError(
        f"cannot load the encoder '{source}': {str(error).splitlines()[0]} "
        "(expected the name of an encoder, a local folder with config.json, weights and tokenizer, "
        "or a hub id)"
    )


def _tiny_tokenizer() -> TextTokenizer:
    """Return a tokenizer of single characters, which needs no vocabulary file."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{c}" for c in letters)]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return TextTokenizer(backend, TokenizerFacts(pad_id=0))
