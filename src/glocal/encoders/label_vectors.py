"""Vectors of label texts: the mean hidden state of each text's tokens, layer by layer.

- Special tokens are excluded, as only words are matched. A text without any other token has the
  zero vector.
- Texts of similar length share a batch; each text is encoded once.
- Vectors are cached by texts, tokenizer and the encoder's current weights, so that runs with the
  same encoder on the same labels share them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from glocal.arrays import Floats32
from glocal.data.batches import Collator, prediction_batches
from glocal.data.cache import Arrays, cached_arrays
from glocal.data.tokens import TokenStore
from glocal.progress import Progress, report

if TYPE_CHECKING:
    from glocal.encoders.encoder import Encoder
    from glocal.encoders.tokenizer import TextTokenizer

FORMAT_VERSION = 2
BATCH_TEXTS = 256

LayerVectors = dict[int, Floats32]


def label_vectors(
    encoder: Encoder,
    tokenizer: TextTokenizer,
    texts: Sequence[str],
    *,
    max_length: int,
    device: str = "cpu",
    progress: Progress | None = None,
) -> LayerVectors:
    """Return the mean hidden states of texts, from the cache if possible.

    Args:
        encoder: The encoder; its layers are the ones returned. Its weights are not changed.
        tokenizer: The encoder's tokenizer.
        texts: One text for each label, empty for none.
        max_length: Number of tokens read of each text.
        device: Where to compute; the encoder is moved back afterwards.
        progress: Called with (done, total) while texts are encoded.

    Returns:
        For each layer, (n, H) float32.

    Raises:
        DataError: The cache folder cannot be written to.
    """

    def fill(arrays: Arrays) -> None:
        home = next(encoder.parameters()).device
        try:
            encoder.to(device)
            found = mean_tokens(encoder, tokenizer, texts, max_length=max_length, progress=progress)
        finally:
            encoder.to(home)
        for layer, vectors in found.items():
            arrays[f"layer-{layer}"][:] = vectors

    key = [FORMAT_VERSION, tokenizer.fingerprint, max_length, _weights(encoder), list(texts)]
    shape = (len(texts), encoder.hidden_size)
    spec = {f"layer-{layer}": (np.float32, shape) for layer in encoder.layers}
    arrays = cached_arrays("label-text", [*key, encoder.layers], spec, fill)
    return {layer: arrays[f"layer-{layer}"] for layer in encoder.layers}


@torch.no_grad()
def mean_tokens(
    encoder: Encoder,
    tokenizer: TextTokenizer,
    texts: Sequence[str],
    *,
    max_length: int,
    progress: Progress | None = None,
) -> LayerVectors:
    """Return for each layer the mean hidden state of each text's tokens, (n, H)."""
    device = next(encoder.parameters()).device
    special = torch.tensor(sorted(set(tokenizer.encode_batch([""], max_length)[0])), device=device)
    tokens = TokenStore.in_memory(tokenizer.encode_batch(list(texts), max_length))
    shape = (len(texts), encoder.hidden_size)
    vectors = {layer: np.zeros(shape, dtype=np.float32) for layer in encoder.layers}
    collate, readable = Collator(tokens, tokenizer.facts), np.flatnonzero(tokens.lengths > 0)
    was_training, done = encoder.training, 0
    encoder.eval()
    for places in prediction_batches(tokens.lengths[readable], BATCH_TEXTS):
        chosen = readable[places]
        batch = collate(chosen).to(device)
        words = batch.attention_mask & ~torch.isin(batch.input_ids, special)
        weights = words / words.sum(1, keepdim=True).clamp(min=1)  # (B, T)
        features = encoder(batch)
        for layer in encoder.layers:
            mean = weights.unsqueeze(1) @ features.hidden[layer].float()  # (B, 1, H)
            vectors[layer][chosen] = mean.squeeze(1).cpu().numpy()
        done += len(chosen)
        report(progress, done, len(readable))
    encoder.train(was_training)
    return vectors


def _weights(encoder: Encoder) -> str:
    """Return a digest of the encoder's weights."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in encoder.model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
