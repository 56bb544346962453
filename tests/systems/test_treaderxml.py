"""What is particular to TReaderXML, and the teacher beside other experts."""

import json
import sys

import numpy as np
import pytest
import torch
from scipy.special import logit

from glocal.config import load_recipe
from glocal.data.batches import Collator
from glocal.data.corpus import Corpus
from glocal.data.tokens import TokenStore
from glocal.errors import ConfigError, DataError, Interrupted, TrainingError
from glocal.experts.reading_network import SelfAttention
from glocal.predict.predictor import Predictor
from glocal.predict.topk_documents import score_documents
from glocal.storage.model_directory import StoredModel, load_model, save_model
from glocal.systems.system import TrainingPosition
from glocal.vocabulary.label_space import LabelSpace
from glocal.vocabulary.label_table import LabelTable
from tests.collating import collate
from tests.tiny import build_system, taught, tiny_corpus, tiny_recipe
from tests.train.runs import Recorder, train

TEXTS = ["the red fox a a a", "a green hen", "nothing of the kind"]
# Parents of animals inside and outside the label space; one label has two, colours have none.
TABLE = LabelTable(
    ["cat", "dog", "owl", "beast", "bird"],
    ["cat", "dog", "owl", "any beast", "any bird"],
    parents=[("beast", "dog"), ("beast",), ("bird",), (), ()],
)


class Built:
    """A system with random weights on 20 documents, and their scopes."""

    def __init__(self, *overrides, name="treaderxml", n=20):
        self.corpus = tiny_corpus(n)
        self.labels = LabelSpace.build(self.corpus, table=TABLE)
        recipe = tiny_recipe(name, "candidates.mode=full", *overrides)
        torch.manual_seed(1)
        statistics, vectors, self.companions = taught(recipe, self.corpus, self.labels, TABLE)
        self.extra = self.companions.features(self.corpus)
        torch.manual_seed(0)  # whatever the teacher's vectors have drawn
        self.system, self.tokenizer = build_system(recipe, statistics, vectors=vectors)
        for module in self.system.modules():  # layers that start silent would hide what they do
            if isinstance(module, SelfAttention) and not module.output.weight.any():
                torch.nn.init.xavier_uniform_(module.output.weight)
        self.tokens = TokenStore.in_memory(self.tokenizer.encode_batch(self.corpus.texts(), 24))

    def batch(self, **options):
        return collate(
            self.tokens, np.arange(len(self.tokens)), pad_id=self.tokenizer.facts.pad_id,
            left=False, gold=self.labels.encode(self.corpus), n_labels=len(self.labels),
            companion_features=self.extra, **options,
        )  # fmt: skip

    def scores(self, **options):
        """(documents, labels)."""
        n_labels = len(self.labels)
        found = score_documents(
            self.system,
            Collator(self.tokens, self.tokenizer.facts, companion_features=self.extra),
            k=n_labels,
            **options,
        )
        dense = np.zeros_like(found.scores)
        np.put_along_axis(dense, found.indices, found.scores, axis=1)
        return dense

    def gradients(self):
        self.system.train().zero_grad()
        loss = self.system(self.batch(), TrainingPosition(9, 10))
        loss.backward()
        named = self.system.named_parameters()
        return float(loss.detach()), {n: p.grad for n, p in named if p.grad is not None}


VARIANTS = [
    *(f"reader.configuration={number}" for number in range(8)),
    "reader.scope=mean",
    "reader.votes=true",
    "reader.label_vectors=fixed",
    "reader.encode=static",
    "reader.pooling=text",
    "reader.pooling=all",
    "reader.residual=false",
    "reader.prior=false",
    "document.head=aplc reader.prior=false",
]


@pytest.mark.parametrize("variant", VARIANTS)
def test_batch_size_and_padding_change_nothing_and_everything_learns(variant):
    built = Built(*variant.split())
    alone = built.scores(batch_size=1)
    np.testing.assert_allclose(built.scores(batch_size=7), alone, atol=1e-5)
    assert len(np.unique(alone.round(6), axis=0)) > 1  # the text is seen
    _, found = built.gradients()
    still = [n for n, p in built.system.named_parameters() if n not in found or not found[n].any()]
    # [SEP]'s and other unused rows aside, only layers of the encoder may be without a gradient.
    assert not [name for name in still if not name.startswith("encoder.")]


