"""The votes and the scope of the expert `R`, each by itself."""

import numpy as np
import pytest
import torch

from glocal.config import DocumentConfig, ReaderConfig
from glocal.encoders.encoder import Features
from glocal.experts.reader import ReaderExpert, ScopeEncoding, VotePrior, vote_odds, vote_prior
from glocal.heads.aplc import APLC
from glocal.heads.frequency_clusters import label_clusters

SCOPE = torch.tensor([[3, 1, 0, -1], [2, -1, -1, -1]], dtype=torch.int32)
VOTES = torch.tensor([[1.0, 0.25, 0.0, 0.0], [0.5, 0.0, 0.0, 0.0]])
VECTORS = np.arange(12, dtype=np.float64).reshape(4, 3)


def features():
    return Features({}, None, companion_features={"scope": SCOPE, "scope_weight": VOTES})


def test_votes_are_log_odds_clipped_below_one():
    given = features()
    given.companion_features["scope_weight"] = VOTES.half()
    scope, odds, voted = vote_odds(given)
    assert (scope.dtype, odds.dtype) == (torch.int64, torch.float32)
    assert voted.tolist() == [[True, True, False, False], [True, False, False, False]]
    expected = np.log([0.99 / 0.01, 1 / 3])
    np.testing.assert_allclose(odds[0, :2], expected, rtol=1e-5)
    assert odds[0, 2].item() == pytest.approx(np.log(1e-4 / (1 - 1e-4)), rel=1e-5)


def test_the_prior_starts_at_half_the_votes_log_odds_and_lifts_them():
    prior = VotePrior(5)
    assert prior.numbers.tolist() == [0.5, 1.5, 0.0]
    assert prior.labels.tolist() == [0, 1, 2, 3, 4]
    assert set(prior.state_dict()) == {"numbers"}
    with torch.no_grad():
        prior.numbers.copy_(torch.tensor([2.0, -1.0, 0.25]))
    scope, counts = prior.prepare(features())
    quarter = 2.0 * np.log(1 / 3) - 1.0
    assert counts[0, 1].item() == pytest.approx(quarter)
    assert counts[0, 2:].tolist() == [0.25, 0.25]  # a parent that nobody voted for
    dense = vote_prior((scope, counts), torch.arange(5))
    assert dense[0].tolist() == pytest.approx([0.25, quarter, 0, 2 * np.log(99) - 1, 0], rel=1e-4)
    assert dense[1].tolist() == pytest.approx([0, 0, -1.0, 0, 0])
    chosen = vote_prior((scope, counts), torch.tensor([[1, 4], [2, 2]]))
    assert chosen.tolist() == [pytest.approx([quarter, 0]), pytest.approx([-1.0, -1.0])]


def encoding(width=3, **options):
    torch.manual_seed(0)
    return ScopeEncoding(ReaderConfig(**options), VECTORS, width)


def test_a_scope_is_the_vectors_of_its_labels_as_far_as_the_widest_reaches():
    vectors, mask = encoding()(features())
    assert mask.tolist() == [[True, True, True], [True, False, False]]
    assert vectors[0].tolist() == VECTORS[[3, 1, 0]].tolist()
    assert vectors[1, 0].tolist() == VECTORS[2].tolist()
    empty = {"scope": torch.full((2, 4), -1), "scope_weight": torch.zeros(2, 4)}
    vectors, mask = encoding()(Features({}, None, companion_features=empty))
    assert vectors.shape == (2, 1, 3)
    assert not mask.any()


def test_a_scope_as_one_mean_vector():
    vectors, mask = encoding(scope="mean")(features())
    assert vectors.shape == (2, 1, 3)
    assert vectors[0, 0].tolist() == pytest.approx(VECTORS[[3, 1, 0]].mean(0).tolist())
    assert mask.tolist() == [[True], [True]]


def test_votes_move_the_vectors_of_a_scope():
    scope = encoding(votes=True)
    assert scope.vote.tolist() == [0, 0, 0]
    with torch.no_grad():
        scope.vote.fill_(4.0)
    vectors, _ = scope(features())
    assert vectors[0].tolist() == (VECTORS[[3, 1, 0]] + [[4], [1], [0]]).tolist()
    assert encoding().vote is None


