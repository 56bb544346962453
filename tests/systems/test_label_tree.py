"""Label clusters that are picked before labels are scored."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from glocal.config.settings import CandidatesConfig
from glocal.errors import ModelError
from glocal.predict.predictor import Predictor
from glocal.ranking.candidates import cluster_candidates
from glocal.storage.integrity import update_checksums
from glocal.systems.cluster_rows import joint_log_odds
from glocal.systems.label_tree import level_sizes
from glocal.systems.mixture_ensemble import mixtures_of
from glocal.systems.system import LabelStatistics, TrainingPosition
from tests.tiny import build_system, tiny_corpus, tiny_recipe
from tests.train.runs import train

CLUSTERS = ["candidates.mode=clusters", "candidates.cluster_size=2", "candidates.picked=3"]
TREE = [*CLUSTERS, "candidates.levels=3", "candidates.branching=2", "candidates.clusters_by=all"]
N_LABELS = 15


def mixture(*overrides):
    torch.manual_seed(0)
    counts = np.arange(1, N_LABELS + 1)
    recipe = tiny_recipe("glocalxml", *overrides)
    system, _ = build_system(recipe, LabelStatistics(counts, 64))
    return system.eval()


def states_of(system, documents=4):
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(documents, system.encoder.hidden_size, generator=generator)
    keys = torch.randn(documents, 6, 16, generator=generator)
    return {"D-last": (vectors,), "A-1": (keys, keys.flip(2), torch.ones(16), None)}


def test_levels_divide_clusters_evenly():
    assert level_sizes(CandidatesConfig(clusters=64, levels=3, branching=4)) == [4, 16, 64]
    assert level_sizes(CandidatesConfig(clusters=64)) == [64]
    assert level_sizes(CandidatesConfig(clusters=8, levels=9, branching=4)) == [2, 8]
    assert CandidatesConfig(cluster_size=64).clusters_for(22_625) == 512
    assert CandidatesConfig(cluster_size=64).clusters_for(64) == 1
    assert CandidatesConfig(cluster_size=64).clusters_for(65) == 2


def test_the_log_odds_of_a_label_are_those_of_the_product():
    clusters = torch.tensor([-1e-6, -0.1, -3.0, -30.0], dtype=torch.float64)[:, None]
    logits = torch.tensor([-20.0, -1.0, 0.0, 5.0], dtype=torch.float64)
    p = clusters.exp() * torch.sigmoid(logits)
    expected = p.log() - torch.log1p(-p)
    torch.testing.assert_close(joint_log_odds(clusters, logits), expected, rtol=1e-9, atol=1e-9)
    certain = joint_log_odds(torch.zeros(1), torch.tensor([3.0]))
    torch.testing.assert_close(certain, torch.tensor([3.0]))


def test_labels_have_the_probability_of_the_path_that_leads_to_them():
    system = mixture(*TREE)
    tree, states = system.tree, states_of(system)
    assert tree.sizes == [2, 4, 8]
    labels = torch.tensor([[0, 14, 7]]).expand(4, -1)
    expected = torch.zeros(4, 3)
    for level, size in enumerate(tree.sizes):
        mean = sum(torch.sigmoid(tree.logits(level, e, states, None)) for e in range(2)) / 2
        clusters = tree.leaves[labels] // (8 // size)
        expected += mean.gather(1, clusters).log()
    torch.testing.assert_close(tree.of_labels(states, labels), expected)
    torch.testing.assert_close(tree.of_labels(states, slice(0, N_LABELS))[:, [0, 14, 7]], expected)


@pytest.mark.parametrize("weight", [0, 0.25, 1])
def test_clusters_count_by_their_weight(weight):
    system = mixture(*CLUSTERS, f"candidates.cluster_weight={weight}")
    states, labels = states_of(system), slice(0, N_LABELS)
    clusters = system.tree.of_labels(states, labels)
    logits = system.expert_logits(states, labels)
    for expert in system.trained_experts():
        own = torch.sigmoid(expert.logits(states[expert.name], labels))
        joint = clusters.exp() ** weight * own
        torch.testing.assert_close(torch.sigmoid(logits[expert.name]), joint)


@pytest.mark.parametrize("settings", [CLUSTERS, TREE])
def test_gold_clusters_are_always_picked_and_then_the_likeliest(settings):
    system = mixture(*settings)
    tree, states = system.tree, states_of(system)
    gold = torch.tensor([[0, 9], [14, -1], [3, 4], [-1, -1]])
    picked = tree.pick(states, 3, gold=gold)[-1]
    for row, labels in zip(picked, gold, strict=True):
        wanted = {int(tree.leaves[label]) for label in labels if label >= 0}
        assert wanted <= set(row.tolist())
        assert len(set(row.tolist())) == 3
    everything = tree.pick(states, 8)[-1]
    best = tree.of_labels(states, slice(0, N_LABELS)).argmax(1)
    assert torch.equal(everything[:, 0], tree.leaves[best])


def test_candidates_are_the_labels_of_clusters_and_missing_gold_labels_once():
    gold = torch.tensor([[2, 9], [5, -1]])
    picked = torch.tensor([[2, 3, -1], [0, 1, 7]])
    found = cluster_candidates(gold, picked, n_labels=10)
    assert found.labels.tolist() == [[2, 3, 0, 2, 9], [0, 1, 7, 5, 0]]
    assert found.targets.tolist() == [[1, 0, 0, 0, 1], [0, 0, 0, 1, 0]]
    assert found.weights.tolist() == [[1, 1, 0, 0, 1], [1, 1, 1, 1, 0]]


def test_levels_join_one_after_another_and_start_at_the_clusters_above():
    system = mixture(*TREE, "candidates.coarse=0.6")
    tree = system.tree
    depths = [tree.depth(step / 10) for step in range(10)]
    assert depths == [1, 1, 2, 2, 3, 3, 4, 4, 4, 4]
    assert [list(tree.joining(step, 10)) for step in range(10)] == [
        [], [], [2], [], [3], [], [4], [], [], [],
    ]  # fmt: skip
    assert [system.phase(TrainingPosition(step, 10)) for step in (0, 2, 6)] == [
        "1 levels", "2 levels", "plain",
    ]  # fmt: skip
    tree.begin_level(3)
    coarse, fine = (tree.levels[level][0].tensors[0] for level in (1, 2))
    assert torch.equal(fine, coarse[torch.arange(8) // 2])
    tree.begin_level(4)
    for place, expert in enumerate(tree.scorers):
        rows = tree.levels[2][place].tensors[0]
        assert torch.equal(expert.label_tensors()[0], rows[tree.leaves])


def test_labels_of_the_same_texts_share_a_cluster_and_members_cluster_differently(tmp_path):
    corpus = tiny_corpus(64)
    overrides = [*CLUSTERS, "candidates.clusters=4", "train.members=2", "train.epochs=1"]
    train(tiny_recipe("glocalxml", *overrides), tmp_path / "model", corpus=corpus)
    system = Predictor.load(tmp_path / "model", device="cpu").system
    trees = [member.tree for member in mixtures_of(system)]
    assert not torch.equal(trees[0].leaves, trees[1].leaves)
    for tree in trees:
        sizes = torch.bincount(tree.leaves, minlength=4)
        assert sizes.min() >= 3
        assert sizes.max() <= 4
        assert sorted(tree.members[tree.members >= 0].tolist()) == list(range(N_LABELS))


def test_clusters_that_are_damaged_are_refused(tmp_path):
    out = tmp_path / "model"
    train(tiny_recipe("glocalxml", *CLUSTERS, "train.epochs=1"), out)
    weights = load_file(out / "model.safetensors")
    for leaves, message in [
        (torch.full((N_LABELS,), 8), "must be within 0 … 7"),
        (torch.full((N_LABELS,), -1), "must be within 0 … 7"),
    ]:
        save_file({**weights, "tree.leaves": leaves}, out / "model.safetensors")
        update_checksums(out)
        with pytest.raises(ModelError, match=message):
            Predictor.load(out, device="cpu")


def test_prediction_scores_only_the_labels_of_picked_clusters():
    system = mixture(*CLUSTERS)
    assert system.recipe.candidates.clusters == 8
    found = system.tree.candidates(states_of(system), k=2)
    assert found.shape == (4, 6)  # three clusters of at most two labels
