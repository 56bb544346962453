"""The expert `S`: the sparse model's log-odds, and what it says of labels it does not list."""

import torch

from glocal.encoders.encoder import Features
from glocal.experts.sparse import SparseExpert

L = 7
BEST = torch.tensor([[4, 0, 6, -1], [2, 5, -1, -1]], dtype=torch.int32)
ODDS = torch.tensor([[1.5, -0.5, -3.0, -4.0], [0.25, -2.0, -2.5, -2.5]], dtype=torch.float64)
UNSEEN = torch.tensor([False, False, False, True, False, True, True])


def features():
    return Features({}, None, companion_features={"sparse": BEST, "sparse_odds": ODDS})


def expected(unseen):
    """Listed labels have their own log-odds, others the lowest of the labels of their kind."""
    rows = []
    for best, odds in zip(BEST.tolist(), ODDS.tolist(), strict=True):
        own = dict(zip(best, odds, strict=True))
        # Padding stands for the labels with training texts that are not listed.
        known = min(o for b, o in zip(best, odds, strict=True) if b < 0 or not unseen[b])
        rows.append([own.get(n, min(odds) if unseen[n] else known) for n in range(L)])
    return torch.tensor(rows)


def test_labels_that_are_not_listed_have_the_lowest_log_odds():
    for unseen in (None, UNSEEN):
        expert = SparseExpert(name="S", n_labels=L, unseen=unseen)
        state = expert.prepare(features())
        assert (state[0].dtype, state[1].dtype) == (torch.int64, torch.float32)
        none = [False] * L
        wanted = expected(none if unseen is None else unseen.tolist())
        torch.testing.assert_close(expert.logits(state, slice(0, L)), wanted)
        torch.testing.assert_close(expert.logits(state, slice(3, 6)), wanted[:, 3:6])
        chosen = torch.tensor([[6, 1, 4], [5, 5, 0]])
        torch.testing.assert_close(expert.logits(state, chosen), wanted.gather(1, chosen))


def test_without_padding_labels_with_training_texts_score_above_unseen_ones():
    expert = SparseExpert(name="S", n_labels=L, unseen=UNSEEN)
    best, odds = torch.tensor([[4, 0, 6]]), torch.tensor([[1.5, -0.5, -3.0]])
    found = expert.score((best, odds), (torch.arange(L),))
    assert found.tolist() == [[-0.5, -0.5, -0.5, -3.0, 1.5, -3.0, -3.0]]
    nothing_seen = torch.tensor([[6, 5, 3]])
    found = expert.score((nothing_seen, odds), (torch.arange(L),))
    assert found.tolist() == [[1.5, 1.5, 1.5, -3.0, 1.5, -0.5, 1.5]]


def test_it_learns_nothing_and_suggests_what_it_lists():
    expert = SparseExpert(name="S", n_labels=L)
    assert expert.name == "S"
    assert expert.layers == ()
    assert not expert.trained
    assert not expert.ranks_all
    assert expert.scores_rows
    assert expert.label_width == 1
    assert expert.parameter_groups() == {}
    assert not expert.state_dict()
    torch.testing.assert_close(expert.suggestions(expert.prepare(features())), BEST.long())


def test_added_labels_have_the_lowest_log_odds_of_their_own():
    # 5 and 6 were added, 0 and 3 have no training text; places without a label stand for trained
    # ones. Scores of labels that were not added are as without those two.
    unseen = torch.tensor([True, False, False, True, False, False, False])
    expert = SparseExpert(name="S", n_labels=L, unseen=unseen, n_added=2)
    assert expert.added.tolist() == [False] * 5 + [True] * 2
    best = torch.tensor([[4, 0, 6, -1], [1, 3, 5, 6]])
    odds = torch.tensor([[1.5, -2.5, -6.0, -1.0], [0.5, -1.0, -2.0, -4.0]])
    found = expert.score((best, odds), (torch.arange(L),))
    assert found.tolist() == [
        [-2.5, -1.0, -1.0, -2.5, 1.5, -6.0, -6.0],
        [-1.0, 0.5, 0.5, -1.0, 0.5, -2.0, -4.0],
    ]
    assert not expert.state_dict()
