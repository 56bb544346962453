"""Experts on one encoder: the family that GlocalXML, ME-XML and TReaderXML belong to.

    encoder → hidden states → experts → logits of a label chunk → loss, or combined probabilities

- every expert scores every label, chunk by chunk (`full`); or the first document expert scores all
  labels and the others only the candidates it proposes (`shortlist`); or all score the labels of
  clusters that are picked first (`clusters`, see `label_tree.py`);
- individual or collaborative BCE and the diversity loss are computed on the same chunk's logits;
- with label text, labels without a training text are scored but not part of the loss.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glocal.config.expert_names import ExpertSpec
from glocal.config.resolve import ResolvedRecipe
from glocal.data.batches import Batch, Collator
from glocal.encoders.encoder import Encoder, Features
from glocal.experts.expert import Expert, State
from glocal.experts.half_labels import HalfLabels
from glocal.experts.label_attention import LabelAttentionExpert
from glocal.experts.label_means import LabelMeans
from glocal.experts.tied_labels import TextTie
from glocal.losses.bce import bce_candidates, bce_chunk
from glocal.losses.chunked import chunked_loss, label_chunks
from glocal.losses.diversity import diversity
from glocal.losses.memory import ChunkUse
from glocal.ranking.candidates import Candidates, cluster_candidates, draw_candidates
from glocal.ranking.topk import RunningTopK
from glocal.systems.cluster_rows import joint_log_odds
from glocal.systems.expert_builder import ExpertBuilder, initial_bias
from glocal.systems.label_tree import LabelTree
from glocal.systems.sliced_mixture import SlicedMixture
from glocal.systems.system import LabelStatistics, TrainingPosition

_UPDATED_ROWS = 1 << 17  # labels per chunk where rows are updated at once, and logits
_UPDATED_LOGITS = 1 << 23
_NO_LOSS = -100.0  # a logit whose softplus and gradient are zero


class ExpertMixture(SlicedMixture):
    """Any list of experts on one encoder.

    Args:
        recipe: The settings.
        encoder: Computes the hidden states of the layers the experts read.
        experts: The experts with the layers they read.
        statistics: Training label counts.
    """

    counts: Tensor
    untaught: Tensor | None

    def __init__(
        self,
        recipe: ResolvedRecipe,
        encoder: Encoder,
        experts: Sequence[ExpertSpec],
        statistics: LabelStatistics,
    ) -> None:
        super().__init__()
        self.recipe, self.n_labels, self.encoder = recipe, statistics.n_labels, encoder
        self.labels_here = statistics.here
        bias = initial_bias(recipe.loss.bias_init, statistics)
        build = ExpertBuilder(recipe, encoder.hidden_size, bias, statistics)
        built = [build(spec) for spec in experts]
        self.experts = nn.ModuleList(built)
        self.expert_names = [spec.name for spec in experts]
        self._half_labels = HalfLabels()
        self.tree: LabelTree | None = None
        if recipe.candidates.mode == "clusters":
            self.tree = LabelTree(recipe.candidates, self.trained_experts(), self.n_labels)
            self.tree.labels_here = self.labels_here
        counts = torch.from_numpy(statistics.counts.astype(np.float32))
        unread = recipe.labels.text == "off" or bool((counts > 0).all())
        counts = counts[slice(*self.labels_here.bounds(self.n_labels))]
        self.register_buffer("counts", counts, persistent=False)
        self.register_buffer("untaught", None if unread else counts == 0, persistent=False)
        if recipe.encoder.freeze:
            encoder.requires_grad_(False)
        if self.labels_here.sharded:
            self.label_parts()  # refuses experts that have all labels

    # --- the experts and their inputs ---------------------------------------------------------

    def _experts(self) -> Iterator[Expert]:
        for expert in self.experts:
            assert isinstance(expert, Expert)
            if expert.name in self.expert_names:
                yield expert

    @contextlib.contextmanager
    def only_trained(self) -> Iterator[None]:
        """Leave out the experts that the training loss does not include, within the block."""
        every = self.expert_names
        self.expert_names = [expert.name for expert in self.trained_experts()] or every
        try:
            yield
        finally:
            self.expert_names = every

    def prepare(self, batch: Batch) -> dict[str, State]:
        """Return each expert's state for a batch, by name."""
        features = self.features(batch)
        return {expert.name: expert.prepare(features) for expert in self._experts()}

    def label_matrices(self) -> list[nn.Parameter]:
        """Return the label rows of all experts that are parameters, not made from others."""
        if self.shortlists or self.tree is not None:
            return []
        tensors = [t for e in self.trained_experts() if e.scores_rows for t in e.label_tensors()]
        return [t for t in tensors if isinstance(t, nn.Parameter) and t.dim() == 2]

    def trained_experts(self) -> list[Expert]:
        """Return the experts that the training loss includes."""
        return [expert for expert in self._experts() if expert.trained]

    def chunks(self, documents: int, device: torch.device) -> list[slice]:
        """Return label slices that keep the widest expert within its memory limit."""
        limit = self.recipe.train.chunk_elements or ChunkUse.EXPERT_LOGITS.limit(device.type)
        width = max(e.label_width for e in self._experts())
        return label_chunks(self.n_here, documents=documents, width=width, limit=limit)

    def arrange_labels(self, documents: Collator) -> None:
        """Cluster the labels by their training texts, where clusters are picked first."""
        if self.tree is not None:
            self.tree.arrange(documents, self.recipe.train.seed)
            if self.recipe.loss.bias_init == "prior":
                self.tree.start_biases(documents, self.trained_experts())

    def init_label_parameters(self, batches: Iterable[Batch]) -> None:
        """Set label queries to the mean token of each label's texts (`query_init = "tokens"`)."""
        if self.recipe.attention.query_init != "tokens":
            return
        experts = [e for e in self._experts() if isinstance(e, LabelAttentionExpert)]
        width, here = self.encoder.hidden_size, self.labels_here
        means = [LabelMeans(self.n_here, width, self.counts.device) for _ in experts]
        was_training = self.training
        self.eval()
        with torch.no_grad():
            for batch in batches:
                features: Features = self.encoder(batch)
                gold = here.local(batch.own_labels(), self.n_labels)
                for expert, mean in zip(experts, means, strict=True):
                    tokens, mask = features.tokens(expert.layers[0])
                    mean.add(tokens, batch.attention_mask if mask is None else mask, gold)
        for expert, mean in zip(experts, means, strict=True):
            expert.start_queries(mean.finish())
        self.train(was_training)

    @torch.no_grad()
    def level_untaught(self, batches: Iterable[Batch]) -> None:
        """Level the scores of labels without training texts, over some training documents."""
        experts: dict[Expert, Any] = {
            e: e.tie for e in self.trained_experts() if isinstance(getattr(e, "tie", None), TextTie)
        }
        if self.untaught is None or not experts:
            return
        totals = {e: torch.zeros(self.n_here, device=self.counts.device) for e in experts}
        documents, was_training = 0, self.training
        self.eval()
        with self.only_trained():  # training texts come without the features of other experts
            for batch in batches:
                states, documents = self.prepare(batch), documents + len(batch)
                for chunk in self.chunks(len(batch), self.counts.device):
                    for expert in experts:
                        logits = expert.logits(states[expert.name], chunk).float()
                        totals[expert][chunk] += logits.sum(0)
        for expert, tie in experts.items():
            tie.level(totals[expert] / documents)
        self.train(was_training)

    # --- training -----------------------------------------------------------------------------

    def training_step(self, batch: Batch, position: TrainingPosition) -> Tensor:
        """Return the BCE (Eq. 8; ME-XML Eq. 5) plus, once started, diversity (ME-XML Eq. 6–9)."""
        features, experts = self.features(batch), self.trained_experts()
        here, loss = self.labels_here, self.recipe.loss
        prepared = {expert.name: expert.prepare(features) for expert in experts}
        states = {name: here.shared(state) for name, state in prepared.items()}
        own = replace(batch, gold=here.local(batch.gold, self.n_labels))
        common = torch.zeros((), device=batch.gold.device)  # what every process computes
        if self.shortlists:
            total = self._shortlist_loss(batch, own, states, position)
        elif self.tree is not None:
            common, picked = self._tree_loss(self.tree, batch, prepared, position)
            total = self._picked_loss(picked, batch, states)
        else:
            total = self._full_loss(own, states)
        if loss.kind == "individual" and loss.expert_reduction == "mean":
            total, common = total / len(experts), common / len(experts)
        if self.phase(position) == "diverse":
            total = total + loss.diversity_weight * self._diversity(own, states)
        divisor = batch.denominator * (self.n_labels if loss.label_reduction == "mean" else 1)
        return here.total(total / divisor) + common / divisor

    def _full_loss(self, batch: Batch, states: dict[str, State]) -> Tensor:
        experts = [expert for expert in self.trained_experts() if expert.scores_rows]
        total = self._own_losses(batch, states)
        if not experts:
            return total
        scored = [states[expert.name] for expert in experts]
        chunks = self.chunks(len(batch), batch.input_ids.device)

        def chunk_loss(chunk: slice, flat: Any, rows: Any) -> Tensor:
            logits = [
                expert.score(tuple(state), tuple(row))
                for expert, state, row in zip(
                    experts,
                    _regroup(flat, scored),
                    _regroup(rows, labels),
                    strict=True,
                )
            ]
            if self.recipe.loss.kind == "collaborative":
                logits = [torch.stack([z.float() for z in logits]).mean(0)]
            taught = [self._taught(z, chunk) for z in logits]
            parts = [bce_chunk(z, batch.gold, chunk.start, targets=targets) for z in taught]
            return torch.stack(parts).sum()

        targets, labels = batch.targets, [expert.label_tensors() for expert in experts]
        flat_states = [t for state in scored for t in state]
        rows = [t for row in labels for t in row]
        updates = [self.row_updates.get(id(tensor)) for tensor in rows]
        if any(updates):
            most = min(_UPDATED_ROWS, _UPDATED_LOGITS // len(batch), chunks[0].stop)
            chunks = label_chunks(self.n_here, documents=1, width=1, limit=most)
        return total + chunked_loss(chunk_loss, chunks, flat_states, rows, updates=updates)

    def _own_losses(self, batch: Batch, states: dict[str, State]) -> Tensor:
        """Return the losses of the experts that score label clusters instead of single labels."""
        device = batch.input_ids.device
        limit = self.recipe.train.chunk_elements or ChunkUse.EXPERT_LOGITS.limit(device.type)
        total = torch.zeros((), device=device)
        for expert in self.trained_experts():
            if not expert.scores_rows:
                total = total + expert.loss(states[expert.name], batch.gold, limit=limit)
        return total

    def _shortlist_loss(
        self, batch: Batch, own: Batch, states: dict[str, State], position: TrainingPosition
    ) -> Tensor:
        """Return the losses of all labels and of candidates; `own` has the gold labels here."""
        proposer = self.proposer
        assert proposer is not None, "a rule for shortlists"
        config = self.recipe.candidates
        hardest = RunningTopK(config.hard) if config.hard else None

        def chunk_loss(chunk: slice, flat: Any, rows: Any) -> Tensor:
            logits = self._taught(proposer.score(tuple(flat), tuple(rows)), chunk)
            if hardest is not None:
                _observe(hardest, logits.detach(), chunk, own.gold)
            return bce_chunk(logits, own.gold, chunk.start, targets=own.targets)

        limit = self.recipe.train.chunk_elements or ChunkUse.EXPERT_LOGITS.limit("cpu")
        chunks = label_chunks(self.n_here, documents=len(batch), width=1, limit=limit)
        state = states[proposer.name]
        if proposer.scores_rows:
            total = chunked_loss(chunk_loss, chunks, state, proposer.label_tensors())
        else:
            total = proposer.loss(state, batch.gold, limit=limit)
            if hardest is not None:
                with torch.no_grad():
                    for chunk in chunks:
                        _observe(hardest, proposer.logits(state, chunk), chunk, batch.gold)
        candidates = draw_candidates(
            batch,
            None if hardest is None else self._hardest(hardest),
            n_random=config.random,
            n_labels=self.n_labels,
            seed=(position.seed, position.step),
        )
        for expert in self.trained_experts():
            if expert is not proposer:
                total = total + self._candidate_loss(expert, states[expert.name], candidates)
        return total

    def _hardest(self, found: RunningTopK) -> Tensor:
        """Return the hardest negatives of all processes, from those of each."""
        labels, scores = found.result()
        start, _ = self.labels_here.bounds(self.n_labels)
        labels = torch.where(labels >= 0, labels + start, -1)
        return self.labels_here.merged(labels, scores, found.k)[0]

    def _tree_loss(
        self, tree: LabelTree, batch: Batch, states: dict[str, State], position: TrainingPosition
    ) -> tuple[Tensor, Tensor | None]:
        """Return the losses of clusters, and the labels (B, C) to train; None: none yet."""
        depth = tree.depth(position.fraction)
        for joining in tree.joining(position.step, position.steps):
            tree.begin_level(joining)
        picked = tree.pick(states, tree.config.picked, gold=batch.gold)
        total = tree.loss(states, batch.gold, picked, depth)
        trains_labels = depth > len(tree.sizes)
        return total, tree.members[picked[-1]].flatten(1) if trains_labels else None

    def _picked_loss(self, labels: Tensor | None, batch: Batch, states: dict[str, State]) -> Tensor:
        """Return the losses of the labels of clusters that are picked."""
        total = torch.zeros((), device=batch.gold.device)
        if labels is not None:
            candidates = cluster_candidates(batch.gold, labels, n_labels=self.n_labels)
            for expert in self.trained_experts():
                total = total + self._candidate_loss(expert, states[expert.name], candidates)
        return total

    def _candidate_loss(self, expert: Expert, state: State, candidates: Candidates) -> Tensor:
        candidates = candidates.within(self.labels_here, self.n_labels)
        logits = self._taught(expert.logits(state, candidates.labels), candidates.labels)
        return bce_candidates(logits, candidates.targets, candidates.weights)

    def _taught(self, logits: Tensor, labels: slice | Tensor) -> Tensor:
        """Return logits (B, C) without loss or gradient at labels that have no training text."""
        if self.untaught is None:
            return logits
        return logits.masked_fill(self.untaught[labels], _NO_LOSS)

    @property
    def supports_cuda_graphs(self) -> bool:
        """Whether shapes are fixed; candidates are drawn on the CPU and cannot be recorded."""
        fixed = all(e.scores_rows for e in self._experts()) or not self.recipe.aplc.skip_tails
        return not self.shortlists and fixed and not self.labels_here.sharded

    def phase(self, position: TrainingPosition) -> str:
        """Return `diverse` once the diversity loss has started, else `plain`.

        While clusters are trained alone, it is the number of levels in training.
        """
        loss = self.recipe.loss
        if self.tree is not None and position.fraction < self.tree.config.coarse:
            return f"{self.tree.depth(position.fraction)} levels"
        late = position.fraction >= loss.diversity_start
        return (
            "diverse"
            if late and loss.diversity_weight and len(self.trained_experts()) > 1
            else "plain"
        )

    def _diversity(self, batch: Batch, states: dict[str, State]) -> Tensor:
        labels = batch.gold.clamp(min=0)
        logits = [expert.logits(states[expert.name], labels) for expert in self.trained_experts()]
        return diversity(logits, self.counts[labels], batch.gold_targets())

    # --- prediction ---------------------------------------------------------------------------

    def expert_logits(self, states: dict[str, State], labels: slice | Tensor) -> dict[str, Tensor]:
        """Return each expert's logits of labels, by name.

        With clusters, a trained expert's probability is that of the label's clusters, raised to the
        power of `cluster_weight`, times its own.
        """
        every = self.every_id(labels)
        logits = {
            e.name: e.logits(states[e.name], labels if e.trained else every).float()
            for e in self._experts()
        }
        if self.tree is not None:
            clusters = self.tree.config.cluster_weight * self.tree.of_labels(states, labels)
            for expert in self.trained_experts():
                logits[expert.name] = joint_log_odds(clusters, logits[expert.name])
        return logits

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Return the parameter groups of the encoder and of the experts."""
        groups: dict[str, list[nn.Parameter]] = {"encoder": list(self.encoder.parameters())}
        for expert in self._experts():
            for name, parameters in expert.parameter_groups().items():
                groups.setdefault(name, []).extend(parameters)
        if self.tree is not None:
            for name, parameter in self.tree.parameter_groups():
                groups.setdefault(name, []).append(parameter)
        return {name: parameters for name, parameters in groups.items() if parameters}


def _regroup(flat: Sequence[Any], like: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """Cut a flat sequence into groups of the same lengths as others."""
    groups, start = [], 0
    for group in like:
        groups.append(flat[start : start + len(group)])
        start += len(group)
    return groups


def _observe(best: RunningTopK, logits: Tensor, chunk: slice, gold: Tensor) -> None:
    """Record the highest logits of labels that are not gold."""
    scores = torch.sigmoid(logits.float())
    inside = (gold >= chunk.start) & (gold < chunk.stop)
    rows = torch.arange(len(gold), device=gold.device)[:, None].expand_as(gold)
    scores[rows[inside], gold[inside] - chunk.start] = -1.0  # below every score
    best.update(scores, torch.arange(chunk.start, chunk.stop, device=logits.device))
