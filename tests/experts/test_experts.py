"""The experts against naive implementations of the papers' equations, values and gradients."""

import math

import pytest
import torch
from torch import nn

from glocal.config import AttentionConfig, DocumentConfig
from glocal.config.expert_names import check_expert_names, parse_experts
from glocal.encoders.encoder import Features
from glocal.errors import ConfigError
from glocal.experts.document import DocumentExpert
from glocal.experts.expert import label_bias, label_matrix
from glocal.experts.label_attention import LabelAttentionExpert

B, T, H, L = 3, 6, 8, 11


def features(*, padded=True, layers=(1, 2)):
    torch.manual_seed(0)
    hidden = {n: torch.randn(B, T, H, requires_grad=True) for n in layers}
    lengths = torch.tensor([6, 4, 1])
    mask = torch.arange(T) < lengths[:, None] if padded else None
    return Features(hidden, mask)


def attention_expert(**options):
    torch.manual_seed(1)
    expert = LabelAttentionExpert(
        AttentionConfig(**{"key_size": 5, "hidden_size": 7, **options}),
        name="A-1",
        layer=1,
        hidden_size=H,
        n_labels=L,
        bias=torch.randn(L),
    )
    with torch.no_grad():
        expert.query.normal_()
    return expert


def naive_attention(expert, feats, tau):
    """Eq. 3–6 with loops: one document, one label at a time, no folding."""
    tokens, out = feats.hidden[1], torch.zeros(B, L)
    for b in range(B):
        real = tokens[b] if feats.mask is None else tokens[b][feats.mask[b]]
        keys = real if expert.key is None else expert.key(real)
        values = real if expert.value is None else expert.value(real)
        for j in range(L):
            alpha = torch.softmax(keys @ expert.query[j] / tau, 0)
            pooled = (alpha[:, None] * values).sum(0)
            hidden = torch.relu(expert.mlp_in(pooled))
            bias = expert.bias[j] if expert.bias is not None else 0.0
            out[b, j] = hidden @ expert.mlp_out + bias
    return out


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"separate_values": True},
        {"projections": False},
        {"temperature": 0.3, "bias": False},
    ],
)
def test_attention_equals_the_naive_one(padded, options):
    expert, feats = attention_expert(**options), features(padded=padded)
    expected = naive_attention(expert, feats, options.get("temperature", 1.0))
    found = expert.logits(expert.prepare(feats), slice(0, L))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    weights = torch.randn(B, L)
    inputs = [feats.hidden[1], *expert.parameters()]
    ours = torch.autograd.grad((found * weights).sum(), inputs)
    theirs = torch.autograd.grad((expected * weights).sum(), inputs)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"temperature": 0.3}, {"projections": False}])
def test_attention_weights_are_those_of_the_score_and_zero_on_padding(options):
    expert, feats = attention_expert(**options), features()
    state = expert.prepare(feats)
    alpha = expert.attention(state, torch.arange(L).expand(B, L))
    torch.testing.assert_close(alpha.sum(-1), torch.ones(B, L))
    assert not alpha[~feats.mask[:, None, :].expand(B, L, T)].any()
    _, values, output, _ = state
    scored = torch.relu(alpha @ values) @ output + expert.bias  # the logits these weights lead to
    torch.testing.assert_close(scored, expert.logits(state, slice(0, L)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.3}, {"projections": False}])
def test_folding_the_output_changes_nothing(options, padded):
    expert, feats = attention_expert(**options).eval(), features(padded=padded)
    candidates = torch.tensor([[3, 0], [10, 3], [7, 2]])
    wanted = [slice(0, L), candidates]
    expected = [expert.logits(expert.prepare(feats), labels) for labels in wanted]
    expert.fold_output()
    for labels, logits in zip(wanted, expected, strict=True):
        found = expert.logits(expert.prepare(feats), labels)
        torch.testing.assert_close(found, logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tau", [0.3, 1.0])
def test_attention_weights_are_a_softmax_of_the_scores_over_tau(tau):
    expert, feats = attention_expert(temperature=tau), features()
    labels = torch.tensor([[3, 0], [10, 3], [7, 2]])
    found = expert.attention(expert.prepare(feats), labels)
    for b, chosen in enumerate(labels):
        real = int(feats.mask[b].sum())
        keys = expert.key(feats.hidden[1][b, :real])
        for place, label in enumerate(chosen):
            expected = torch.softmax(keys @ expert.query[label] / tau, 0)
            torch.testing.assert_close(found[b, place, :real], expected)


def test_attention_weights_of_bf16_states_are_computed_in_fp32():
    expert, feats = attention_expert(temperature=0.3), features()
    keys, *rest = expert.prepare(feats)
    labels = torch.arange(L).expand(B, L)
    found = expert.attention((keys.bfloat16(), *rest), labels)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.sum(-1), torch.ones(B, L))


