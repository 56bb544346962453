"""The settings of a run, one dataclass per section of a recipe.

Plain dataclasses, so that a saved model loads without a validation library. The text beside each
field is its help text (`glocal recipes show NAME`); its limits are checked when a recipe is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "AplcConfig",
    "AttentionConfig",
    "CandidatesConfig",
    "DocumentConfig",
    "EncoderConfig",
    "LabelsConfig",
    "LossConfig",
    "ReaderConfig",
    "Recipe",
    "SparseConfig",
    "TeacherConfig",
    "TrainConfig",
]


def option(
    default: Any,
    doc: str,
    *,
    choices: tuple[Any, ...] = (),
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
) -> Any:
    """A dataclass field with its help text and the values it may take."""
    limits = {"choices": choices, "at_least": at_least, "above": above, "at_most": at_most}
    metadata = {"doc": doc, **limits}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class EncoderConfig:
    """Which encoder reads the text, and how."""

    name: str = option("minilm", "`minilm`, a local folder, a Hugging Face hub id, or `none`")
    max_length: int = option(256, "tokens read of each text, special tokens included", at_least=3)
    document_length: int = option(
        0,
        "tokens read of each text in all; those beyond max_length in further chunks, for the A-n "
        "and up to their layers (0: no more than max_length)",
        at_least=0,
    )
    overlap: int = option(
        32, "tokens that neighbouring chunks of a long text share at least", at_least=0
    )
    pooling: str = option("cls", "what stands for the document", choices=("cls", "mean"))
    dropout: float = option(
        0.1, "dropout on the hidden states before the experts", at_least=0, at_most=0.99
    )
    freeze: bool = option(False, "keep the encoder's weights fixed")
    gradient_checkpointing: bool = option(False, "recompute activations to save memory")
    attention: str = option(
        "sdpa", "the encoder's attention implementation", choices=("sdpa", "eager")
    )

    @property
    def tokens_read(self) -> int:
        """Tokens kept of each text, whether read at once or in chunks."""
        return self.document_length or self.max_length


@dataclass(frozen=True)
class LabelsConfig:
    """Which labels a model knows."""

    min_count: int = option(1, "a label needs this many training texts", at_least=1)
    score_unseen: bool = option(
        False, "also score labels of the label table that have no training text"
    )
    text: str = option(
        "off",
        "names and descriptions of labels in D-n, A-n and R-n: unused, where label vectors start, "
        "or a part of them throughout, which scores labels without training texts too",
        choices=("off", "start", "tied"),
    )
    text_dropout: float = option(
        0.0, "how often a label is trained on its text alone (tied)", at_least=0, at_most=1
    )
    text_worth: float = option(
        10.0,
        "with so many training texts a label's own part counts half, with fewer less (tied)",
        at_least=0,
    )


@dataclass(frozen=True)
class DocumentConfig:
    """Document experts (`D-n`): the document vector of layer n against a vector per label."""

    pooler: bool = option(False, "a linear layer with tanh before the label vectors")
    hidden_size: int = option(0, "width of a hidden layer before the labels (0: none)", at_least=0)
    bias: bool = option(True, "a bias for each label")
    head: str = option(
        "flat",
        "the output layer: a vector for each label, or the label clusters of [aplc]",
        choices=("flat", "aplc"),
    )
    reads: str = option(
        "first",
        "of a text longer than encoder.max_length: its first chunk, or the mean of the vectors of "
        "all chunks, each through all layers",
        choices=("first", "chunks"),
    )


@dataclass(frozen=True)
class AttentionConfig:
    """Label-attention experts (`A-n`): each label attends to the tokens of layer n."""

    projections: bool = option(True, "project keys and values (off: ME-XML's plain attention)")
    key_size: int = option(256, "width of keys and label queries", at_least=1)
    hidden_size: int = option(256, "width of the label MLP's hidden layer", at_least=1)
    separate_values: bool = option(
        False, "keep the value projection and the first MLP layer as two matrices"
    )
    temperature: float = option(1.0, "τ of the attention's softmax", above=0)
    query_init: str = option(
        "normal",
        "where label queries start: N(0, 0.02), or the mean token of each label's texts",
        choices=("normal", "tokens"),
    )
    bias: bool = option(True, "a bias for each label")
    stop_gradient: bool = option(False, "no gradient from this expert into the encoder")


@dataclass(frozen=True)
class AplcConfig:
    """Adaptive probabilistic label clusters: rare labels in smaller output layers behind gates."""

    partition: tuple[float, ...] = option(
        (0.5, 0.5), "shares of the labels in the head and each tail, by falling training frequency"
    )
    q: float = option(2.0, "each tail is this many times narrower than the one before", at_least=1)
    hidden_size: int = option(
        0, "width of the layer between encoder and labels (0: as wide as the encoder)", at_least=0
    )
    tail: str = option(
        "official",
        "a tail's projection: with layer norm and ReLU (the published code), or linear alone",
        choices=("official", "plain"),
    )
    bias: bool = option(
        True, "a bias for each label and gate, started at the training prior's log-odds"
    )
    reduction: str = option(
        "sum",
        "of the loss: summed over a text's scored labels, their mean, or Eq. 5's ratio of sums",
        choices=("sum", "document", "ratio"),
    )
    skip_tails: bool = option(
        True, "train a tail on the texts with a label in it alone (off: fixed shapes on a GPU)"
    )


@dataclass(frozen=True)
class ReaderConfig:
    """Reader experts (`R-n`): TReaderXML's network reads text and teacher (see [teacher])."""

    configuration: int = option(
        6,
        "of the paper's Table 3: 0 neither teacher nor Reading, 1 no Reading, 2 MMHSA+R, 3 MHSA+R, "
        "4 MHSA+R+MMHSA, 5 MMHSA+MHSA, 6 MMHSA+R+MHSA; 7 is 6 without the teacher",
        choices=tuple(range(8)),
    )
    encode: str = option(
        "hidden",
        "the text: the encoder's hidden states, or word vectors (of teacher.vectors) in its place",
        choices=("hidden", "static"),
    )
    heads: int = option(4, "of each attention; they divide the encoder's width", at_least=1)
    bottleneck: int = option(
        256, "width between the network and the labels (0: as wide as the encoder)", at_least=0
    )
    scope: str = option(
        "sequence",
        "the teacher: the sequence of its labels, likeliest first, or their mean",
        choices=("sequence", "mean"),
    )
    label_vectors: str = option(
        "learned",
        "the vectors of the teacher's labels, which start at their descriptions' mean word",
        choices=("learned", "fixed"),
    )
    votes: bool = option(False, "let the network see how strong each vote is")
    prior: bool = option(
        True, "votes also count towards the scores of their labels, with learnt strength"
    )
    pooling: str = option(
        "halves",
        "the document's vector: half the teacher's mean and half the text's, the mean of all, or "
        "of the text",
        choices=("halves", "all", "text"),
    )
    residual: bool = option(
        True,
        "residuals around the second layer and the Interaction too, all layers silent at first",
    )


