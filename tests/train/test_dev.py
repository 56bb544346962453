"""What is learnt on dev: the same as the model then predicts, the same in every process."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from glocal.data.batches import Collator
from glocal.data.corpus import Corpus
from glocal.data.tokens import tokenise
from glocal.predict.predictor import Predictor
from glocal.ranking.combination import Combination, fit_weights
from glocal.systems.system import LabelStatistics
from glocal.train.dev import DevEvaluator, _share_outside
from glocal.vocabulary.label_space import LabelSpace
from tests.tiny import build_system, tiny_corpus, tiny_recipe
from tests.train.runs import train

DEV = tiny_corpus(17, seed=1)
UNEVEN = Corpus.from_texts(
    [*tiny_corpus(40).texts(), *(["the red cat"] * 24)],
    [*(list(row) for row in tiny_corpus(40).labels()), *([["cat", "red"]] * 24)],
)  # two labels with many more texts than the others


def trained_in(folder, *overrides, name="glocalxml", **replaced):
    """A model, and what its experts came to together on dev; names of `train.dev` replaced."""
    kept = []
    learn = DevEvaluator._combine

    def noting(self, found):
        kept.append(learn(self, found))
        return kept[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOCAL_CACHE", str(folder / "cache"))
        patch.setattr(DevEvaluator, "_combine", noting)
        for place, value in replaced.items():
            patch.setattr(f"glocal.train.dev.{place}", value)
        recipe = tiny_recipe(name, "train.epochs=4", *overrides)
        path = train(recipe, folder / "m", corpus=UNEVEN, dev=DEV).path
    return path, kept[0] if kept else None


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return trained_in(tmp_path_factory.mktemp("dev"))


def test_the_stored_model_predicts_what_dev_came_to(trained):
    path, on_dev = trained
    assert_predicts(Predictor.load(path, device="cpu"), on_dev)


@pytest.mark.parametrize("expert", ["D-last", "A-1"])
def test_one_expert_is_weighed_against_the_frequency_too(expert, tmp_path):
    path, on_dev = trained_in(tmp_path, f"experts=['{expert}']")
    predictor = Predictor.load(path, device="cpu")
    assert predictor.system.combination.weights.keys() == {expert}
    assert_predicts(predictor, on_dev)
    report = predictor.evaluate(DEV, ks=(1,), plain_mean=True)
    assert report.experts == {}
    assert report.mean is not None
    assert predictor.metrics["dev_experts"] == {}


@pytest.mark.parametrize(
    ("name", "override"), [("glocalxml", "combine=mean"), ("aplc", "combine=weights")]
)
def test_where_nothing_is_learnt_scores_stay_as_they_are(name, override, tmp_path):
    path, on_dev = trained_in(tmp_path, override, name=name)
    assert on_dev is None
    assert not Predictor.load(path, device="cpu").system.combination.weights


def test_scores_on_dev_count_labels_that_no_expert_put_forward(tmp_path):
    rarest = Combination({"D-last": 0.1, "A-1": 0.1}, 0.0, -5.0)
    path, on_dev = trained_in(tmp_path, _DEV_K=5, fit_weights=lambda pool, gold: rarest)
    predictor = Predictor.load(path, device="cpu")
    assert_predicts(predictor, on_dev)
    own = predictor.predict_corpus(DEV, k=5, per_expert=True)
    pooled = np.concatenate([alone.indices for alone in own.experts.values()], axis=1)
    assert not (on_dev.indices[:, :, None] == pooled[:, None]).any(2).all()


def test_labels_that_reach_the_best_unproposed_are_learnt_from(tmp_path):
    """Lifted too far by the first fit, rare labels are among the pooled ones of the second."""
    pools = []

    def once_too_far(pool, gold):
        pools.append(pool)
        far = Combination({"D-last": 0.1, "A-1": 0.1}, 0.0, -5.0)
        return far if len(pools) == 1 else fit_weights(pool, gold)

    path, _ = trained_in(tmp_path, _DEV_K=5, fit_weights=once_too_far)
    first, second = (pool.filled.sum(1) for pool in pools)
    assert (second > first).any()
    assert Predictor.load(path, device="cpu").system.combination.frequency > -5.0


def test_where_the_best_are_all_pooled_one_fit_is_enough(tmp_path):
    pools = []

    def counted(pool, gold):
        pools.append(pool)
        return fit_weights(pool, gold)

    trained_in(tmp_path, fit_weights=counted)  # twenty of each expert are all labels there are
    assert len(pools) == 1


def test_share_outside():
    pooled = np.array([[1, 4, -1], [0, 2, 3]])
    assert _share_outside(np.array([[4, 1], [3, 9]]), pooled) == 0.25
    assert _share_outside(np.array([[1, -1], [0, 2]]), pooled) == 0.0
    assert _share_outside(np.array([[-1], [-1]]), pooled) == 0.0


def assert_predicts(predictor, on_dev):
    assert predictor.system.combination.frequency != 0.0
    count = min(on_dev.k, len(predictor.labels))
    found = predictor.predict_corpus(DEV, k=count, calibrated=False)
    assert np.array_equal(found.indices, on_dev.indices[:, :count])
    np.testing.assert_allclose(found.scores, on_dev.scores[:, :count], rtol=1e-4)


def test_batch_size_does_not_change_scores(trained):
    one, many = (Predictor.load(trained[0], device="cpu", batch_size=size) for size in (1, 17))
    left, right = (p.predict(DEV.texts(), k=5) for p in (one, many))
    assert np.array_equal(left.indices, right.indices)
    np.testing.assert_allclose(left.scores, right.scores, rtol=1e-4)


# --- several processes -----------------------------------------------------------------------


class Exchange:
    """Engines that stand for processes, each on a thread of its own."""

    def __init__(self, world):
        self.world, self.items = world, [None] * world
        self.barrier = threading.Barrier(world, timeout=60)

    def engine(self, rank):
        return SimpleNamespace(
            rank=rank,
            world=self.world,
            autocast=contextlib.nullcontext,
            gather=lambda items: self.gather(rank, items),
        )

    def gather(self, rank, items):
        self.items[rank] = items
        self.barrier.wait()
        everything = [item for part in self.items for item in part]
        self.barrier.wait()  # nobody writes the next items before all have read these
        return everything


def build():
    """A mixture with weights that differ from label to label, the same each time."""
    torch.manual_seed(0)
    labels = LabelSpace.build(UNEVEN)
    statistics = LabelStatistics(labels.counts, labels.n_documents)
    system, tokenizer = build_system(tiny_recipe("glocalxml"), statistics)
    with torch.no_grad():
        for parameter in system.experts.parameters():
            parameter.normal_(0.0, 0.3)
    return system.eval(), tokenizer, labels


def learnt(engine, system, tokenizer, labels):
    """The combination one process ends with, its scores and the calibration."""
    tokens = tokenise(DEV, tokenizer, max_length=system.recipe.encoder.tokens_read)
    documents = Collator(tokens, tokenizer.facts, gold=labels.encode(DEV), n_labels=len(labels))
    evaluator = DevEvaluator(system, documents, labels, engine=engine, recipe=system.recipe)
    outcome = evaluator.final()
    assert 0 < outcome.decision.micro_f1 <= 1
    return system.combination, outcome.metrics["dev"], outcome.calibration


def test_every_process_learns_the_same_as_one_alone():
    exchange, built = Exchange(2), [build(), build()]  # threads share one source of random numbers
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(
            lambda rank: learnt(exchange.engine(rank), *built[rank]), range(2)
        )
    assert first == second
    combination, scores, calibration = learnt(Exchange(1).engine(0), *build())
    assert combination.frequency != 0.0
    assert first[0].weights == pytest.approx(combination.weights, rel=1e-3, abs=1e-4)
    assert first[0].frequency == pytest.approx(combination.frequency, rel=1e-3)
    assert first[0].bias == pytest.approx(combination.bias, rel=1e-3)
    assert first[1] == pytest.approx(scores)
    odds = np.linspace(-8, 4, 50)
    np.testing.assert_allclose(first[2].curve(odds), calibration.curve(odds), atol=0.01)
