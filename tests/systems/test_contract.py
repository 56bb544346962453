"""What every registered system must do; a new one joins by its line in `tests.tiny`.

Dropout is off and arithmetic fp32, so that what should be equal is equal. Systems made of experts
are tried with every label scored, with a shortlist, with a teacher among them, and with label
vectors tied to the labels' texts.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from glocal.config.published_systems import MIXTURE, PUBLISHED_SYSTEMS
from glocal.data.batches import Collator
from glocal.data.tokens import TokenStore
from glocal.errors import Interrupted
from glocal.label_slice import EVERY_LABEL
from glocal.predict.predictor import Predictor
from glocal.predict.topk_documents import score_documents
from glocal.ranking.calibration import Calibration
from glocal.storage.model_directory import StoredModel, load_model, save_model
from glocal.systems.mixture import ExpertMixture
from glocal.systems.system import TrainingPosition
from glocal.vocabulary.label_space import LabelSpace
from tests.collating import collate
from tests.tiny import SYSTEM_RECIPES, build_system, taught, tiny_corpus, tiny_recipe
from tests.train.runs import (
    Recorder,
    assert_same_run,
    entries,
    losses,
    train,
    train_all_in_processes,
)

SHORTLIST = [
    "candidates.mode=shortlist",
    "candidates.hard=4",
    "candidates.random=6",
    "candidates.predict=8",
]

CLUSTERS = ["candidates.mode=clusters", "candidates.cluster_size=4", "candidates.picked=2"]
# Both experts score clusters on three levels, which are trained one after another.
TREE = ["candidates.cluster_size=2", "candidates.picked=3", "candidates.branching=2"]
OWN_CLUSTERS = {
    "lightxml": [],
    "attentionxml": ["encoder.name=bilstm", "encoder.lstm_size=32", "teacher.vectors=random:tiny"],
    "xr-transformer": [*TREE, 'experts=["D-last", "A-1"]'],
}


# One reader alone has nobody to propose labels to; the teacher joins the experts of GlocalXML.
SHORTLISTS = [
    name
    for name, system in PUBLISHED_SYSTEMS.items()
    if system.family == MIXTURE and not system.required
]
# LightXML, AttentionXML and XR-Transformer pick clusters first, with settings of their own.
CASES = [
    *((name, "full") for name in SYSTEM_RECIPES if name not in OWN_CLUSTERS),
    *((name, "clusters") for name in OWN_CLUSTERS),
    *(
        (name, "shortlist")
        for name in SYSTEM_RECIPES
        if (system := PUBLISHED_SYSTEMS[name]).family == MIXTURE and not system.required
    ),
    ("glocalxml", "teacher"),
    ("glocalxml", "tied"),
    ("glocalxml", "clusters"),
]

pytestmark = pytest.mark.parametrize("case", CASES, ids=["-".join(case) for case in CASES])


def overrides_of(case):
    return {
        "full": ["candidates.mode=full"],
        "shortlist": SHORTLIST,
        "teacher": ["candidates.mode=full", 'experts=["D-last", "A-1", "T"]'],
        "tied": ["candidates.mode=full", "labels.text=tied"],
        "clusters": [*CLUSTERS, *OWN_CLUSTERS.get(case[0], ())],
    }[case[1]]


def recipe_of(case, *overrides):
    return tiny_recipe(SYSTEM_RECIPES[case[0]], *overrides_of(case), *overrides)


class Built:
    """A system with random weights, and its documents in batches of any kind."""

    def __init__(self, case, *overrides, n=24, here=EVERY_LABEL):
        self.corpus = tiny_corpus(n)
        self.labels = LabelSpace.build(self.corpus)
        torch.manual_seed(0)
        self.recipe = recipe_of(case, *overrides)
        self.statistics, vectors, self.companions = taught(self.recipe, self.corpus, self.labels)
        self.statistics = replace(self.statistics, here=here)
        self.extra = self.companions.features(self.corpus)
        self.system, self.tokenizer = build_system(self.recipe, self.statistics, vectors=vectors)
        texts = [document.text for document in self.corpus.documents()]
        self.tokens = TokenStore.in_memory(self.tokenizer.encode_batch(texts, 24))
        self.gold = self.labels.encode(self.corpus)

    def batch(self, positions=None, **options):
        positions = np.arange(len(self.tokens)) if positions is None else positions
        options.setdefault("denominator", self.system.denominator(self.gold, positions))
        return collate(
            self.tokens, positions, pad_id=self.tokenizer.facts.pad_id,
            left=self.tokenizer.facts.cls_last, gold=self.gold, n_labels=len(self.labels),
            companion_features=self.extra, **options,
        )  # fmt: skip

    def gradients(self, batches):
        """Loss and gradients summed over batches; late in the run, when every loss term is on."""
        position = TrainingPosition(9, 10)
        self.system.train()
        self.system.zero_grad()
        total = 0.0
        for batch in batches:
            loss = self.system(batch, position)
            loss.backward()
            total += float(loss.detach())
        found = {n: p.grad.clone() for n, p in self.system.named_parameters() if p.grad is not None}
        return total, found

    def scores(self, k=None, **options):
        """Top labels and scores of every document."""
        k = self.system.n_labels if k is None else k
        documents = Collator(
            self.tokens, self.tokenizer.facts, companion_features=self.extra,
            chunking=self.system.chunking,
        )  # fmt: skip
        return score_documents(self.system, documents, k=k, **options)


def assert_close_gradients(first, second):
    (loss, grads), (other_loss, other_grads) = first, second
    assert loss == pytest.approx(other_loss, rel=1e-5)
    assert grads.keys() == other_grads.keys()
    assert grads
    for name, grad in grads.items():
        torch.testing.assert_close(
            grad, other_grads[name], rtol=1e-4, atol=1e-5, msg=lambda text, n=name: f"{n}: {text}"
        )


def parts_of(predictions):
    """The model's predictions and each expert's."""
    return [predictions, *predictions.experts.values()]


def by_label(predictions, n_labels):
    """Scores (documents, labels); nan where a label is not among the predictions."""
    dense = np.full((len(predictions), n_labels), np.nan)
    for row in range(len(predictions)):
        filled = predictions.indices[row] >= 0
        dense[row, predictions.indices[row][filled]] = predictions.scores[row][filled]
    return dense


DEV = tiny_corpus(9, seed=1)
# Dropout on, so that the random state counts; averaging on, so that its weights do.
RESUMED = ("encoder.dropout=0.2", "train.averaging=0.8", "train.evaluations=4")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Finished runs by case and settings, trained when first asked for."""
    folder = tmp_path_factory.mktemp("contract")
    done: dict[tuple, Path] = {}

    def get(case, *settings):
        key = (case, settings)
        if key not in done:
            out = folder / f"{len(done)}-{'-'.join(case)}"
            train(recipe_of(case, *settings), out, dev=DEV)
            done[key] = out
        return done[key]

    return get


