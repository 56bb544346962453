"""The settings of the experts and of the companions that feed them, one dataclass per section."""

from __future__ import annotations

from dataclasses import dataclass

from glocal.config.option import option

__all__ = [
    "AplcConfig",
    "AttentionConfig",
    "DocumentConfig",
    "ReaderConfig",
    "SparseConfig",
    "TeacherConfig",
]


@dataclass(frozen=True)
class DocumentConfig:
    """Document experts (`D-n`): the document vector of layer n against a vector per label."""

    pooler: bool = option(False, "add a linear layer with tanh before the label vectors")
    hidden_size: int = option(0, "width of a hidden layer before the labels (0: none)", at_least=0)
    bias: bool = option(True, "learn a bias for each label")
    head: str = option(
        "flat",
        "output layer: a vector for each label (flat), or the label clusters of [aplc]",
        choices=("flat", "aplc"),
    )
    reads: str = option(
        "first",
        "part of a long text that stands for the document: the first encoder.max_length tokens, or "
        "the mean over all chunks, each run through all layers",
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
    temperature: float = option(1.0, "temperature τ of the attention's softmax", above=0)
    query_init: str = option(
        "normal",
        "initial label queries: random N(0, 0.02), or the mean token of each label's texts",
        choices=("normal", "tokens"),
    )
    bias: bool = option(True, "learn a bias for each label")
    stop_gradient: bool = option(False, "send no gradient from this expert into the encoder")


@dataclass(frozen=True)
class AplcConfig:
    """Adaptive probabilistic label clusters: rare labels in smaller output layers behind gates."""

    partition: tuple[float, ...] = option(
        (0.5, 0.5), "shares of the labels in the head and each tail, from frequent to rare"
    )
    q: float = option(2.0, "each tail is this many times narrower than the one before", at_least=1)
    hidden_size: int = option(
        0, "width of the layer between encoder and labels (0: as wide as the encoder)", at_least=0
    )
    tail: str = option(
        "official",
        "projection of a tail: with layer norm and ReLU (the published code), or linear only",
        choices=("official", "plain"),
    )
    bias: bool = option(
        True, "learn a bias for each label and gate, starting at the training prior's log-odds"
    )
    reduction: str = option(
        "sum",
        "loss of a text: the sum over its scored labels, their mean, or Eq. 5's ratio of sums",
        choices=("sum", "document", "ratio"),
    )
    skip_tails: bool = option(
        True, "train a tail only on texts with a label in it (off: fixed shapes on a GPU)"
    )


@dataclass(frozen=True)
class ReaderConfig:
    """Reader experts (`R-n`): TReaderXML's network reads text and teacher (see [teacher])."""

    configuration: int = option(
        6,
        "row of the paper's Table 3: 0 neither teacher nor Reading, 1 no Reading, 2 MMHSA+R, "
        "3 MHSA+R, 4 MHSA+R+MMHSA, 5 MMHSA+MHSA, 6 MMHSA+R+MHSA; 7 is 6 without the teacher",
        choices=tuple(range(8)),
    )
    encode: str = option(
        "hidden",
        "representation of the text: hidden states of the encoder, or word vectors instead of one "
        "(from teacher.vectors)",
        choices=("hidden", "static"),
    )
    heads: int = option(4, "heads of each attention; must divide the encoder's width", at_least=1)
    bottleneck: int = option(
        256, "width between the network and the labels (0: as wide as the encoder)", at_least=0
    )
    scope: str = option(
        "sequence",
        "representation of the teacher: the sequence of its labels, likeliest first, or their mean",
        choices=("sequence", "mean"),
    )
    label_vectors: str = option(
        "learned",
        "vectors of the teacher's labels, starting at the mean word of each description",
        choices=("learned", "fixed"),
    )
    votes: bool = option(False, "show the network how strong each vote is")
    prior: bool = option(True, "add votes to the scores of their labels, with a learned weight")
    pooling: str = option(
        "halves",
        "document vector: half the teacher's mean and half the text's, the mean of all tokens, or "
        "the mean of the text",
        choices=("halves", "all", "text"),
    )
    residual: bool = option(
        True,
        "also add residuals around the second layer and the Interaction, all layers starting at 0",
    )


@dataclass(frozen=True)
class SparseConfig:
    """The sparse expert (`S`): TF-IDF features of the text, one linear scorer per label."""

    pairs: bool = option(True, "also use pairs of neighbouring words as features")
    pieces: str = option(
        "auto",
        "also use pieces of words, four characters long, as features (auto: where texts are short)",
        choices=("auto", "on", "off"),
    )
    min_words: int = option(
        0, "training texts a word must occur in (0: 2, in a small corpus 1)", at_least=0
    )
    min_pairs: int = option(3, "training texts a pair of words must occur in", at_least=1)
    max_words: float = option(
        0.3, "largest share of the training texts a word may occur in", above=0, at_most=1
    )
    max_pairs: float = option(
        0.1, "largest share of the training texts a pair may occur in", above=0, at_most=1
    )
    title_weight: float = option(
        0.5, "weight of the first line's own features (0: no such features)", at_least=0
    )
    name_weight: float = option(1.0, "prior weight of label-name matches", at_least=0)
    cost: float = option(1.0, "SVM cost C", above=0)
    iterations: int = option(12, "iterations of the conjugate gradient solver", at_least=1)
    cluster_size: int = option(64, "most labels trained together on shared texts", at_least=2)
    beam: int = option(
        10, "clusters whose labels use a text as a negative, for each text", at_least=1
    )
    sample: int = option(1000, "random negative texts added for every cluster", at_least=0)
    threshold: float = option(0.05, "weights smaller than this are dropped", at_least=0)


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
        "weight of a word in a text's vector: equal (the paper), by rarity, or by damped count and "
        "rarity",
        choices=("mean", "idf", "tfidf"),
    )
    similarity: str = option(
        "words",
        "similarity of two texts: cosine of their mean word vectors (the paper), or of their "
        "heaviest words",
        choices=("mean", "words"),
    )
    heaviest: int = option(40, "words of each text that are compared (words)", at_least=1)
    centre: bool = option(True, "subtract the mean training vector before comparing texts (mean)")
    text_words: int = option(500, "words read from each text", at_least=1)
    k: int = option(30, "similar training texts that vote", at_least=1)
    sharpness: float = option(2.0, "power that turns a similarity into a vote", at_least=0)
    size: int = option(64, "labels kept for each text", at_least=1)
    parents: bool = option(True, "add the parents of the labels voted for")
    words: int = option(16, "words that describe a label", at_least=1)
    index: str = option(
        "exact",
        "search: exact, or approximate for millions of texts",
        choices=("exact", "ivf", "hnsw"),
    )
    effort: int = option(
        64, "lists (ivf) or candidates (hnsw) that an approximate search visits", at_least=1
    )
