import numpy as np
import torch

from glocal.experts.label_means import LabelMeans
from tests.experts.test_experts import B, H, L, attention_expert, features


def gathered(feats, gold):
    means = LabelMeans(L, H, torch.device("cpu"))
    for row in range(B):  # one document at a time: batches must not matter
        part = slice(row, row + 1)
        means.add(feats.hidden[1][part].detach(), feats.mask[part], gold[part])
    return means.finish()


def test_means_and_covariance_equal_direct_ones():
    feats, gold = features(), torch.tensor([[0, 3], [3, -1], [5, -1]])
    means = gathered(feats, gold)
    texts = [feats.hidden[1][b][feats.mask[b]].detach() for b in range(B)]
    everything = torch.cat(texts)
    torch.testing.assert_close(means.overall, everything.mean(0))
    expected = torch.from_numpy(np.cov(everything.numpy().T, bias=True)).float()
    torch.testing.assert_close(means.covariance(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(means.by_label[3], (texts[0].mean(0) + texts[1].mean(0)) / 2)
    assert means.counts.tolist() == [1, 0, 0, 2, 0, 1] + [0] * (L - 6)


def test_queries_start_with_equal_spread_and_labels_without_texts_stay():
    expert, feats = attention_expert(temperature=0.5), features()
    before = expert.query.detach().clone()
    expert.start_queries(gathered(feats, torch.tensor([[0, 3], [3, -1], [5, -1]])), spread=2.0)
    changed = (expert.query != before).any(1)
    assert changed.nonzero()[:, 0].tolist() == [0, 3, 5]
    keys = expert.key(feats.hidden[1][feats.mask])
    scores = (keys @ expert.query[changed].T / 0.5).detach()
    torch.testing.assert_close(
        scores.std(0, unbiased=False), torch.full((3,), 2.0), rtol=1e-3, atol=0
    )


def test_a_label_attends_more_to_the_tokens_of_its_texts():
    expert, feats = attention_expert(), features()
    expert.start_queries(gathered(feats, torch.tensor([[0, -1], [1, -1], [2, -1]])))
    state = expert.prepare(feats)
    keys = state[0].detach()
    own = torch.stack([(keys[b][feats.mask[b]] @ expert.query[b]).mean() for b in range(B)])
    every = torch.stack([(keys[feats.mask] @ expert.query[b]).mean() for b in range(B)])
    assert (own > every).all()


def test_queries_start_with_a_spread_of_two():
    first, second = attention_expert(), attention_expert()
    means = gathered(features(), torch.tensor([[0, 3], [3, -1], [5, -1]]))
    first.start_queries(means)
    second.start_queries(means, spread=2.0)
    assert torch.equal(first.query, second.query)


def test_without_projections_queries_start_in_the_space_of_the_tokens():
    expert, feats = attention_expert(projections=False), features()
    before = expert.query.detach().clone()
    means = gathered(feats, torch.tensor([[0, -1], [1, -1], [2, -1]]))
    expert.start_queries(means)
    direction = torch.nn.functional.normalize(means.by_label[:3] - means.overall, dim=1)
    cosines = torch.nn.functional.cosine_similarity(expert.query[:3], direction)
    torch.testing.assert_close(cosines, torch.ones(3))
    assert torch.equal(expert.query[3:], before[3:])


def test_a_label_whose_texts_do_not_differ_keeps_its_query():
    expert = attention_expert()
    tokens = torch.ones(1, 4, H)  # all tokens are the same: no direction, no variance
    means = LabelMeans(L, H, torch.device("cpu"))
    means.add(tokens, torch.ones(1, 4, dtype=torch.bool), torch.tensor([[2]]))
    before = expert.query.detach().clone()
    expert.start_queries(means.finish())
    assert expert.query.isfinite().all()
    assert torch.equal(expert.query[[0, 1, 3]], before[[0, 1, 3]])


def test_nothing_read_gives_zeros():
    means = LabelMeans(2, 3, torch.device("cpu")).finish()
    assert not means.overall.any()
    assert not means.covariance().any()


def test_one_token_is_its_own_mean():
    token = torch.arange(1.0, 4.0)
    means = LabelMeans(2, 3, torch.device("cpu"))
    means.add(token.view(1, 1, 3), torch.ones(1, 1, dtype=torch.bool), torch.tensor([[1]]))
    means.finish()
    assert means.overall.tolist() == means.by_label[1].tolist() == token.tolist()
    assert means.by_label[0].tolist() == [0.0, 0.0, 0.0]  # it has no text
    assert not means.covariance().any()


def test_sums_are_where_the_hidden_states_are():
    means = LabelMeans(2, 3, torch.device("meta"))
    tensors = [value for value in vars(means).values() if torch.is_tensor(value)]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert len(tensors) == 5


def test_small_hidden_states_start_queries_of_the_same_spread():
    expert, feats = attention_expert(projections=False), features()
    feats.hidden[1] = feats.hidden[1] * 1e-3
    expert.start_queries(gathered(feats, torch.tensor([[0, 3], [3, -1], [5, -1]])), spread=3.0)
    scores = feats.hidden[1][feats.mask] @ expert.query[[0, 3, 5]].T
    torch.testing.assert_close(
        scores.std(0, unbiased=False), torch.full((3,), 3.0), rtol=1e-3, atol=0
    )


def test_a_label_of_every_token_starts_by_attending_to_all_alike():
    """Its mean token is that of all texts, so there is nothing that it has more of."""
    expert = attention_expert()
    means = LabelMeans(L, H, torch.device("cpu"))
    tokens = torch.arange(2.0 * H).view(1, 2, H)
    means.add(tokens, torch.ones(1, 2, dtype=torch.bool), torch.tensor([[2]]))
    expert.start_queries(means.finish())
    assert not expert.query[2].any()


def test_rounded_hidden_states_are_summed_in_fp32():
    tokens, gold = torch.randn(3, 5, 4).bfloat16(), torch.tensor([[0], [1], [0]])
    mask = torch.ones(3, 5, dtype=torch.bool)
    found, expected = (LabelMeans(2, 4, torch.device("cpu")) for _ in range(2))
    found.add(tokens, mask, gold)
    expected.add(tokens.float(), mask, gold)
    for one, other in zip(vars(found).values(), vars(expected).values(), strict=True):
        assert torch.equal(one, other)