@pytest.fixture(scope="module")
def in_two_processes(tmp_path_factory):
    """The runs of all cases in two processes, and what was said of each."""
    folder = tmp_path_factory.mktemp("two")
    outs = {case: folder / "-".join(case) for case in CASES}
    runs = [(out, SYSTEM_RECIPES[case[0]], *overrides_of(case)) for case, out in outs.items()]
    said = train_all_in_processes(2, *runs)
    return {
        case: (out, sorted(line for line in said if line.startswith(f"{out}: ")))
        for case, out in outs.items()
    }


def test_every_registered_system_is_here(case):
    assert set(SYSTEM_RECIPES) == set(PUBLISHED_SYSTEMS)
    assert recipe_of(case).system == case[0]


# --- predictions ------------------------------------------------------------------------------


def test_save_and_load_give_equal_predictions(case, tmp_path):
    built = Built(case)
    parts = (built.system, built.system.recipe, built.labels, built.tokenizer)
    model = StoredModel(*parts, Calibration(0.7, 1.5), companions=built.companions)
    save_model(tmp_path / "model", model)
    before = built.scores(k=5, experts=built.system.expert_names)
    loaded = load_model(tmp_path / "model")
    built.system, built.tokenizer = loaded.system, loaded.tokenizer
    if loaded.companions is not None:
        built.extra = loaded.companions.features_for_texts(built.corpus.texts())
    after = built.scores(k=5, experts=built.system.expert_names)
    assert list(before.experts) == list(after.experts) == loaded.system.expert_names
    for new, old in zip(parts_of(after), parts_of(before), strict=True):
        np.testing.assert_array_equal(new.indices, old.indices)
        np.testing.assert_array_equal(new.scores, old.scores)
    assert loaded.calibration == Calibration(0.7, 1.5)
    assert loaded.recipe == built.system.recipe
    assert loaded.labels.ids == built.labels.ids


