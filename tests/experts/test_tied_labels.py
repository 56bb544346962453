"""Label vectors tied to texts against their formula, values and gradients."""

import pytest
import torch

from glocal.config import AttentionConfig, DocumentConfig
from glocal.encoders.encoder import Features
from glocal.experts.document import DocumentExpert
from glocal.experts.label_attention import LabelAttentionExpert
from glocal.experts.tied_labels import LabelText

B, T, H, L = 3, 5, 8, 6
COUNTS = torch.tensor([4, 0, 1, 0, 2, 1])
TEXTS = torch.randn(L, H, generator=torch.Generator().manual_seed(7))


def text(*, tied=True, dropout=0.0, worth=0.0, vectors=TEXTS):
    return LabelText(vectors, COUNTS, tied=tied, dropout=dropout, worth=worth)


def document_expert(label_text, **options):
    torch.manual_seed(1)
    return DocumentExpert(
        DocumentConfig(**options),
        name="D-1",
        layers=(1,),
        hidden_size=H,
        n_labels=L,
        bias=torch.randn(L),
        text=label_text,
    )


def attention_expert(label_text, **options):
    torch.manual_seed(1)
    return LabelAttentionExpert(
        AttentionConfig(**{"key_size": 4, "hidden_size": 7, **options}),
        name="A-1",
        layer=1,
        hidden_size=H,
        n_labels=L,
        bias=torch.randn(L),
        text=label_text,
    )


def features():
    torch.manual_seed(0)
    return Features({1: torch.randn(B, T, H)}, None)


def test_directions_are_centred_and_of_length_one():
    vectors = TEXTS.clone()
    vectors[3] = 0.0
    found = text(vectors=vectors).directions()
    named = [0, 1, 2, 4, 5]
    expected = vectors[named] - vectors[named].mean(0)
    torch.testing.assert_close(found[named], expected / expected.norm(dim=1, keepdim=True))
    assert not found[3].any()


def test_tied_vectors_are_the_projected_text_and_the_labels_own_part():
    expert = document_expert(text()).train()
    with torch.no_grad():
        expert.weight.normal_()
        expert.tie.project.normal_()
    vectors, biases = expert.label_tensors()
    own = expert.weight * (COUNTS > 0)[:, None]
    torch.testing.assert_close(vectors, text().directions() @ expert.tie.project.T + own)
    rare = expert.bias[[2, 5]].mean()
    torch.testing.assert_close(biases, torch.where(COUNTS > 0, expert.bias, rare))


def test_own_parts_count_by_the_number_of_training_texts():
    vectors = TEXTS.clone()
    vectors[5] = 0.0
    expert = document_expert(text(worth=4.0, vectors=vectors)).eval()
    with torch.no_grad():
        expert.weight.fill_(1.0)
    own = (expert.label_tensors()[0] - expert.tie.rows @ expert.tie.project.T)[:, 0]
    expected = torch.tensor([4 / 8, 0, 1 / 5, 0, 2 / 6, 1.0])  # the last has no text
    torch.testing.assert_close(own, expected)


def test_gradients_of_the_tie_are_those_of_the_formula():
    expert = document_expert(text()).train()
    document = features().hidden[1][:, 0]
    weights = torch.randn(B, L)
    logits = expert.logits(expert.prepare(features()), slice(0, L))
    (logits * weights).sum().backward()
    by_label = weights.T @ document  # ∂/∂e_j, (L, H)
    torch.testing.assert_close(expert.tie.project.grad, by_label.T @ text().directions())
    torch.testing.assert_close(expert.weight.grad, by_label * (COUNTS > 0)[:, None])
    torch.testing.assert_close(expert.bias.grad, weights.sum(0) * (COUNTS > 0))


def test_attention_queries_are_tied_alike():
    expert = attention_expert(text()).train()
    expected = text().directions() @ expert.tie.project.T
    torch.testing.assert_close(expert.label_tensors()[0], expected)
    expert.logits(expert.prepare(features()), slice(0, L)).sum().backward()
    assert expert.tie.project.grad.abs().sum() > 0
    assert expert.query.grad[COUNTS > 0].abs().sum() > 0
    assert not expert.query.grad[COUNTS == 0].any()