@dataclass(frozen=True)
class SparseConfig:
    """The sparse expert (`S`): TF-IDF features of the text, one linear scorer per label."""

    pairs: bool = option(True, "pairs of neighbouring words are features, besides words")
    pieces: str = option(
        "auto",
        "pieces of words, of four characters, are features too; `auto`: where texts are short",
        choices=("auto", "on", "off"),
    )
    min_words: int = option(
        0, "training texts a word must be in; 0: 2, in a small corpus 1", at_least=0
    )
    min_pairs: int = option(3, "training texts a pair of words must be in", at_least=1)
    max_words: float = option(
        0.3, "share of the training texts a word may be in", above=0, at_most=1
    )
    max_pairs: float = option(
        0.1, "share of the training texts a pair may be in", above=0, at_most=1
    )
    title_weight: float = option(
        0.5, "of the first line's own features beside the whole text's (0: none)", at_least=0
    )
    name_weight: float = option(
        1.0, "how far a label's name in the text counts before any training text", at_least=0
    )
    cost: float = option(1.0, "of an error beside the size of the weights", above=0)
    iterations: int = option(12, "of the conjugate gradient solver", at_least=1)
    cluster_size: int = option(64, "most labels trained together on shared texts", at_least=2)
    beam: int = option(
        10, "clusters whose labels are trained against each text that lacks them", at_least=1
    )
    sample: int = option(1000, "random texts every cluster is trained against besides", at_least=0)
    threshold: float = option(0.05, "smaller weights are dropped", at_least=0)


@dataclass(frozen=True)
class LossConfig:
    """What training minimises."""

    kind: str = option(
        "individual",
        "each expert's BCE on its own, or the BCE of the mean logit",
        choices=("individual", "collaborative"),
    )
    expert_reduction: str = option(
        "sum", "over the experts' losses (individual)", choices=("sum", "mean")
    )
    label_reduction: str = option("sum", "over the labels", choices=("sum", "mean"))
    bias_init: str = option(
        "prior", "where label biases start: the training prior's log-odds, or a number"
    )
    diversity_weight: float = option(0.0, "α of ME-XML's diversity loss (0: off)", at_least=0)
    diversity_start: float = option(
        0.25, "fraction of training after which it is added", at_least=0, at_most=1
    )


