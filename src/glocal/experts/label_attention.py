"""Label-attention experts `A-n` (GlocalXML Eq. 3–6, ME-XML Eq. 2–4).

- each label is a query over the tokens of layer n; what it finds goes through an MLP shared by all
  labels: `logit_j = w2 · relu(Σ_i α_ij v_i) + b_j`, `α_ij = softmax_i(⟨k_i, e_j⟩ / τ)`;
- the value projection and the first MLP layer are linear around a convex sum, so they are folded:
  `W1 Σ α v = Σ α (W1 v)`, biases included; values live in the MLP's hidden width;
- fused attention with the queries shared by all documents; padding is masked out exactly. On recent
  GPUs, in bf16, ReLU and dot product are part of the kernel (`label_attention_kernel.py`), so that
  no (documents, labels, h) tensor exists; elsewhere it is PyTorch's attention (SDPA);
- `query_init = "tokens"` starts each query at the mean token of its label's texts;
- queries start from the labels' names or stay tied to them (`label_text.py`), if asked;
- `projections = false` is ME-XML's plain attention: hidden states are keys and values themselves.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from glocal.config import AttentionConfig
from glocal.encoders.encoder import Features
from glocal.experts import cpu_attention
from glocal.experts import label_attention_kernel as kernel
from glocal.experts.expert import Expert, State, label_bias, label_matrix, present
from glocal.experts.label_means import LabelMeans
from glocal.experts.tied_labels import LabelText, tie_parts, tied_tensors
from glocal.label_slice import EVERY_LABEL, LabelPart, LabelSlice


class LabelAttentionExpert(Expert):
    """The local view: each label selects its own words.

    Args:
        config: Its options.
        name: As written in the recipe.
        layer: The layer whose tokens are attended to.
        hidden_size: Width of the encoder.
        n_labels: Number of labels.
        bias: Initial label biases, (L,).
        dropout: On the hidden states.
        text: Of the labels, in the same layer.
        here: The labels that this process has.
    """

    def __init__(
        self,
        config: AttentionConfig,
        *,
        name: str,
        layer: int,
        hidden_size: int,
        n_labels: int,
        bias: Tensor,
        dropout: float = 0.0,
        text: LabelText | None = None,
        here: LabelSlice = EVERY_LABEL,
    ) -> None:
        super().__init__()
        self.name, self.layers, self.config = name, (layer,), config
        key_size = config.key_size if config.projections else hidden_size
        self.key_size = key_size
        self.dropout = nn.Dropout(dropout)
        self.key = nn.Linear(hidden_size, key_size) if config.projections else None
        two_steps = config.projections and config.separate_values
        self.value = nn.Linear(hidden_size, hidden_size) if two_steps else None
        self.mlp_in = nn.Linear(hidden_size, config.hidden_size)
        self.mlp_out = nn.Parameter(torch.empty(config.hidden_size))
        nn.init.normal_(self.mlp_out, std=config.hidden_size**-0.5)
        self.query = label_matrix(n_labels, key_size, here)
        self.bias = label_bias(bias if config.bias else None, n_labels, here)
        self._raising: int | None = None  # hidden units with a positive output, once it is folded
        self.tie = None
        if text is not None:
            # A query then looks for the tokens of its label's name: q_j = P n_j, k_i = K x_i.
            base = None if self.key is None else self.key.weight
            self.tie = text.join(self.query, base, spread=config.temperature)

    @torch.no_grad()
    def start_queries(self, means: LabelMeans, *, spread: float = 2.0) -> None:
        """Point each query at what its label's texts have more of than others do.

        From N(0, 0.02) all labels attend alike and must first learn to differ. The mean token of a
        label's texts, less the mean of all, tells which tokens are its own. Each query is scaled so
        that its scores have the same standard deviation over the tokens.

        Args:
            means: Of the tokens of this expert's layer, before the key projection.
            spread: That standard deviation, in units of the softmax's logits.
        """
        project = torch.eye(len(means.overall)) if self.key is None else self.key.weight
        project = project.to(means.overall)
        directions = (means.by_label - means.overall) @ project.T  # (L, d)
        directions = functional.normalize(directions)
        covariance = project @ means.covariance() @ project.T
        deviation = ((directions @ covariance) * directions).sum(1).clamp(min=1e-12).sqrt()
        queries = directions * (spread * self.config.temperature / deviation)[:, None]
        usable = (means.counts > 0)[:, None] & queries.isfinite().all(1, keepdim=True)
        self.query.copy_(torch.where(usable, queries.to(self.query), self.query))

    def prepare(self, features: Features) -> State:
        """Keys (B, T, d), folded values (B, T, h), the output vector and the mask.

        T are the tokens of the whole document, also where the encoder reads it in chunks.
        """
        (layer,) = self.layers
        tokens, mask = features.tokens(layer)
        if self.config.stop_gradient:
            tokens = tokens.detach()
        tokens = self.dropout(tokens)
        keys = tokens if self.key is None else self.key(tokens)
        return keys, self._folded_values(tokens), self.mlp_out, mask

    def _folded_values(self, tokens: Tensor) -> Tensor:
        weight: Tensor = self.mlp_in.weight
        bias: Tensor = self.mlp_in.bias
        if self.value is not None:
            bias = bias + weight @ self.value.bias
            weight = weight @ self.value.weight
        return functional.linear(tokens, weight, bias)

    def label_tensors(self) -> tuple[Tensor, ...]:
        """Label queries (L, d) and biases (L,)."""
        return tied_tensors(self.tie, self.query, self.bias)

    def label_parts(self) -> list[LabelPart] | None:
        """Return the label queries and biases."""
        return [LabelPart(self, ("query", "bias")), *tie_parts(self.tie)]

    def use_slice(self, labels: LabelSlice) -> None:
        """Tie the slice of labels to its texts."""
        if self.tie is not None:
            self.tie.labels = labels

    @property
    def label_width(self) -> int:
        """Elements per (document, label) pair: of the hidden layer, or what the kernel keeps."""
        device = self.query.device.type
        rounded = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device)
        if rounded is torch.bfloat16 and self._fits():
            return self.config.hidden_size // 16  # a bit of each hidden unit
        return max(self.config.hidden_size, self.key_size)

    def _fits(self) -> bool:
        return kernel.fits(self.key_size, self.config.hidden_size, self.query.device)

    def score(self, state: State, rows: tuple[Tensor, ...]) -> Tensor:
        """`w2 · relu(Σ_i α_ij v_i) + b_j`."""
        keys, values, output, mask = state
        query, *bias = rows
        scale = 1.0 / self.config.temperature
        if query.dim() == 2 and keys.dtype is values.dtype is torch.bfloat16 and self._fits():
            logits = kernel.label_attention(query, keys, values, output, mask, scale=scale)
        elif self.training and cpu_attention.suits(query, keys):
            query = query.to(keys.dtype)
            logits = cpu_attention.label_attention(query, keys, values, output, mask, scale=scale)
        else:
            logits = self._score_plainly(query, keys, values, output, mask)
        return logits + bias[0] if bias else logits

    def _score_plainly(
        self, query: Tensor, keys: Tensor, values: Tensor, output: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Without the label biases, through PyTorch's attention."""
        query = query.to(keys.dtype)
        if self._raising is not None:
            return self._score_folded(query, keys, values, mask)
        if query.dim() == 2:
            query = query.expand(keys.shape[0], -1, -1)
        found = functional.scaled_dot_product_attention(  # (B, C, h)
            query.unsqueeze(1),
            keys.unsqueeze(1),
            values.unsqueeze(1),
            attn_mask=None if mask is None else mask[:, None, None, :],
            scale=1.0 / self.config.temperature,
        ).squeeze(1)
        found = torch.relu(found)
        if self.training:
            return found @ output
        # bf16 logits would tie, so autocast must not round this product.
        with torch.autocast(found.device.type, enabled=False):
            return found.float() @ output

    @torch.no_grad()
    def fold_output(self) -> None:
        """Merge the output vector into the hidden layer: for prediction in other runtimes.

        `w2 · relu(x) = Σ relu(|w2| x)` over the units with w2 > 0, less the same over the others.
        Such runtimes add up long rows faster than they multiply them by one vector, and would copy
        the shared queries of a fused attention for each document.
        """
        order = self.mlp_out.argsort(descending=True)
        scale = self.mlp_out[order].abs()
        self._raising = int((self.mlp_out > 0).sum())
        self.mlp_in.weight.copy_(self.mlp_in.weight[order] * scale[:, None])
        self.mlp_in.bias.copy_(self.mlp_in.bias[order] * scale)

    def _score_folded(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Without the label biases, after `fold_output`.

        Temperature and mask are part of the product: every query asks for a coordinate that only
        padding has. With constant queries this costs nothing, where each would be a pass over the
        scores of all (document, label, token) triples.
        """
        query = query / self.config.temperature
        if mask is not None:
            padding = (~mask).to(keys.dtype) * torch.finfo(keys.dtype).min
            keys = torch.cat([keys, padding.unsqueeze(-1)], -1)  # (B, T, d + 1)
            query = torch.cat([query, torch.ones_like(query[..., :1])], -1)
        weights = (query @ keys.transpose(1, 2)).softmax(-1)  # (B, C, T)
        up, down = values[..., : self._raising], values[..., self._raising :]
        return torch.relu(weights @ up).sum(-1) - torch.relu(weights @ down).sum(-1)

    def attention(self, state: State, labels: Tensor) -> Tensor:
        """Attention weights α of the given labels over the tokens, (B, C, T)."""
        keys, _, _, mask = state
        return self._weights(self.label_tensors()[0][labels].to(keys.dtype), keys, mask)

    def _weights(self, query: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
        scores: Tensor = (query @ keys.transpose(1, 2)).float()  # (B, C, T)
        scores = scores / self.config.temperature
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, :], torch.finfo(scores.dtype).min)
        return scores.softmax(-1)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """The merged value matrix takes the rate of the attention it belongs to."""
        key = [p for part in (self.key, self.tie) if part for p in part.parameters()]
        first = list(self.mlp_in.parameters())
        merged = self.config.projections and self.value is None
        attention = (
            key + (first if merged else []) + list(self.value.parameters() if self.value else [])
        )
        mlp = present(self.mlp_out, self.bias) + ([] if merged else first)
        return {"attention": attention, "queries": [self.query], "mlp": mlp}