def test_attention_weights_follow_the_tied_queries():
    expert = attention_expert(text()).eval()
    state = expert.prepare(features())
    found = expert.attention(state, torch.arange(L).expand(B, L))
    query = text().directions() @ expert.tie.project.T
    torch.testing.assert_close(found, (query @ state[0].transpose(1, 2)).softmax(-1))


@pytest.mark.parametrize("tied", [True, False])
def test_first_scores_are_the_likeness_of_texts_and_have_the_spread_asked_for(tied):
    expert = document_expert(text(tied=tied)).eval()
    vectors = expert.label_tensors()[0].detach()
    directions = text().directions()
    cosines = torch.nn.functional.cosine_similarity(vectors, directions)
    torch.testing.assert_close(cosines, torch.ones(L))
    scores = (TEXTS - TEXTS.mean(0)) @ vectors.T
    assert float(scores.std()) == pytest.approx(1.0, rel=1e-4)


def test_a_label_without_a_text_starts_as_if_there_were_none():
    vectors = TEXTS.clone()
    vectors[4] = 0.0
    expert = document_expert(text(tied=False, vectors=vectors))
    plain = document_expert(None)
    torch.testing.assert_close(expert.weight[4], plain.weight[4])
    assert not torch.allclose(expert.weight[0], plain.weight[0])


def test_own_parts_are_left_out_at_random_in_training_alone():
    vectors = TEXTS.clone()
    vectors[4] = 0.0
    expert = document_expert(text(dropout=0.5, vectors=vectors)).train()
    with torch.no_grad():
        expert.weight.fill_(1.0)
    shared = expert.tie.rows @ expert.tie.project.T
    torch.manual_seed(0)
    kept = torch.stack([(expert.label_tensors()[0] - shared)[:, 0] for _ in range(400)])
    share = kept.mean(0).round(decimals=5)
    assert ((share[[0, 2, 5]] > 0.4) & (share[[0, 2, 5]] < 0.6)).all()
    assert share[[1, 3]].tolist() == [0.0, 0.0]
    assert share[4] == 1.0, "without a text it has nothing but its own"
    expert.eval()
    torch.testing.assert_close(expert.label_tensors()[0], shared + (COUNTS > 0)[:, None])


def test_what_is_kept_for_prediction_follows_the_weights():
    expert = document_expert(text()).eval()
    state = expert.prepare(features())
    with torch.no_grad():
        before = expert.logits(state, slice(0, L))
        assert expert.label_tensors()[0] is expert.label_tensors()[0]
        expert.weight.add_(1.0)
        after = expert.logits(state, slice(0, L))
    seen = COUNTS > 0
    assert not torch.allclose(before[:, seen], after[:, seen])
    torch.testing.assert_close(before[:, ~seen], after[:, ~seen])
    expert.train().eval()
    assert expert.tie._kept is None


@pytest.mark.parametrize("options", [{}, {"pooler": True, "hidden_size": 4}])
def test_every_parameter_is_in_one_group(options):
    for expert in (document_expert(text(), **options), attention_expert(text())):
        grouped = [id(p) for group in expert.parameter_groups().values() for p in group]
        assert sorted(grouped) == sorted(id(p) for p in expert.parameters())


def test_labels_that_all_lack_training_texts_have_no_rarest_to_follow():
    none = LabelText(TEXTS, torch.zeros(L, dtype=torch.int64), tied=True)
    tie = none.join(torch.nn.Parameter(torch.zeros(L, H)))
    bias = torch.arange(float(L))
    torch.testing.assert_close(tie.biases(bias), torch.full((L,), bias.mean().item()))


@pytest.mark.parametrize("build", [document_expert, attention_expert])
def test_levelled_labels_have_the_mean_score_of_the_rarest(build):
    expert = build(text()).eval()
    with torch.no_grad():
        before = expert.logits(expert.prepare(features()), slice(0, L)).mean(0)
        expert.tie.level(before)
        after = expert.logits(expert.prepare(features()), slice(0, L)).mean(0)
        expert.tie.level(after)
        again = expert.logits(expert.prepare(features()), slice(0, L)).mean(0)
    rare = before[[2, 5]].mean().expand(L)
    torch.testing.assert_close(after, torch.where(COUNTS > 0, before, rare))
    torch.testing.assert_close(again, after)