def test_votes_count_towards_the_scores_of_their_labels():
    with_votes, without = Built(), Built("reader.prior=false")
    (expert,) = with_votes.system.experts
    slope, offset, parent = 0.7, -0.4, 0.3
    expert.prior.numbers.data = torch.tensor([slope, offset, parent])
    scope, votes = with_votes.extra["scope"], with_votes.extra["scope_weight"].clip(0, 0.99)
    expected = logit(without.scores().astype(np.float64))
    for document, labels in enumerate(scope):
        for label, vote in zip(labels, votes[document], strict=True):
            if 0 <= label < len(with_votes.labels):
                counts = slope * logit(vote) + offset if vote > 0 else parent
                expected[document, label] += counts
    np.testing.assert_allclose(logit(with_votes.scores().astype(np.float64)), expected, atol=1e-3)
    with pytest.raises(ConfigError, match="label clusters"):
        Built("document.head=aplc")


@pytest.mark.parametrize("number", range(8))
def test_the_teacher_is_seen_where_the_configuration_has_one(number):
    built = Built(f"reader.configuration={number}")
    assert len(built.companions) == built.system.recipe.uses_teacher == (0 < number < 7)
    before = built.scores()
    rows = len(built.corpus)
    built.extra = {
        "scope": np.full((rows, 6), 3, dtype=np.int32),
        "scope_weight": np.ones((rows, 6), dtype=np.float32),
    }
    assert np.array_equal(built.scores(), before) == (number in (0, 7))


def test_an_empty_scope_and_one_without_votes_are_scored():
    built = Built()
    built.extra["scope"] = np.full_like(built.extra["scope"], -1)
    empty = built.scores(batch_size=3)
    assert np.isfinite(empty).all()
    np.testing.assert_allclose(built.scores(batch_size=1), empty, atol=1e-5)


def test_the_teachers_labels_have_vectors_in_and_outside_the_label_space():
    built = Built()
    (teacher,) = built.companions
    ids = teacher.known.ids
    assert ids[: len(built.labels)] == built.labels.ids
    assert {"beast", "bird"} <= set(ids[len(built.labels) :])
    expert = built.system.experts[0]
    expected = teacher.vectors.embed(teacher.known.descriptions)
    np.testing.assert_allclose(expert.scope.table.detach().numpy(), expected)
    parents = [ids.index("beast"), ids.index("bird")]
    assert np.isin(parents, built.extra["scope"]).any()


# --- the model directory ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("treaderxml") / "model"
    train(tiny_recipe("treaderxml"), out, dev=tiny_corpus(12, seed=1), label_table=TABLE)
    return out


def test_a_new_text_goes_the_way_of_the_training_texts(trained, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)  # an exact search does without
    predictor = Predictor.load(trained, device="cpu")
    assert predictor.expert_names == ["R-last"]
    assert (trained / "teacher").is_dir()
    found = predictor.predict(TEXTS, k=4)
    again = predictor.predict_corpus(Corpus.from_texts(TEXTS), k=4)
    np.testing.assert_array_equal(found.indices, again.indices)
    np.testing.assert_allclose(found.scores, again.scores, atol=1e-6)
    assert predictor.predict([], k=4).indices.shape == (0, 4)
    stored = predictor.companions.features_for_texts(tiny_corpus().texts())
    fresh = taught(predictor.recipe, tiny_corpus(), predictor.labels, TABLE)[2]
    again = fresh.features_for_texts(tiny_corpus().texts())
    assert stored["scope"].shape == again["scope"].shape


def test_explanations_tell_of_the_teacher(trained):
    predictor = Predictor.load(trained, device="cpu")
    explained = predictor.explain(TEXTS[0], k=2)
    assert [part.name for part in explained[0].experts] == ["R-last"]
    taught_by = predictor.explain_teacher(TEXTS[0])
    assert len(taught_by.neighbours) == 3
    assert all(0 < vote.weight <= 1 for vote in taught_by.votes)
    assert json.dumps(taught_by.to_dict())


def test_static_vectors_are_read_stored_and_trained_along(tmp_path):
    built = Built("reader.encode=static")
    before = built.scores()
    parts = (built.system, built.system.recipe, built.labels, built.tokenizer)
    save_model(tmp_path / "model", StoredModel(*parts, companions=built.companions))
    loaded = load_model(tmp_path / "model")
    built.system, built.tokenizer = loaded.system, loaded.tokenizer
    np.testing.assert_array_equal(built.scores(), before)
    _, found = built.gradients()
    assert found["encoder.model.table.weight"].any()
    predictor = Predictor(loaded, device="cpu")
    assert predictor.explain("the red fox", k=2)