@pytest.mark.parametrize("autocast", [False, True])
def test_the_last_product_is_fp32_at_prediction(autocast):
    """Logits of bf16 states are not rounded to bf16, where labels would tie."""
    expert, feats = attention_expert().eval(), features()
    keys, values, _, _ = expert.prepare(feats)
    keys, values, output = keys.bfloat16(), values.bfloat16(), torch.randn(values.shape[-1])
    mask = torch.arange(T).expand(B, T) == 0  # of a single token the mean is exact in bf16
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        found = expert.logits((keys, values, output, mask), slice(0, L))
    assert found.dtype == torch.float32
    expected = (torch.relu(values[:, 0].float()) @ output)[:, None] + expert.bias
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_stop_gradient_keeps_the_encoder_out():
    feats = features()
    for stop, reached in ((False, True), (True, False)):
        expert = attention_expert(stop_gradient=stop)
        expert.logits(expert.prepare(feats), slice(0, L)).sum().backward()
        assert (feats.hidden[1].grad is not None) == reached
        feats.hidden[1].grad = None


@pytest.mark.parametrize("kind", ["attention", "document"])
def test_candidates_equal_the_slice(kind):
    feats = features()
    expert = attention_expert() if kind == "attention" else document_expert()
    state = expert.prepare(feats)
    every = expert.logits(state, slice(0, L))
    ids = torch.tensor([[3, 0], [10, 3], [7, 7]])
    torch.testing.assert_close(expert.logits(state, ids), every.gather(1, ids))
    torch.testing.assert_close(expert.logits(state, slice(4, 9)), every[:, 4:9])


def document_expert(layers=(2,), **options):
    torch.manual_seed(1)
    return DocumentExpert(
        DocumentConfig(**options),
        name="D",
        layers=layers,
        hidden_size=H,
        n_labels=L,
        bias=torch.randn(L),
    )


def test_document_expert_is_a_linear_classifier_on_cls():
    expert, feats = document_expert(), features()
    linear = nn.Linear(H, L)
    with torch.no_grad():
        linear.weight.copy_(expert.weight)
        linear.bias.copy_(expert.bias)
    expected = linear(feats.hidden[2][:, 0])
    torch.testing.assert_close(expert.logits(expert.prepare(feats), slice(0, L)), expected)


def test_document_expert_concatenates_layers_and_pools():
    feats = features()
    (vector,) = document_expert(layers=(2, 1)).prepare(feats)
    torch.testing.assert_close(vector, torch.cat([feats.hidden[2][:, 0], feats.hidden[1][:, 0]], 1))
    expert = document_expert(pooler=True, hidden_size=4)
    (vector,) = expert.prepare(feats)
    expected = torch.relu(expert.hidden(torch.tanh(expert.pooler(feats.hidden[2][:, 0]))))
    torch.testing.assert_close(vector, expected)


def test_mean_pooling_leaves_padding_out():
    feats = features()
    feats.pooling = "mean"
    expected = feats.hidden[1][1, :4].mean(0)
    torch.testing.assert_close(feats.document(1)[1], expected)


def test_every_parameter_is_in_one_group():
    for expert in (
        attention_expert(),
        attention_expert(separate_values=True),
        attention_expert(projections=False),
        document_expert(pooler=True, hidden_size=4),
    ):
        grouped = [id(p) for group in expert.parameter_groups().values() for p in group]
        assert sorted(grouped) == sorted(id(p) for p in expert.parameters())


def test_initial_scale_of_the_label_vectors():
    expert = document_expert()
    assert math.isclose(float(expert.weight.detach().std()), 0.02, rel_tol=0.3)