def test_batch_size_and_padding_do_not_change_predictions(case):
    built = Built(case)
    n_labels = built.system.n_labels
    alone = by_label(built.scores(batch_size=1), n_labels)
    assert np.isfinite(alone).all()
    for batch_size in (5, 64):
        together = by_label(built.scores(batch_size=batch_size), n_labels)
        np.testing.assert_allclose(together, alone, rtol=0, atol=1e-5)
    built.system.eval()
    padded = built.system.topk(built.batch(multiple=64), n_labels).combined
    found = torch.full((len(built.tokens), n_labels), -1.0)
    found.scatter_(1, padded.indices, padded.scores)
    np.testing.assert_allclose(found.numpy(), alone, rtol=0, atol=1e-5)


def test_candidates_are_all_scored_as_in_full_and_no_other_label_is(case):
    built = Built(case)
    n_labels = built.system.n_labels
    full = by_label(built.scores(), n_labels)
    random = np.random.default_rng(0)
    candidates = np.stack([random.permutation(n_labels)[:6] for _ in range(len(built.tokens))])
    candidates[:, 4:] = -1
    found = built.scores(candidates=candidates)
    assert (found.indices[:, 4:] == -1).all()
    np.testing.assert_array_equal(np.sort(found.indices[:, :4]), np.sort(candidates[:, :4]))
    expected = np.take_along_axis(full, found.indices[:, :4], axis=1)
    np.testing.assert_allclose(found.scores[:, :4], expected, atol=1e-6)
    assert (np.diff(found.scores[:, :4]) <= 0).all()


def test_labels_that_are_not_allowed_never_come_out(case):
    built = Built(case)
    n_labels = built.system.n_labels
    allowed = np.zeros(n_labels, dtype=bool)
    allowed[[1, 4, 6]] = True
    found = built.scores(k=5, allowed=allowed, experts=built.system.expert_names)
    full = by_label(built.scores(), n_labels)
    for predictions in parts_of(found):
        assert (np.sort(predictions.indices[:, :3]) == [1, 4, 6]).all()
        assert (predictions.indices[:, 3:] == -1).all()
    expected = np.take_along_axis(full, found.indices[:, :3], axis=1)
    np.testing.assert_allclose(found.scores[:, :3], expected, atol=1e-6)


def test_experts_are_reported_apart_when_asked_for(case):
    built = Built(case)
    n_labels = built.system.n_labels
    assert not built.scores(k=3).experts
    found = built.scores(experts=built.system.expert_names)
    assert list(found.experts) == built.system.expert_names
    if isinstance(built.system, ExpertMixture):
        parts = [by_label(alone, n_labels) for alone in found.experts.values()]
        mean = by_label(found, n_labels)
        np.testing.assert_allclose(np.mean(parts, axis=0), mean, atol=1e-6)


# --- training ---------------------------------------------------------------------------------


def test_every_parameter_is_in_exactly_one_learning_rate_group(case):
    built = Built(case)
    groups = built.system.parameter_groups()
    assert set(groups) <= set(built.recipe.train.rates)
    grouped = [id(p) for parameters in groups.values() for p in parameters]
    assert sorted(grouped) == sorted(id(p) for p in built.system.parameters())