def test_without_a_teacher_none_is_stored(tmp_path):
    built = Built("reader.configuration=7", "reader.encode=static")
    parts = (built.system, built.system.recipe, built.labels, built.tokenizer)
    save_model(tmp_path / "model", StoredModel(*parts, companions=built.companions))
    assert not (tmp_path / "model" / "teacher").exists()
    predictor = Predictor.load(tmp_path / "model", device="cpu")
    assert predictor.explain_teacher("the red fox") is None
    assert predictor.predict(TEXTS, k=2).indices.shape == (3, 2)


def test_another_hierarchy_is_another_run(tmp_path):
    recipe, out = tiny_recipe("treaderxml"), tmp_path / "model"
    with pytest.raises(Interrupted):
        train(recipe, out, label_table=TABLE, listener=Recorder(stop_at=2))
    with pytest.raises(TrainingError, match="other data"):
        train(recipe, out, resume=True)


# --- the teacher as an expert -----------------------------------------------------------------


MIXTURE = 'experts=["D-last", "A-1", "T"]'


def test_a_shortlist_of_every_label_is_the_full_loss():
    shortlist = ["candidates.mode=shortlist", "candidates.hard=15", "candidates.random=0"]
    loss, found = Built(MIXTURE, *shortlist, name="glocalxml").gradients()
    full, expected = Built(MIXTURE, name="glocalxml").gradients()
    assert loss == pytest.approx(full, rel=1e-5)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-5)


def test_the_teacher_sends_nothing_into_the_encoder():
    with_teacher = Built(MIXTURE, name="glocalxml").gradients()[1]
    without = Built(name="glocalxml").gradients()[1]
    for name in (n for n in without if n.startswith("encoder.")):
        torch.testing.assert_close(with_teacher[name], without[name], rtol=1e-4, atol=1e-6)
    assert with_teacher["experts.2.numbers"].any()


def test_steps_with_a_teacher_can_be_recorded():
    assert Built(MIXTURE, name="glocalxml").system.supports_cuda_graphs
    assert Built().system.supports_cuda_graphs


@pytest.mark.parametrize("name", ["glocalxml", "me-xml"])
def test_the_teacher_alone_tags_by_the_labels_of_similar_texts(tmp_path, name):
    train(tiny_recipe(name, 'experts=["T"]'), tmp_path / "model")
    predictor = Predictor.load(tmp_path / "model", device="cpu")
    found = predictor.predict(TEXTS[:2], k=1)
    scope = predictor.companions.features_for_texts(TEXTS[:2])["scope"]
    assert found.indices[:, 0].tolist() == scope[:, 0].tolist()


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["reader.configuration=8"], "'reader.configuration' must be one of 0, 1, 2"),
        (["reader.heads=3"], "does not divide the encoder's width of 32"),
        (['experts=["D-last"]'], 'experts = ["R-last"]'),
        (['experts=["R-(1+2)"]'], "only document experts"),
        (['experts=["T-1"]'], "'T-1' is not of the form"),
    ],
)
def test_settings_that_do_not_go_together(settings, words):
    with pytest.raises(ConfigError) as error:
        Built(*settings)
    assert words in str(error.value)


def test_texts_that_have_nothing_in_common_cannot_teach(tmp_path):
    corpus = Corpus.from_texts(["???", "!!!", "…"], [["a"], ["b"], ["a"]])
    recipe = tiny_recipe("treaderxml", "train.batch_size=2")
    with pytest.raises(DataError, match="none of the 3 training texts has a similar one"):
        train(recipe, tmp_path / "model", corpus=corpus)


def test_auto_does_not_shortlist_for_the_teacher_alone(monkeypatch):
    monkeypatch.setattr("glocal.config.resolve.SHORTLIST_FROM", 10)

    def mode(experts):
        built = Built(f"experts={experts}", "candidates.mode=auto", name="glocalxml")
        return built.system.recipe.candidates.mode

    assert mode('["D-last", "T"]') == "full"
    assert mode('["D-last", "A-1", "T"]') == "shortlist"


@pytest.mark.parametrize("name", ["eurlex4k", "amazoncat-13k", "rcv1"])
def test_published_settings(name):
    recipe = load_recipe(f"treaderxml-paper-{name}")
    words = {"eurlex4k": (500, 4), "amazoncat-13k": (300, 4), "rcv1": (250, 16)}[name]
    assert (recipe.encoder.max_length, recipe.teacher.words) == words
    assert recipe.reader.heads == 4
    assert (recipe.reader.encode, recipe.reader.pooling) == ("static", "all")
    assert not recipe.reader.residual
    assert recipe.train.schedule == "plateau"
    used = ("encoder", "attention", "pooler", "queries", "classifier")
    assert {recipe.train.rates[group] for group in used} == {1e-4}