def test_label_vectors_are_projected_where_the_width_differs():
    assert encoding().project is None
    wide = encoding(width=5)
    assert wide.project.bias is None
    vectors, _ = wide(features())
    torch.testing.assert_close(vectors[1, 0], wide.project(torch.from_numpy(VECTORS[2]).float()))


def test_label_vectors_are_learned_or_fixed():
    learned, fixed = encoding(), encoding(label_vectors="fixed")
    assert [p.shape for p in learned.parameters()] == [(4, 3)]
    assert not list(fixed.parameters())
    assert learned.state_dict().keys() == fixed.state_dict().keys() == {"table"}
    assert fixed.table.dtype == torch.float32


def reader(*, clusters=None, document=None, n_labels=5, dropout=0.0, **options):
    torch.manual_seed(0)
    config = ReaderConfig(**{"heads": 2, "bottleneck": 6, "prior": False, **options})
    return ReaderExpert(
        config,
        document or DocumentConfig(),
        name="R-1",
        layer=1,
        hidden_size=4,
        label_vectors=VECTORS,
        dropout=dropout,
        n_labels=n_labels,
        bias=torch.arange(float(n_labels)),
        clusters=clusters,
    )


def read():
    torch.manual_seed(1)
    hidden, mask = torch.randn(2, 3, 4), torch.tensor([[True, True, True], [True, False, False]])
    return Features({1: hidden}, mask, companion_features=features().companion_features)


def test_label_parts_include_the_ids_that_a_prior_scores_by():
    own, ids = reader(prior=True).label_parts()
    assert own.names == ("weight", "bias")
    assert ids.names == ("labels",)
    assert isinstance(ids.module, VotePrior)
    (own,) = reader().label_parts()
    assert own.names == ("weight", "bias")
    clusters = label_clusters(np.array([5, 1, 2, 0, 1]), (0.5, 0.5))
    assert reader(clusters=lambda width: APLC(clusters, width=width)).label_parts() is None


@pytest.mark.parametrize("prior", [False, True])
def test_the_document_vector_is_scored_and_the_prior_added(prior):
    expert, found = reader(prior=prior).eval(), read()
    vector, *votes = expert.prepare(found)
    expected = expert.network(found.hidden[1], found.mask, *expert.scope(found))
    torch.testing.assert_close(vector, expected)
    logits = vector @ expert.weight.T + expert.bias
    if prior:
        logits = logits + vote_prior(votes, torch.arange(5))
    torch.testing.assert_close(expert.logits((vector, *votes), slice(0, 5)), logits)
    assert len(votes) == 2 * prior


def test_settings_reach_the_network_and_the_output_layer():
    expert = reader(pooling="text", residual=False, document=DocumentConfig(bias=False))
    network = expert.network
    assert (network.pooling, network.residual) == ("text", False)
    network = reader(pooling="all", residual=True).network
    assert (network.pooling, network.residual) == ("all", True)
    assert network.bottleneck.weight.shape == (6, 4)
    assert expert.bias is None
    assert reader(bottleneck=0).network.bottleneck.weight.shape == (4, 4)
    expert, found = reader(dropout=0.5).train(), read()
    assert expert.dropout.p == 0.5
    assert not torch.equal(expert.prepare(found)[0], expert.prepare(found)[0])


@pytest.mark.parametrize("label_vectors", ["learned", "fixed"])
def test_every_parameter_is_in_one_group(label_vectors):
    expert = reader(prior=True, votes=True, label_vectors=label_vectors)
    groups = expert.parameter_groups()
    grouped = [id(p) for members in groups.values() for p in members]
    assert sorted(grouped) == sorted(id(p) for p in expert.parameters())
    assert [p.shape for p in groups["queries"]] == [(4, 3)] * (label_vectors == "learned")
    assert {id(p) for p in groups["mlp"]} == {id(expert.prior.numbers)}
