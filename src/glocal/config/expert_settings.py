"""The settings of the experts and of the companions that feed them, one dataclass per section."""

from __future__ import annotations

from dataclasses import dataclass

from glocal.config.option import option

# Languages of Snowball's stemmers.
LANGUAGES = (
    "arabic", "armenian", "basque", "catalan", "czech", "danish", "dutch", "english", "esperanto",
    "estonian", "finnish", "french", "german", "greek", "hindi", "hungarian", "indonesian", "irish",
    "italian", "lithuanian", "nepali", "norwegian", "persian", "polish", "portuguese", "romanian",
    "russian", "serbian", "spanish", "swedish", "tamil", "turkish", "yiddish",
)  # fmt: skip


@dataclass(frozen=True)
class DocumentConfig:
    """Document experts (`D-n`): the document vector of layer n against a vector per label.

    Attributes:
        pooler: Add a linear layer with tanh before the label vectors.
        hidden_size: Width of a hidden layer before the labels (0: none).
        bias: Learn a bias for each label.
        head: Output layer: a vector for each label (flat), or the label clusters of [aplc].
        reads: Part of a long text that stands for the document: the first encoder.max_length
            tokens, or the mean over all chunks, each run through all layers.
    """

    pooler: bool = False
    hidden_size: int = option(0, at_least=0)
    bias: bool = True
    head: str = option("flat", choices=("flat", "aplc"))
    reads: str = option("first", choices=("first", "chunks"))


@dataclass(frozen=True)
class AttentionConfig:
    """Label-attention experts (`A-n`): each label attends to the tokens of layer n.

    Attributes:
        projections: Project keys and values (off: ME-XML's plain attention).
        key_size: Width of keys and label queries.
        hidden_size: Width of the label MLP's hidden layer.
        separate_values: Keep the value projection and the first MLP layer as two matrices.
        temperature: Temperature τ of the attention's softmax.
        query_init: Initial label queries: random N(0, 0.02), or the mean token of each label's
            texts.
        bias: Learn a bias for each label.
        stop_gradient: Send no gradient from this expert into the encoder.
    """

    projections: bool = True
    key_size: int = option(256, at_least=1)
    hidden_size: int = option(256, at_least=1)
    separate_values: bool = False
    temperature: float = option(1.0, above=0)
    query_init: str = option("normal", choices=("normal", "tokens"))
    bias: bool = True
    stop_gradient: bool = False


@dataclass(frozen=True)
class AplcConfig:
    """Adaptive probabilistic label clusters: rare labels in smaller output layers behind gates.

    Attributes:
        partition: Shares of the labels in the head and each tail, from frequent to rare.
        q: Each tail is this many times narrower than the one before.
        hidden_size: Width of the layer between encoder and labels (0: as wide as the encoder).
        tail: Projection of a tail: with layer norm and ReLU (the published code), or linear only.
        bias: Learn a bias for each label and gate, starting at the training prior's log-odds.
        reduction: Loss of a text: the sum over its scored labels, their mean, or Eq. 5's ratio of
            sums.
        skip_tails: Train a tail only on texts with a label in it (off: fixed shapes on a GPU).
    """

    partition: tuple[float, ...] = (0.5, 0.5)
    q: float = option(2.0, at_least=1)
    hidden_size: int = option(0, at_least=0)
    tail: str = option("official", choices=("official", "plain"))
    bias: bool = True
    reduction: str = option("sum", choices=("sum", "document", "ratio"))
    skip_tails: bool = True


@dataclass(frozen=True)
class ReaderConfig:
    """Reader experts (`R-n`): TReaderXML's network reads text and teacher (see [teacher]).

    Attributes:
        configuration: Row of the paper's Table 3: 0 neither teacher nor Reading, 1 no Reading, 2
            MMHSA+R, 3 MHSA+R, 4 MHSA+R+MMHSA, 5 MMHSA+MHSA, 6 MMHSA+R+MHSA; 7 is 6 without the
            teacher.
        encode: Representation of the text: hidden states of the encoder, or word vectors instead of
            one (from teacher.vectors).
        heads: Heads of each attention; must divide the encoder's width.
        bottleneck: Width between the network and the labels (0: as wide as the encoder).
        scope: Representation of the teacher: the sequence of its labels, likeliest first, or their
            mean.
        label_vectors: Vectors of the teacher's labels, starting at the mean word of each
            description.
        votes: Show the network how strong each vote is.
        prior: Add votes to the scores of their labels, with a learned weight.
        pooling: Document vector: half the teacher's mean and half the text's, the mean of all
            tokens, or the mean of the text.
        residual: Also add residuals around the second layer and the Interaction, all layers
            starting at 0.
    """

    configuration: int = option(6, choices=tuple(range(8)))
    encode: str = option("hidden", choices=("hidden", "static"))
    heads: int = option(4, at_least=1)
    bottleneck: int = option(256, at_least=0)
    scope: str = option("sequence", choices=("sequence", "mean"))
    label_vectors: str = option("learned", choices=("learned", "fixed"))
    votes: bool = False
    prior: bool = True
    pooling: str = option("halves", choices=("halves", "all", "text"))
    residual: bool = True