@dataclass(frozen=True)
class CandidatesConfig:
    """Which labels the attention experts score.

    `full` scores every label; `shortlist` trains on each text's gold labels, the document expert's
    current best and a random sample, and predicts on the document expert's best; `auto` takes
    `full` on a GPU and `shortlist` on a CPU when there are many labels.
    """

    mode: str = option("auto", "how many labels", choices=("auto", "full", "shortlist"))
    hard: int = option(32, "labels the document expert ranks highest, in training", at_least=0)
    random: int = option(64, "labels drawn at random, in training", at_least=0)
    predict: int = option(128, "labels re-scored at prediction", at_least=1)


@dataclass(frozen=True)
class TeacherConfig:
    """TReaderXML's teacher: the labels of similar training texts, and the labels above them."""

    vectors: str = option(
        "encoder",
        "word vectors: `encoder` (the run's own), another encoder's name or folder, `corpus` "
        "(trained on the texts), or a word2vec or GloVe text file",
    )
    dimensions: int = option(300, "width of vectors trained on the texts", at_least=1)
    weighting: str = option(
        "idf",
        "of words in a text's vector: equal (the paper), by rarity, or by damped count and rarity",
        choices=("mean", "idf", "tfidf"),
    )
    similarity: str = option(
        "words",
        "of texts: the cosine of their mean word vectors (the paper), or of their heaviest words",
        choices=("mean", "words"),
    )
    heaviest: int = option(40, "words of each text that are compared (words)", at_least=1)
    centre: bool = option(True, "subtract the mean training vector before comparing texts (mean)")
    text_words: int = option(500, "words read of each text", at_least=1)
    k: int = option(30, "similar training texts that vote", at_least=1)
    sharpness: float = option(2.0, "the power of a similarity that counts as a vote", at_least=0)
    size: int = option(64, "labels kept for each text", at_least=1)
    parents: bool = option(True, "add the labels right above those voted for")
    words: int = option(16, "words that describe a label", at_least=1)
    index: str = option(
        "exact",
        "the search: exact, or approximate for millions of texts",
        choices=("exact", "ivf", "hnsw"),
    )
    effort: int = option(
        64, "lists (ivf) or candidates (hnsw) an approximate search looks at", at_least=1
    )


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
    """The training run."""

    epochs: int = option(
        9,
        "passes over the training texts (0: as many as suit data, machine and budget)",
        at_least=0,
    )
    members: int = option(
        1,
        "models trained from the seeds seed, seed + 1, … whose log-odds are averaged (0: one, or "
        "three where the budget has room)",
        at_least=0,
    )
    budget: str = option(
        "", "time the run may take, such as 90s, 10m or 2h: fewer epochs if need be (empty: any)"
    )
    batch_size: int = option(64, "texts per optimizer step, over all processes", at_least=1)
    accumulation: int = option(1, "parts a step's batch is computed in", at_least=1)
    rates: dict[str, float] = field(
        default_factory=lambda: dict(_RATES),
        metadata={"doc": "learning rate of each parameter group"},
    )
    schedule: str = option(
        "linear",
        "after the warm-up",
        choices=("linear", "cosine", "constant", "slanted-triangular"),
    )
    warmup: float = option(0.05, "fraction of the steps", at_least=0, at_most=1)
    weight_decay: float = option(0.01, "on the encoder's matrices", at_least=0)
    clip_norm: float = option(10.0, "largest gradient norm (0: no clipping)", at_least=0)
    precision: str = option(
        "auto",
        "arithmetic; auto: bf16 where the GPU has it",
        choices=("auto", "bf16", "fp16", "fp32"),
    )
    graphs: bool = option(True, "record steps as CUDA graphs and replay them, where possible")
    compile: bool = option(False, "compile the encoder with torch.compile")
    seed: int = option(0, "of everything random", at_least=0)
    metric: str = option("P@5", "on dev: decides the best checkpoint and early stopping")
    evaluations: int = option(0, "per run on dev (0: once an epoch)", at_least=0)
    patience: int = option(0, "evaluations without gain before stopping (0: never)", at_least=0)
    averaging: float = option(
        0.0, "fraction of the run, at its end, whose weights are averaged", at_least=0, at_most=1
    )
    checkpoints: int = option(0, "saved per epoch besides the one at its end", at_least=0)
    chunk_elements: int = option(
        0, "largest (texts × labels × width) tensor (0: by device)", at_least=0
    )


@dataclass(frozen=True)
class Recipe:
    """Everything that defines a run besides its data."""

    system: str = option("glocalxml", "which system (`glocal recipes` lists them)")
    description: str = option("", "one line about the recipe")
    experts: tuple[str, ...] = option(
        ("D-last", "A-1"),
        "experts, as D-n, A-n, R-n, D-(m+n), T or S; n a layer, `middle` or `last`; `auto`: open",
    )
    combine: str = option(
        "weights",
        "the experts: a weighted sum of log-odds and the label's frequency, learnt on dev, or the "
        "mean of probabilities",
        choices=("weights", "mean"),
    )
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
