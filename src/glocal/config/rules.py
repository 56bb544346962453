"""Every rule about several settings at once, and about settings, encoder and data.

`recipe_problems` needs no texts: its rules run before any are read. `data_problems` needs the label
space, and runs before anything is fitted. Limits of a single setting stand beside it (`settings`).
A rule is a generator of problems, each a sentence that says what is wrong and what to set instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from glocal.config.durations import parse_duration
from glocal.config.encoder_facts import EncoderFacts
from glocal.config.expert_names import (
    ENCODER_KINDS,
    SPARSE_EXPERT,
    expert_kinds,
    expert_problems,
    parse_experts,
)
from glocal.config.published_systems import CLUSTERS, MIXTURE, PUBLISHED_SYSTEMS, PublishedSystem
from glocal.config.settings import BILSTM, NO_ENCODER, Recipe
from glocal.errors import ConfigError, did_you_mean

_SUM_TOLERANCE = 1e-6
LEAN_LABELS = ("bf16", "fp8")  # precisions of label matrices that are updated chunk by chunk
_FEW_LABELS = {"shortlist", "clusters"}  # ways to score only some labels of a text


@dataclass(frozen=True)
class DataFacts:
    """The sizes of a run's data.

    Attributes:
        n_texts: Training texts.
        n_labels: Labels in the label space.
        processes: Processes that share a batch.
    """

    n_texts: int
    n_labels: int
    processes: int = 1


def recipe_problems(recipe: Recipe, facts: EncoderFacts | None) -> list[str]:
    """Return everything that is wrong with a recipe, whatever its texts.

    Args:
        recipe: The settings, with nothing left open among the experts.
        facts: About its encoder; rules about the encoder are skipped without them.
    """
    problems = [*_system(recipe), *_experts(recipe, facts), *_training(recipe)]
    if expert_problems(recipe.experts):
        return problems  # the other rules look at the kinds of the experts
    problems += [*_encoder_use(recipe), *_losses(recipe), *_candidates(recipe)]
    if recipe.train.members > 1:
        problems += member_problems(recipe)
    problems += [*label_text_problems(recipe), *_reader_and_teacher(recipe)]
    if _uses_clusters(recipe):
        problems += partition_problems(recipe.aplc.partition)
    problems += _long_documents(recipe)
    if recipe.train.label_precision in LEAN_LABELS:
        problems += lean_label_problems(recipe)
    if facts is not None:
        problems += [*_encoder_limits(recipe, facts)]
    return problems


def data_problems(recipe: Recipe, data: DataFacts) -> list[str]:
    """Return everything that is wrong with a recipe for texts and labels of these sizes."""
    problems = []
    if _uses_clusters(recipe):
        problems += partition_problems(recipe.aplc.partition, data.n_labels)
    if recipe.candidates.mode == "clusters" and recipe.candidates.clusters > data.n_labels:
        problems.append(
            f"'candidates.clusters' = {recipe.candidates.clusters}, but there are only "
            f"{data.n_labels} labels; set a lower number, or 0"
        )
    train, parts = recipe.train, data.processes * recipe.train.accumulation
    if min(data.n_texts, train.batch_size) < parts:
        problems.append(
            f"a batch of {train.batch_size} (train.batch_size) of {data.n_texts} training texts "
            f"cannot be split over {data.processes} processes × {train.accumulation} accumulation "
            "parts (train.accumulation)"
        )
    if train.label_precision in LEAN_LABELS and parts > 1:
        problems.append(
            f"'train.label_precision' = {train.label_precision} needs whole batches in one place, "
            f"not {parts} parts; set train.accumulation=1 and use one process, or choose fp32"
        )
    return problems


def _published(recipe: Recipe) -> PublishedSystem:
    return PUBLISHED_SYSTEMS.get(recipe.system, PublishedSystem())


def _uses_clusters(recipe: Recipe) -> bool:
    """Whether an output layer of the recipe is made of label clusters."""
    in_experts = recipe.document.head == "aplc" and expert_kinds(recipe.experts) & {"D", "R"}
    return _published(recipe).family == CLUSTERS or bool(in_experts)


# --- the rules ------------------------------------------------------------------------------------


def _system(recipe: Recipe) -> Iterator[str]:
    name, known = recipe.system, PUBLISHED_SYSTEMS
    if name not in known:
        hint = did_you_mean(name, known)
        yield f"there is no system '{name}'{hint}; there are {', '.join(known)}"
        return
    experts, system = list(recipe.experts), known[name]
    if system.required and system.required not in expert_kinds(experts):
        yield (
            f"'experts' = {experts}: {name} needs an {system.required}-n expert; set "
            f'experts = ["{system.required}-last"] or add one'
        )
    if system.family == CLUSTERS and (len(experts) != 1 or expert_kinds(experts) != {"D"}):
        yield (
            f"'experts' = {experts}: {name} scores labels from one document vector; name one "
            'document expert, experts = ["D-last"]'
        )


def _experts(recipe: Recipe, facts: EncoderFacts | None) -> Iterator[str]:
    without = recipe.encoder.name == NO_ENCODER
    yield from expert_problems(recipe.experts, None if facts is None or without else facts.n_layers)
    readers = [name for name in recipe.experts if name[:1] in ENCODER_KINDS]
    if without and readers:
        yield (
            f"'encoder.name' = none, but the experts {', '.join(readers)} read an encoder; name "
            "one, such as minilm, or leave these experts out"
        )


def _training(recipe: Recipe) -> Iterator[str]:
    from glocal.metrics.metric_names import parse_metric_name

    try:
        parse_duration(recipe.train.budget)
    except ConfigError as error:
        yield from error.problems
    try:
        parse_metric_name(recipe.train.metric)
    except ValueError as error:
        yield f"'train.metric': {error}"
    bias = recipe.loss.bias_init
    if bias != "prior" and not _is_number(bias):
        yield f"'loss.bias_init' must be prior or a number, not '{bias}'"
    if recipe.train.accumulation > recipe.train.batch_size:
        yield (
            f"'train.accumulation' = {recipe.train.accumulation} is more than the "
            f"{recipe.train.batch_size} texts of a batch (train.batch_size)"
        )


def _encoder_use(recipe: Recipe) -> Iterator[str]:
    name = recipe.encoder.name
    if name != NO_ENCODER and expert_kinds(recipe.experts) == {SPARSE_EXPERT}:
        yield (
            f"the encoder '{name}' is read by none of the experts {', '.join(recipe.experts)}; set "
            "encoder.name=none, or add an expert that reads it, such as D-last"
        )
    if name == BILSTM:
        yield from _lstm(recipe)
    if name == NO_ENCODER and recipe.teacher.vectors == "encoder" and recipe.uses_teacher:
        yield (
            "'teacher.vectors' = encoder takes word vectors from the encoder, and 'encoder.name' = "
            "none; set teacher.vectors=corpus, or name an encoder"
        )


def _lstm(recipe: Recipe) -> Iterator[str]:
    if recipe.teacher.vectors in {"encoder", BILSTM, NO_ENCODER}:
        yield (
            f"'encoder.name' = bilstm reads word vectors, and 'teacher.vectors' = "
            f"{recipe.teacher.vectors} has none; set it to corpus, a file of vectors, or an "
            "encoder such as minilm"
        )
    if any(0 in spec.layers for spec in parse_experts(recipe.experts, 1)):
        yield (
            f"'experts' = {list(recipe.experts)}: of bilstm, experts read the states of the LSTM; "
            "name layer 1 (`last`)"
        )


def _encoder_limits(recipe: Recipe, facts: EncoderFacts) -> Iterator[str]:
    config = recipe.encoder
    if facts.max_tokens is not None and config.max_length > facts.max_tokens:
        yield (
            f"'encoder.max_length' is {config.max_length}, but '{config.name}' reads at most "
            f"{facts.max_tokens} tokens"
        )
    if config.gradient_checkpointing and not facts.can_checkpoint:
        yield (
            f"'encoder.gradient_checkpointing' = true, but '{config.name}' does not support it; "
            "set it to false"
        )
    if "R" in expert_kinds(recipe.experts) and facts.hidden_size % recipe.reader.heads:
        yield (
            f"'reader.heads' = {recipe.reader.heads} does not divide the encoder's width of "
            f"{facts.hidden_size}; choose a number that does"
        )
    body = config.max_length - facts.special_tokens
    if config.document_length and config.overlap >= body:
        yield (
            f"'encoder.overlap' = {config.overlap} leaves no new token in a chunk of "
            f"{config.max_length} tokens (encoder.max_length), {facts.special_tokens} of them "
            f"special; it must be below {body}"
        )
    if not facts.can_be_cut and not expert_problems(recipe.experts, facts.n_layers):
        specs = parse_experts(recipe.experts, facts.n_layers)
        highest = max((layer for spec in specs for layer in spec.layers), default=0)
        if highest < facts.n_layers:
            yield (
                f"the layers of '{config.name}' were not found, so it cannot be cut at layer "
                f"{highest}; let an expert read layer {facts.n_layers} (`last`)"
            )


def _losses(recipe: Recipe) -> Iterator[str]:
    if recipe.loss.kind != "collaborative" or _published(recipe).family != MIXTURE:
        return
    reason = "'loss.kind' = collaborative needs every expert's logit of every label"
    if recipe.candidates.mode in _FEW_LABELS:
        yield f"{reason}; set candidates.mode=full"
    if _uses_clusters(recipe):
        yield f"{reason}, which label clusters do not compute in training; set document.head=flat"


def lean_label_problems(recipe: Recipe) -> Iterator[str]:
    """Yield why the label matrices of a recipe cannot be updated chunk by chunk."""
    setting = f"'train.label_precision' = {recipe.train.label_precision}"
    reason = f"{setting} needs each label to be scored once a step"
    if recipe.loss.diversity_weight:
        yield f"{reason}; set loss.diversity_weight=0, or train.label_precision=fp32"
    if recipe.candidates.mode in _FEW_LABELS:
        yield f"{reason}; set candidates.mode=full, or train.label_precision=fp32"
    if recipe.labels.text == "tied" or _uses_clusters(recipe):
        yield (
            f"{setting} needs label vectors that are parameters themselves; set labels.text=off "
            "and document.head=flat, or train.label_precision=fp32"
        )


def _candidates(recipe: Recipe) -> Iterator[str]:
    proposers = expert_kinds(recipe.experts) & {"D", "R"}
    if recipe.candidates.mode == "shortlist" and not proposers:
        yield (
            "'candidates.mode' = shortlist needs a document expert to propose labels; add one, "
            "such as D-last, or set candidates.mode=full"
        )
    if recipe.candidates.mode == "clusters":
        yield from _label_clusters(recipe)


def _label_clusters(recipe: Recipe) -> Iterator[str]:
    config = recipe.candidates
    if _uses_clusters(recipe):
        yield (
            "'candidates.mode' = clusters needs a vector for each label, and APLC's label clusters "
            "have none; set document.head=flat in a system of experts, or candidates.mode=full"
        )
    if not expert_kinds(recipe.experts) & ENCODER_KINDS:
        yield (
            f"'candidates.mode' = clusters, but none of the experts {list(recipe.experts)} is "
            "trained to pick clusters; add one, such as D-last, or set candidates.mode=full"
        )
    if "R" in expert_kinds(recipe.experts) and recipe.uses_teacher and recipe.reader.prior:
        yield (
            "'candidates.mode' = clusters scores clusters, which have no votes; set "
            "reader.prior=false, or candidates.mode=full"
        )
    for name in ("clusters", "branching"):
        value = getattr(config, name)
        if value & (value - 1):
            yield (
                f"'candidates.{name}' = {value} is not a power of two, such as "
                f"{1 << value.bit_length()}"
            )


def member_problems(recipe: Recipe) -> list[str]:
    """Return why a recipe cannot be trained as several members."""
    problems = []
    if _published(recipe).family != MIXTURE:
        problems.append(
            "'train.members' above 1 needs experts that score any label they are asked for, which "
            f"{recipe.system} does not have; set train.members=1, or use the system glocalxml with "
            "document.head=aplc"
        )
    if expert_kinds(recipe.experts) == {SPARSE_EXPERT}:
        problems.append(
            f"'train.members' is above 1, but nothing in the experts {list(recipe.experts)} "
            "depends on a seed; set train.members=1"
        )
    return problems


def label_text_problems(recipe: Recipe) -> Iterator[str]:
    """Yield what keeps labels' texts from being part of their vectors."""
    if not recipe.uses_label_text:
        return
    text = recipe.labels.text
    if _uses_clusters(recipe):
        yield (
            f"'labels.text' = {text} needs a vector for each label, and label clusters have none; "
            "set document.head=flat in a system of experts, or labels.text=off"
        )
    if text == "tied" and recipe.attention.query_init == "tokens":
        yield (
            "'labels.text' = tied and 'attention.query_init' = tokens both say where label queries "
            "start; set attention.query_init=normal, or labels.text=start, which then holds for "
            "labels without training texts"
        )