@dataclass(frozen=True)
class SparseConfig:
    """The sparse expert (`S`): TF-IDF features of the text, one linear scorer per label.

    Attributes:
        pairs: Also use pairs of neighbouring words as features.
        pieces: Also use pieces of words, four characters long, as features (auto: where texts are
            short, or a trial finds that they help).
        stems: Also use stems of words as features: the language of the texts, or off.
        min_words: Training texts a word must occur in (0: 2, in a small corpus 1).
        min_pairs: Training texts a pair of words must occur in.
        max_words: Largest share of the training texts a word may occur in.
        max_pairs: Largest share of the training texts a pair may occur in.
        title_weight: Weight of the first line's own features (0: no such features).
        name_weight: Prior weight of label-name matches.
        cost: SVM cost C.
        iterations: Iterations of the conjugate gradient solver.
        cluster_size: Most labels trained together on shared texts.
        negatives: Texts that labels are trained against: those a first model takes for their
            cluster (matched), or random ones alone (auto: decided on held-out training texts).
        beam: Clusters whose labels use a text as a negative, for each text.
        sample: Random negative texts added for every cluster; more of them where texts are short.
        threshold: Weights smaller than this are dropped.
        memory: Training texts whose features are stored in the model, to fit labels that are added
            later (0: none).
    """

    pairs: bool = True
    pieces: str = option("auto", choices=("auto", "on", "off"))
    stems: str = option("off", choices=("off", *LANGUAGES))
    min_words: int = option(0, at_least=0)
    min_pairs: int = option(3, at_least=1)
    max_words: float = option(0.3, above=0, at_most=1)
    max_pairs: float = option(0.1, above=0, at_most=1)
    title_weight: float = option(0.5, at_least=0)
    name_weight: float = option(1.0, at_least=0)
    cost: float = option(1.0, above=0)
    iterations: int = option(12, at_least=1)
    cluster_size: int = option(64, at_least=2)
    negatives: str = option("auto", choices=("auto", "matched", "random"))
    beam: int = option(10, at_least=1)
    sample: int = option(1000, at_least=0)
    threshold: float = option(0.05, at_least=0)
    memory: int = option(2000, at_least=0)


@dataclass(frozen=True)
class TeacherConfig:
    """TReaderXML's teacher: the labels of similar training texts, and the labels above them.

    Attributes:
        vectors: Word vectors: `encoder` (the run's own), another encoder's name or folder, `corpus`
            (trained on the texts), or a word2vec or GloVe text file.
        dimensions: Width of vectors trained on the texts.
        weighting: Weight of a word in a text's vector: equal (the paper), by rarity, or by damped
            count and rarity.
        similarity: Similarity of two texts: cosine of their mean word vectors (the paper), or of
            their heaviest words.
        heaviest: Words of each text that are compared (words).
        centre: Subtract the mean training vector before comparing texts (mean).
        text_words: Words read from each text.
        k: Similar training texts that vote.
        sharpness: Power that turns a similarity into a vote.
        size: Labels kept for each text.
        parents: Add the parents of the labels voted for.
        words: Words that describe a label.
        index: Search: exact, or approximate for millions of texts.
        effort: Lists (ivf) or candidates (hnsw) that an approximate search visits.
    """

    vectors: str = "encoder"
    dimensions: int = option(300, at_least=1)
    weighting: str = option("idf", choices=("mean", "idf", "tfidf"))
    similarity: str = option("words", choices=("mean", "words"))
    heaviest: int = option(40, at_least=1)
    centre: bool = True
    text_words: int = option(500, at_least=1)
    k: int = option(30, at_least=1, at_most=10_000)
    sharpness: float = option(2.0, at_least=0)
    size: int = option(64, at_least=1, at_most=100_000)
    parents: bool = True
    words: int = option(16, at_least=1)
    index: str = option("exact", choices=("exact", "ivf", "hnsw"))
    effort: int = option(64, at_least=1)
