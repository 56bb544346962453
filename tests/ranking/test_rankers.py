"""What every ranker of documents has: its device, its modes, and labels added later."""

import numpy as np
import pytest
import torch
from scipy import sparse

from glocal.errors import ConfigError
from glocal.ranking.calibration import Calibration, calibrate
from glocal.ranking.calibration_curve import CalibrationCurve
from glocal.ranking.combination import Combination
from glocal.ranking.decision import Decision
from glocal.ranking.decision_fit import Goal, fit_label_decision
from glocal.ranking.document_ranker import DocumentRanker, RankRequest, check_device
from glocal.ranking.expert_topk import ExpertRanker
from glocal.ranking.graph_ranker import GraphRanker
from glocal.ranking.predictions import Predictions
from glocal.ranking.ranker import choose_device
from glocal.ranking.words_ranker import WordsRanker
from glocal.systems.system import LabelStatistics
from glocal.vocabulary.label_space import LabelSpace
from tests.tiny import build_system, tiny_recipe


@pytest.fixture(scope="module")
def system():
    return build_system(tiny_recipe(), LabelStatistics(np.full(5, 3), 10))[0]


def test_predictions_leave_the_mode_as_it_was(system):
    for training in (True, False):
        system.train(training)
        with system.computing():
            assert not system.training
            assert not torch.is_grad_enabled()
        assert system.training is training
        assert torch.is_grad_enabled()


def test_bf16_is_a_context_of_torch(system):
    left, right = torch.ones(2, 2), torch.ones(2, 2)
    with system.autocast("bf16"):
        assert (left @ right).dtype == torch.bfloat16
    with system.autocast("fp32"):
        assert (left @ right).dtype == torch.float32


def test_a_device_is_taken_by_its_name(system):
    system.train()
    system.use_device("cpu")
    assert not system.training
    assert system.device_name == "cpu"
    words = WordsRanker(np.ones(3))
    assert words.device_name == "cpu"
    for device, placed in (("cuda:1", "cuda:1"), ("auto", "cpu"), ("cuda", "cuda"), ("cpu", "cpu")):
        words.use_device(device)
        assert words.device_name == placed
    for wrong in ("gpu", "cuda:", "cuda:x", "cpu0", ""):
        with pytest.raises(ConfigError, match=f"not '{wrong}'"):
            check_device(wrong)


def test_labels_added_later_do_not_change_the_others():
    """The added label is the last of the space; it takes no rank of another one."""
    curve = Calibration(2.0, 1.0, 0.5)
    space = LabelSpace(list("abcd"), list("abcd"), [""] * 4, [()] * 4, np.ones(4), 9)
    scores = np.array([[0.8, 0.4, 0.2]], dtype=np.float32)
    before = calibrate(Predictions(np.array([[0, 2, 1]]), scores).with_labels(space), curve)
    space.n_added = 1
    both = np.array([[0.8, 0.6, 0.4, 0.2]], dtype=np.float32)
    after = calibrate(Predictions(np.array([[0, 3, 2, 1]]), both).with_labels(space), curve)
    np.testing.assert_array_equal(after.scores[:, [0, 2, 3]], before.scores)
    assert before.scores[0, 0] > after.scores[0, 1] > before.scores[0, 1]


def test_a_goal_in_words():
    assert str(Goal()) == "the highest F1"
    assert str(Goal(precision=0.8)) == "a precision of 0.8"
    assert str(Goal(labels_per_text=1)) == "1 label per text"
    assert str(Goal(labels_per_text=2.5)) == "2.5 labels per text"


def test_without_a_hit_labels_get_no_thresholds():
    predictions = Predictions(np.array([[0]]), np.array([[0.4]], dtype=np.float32))
    gold = sparse.csr_matrix([[0, 1]])
    decision, scores = fit_label_decision(predictions, gold, goal=Goal(), at_least=2)
    assert decision == Decision(at_least=2)
    assert (scores.precision, scores.recall) == (0, 0)


def test_labels_added_later_take_no_rank():
    curve = Calibration(curve=CalibrationCurve((-4.0, 4.0), (-4.0, 4.0), (1.0, 1.0), (0.0, 0.0)))
    space = LabelSpace(list("abcd"), list("abcd"), [""] * 4, [()] * 4, np.ones(4), 9, n_added=2)
    scores = np.array([[0.8, 0.6, 0.5, 0.3]], dtype=np.float32)
    every = Predictions(np.array([[2, 0, 3, 1]]), scores)
    found = calibrate(every.with_labels(space), curve).scores[0]
    odds = scores[0] / (1 - scores[0]) / [1, 1, 2, 2]  # the ranks they have among the others
    np.testing.assert_allclose(found, odds / (1 + odds), rtol=1e-5)
    plain = calibrate(every, curve).scores[0]
    odds = scores[0] / (1 - scores[0]) / [1, 2, 3, 4]
    np.testing.assert_allclose(plain, odds / (1 + odds), rtol=1e-5)


class Nothing(DocumentRanker):
    """The least that a ranker must have."""

    def rank_documents(self, documents, positions, request):
        raise NotImplementedError


def test_a_ranker_without_settings():
    ranker, request = Nothing(), RankRequest(3)
    assert not ranker.learns_weights
    assert all(kind.learns_weights for kind in (ExpertRanker, GraphRanker, WordsRanker))
    assert ranker.combination == Combination()
    assert ranker.device_name == "cpu"
    assert ranker.chunking is None
    assert (request.candidates, request.allowed, request.experts, request.mean) == (
        None, None, (), False,
    )  # fmt: skip
    ranker.use_device("cuda:0")
    for one in (ranker, WordsRanker(np.ones(2))):
        with pytest.raises(ConfigError, match="not 'tpu'"):
            one.use_device("tpu")


def test_a_gpu_is_taken_where_there_is_one(monkeypatch):
    for there, auto in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert choose_device("auto") == torch.device(auto)
        assert choose_device("cpu") == torch.device("cpu")
    with pytest.raises(ConfigError, match="PyTorch sees no GPU"):
        choose_device("cuda")
    with pytest.raises(ConfigError, match="not 'tpu'"):
        choose_device("tpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("cuda:1") == torch.device("cuda:1")