def _reader_and_teacher(recipe: Recipe) -> Iterator[str]:
    taught = recipe.uses_teacher
    reads = "R" in expert_kinds(recipe.experts)
    if reads and taught and recipe.reader.prior and recipe.document.head == "aplc":
        yield (
            "'reader.prior' = true needs a vector for each label, and label clusters have none; "
            "set reader.prior=false or document.head=flat"
        )
    teacher = recipe.teacher
    if taught and teacher.similarity == "words" and teacher.index != "exact":
        yield (
            f"'teacher.index' = {teacher.index} searches vectors, but 'teacher.similarity' is "
            "words, whose search is always exact; set teacher.index=exact"
        )


def partition_problems(partition: Sequence[float], n_labels: int | None = None) -> list[str]:
    """Return the problems of the shares of label clusters.

    Args:
        partition: Shares of the head and of each tail.
        n_labels: Labels to be split, where they are known.
    """
    given = f"'aplc.partition' = [{', '.join(f'{share:g}' for share in partition)}]"
    if not partition or not all(math.isfinite(share) and share > 0 for share in partition):
        return [
            f"{given}: every share must be above 0; [1.0] is one cluster, [0.1, 0.2, 0.7] a head "
            "and two tails"
        ]
    total = math.fsum(partition)
    if abs(total - 1.0) > _SUM_TOLERANCE:
        return [f"{given} sums to {total:g}; the shares of the head and the tails must sum to 1"]
    if n_labels is not None and n_labels < len(partition):
        return [
            f"{given} makes {len(partition)} clusters, but there are only {n_labels} labels; give "
            f"at most {n_labels} shares"
        ]
    return []


def _long_documents(recipe: Recipe) -> Iterator[str]:
    config, by_chunks = recipe.encoder, recipe.document.reads == "chunks"
    given = f"'encoder.document_length' = {config.document_length}"
    if not config.document_length:
        if by_chunks:
            yield (
                "'document.reads' = chunks, but texts are cut at 'encoder.max_length' = "
                f"{config.max_length} tokens; set encoder.document_length to how many to read"
            )
        return
    if config.document_length < config.max_length:
        yield (
            f"{given} is below 'encoder.max_length' = {config.max_length}; set it to that or more, "
            "or to 0 to read no further"
        )
    if config.name == NO_ENCODER:
        yield f"{given}, but 'encoder.name' = none; name an encoder, or set it to 0"
    elif recipe.reads_word_vectors:
        yield (
            f"{given}, but word vectors have no window that a text could "
            "exceed; set encoder.max_length to that, and this to 0"
        )
    elif not expert_kinds(recipe.experts) & ({"A", "D"} if by_chunks else {"A"}):
        yield (
            f"{given}, but none of the experts {list(recipe.experts)} reads beyond the first "
            f"{config.max_length} tokens; add one such as A-1, or set document.reads=chunks for "
            "the D-n"
        )


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