def test_expert_names():
    specs = parse_experts(["D-last", "A-middle", "D-(6+1)", "A-0"], n_layers=6)
    assert [s.layers for s in specs] == [(6,), (3,), (6, 1), (0,)]
    with pytest.raises(ConfigError) as caught:
        parse_experts(["A-7", "X-1", "A-(1+2)", "D-1", "D-1"], n_layers=6)
    text = str(caught.value)
    assert "layer 7 does not exist; the encoder has layers 0 to 6" in text
    assert "'X-1' is not of the form" in text
    assert "only document experts" in text
    assert "more than once" in text
    with pytest.raises(ConfigError, match="empty"):
        parse_experts([], n_layers=6)


def test_expert_names_without_an_encoder():
    check_expert_names(["D-last", "A-99", "S"])
    check_expert_names(["auto"])
    wrongs = {"D": "form", "A-lst": "form", "D-(1+x)": "form", "A-(1+2)": "only document experts"}
    for wrong, message in (*(([name], text) for name, text in wrongs.items()), ([], "empty")):
        with pytest.raises(ConfigError, match=message):
            check_expert_names(wrong)


def test_label_vectors_start_small_and_biases_as_given():
    torch.manual_seed(0)
    matrix = label_matrix(500, 40)
    assert float(matrix.detach().std()) == pytest.approx(0.02, rel=0.05)
    assert abs(float(matrix.detach().mean())) < 1e-3
    given = torch.randn(L, dtype=torch.float64)
    bias = label_bias(given, L)
    assert bias.dtype == torch.float32
    torch.testing.assert_close(bias.detach(), given.float())
    assert label_bias(None, L) is None


def test_the_output_vector_starts_with_the_scale_of_its_width():
    torch.manual_seed(0)
    expert = attention_expert(hidden_size=2500)
    assert float(expert.mlp_out.detach().std()) == pytest.approx(0.02, rel=0.1)


def test_groups_of_the_attention_expert_follow_the_paper():
    def names(expert):
        known = {id(p): name for name, p in expert.named_parameters()}
        groups = expert.parameter_groups()
        return {group: {known[id(p)] for p in members} for group, members in groups.items()}

    key, first = {"key.weight", "key.bias"}, {"mlp_in.weight", "mlp_in.bias"}
    last, queries = {"mlp_out", "bias"}, {"query"}
    merged = {"attention": key | first, "queries": queries, "mlp": last}
    assert names(attention_expert()) == merged
    apart = {"attention": key | {"value.weight", "value.bias"}, "queries": queries}
    assert names(attention_expert(separate_values=True)) == {**apart, "mlp": last | first}
    plain = {"attention": set(), "queries": queries, "mlp": last | first}
    assert names(attention_expert(projections=False, separate_values=True)) == plain


@pytest.mark.parametrize("kind", ["attention", "document"])
def test_dropout_acts_in_training_alone(kind):
    build = {"attention": LabelAttentionExpert, "document": DocumentExpert}[kind]
    config = AttentionConfig(key_size=5, hidden_size=7) if kind == "attention" else DocumentConfig()
    place = {"layer": 1} if kind == "attention" else {"layers": (1,)}
    expert = build(
        config, name="E", hidden_size=H, n_labels=L, bias=torch.zeros(L), dropout=0.5, **place
    )
    feats = features()
    first, second = (expert.train().prepare(feats)[0] for _ in range(2))
    assert not torch.equal(first, second)
    first, second = (expert.eval().prepare(feats)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_a_document_expert_may_do_without_biases():
    expert, feats = document_expert(bias=False), features()
    assert expert.bias is None
    assert [t.shape for t in expert.label_tensors()] == [(L, H)]
    expected = feats.hidden[2][:, 0] @ expert.weight.T
    torch.testing.assert_close(expert.logits(expert.prepare(feats), slice(0, L)), expected)


def test_experts_score_every_label_and_are_trained():
    for expert in (attention_expert(), document_expert()):
        assert expert.scores_rows
        assert expert.trained
        assert expert.ranks_all
        assert expert.suggestions(()) is None
    assert document_expert().label_width == 1


def test_logits_lie_label_by_label_where_a_graph_is_exported(monkeypatch):
    """Other runtimes then share the mapped file of the label vectors in place of a copy."""
    expert, feats = document_expert(bias=False), features()
    state = expert.prepare(feats)
    plain = expert.logits(state, slice(0, L))
    assert plain.is_contiguous()
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    exported = expert.logits(state, slice(0, L))
    assert exported.T.is_contiguous()
    torch.testing.assert_close(exported, plain)
