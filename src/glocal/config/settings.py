"""The settings of a run: the recipe and its sections, one dataclass each.

Plain dataclasses, so that a saved model loads without a validation library. The docstrings are the
help texts (`glocal recipes show NAME`); limits of one setting are checked when a recipe is read,
rules about several settings in `rules`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from glocal.config.expert_names import ENCODER_KINDS, SPARSE_EXPERT, TEACHER, expert_kinds
from glocal.config.expert_settings import (
    AplcConfig,
    AttentionConfig,
    DocumentConfig,
    ReaderConfig,
    SparseConfig,
    TeacherConfig,
)
from glocal.config.option import option
from glocal.config.reader_configurations import CONFIGURATIONS

NO_ENCODER = "none"  # as `encoder.name`, and as the model type in `encoder/config.json`
BILSTM = "bilstm"  # as `encoder.name`: an LSTM over word vectors


@dataclass(frozen=True)
class EncoderConfig:
    """Which encoder reads the text, and how.

    Attributes:
        name: `minilm`, a local folder, a Hugging Face hub id, `bilstm` (an LSTM over the word
            vectors of teacher.vectors), or `none`.
        max_length: Tokens read at once, special tokens included.
        document_length: Tokens read from each text in all; those beyond max_length are read in
            further chunks by the A-n, up to their layers (0: no more than max_length).
        overlap: Least number of tokens that neighbouring chunks of a long text share.
        pooling: Document vector: the [CLS] token, or the mean of all.
        dropout: Dropout on the hidden states before the experts.
        attention_dropout: Keep the dropout of attention weights that the encoder has in training.
        freeze: Keep the encoder's weights fixed.
        gradient_checkpointing: Recompute activations to save memory.
        attention: The encoder's attention implementation.
        lstm_size: Width of each direction of the LSTM (bilstm).
    """

    name: str = "minilm"
    max_length: int = option(256, at_least=3)
    document_length: int = option(0, at_least=0)
    overlap: int = option(32, at_least=0)
    pooling: str = option("cls", choices=("cls", "mean"))
    dropout: float = option(0.1, at_least=0, at_most=0.99)
    attention_dropout: bool = True
    freeze: bool = False
    gradient_checkpointing: bool = False
    attention: str = option("sdpa", choices=("sdpa", "eager"))
    lstm_size: int = option(256, at_least=1)

    @property
    def tokens_read(self) -> int:
        """Tokens kept from each text, whether read at once or in chunks."""
        return self.document_length or self.max_length


@dataclass(frozen=True)
class LabelsConfig:
    """Which labels a model knows.

    Attributes:
        min_count: Training texts a label must have.
        score_unseen: Also score labels of the label table that have no training text.
        text: Use of label names and descriptions by D-n, A-n and R-n: none, as initial label
            vectors (start), or as a permanent part of them (tied), which also scores labels without
            training texts; auto: tied where a label table names the labels.
        text_dropout: Probability of training a label on its text alone (tied).
        text_worth: Training texts at which a label's own vector counts half; with fewer it counts
            less (tied).
    """

    min_count: int = option(1, at_least=1)
    score_unseen: bool = False
    text: str = option("off", choices=("off", "start", "tied", "auto"))
    text_dropout: float = option(0.0, at_least=0, at_most=1)
    text_worth: float = option(10.0, at_least=0)


@dataclass(frozen=True)
class LossConfig:
    """The loss that training minimises.

    Attributes:
        kind: Each expert's BCE on its own, or the BCE of the mean logit.
        expert_reduction: Reduction over the experts' losses (individual).
        label_reduction: Reduction over the labels.
        bias_init: Initial label biases: the training prior's log-odds, or a number.
        diversity_weight: Weight α of ME-XML's diversity loss (0: off).
        diversity_start: Fraction of training after which the diversity loss is added.
    """

    kind: str = option("individual", choices=("individual", "collaborative"))
    expert_reduction: str = option("sum", choices=("sum", "mean"))
    label_reduction: str = option("sum", choices=("sum", "mean"))
    bias_init: str = "prior"
    diversity_weight: float = option(0.0, at_least=0)
    diversity_start: float = option(0.25, at_least=0, at_most=1)


@dataclass(frozen=True)
class CandidatesConfig:
    """Which labels the experts score.

    `full` scores every label; `shortlist` trains the attention experts on each text's gold labels,
    the document expert's current best and a random sample, and predicts on the document expert's
    best; `clusters` has all experts score the labels of the clusters picked for a text, and in
    training its gold labels; `auto` takes `full` on a GPU and `shortlist` on a CPU when there are
    many labels.

    Attributes:
        mode: All labels, a shortlist, labels of clusters, or a choice by device and number of
            labels.
        hard: Negatives in training: labels the document expert ranks highest.
        random: Negatives in training: labels drawn at random.
        predict: Labels scored again at prediction.
        cluster_size: Largest number of labels in a cluster (clusters).
        clusters: Number of label clusters, a power of two (0: by cluster_size).
        picked: Clusters whose labels are scored, for each text (clusters).
        cluster_weight: Weight of a cluster's log-probability in the scores of its labels; at 1 the
            probability of a label is that of its clusters times its own (clusters).
        clusters_by: Experts that score clusters: the first document expert, or every trained one.
        levels: Levels of clusters, each finer than the one before; a text's clusters are picked
            level by level (clusters).
        branching: Clusters that a cluster is divided into on the next level, a power of two.
        coarse: Fraction of the run that trains clusters alone, coarse levels first; labels then
            start from the vectors of their clusters (clusters).
    """

    mode: str = option("auto", choices=("auto", "full", "shortlist", "clusters"))
    hard: int = option(32, at_least=0)
    random: int = option(64, at_least=0)
    predict: int = option(128, at_least=1)
    cluster_size: int = option(64, at_least=2)
    clusters: int = option(0, at_least=0)
    picked: int = option(16, at_least=1)
    cluster_weight: float = option(0.25, at_least=0, at_most=1)
    clusters_by: str = option("document", choices=("document", "all"))
    levels: int = option(1, at_least=1)
    branching: int = option(8, at_least=2)
    coarse: float = option(0.0, at_least=0, at_most=0.9)

    def predicted(self, n_labels: int) -> int:
        """Return how many labels of each text are scored at prediction; 0 for all."""
        if self.mode == "clusters":
            return self.picked * max(1, n_labels // self.clusters_for(n_labels))
        return self.predict if self.mode == "shortlist" else 0

    def clusters_for(self, n_labels: int) -> int:
        """Return the number of clusters of so many labels."""
        if self.clusters:
            return self.clusters
        return int(1 << max(0, -(-n_labels // self.cluster_size) - 1).bit_length())


_RATES = {
    "encoder": 1e-4,
    "pooler": 2e-4,
    "classifier": 2e-3,
    "attention": 2e-4,
    "queries": 2e-3,
    "mlp": 2e-3,
}


@dataclass(frozen=True)
class TrainConfig:
    """The training run.

    Attributes:
        epochs: Passes over the training texts (0: chosen by data, machine and budget).
        members: Models trained from the seeds seed, seed + 1, … whose log-odds are averaged (0:
            one, or three where the budget allows).
        budget: Time the run may take, such as 90s, 10m or 2h; epochs are reduced to fit (empty: no
            limit).
        batch_size: Texts per optimizer step, over all processes.
        accumulation: Parts that a step's batch is computed in.
        rates: Learning rate of each parameter group.
        schedule: Learning rate after the warm-up (plateau: constant, and a third after every
            evaluation on dev without gain).
        warmup: Fraction of the steps used for warm-up.
        weight_decay: Weight decay of the encoder's matrices.
        clip_norm: Largest gradient norm (0: no clipping).
        precision: Arithmetic (auto: bf16 where the GPU supports it).
        label_precision: Label matrices: fp32 with AdamW, or bf16 or fp8 updated at once (an eighth
            or a sixteenth of the memory); auto: bf16 for 200,000 labels or more on one GPU, where
            the loss allows it.
        graphs: Record steps as CUDA graphs and replay them, where possible.
        compile: Compile the encoder with torch.compile.
        seed: Random seed.
        metric: Metric on dev that selects the best checkpoint and stops early.
        evaluations: Evaluations on dev per run (0: one per epoch).
        patience: Evaluations without gain before stopping (0: never).
        averaging: Final fraction of the run whose weights are averaged.
        checkpoints: Checkpoints per epoch in addition to the one at its end.
        chunk_elements: Largest (texts × labels × width) tensor (0: by device).
    """

    epochs: int = option(9, at_least=0)
    members: int = option(1, at_least=0)
    budget: str = ""
    batch_size: int = option(64, at_least=1)
    accumulation: int = option(1, at_least=1)
    rates: dict[str, float] = field(default_factory=lambda: dict(_RATES))
    schedule: str = option(
        "linear", choices=("linear", "cosine", "constant", "slanted-triangular", "plateau")
    )
    warmup: float = option(0.05, at_least=0, at_most=1)
    weight_decay: float = option(0.01, at_least=0)
    clip_norm: float = option(10.0, at_least=0)
    precision: str = option("auto", choices=("auto", "bf16", "fp16", "fp32"))
    label_precision: str = option("auto", choices=("auto", "fp32", "bf16", "fp8"))
    graphs: bool = True
    compile: bool = False
    seed: int = option(0, at_least=0)
    metric: str = "P@5"
    evaluations: int = option(0, at_least=0)
    patience: int = option(0, at_least=0)
    averaging: float = option(0.0, at_least=0, at_most=1)
    checkpoints: int = option(0, at_least=0)
    chunk_elements: int = option(0, at_least=0)


@dataclass(frozen=True)
class Recipe:
    """All settings of a run, as written; see `resolve` for what becomes of them.

    Attributes:
        system: Which system (`glocal recipes` lists them).
        description: One line about the recipe.
        experts: Experts, as D-n, A-n, R-n, D-(m+n), T or S, where n is a layer, `middle` or `last`;
            `auto` leaves the choice to the run.
        combine: Combination of the experts: a weighted sum of log-odds and label frequency, learned
            on dev, or the mean of probabilities.
    """

    system: str = "glocalxml"
    description: str = ""
    experts: tuple[str, ...] = ("D-last", "A-1")
    combine: str = option("weights", choices=("weights", "mean"))
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    labels: LabelsConfig = field(default_factory=LabelsConfig)
    document: DocumentConfig = field(default_factory=DocumentConfig)
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    aplc: AplcConfig = field(default_factory=AplcConfig)
    reader: ReaderConfig = field(default_factory=ReaderConfig)
    sparse: SparseConfig = field(default_factory=SparseConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    candidates: CandidatesConfig = field(default_factory=CandidatesConfig)
    teacher: TeacherConfig = field(default_factory=TeacherConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    @property
    def reads_words_alone(self) -> bool:
        """Whether the sparse expert is the only one, so that no encoder and no torch is needed."""
        return self.experts == (SPARSE_EXPERT,)

    @property
    def reads_word_vectors(self) -> bool:
        """Whether the text is read as word vectors, from `teacher.vectors`."""
        return self.reader.encode == "static" or self.encoder.name == BILSTM

    @property
    def uses_label_text(self) -> bool:
        """Whether an expert reads names and descriptions of labels."""
        return self.labels.text != "off" and bool(expert_kinds(self.experts) & ENCODER_KINDS)

    @property
    def uses_teacher(self) -> bool:
        """Whether an expert sees the labels of similar training texts."""
        kinds, configuration = expert_kinds(self.experts), CONFIGURATIONS[self.reader.configuration]
        return TEACHER in kinds or ("R" in kinds and configuration.teacher)