def test_states_of_earlier_versions_are_read():
    tie = document_expert(text()).tie
    state = {name: value + 1 for name, value in tie.state_dict().items() if name != "offset"}
    tie.load_state_dict(state)
    assert torch.equal(tie.rows, state["rows"])
    assert not tie.offset.any()
    assert "offset" not in state


def test_a_projection_to_another_width_starts_small_and_random():
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.zeros(L, 400))
    wide = LabelText(torch.randn(L, 300), COUNTS, tied=True).join(weight)
    assert wide.project.shape == (400, 300)
    assert float(wide.project.detach().std()) == pytest.approx(0.02, rel=0.02)
    assert abs(float(wide.project.detach().mean())) < 1e-3


def test_scores_of_stand_ins_have_the_spread_that_the_temperature_asks_for():
    expert = attention_expert(text(), temperature=0.25)
    keys = (TEXTS - TEXTS.mean(0)) @ expert.key.weight.T
    scores = keys @ expert.label_tensors()[0].T
    assert float(scores.detach().std()) == pytest.approx(0.25, rel=1e-4)


def test_only_the_first_label_texts_stand_in_for_documents(monkeypatch):
    monkeypatch.setattr("glocal.experts.tied_labels._STAND_INS", 4)
    expert = document_expert(text())
    scores = (TEXTS[:4] - TEXTS[:4].mean(0)) @ expert.label_tensors()[0].T
    assert float(scores.detach().std()) == pytest.approx(1.0, rel=1e-4)


def test_one_label_text_has_no_spread_to_scale_by():
    vectors = torch.zeros(L, H)
    vectors[2] = 1.0
    tie = document_expert(text(vectors=vectors)).tie
    torch.testing.assert_close(tie.project.detach(), torch.eye(H))


def test_tied_label_vectors_start_at_their_texts_alone():
    assert not document_expert(text()).weight.any()
    assert document_expert(None).tie is None
    assert document_expert(text(tied=False)).tie is None


def test_the_text_is_stored_and_what_counts_give_is_not():
    tie = document_expert(text()).tie
    assert set(tie.state_dict()) == {"project", "rows", "offset"}
    assert tie.rarest.tolist() == [False, False, True, False, False, True]
    assert tie.dropout == 0.0


def test_vectors_are_computed_again_in_training_and_with_gradients():
    expert = document_expert(text()).eval()
    first, second = expert.label_tensors()[0], expert.label_tensors()[0]
    assert first is not second
    assert first.requires_grad
    with torch.no_grad():
        assert expert.tie.vectors(expert.weight) is expert.tie.vectors(expert.weight)
        expert.train()
        assert expert.tie.vectors(expert.weight) is not expert.tie.vectors(expert.weight)


def test_a_single_label_text_has_no_direction():
    vectors = torch.zeros(L, H)
    vectors[2] = TEXTS[2]
    assert not text(vectors=vectors).directions().any()
    assert not text(vectors=torch.zeros(L, H)).directions().any()


def test_a_label_with_neither_text_nor_training_texts_has_no_vector():
    vectors = TEXTS.clone()
    vectors[[1, 4]] = 0.0
    expert = document_expert(text(vectors=vectors)).eval()
    with torch.no_grad():
        expert.weight.fill_(3.0)
    found = expert.label_tensors()[0]
    assert not found[1].any()
    assert found[4].tolist() == [3.0] * H


def test_by_default_own_parts_count_whole_and_none_is_dropped():
    tie = LabelText(TEXTS, COUNTS, tied=True).join(torch.nn.Parameter(torch.zeros(L, H)))
    assert (tie.share > 0).tolist() == (COUNTS > 0).tolist()
    assert set(tie.share.tolist()) == {0.0, 1.0}
    assert tie.dropout == 0.0
    scores = (TEXTS - TEXTS.mean(0)) @ tie.vectors(torch.zeros(L, H)).T
    assert float(scores.detach().std()) == pytest.approx(1.0, rel=1e-4)


def test_the_only_label_has_no_spread_to_scale_by():
    alone = LabelText(TEXTS[:1], COUNTS[:1], tied=True)
    tie = alone.join(torch.nn.Parameter(torch.zeros(1, H)))
    torch.testing.assert_close(tie.project.detach(), torch.eye(H))