@pytest.mark.parametrize("parts", [2, 4])
def test_accumulated_parts_give_the_gradients_of_the_large_batch(case, parts):
    built = Built(case, n=22)  # parts of different sizes
    whole = built.gradients([built.batch()])
    positions = np.arange(22)
    denominator = built.system.denominator(built.gold, positions)
    dealt = [built.batch(positions[part::parts], denominator=denominator) for part in range(parts)]
    assert_close_gradients(built.gradients(dealt), whole)


def test_label_chunks_give_the_gradients_and_scores_of_all_labels_at_once(case):
    whole = Built(case, "train.chunk_elements=1000000000")
    chunked = Built(case, "train.chunk_elements=70")
    assert_close_gradients(chunked.gradients([chunked.batch()]), whole.gradients([whole.batch()]))
    np.testing.assert_allclose(
        by_label(chunked.scores(), chunked.system.n_labels),
        by_label(whole.scores(), whole.system.n_labels),
        atol=1e-6,
    )


def test_the_same_seed_gives_the_same_run_and_another_seed_another(case, trained, tmp_path):
    train(recipe_of(case), tmp_path / "again", dev=DEV)
    assert_same_run(trained(case), tmp_path / "again")
    train(recipe_of(case, "train.seed=1"), tmp_path / "other")
    assert losses(tmp_path / "other") != losses(trained(case))


@pytest.mark.parametrize("stop_at", [3, 4])  # in the middle and at the end of an epoch
def test_a_resumed_run_equals_an_uninterrupted_one(case, trained, tmp_path, stop_at):
    recipe, out = recipe_of(case, *RESUMED), tmp_path / "model"
    with pytest.raises(Interrupted, match=f"stopped at step {stop_at} of 8.*resume=True"):
        train(recipe, out, dev=DEV, listener=Recorder(stop_at))
    assert not out.exists()
    torch.manual_seed(99)  # nothing but the checkpoint decides
    train(recipe, out, dev=DEV, resume=True)
    assert_same_run(trained(case, *RESUMED), out)
    assert not (tmp_path / "model.run").exists()


@pytest.mark.parametrize("parts", [2, 4])
def test_accumulation_gives_the_run_of_the_large_batch(case, trained, tmp_path, parts):
    train(recipe_of(case, f"train.accumulation={parts}"), tmp_path / "parts")
    assert losses(tmp_path / "parts") == pytest.approx(losses(trained(case)), rel=1e-4)


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_equal_one(case, trained, in_two_processes):
    one, (two, said) = trained(case), in_two_processes[case]
    assert losses(two) == pytest.approx(losses(one), rel=1e-4)
    evaluated = [[e for e in entries(out) if "scores" in e] for out in (one, two)]
    assert [e["step"] for e in evaluated[0]] == [e["step"] for e in evaluated[1]] == [4, 8]
    texts = [document.text for document in tiny_corpus(20, seed=2).documents()]
    scores = [
        by_label(p.predict(texts, k=len(p.labels), calibrated=False), len(p.labels))
        for p in (Predictor.load(out, device="cpu") for out in (one, two))
    ]
    np.testing.assert_allclose(scores[1], scores[0], atol=1e-3)
    # The run is told of once, not by every process.
    silent, told = said
    assert silent == f"{two}: 0 messages"
    assert told > silent


def test_overfits_32_documents(case, tmp_path):
    corpus = tiny_corpus(32)
    settings = ["train.batch_size=8", "train.epochs=30", "train.schedule=constant"]
    recipe = recipe_of(case, "encoder.pooling=mean", *settings)
    train(recipe, tmp_path / "model", corpus=corpus)
    predictor = Predictor.load(tmp_path / "model", device="cpu")
    found = predictor.predict_corpus(corpus, k=1)
    gold = predictor.labels.encode(corpus).toarray()
    assert np.take_along_axis(gold, found.indices, axis=1).mean() >= 0.95
