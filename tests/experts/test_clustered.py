import numpy as np
import pytest
import torch

from glocal.config import DocumentConfig
from glocal.encoders.encoder import Features
from glocal.errors import ConfigError
from glocal.experts.document import DocumentExpert
from glocal.heads.aplc import APLC
from glocal.heads.frequency_clusters import label_clusters
from glocal.predict.predictor import Predictor
from glocal.systems.system import LabelStatistics, TrainingPosition
from glocal.train.run import fit
from tests.collating import collate
from tests.tiny import build_system, tiny_corpus, tiny_recipe

COUNTS = np.array([3, 0, 14, 1, 60, 0, 2, 7, 1, 25, 4, 1, 2])
CLUSTERED = ["document.head=aplc", "aplc.partition=[0.4, 0.3, 0.3]"]


def batch():
    tokens = [np.array([2, *range(4, 4 + n), 3]) for n in (5, 9, 7)]
    made = collate(tokens, np.arange(3), pad_id=0, left=False)
    gold = torch.tensor([[4, 0, -1], [5, 1, 2], [-1, -1, -1]])
    return type(made)(**{**vars(made), "gold": gold})


def test_log_odds_stand_in_for_logits():
    torch.manual_seed(0)
    clusters = label_clusters(COUNTS, (0.4, 0.3, 0.3))
    expert = DocumentExpert(
        DocumentConfig(),
        name="D-1",
        layers=(1,),
        hidden_size=8,
        n_labels=len(COUNTS),
        bias=torch.zeros(len(COUNTS)),
        clusters=lambda width: APLC(clusters, width=width),
    )
    for parameter in expert.parameters():
        torch.nn.init.normal_(parameter)
    state = expert.prepare(Features({1: torch.randn(3, 5, 8)}, None))
    every = torch.sigmoid(expert.logits(state, slice(0, len(COUNTS))))
    expected = expert.head.probabilities(state[0], torch.arange(len(COUNTS)))
    torch.testing.assert_close(every, expected, rtol=1e-5, atol=1e-7)
    ids = torch.randint(0, len(COUNTS), (3, 4))
    torch.testing.assert_close(torch.sigmoid(expert.logits(state, ids)), expected.gather(1, ids))
    assert expert.label_tensors() == ()
    groups = expert.parameter_groups()
    assert {id(p) for p in groups["classifier"]} == {id(p) for p in expert.head.parameters()}


@pytest.mark.parametrize("mode", ["full", "shortlist"])
@pytest.mark.parametrize("more", [[], ["loss.diversity_weight=0.1", "loss.diversity_start=0.0"]])
def test_clusters_are_an_expert_of_the_mixture(mode, more):
    torch.manual_seed(0)
    recipe = tiny_recipe("glocalxml", *CLUSTERED, f"candidates.mode={mode}", *more)
    system, _ = build_system(recipe, LabelStatistics(COUNTS, 100))
    loss = system.training_step(batch(), TrainingPosition(5, 10))
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad is not None for p in system.experts.parameters())
    found = system.eval().topk(batch(), 13, experts=system.expert_names)
    document, local, both = (
        torch.zeros(3, 13).scatter_(1, best.indices.clamp(min=0), best.scores)
        for best in (found.experts["D-last"], found.experts["A-1"], found.combined)
    )
    torch.testing.assert_close(both, (document + local) / 2)


def test_full_loss_is_the_sum_of_both_experts():
    torch.manual_seed(0)
    system, _ = build_system(
        tiny_recipe("glocalxml", *CLUSTERED, "candidates.mode=full"), LabelStatistics(COUNTS, 100)
    )
    states = system.prepare(batch())
    clustered, local = system.experts
    own = clustered.loss(states["D-last"], batch().gold, limit=1 << 20)
    logits = local.logits(states["A-1"], slice(0, 13))
    dense = torch.zeros(3, 13)
    for row, labels in enumerate(batch().gold):
        dense[row, labels[labels >= 0]] = 1
    bce = torch.nn.functional.binary_cross_entropy_with_logits(logits, dense, reduction="sum")
    found = system.training_step(batch(), TrainingPosition(0, 10))
    torch.testing.assert_close(found, (own + bce) / 3)


def test_the_collaborative_loss_is_refused():
    recipe = tiny_recipe("me-xml", *CLUSTERED, "loss.kind=collaborative", "candidates.mode=full")
    with pytest.raises(ConfigError, match=r"document\.head=flat"):
        build_system(recipe, LabelStatistics(COUNTS, 100))


def test_a_run_saves_and_loads(tmp_path):
    recipe = tiny_recipe("glocalxml", *CLUSTERED, "train.epochs=1")
    fit(recipe, tiny_corpus(24), out=tmp_path / "model", device="cpu")
    predictor = Predictor.load(tmp_path / "model", device="cpu")
    assert predictor.recipe.document.head == "aplc"
    assert np.isfinite(predictor.predict(["the red cat"], k=3).scores).all()
    assert len(predictor.explain("the red cat", k=2)) == 2


@pytest.mark.parametrize(("options", "skips"), [({}, True), ({"skip_tails": False}, False)])
def test_tails_are_computed_for_every_document_where_shapes_must_stay(options, skips):
    torch.manual_seed(0)
    clusters = label_clusters(COUNTS, (0.4, 0.3, 0.3))
    expert = DocumentExpert(
        DocumentConfig(),
        name="D-1",
        layers=(1,),
        hidden_size=8,
        n_labels=len(COUNTS),
        bias=torch.zeros(len(COUNTS)),
        clusters=lambda width: APLC(clusters, width=width),
        **options,
    )
    read, document = [], torch.randn(3, 8)
    for number in range(1, expert.head.n_tails + 1):
        project = expert.head.cluster(number).project
        project.register_forward_hook(lambda _, inputs, __: read.append(len(inputs[0])))
    gold = torch.from_numpy(clusters.order[:1].repeat(3)[:, None])  # in the head alone
    loss = expert.loss((document,), gold, limit=1000)
    assert set(read) == {0 if skips else 3}
    torch.testing.assert_close(loss, expert.head.loss(document, gold, torch.ones(3), limit=1000))
