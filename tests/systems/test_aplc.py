import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from glocal.config import load_recipe
from glocal.errors import ConfigError
from glocal.heads.aplc import APLC
from glocal.heads.frequency_clusters import label_clusters
from glocal.predict.predictor import Predictor
from glocal.ranking.aplc_topk import aplc_topk
from glocal.systems.system import LabelStatistics, TrainingPosition
from glocal.train.run import fit
from tests.collating import collate
from tests.encoders.folders import xlnet_folder
from tests.tiny import build_system, tiny_corpus, tiny_recipe

COUNTS = np.array([3, 0, 14, 1, 60, 0, 2, 7, 1, 25, 4, 1, 2])


def build_head(n_labels, partition, width=4, seed=0):
    torch.manual_seed(seed)
    counts = np.random.default_rng(seed).integers(0, 9, n_labels)
    head = APLC(label_clusters(counts, partition), width=width, tail="plain")
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=1.5)
    return head


def saturate(head, random):
    """Logits of −200, 0 and 200: scores are exactly 0, 0.25, 0.5 and 1, and most labels tie."""
    with torch.no_grad():
        for cluster in [head.gates, *head.clusters]:
            weight = random.integers(-1, 2, cluster.weight.shape)
            cluster.weight.copy_(torch.from_numpy(weight))
            for layer in cluster.project:
                layer.weight.copy_(torch.eye(head.width)[: len(layer.weight)])


def reference_topk(head, document, k, allowed=None):
    """All probabilities, sorted by falling score and then by label id."""
    n_labels = head.bounds[-1]
    scores = head.probabilities(document, torch.arange(n_labels)).detach().numpy()
    chosen = np.arange(n_labels) if allowed is None else np.flatnonzero(allowed)
    order = [sorted(chosen, key=lambda label: (-row[label], label))[:k] for row in scores]
    return np.array(order), np.take_along_axis(scores, np.array(order), 1)


partitions = st.sampled_from([(1.0,), (0.5, 0.5), (0.1, 0.2, 0.7), (0.05, 0.9, 0.05), (0.25,) * 4])


@settings(max_examples=60, deadline=None)
@given(
    partition=partitions,
    n_labels=st.integers(4, 60),
    k=st.integers(1, 12),
    seed=st.integers(0, 1000),
)
def test_pruned_equals_unpruned_down_to_ties(partition, n_labels, k, seed):
    random = np.random.default_rng(seed)
    head = build_head(n_labels, partition, seed=seed)
    saturate(head, random)
    document = 200 * torch.eye(4)[random.integers(0, 4, 6)]
    with torch.no_grad():
        found = aplc_topk(head, document, k)
        full = aplc_topk(head, document, k, prune=False)
    assert torch.equal(found.indices, full.indices)
    assert torch.equal(found.scores, full.scores)
    indices, scores = reference_topk(head, document, k)
    np.testing.assert_array_equal(full.indices, indices)
    np.testing.assert_array_equal(full.scores, scores)


@settings(max_examples=30, deadline=None)
@given(partition=partitions, gate=st.floats(-20, 20), seed=st.integers(0, 1000))
def test_pruned_equals_unpruned_on_any_numbers(partition, gate, seed):
    head = build_head(50, partition, seed=seed)
    document = torch.randn(6, 4)
    with torch.no_grad():
        head.gates.weight += gate * document[0]
        found = aplc_topk(head, document, 7)
        full = aplc_topk(head, document, 7, prune=False)
    # A product of other documents may round the last bit differently, and nothing more.
    torch.testing.assert_close(found.scores, full.scores, rtol=1e-5, atol=1e-30)
    distinct = (full.scores[:, :-1] - full.scores[:, 1:]).min(1).values > 1e-5
    assert torch.equal(found.indices[distinct, :-1], full.indices[distinct, :-1])


def test_ties_between_head_and_tail_go_to_the_smaller_label_id():
    counts = np.array([0, 0, 5, 6])  # labels 3 and 2 are the head, 0 and 1 the tail
    head = APLC(label_clusters(counts, (0.5, 0.5)), width=2, tail="plain")
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.zero_()
        head.clusters[1].weight.fill_(0.0)
        head.gates.weight.fill_(0.0)
    document = torch.zeros(1, 2)
    with torch.no_grad():  # head 0.5; tail 0.5 · 0.5
        assert aplc_topk(head, document, 4).indices.tolist() == [[2, 3, 0, 1]]
        head.clusters[1].project[0].weight.fill_(1.0)
        head.clusters[1].weight.fill_(1e4)  # tail 0.5 · 1: a gate equal to the k-th score counts
        assert aplc_topk(head, torch.ones(1, 2), 2).indices.tolist() == [[0, 1]]


def test_closed_gates_skip_their_tails():
    head = build_head(40, (0.5, 0.25, 0.25))
    visited = []
    for number in (1, 2):
        head.cluster(number).project.register_forward_hook(
            lambda module, inputs, output, number=number: visited.append((number, len(inputs[0])))
        )
    document = torch.cat([torch.ones(3, 4), -torch.ones(2, 4)])
    with torch.no_grad():
        head.clusters[0].weight.fill_(0.0)  # the head gives one half to every label
        head.gates.weight[0] = -5.0  # open for the last two documents alone
        head.gates.weight[1] = -5.0 * torch.tensor([1.0, -1.0, 1.0, -1.0])  # one half for all
        head.gates.weight[1] -= 5.0 * document[3]  # open for the first three alone
        aplc_topk(head, document, 5)
    assert sorted(visited) == [(1, 2), (2, 3)]


def test_only_allowed_labels_come_out_and_pruning_knows_them():
    head = build_head(30, (0.3, 0.3, 0.4))
    document = torch.randn(4, 4)
    allowed = torch.zeros(30, dtype=torch.bool)
    allowed[head.order[25:]] = True  # all of them in the last tail
    with torch.no_grad():
        head.gates.weight[1] = -50 * document[0]  # and its gate is closed for the first document
        found = aplc_topk(head, document, 4, allowed=allowed)
        indices, scores = reference_topk(head, document, 4, allowed.numpy())
    np.testing.assert_array_equal(found.indices, indices)
    np.testing.assert_allclose(found.scores, scores, rtol=1e-5)


def test_more_labels_asked_for_than_there_are():
    head = build_head(5, (0.4, 0.6))
    with torch.no_grad():
        found = aplc_topk(head, torch.randn(2, 4), 9)
    assert sorted(found.indices[0].tolist()) == [0, 1, 2, 3, 4]


# --- the system ----------------------------------------------------------------------------------


def build(*overrides, counts=COUNTS):
    torch.manual_seed(0)
    recipe = tiny_recipe("aplc", *overrides)
    return build_system(recipe, LabelStatistics(counts, 100))[0]


def batch_of(lengths=(5, 9, 7), gold=None, denominator=None):
    random = np.random.default_rng(0)
    tokens = [np.array([2, *random.integers(4, 70, n), 3]) for n in lengths]
    return collate(
        tokens,
        np.arange(len(tokens)),
        pad_id=0,
        left=False,
        gold=gold,
        n_labels=len(COUNTS),
        denominator=denominator,
    )


def gold_matrix():
    gold = np.zeros((3, len(COUNTS) + 1))
    gold[0, [4, 2]] = 1
    gold[1, [0, 13]] = 1  # 13 is outside the label space
    gold[2, [5, 9]] = 1
    return csr_matrix(gold)


def test_candidates_get_the_scores_of_a_full_search():
    system = build("aplc.partition=[0.4, 0.3, 0.3]").eval()
    batch = batch_of()
    full = system.topk(batch, len(COUNTS), experts=system.expert_names)
    assert set(full.experts) == {"D-last"}
    candidates = torch.tensor([[3, 8, 12, -1], [4, 5, 1, 0], [-1, -1, 2, 7]])
    found = system.topk(batch, 4, candidates=candidates).combined
    dense = torch.zeros(3, len(COUNTS)).scatter_(1, *full.combined)
    for row, labels in enumerate(candidates):
        known = labels[labels >= 0].tolist()
        expected = [known[i] for i in (-dense[row, known]).argsort()]
        place = len(expected)
        assert found.indices[row, :place].tolist() == expected
        torch.testing.assert_close(found.scores[row, :place], dense[row, expected])
        assert (found.indices[row, place:] == -1).all()


@pytest.mark.parametrize("reduction", ["sum", "document", "ratio"])
def test_parts_of_a_step_add_up_to_the_whole(reduction):
    system = build(f"aplc.reduction={reduction}", "aplc.partition=[0.4, 0.3, 0.3]")
    gold, position = gold_matrix(), TrainingPosition(0, 10)
    divisor = system.denominator(gold, np.arange(3))
    whole = system.training_step(batch_of(gold=gold, denominator=divisor), position)
    tokens_of = batch_of(gold=gold, denominator=divisor)
    parts = [
        replace(
            tokens_of,
            input_ids=tokens_of.input_ids[rows],
            attention_mask=tokens_of.attention_mask[rows],
            gold=tokens_of.gold[rows],
        )
        for rows in (slice(0, 1), slice(1, 3))
    ]
    total = sum(system.training_step(part, position) for part in parts)
    torch.testing.assert_close(total, whole)


def test_reductions_differ_by_what_they_divide_by():
    gold, losses, divisors = gold_matrix(), {}, {}
    for reduction in ("sum", "document", "ratio"):
        system = build(f"aplc.reduction={reduction}", "aplc.partition=[0.4, 0.3, 0.3]")
        divisors[reduction] = system.denominator(gold, np.arange(3))
        batch = batch_of(gold=gold, denominator=divisors[reduction])
        losses[reduction] = system.training_step(batch, TrainingPosition(0, 10)).item()
    assert divisors == {"sum": 3.0, "document": 3.0, "ratio": 5.0 + 9.0 + 9.0}
    assert losses["ratio"] == pytest.approx(losses["sum"] * 3 / 23, rel=1e-5)
    one = build("aplc.reduction=document", "aplc.partition=[1.0]")
    every = build("aplc.reduction=sum", "aplc.partition=[1.0]")
    batch = batch_of(gold=gold)
    mean, total = (s.training_step(batch, TrainingPosition(0, 10)).item() for s in (one, every))
    assert mean == pytest.approx(total / len(COUNTS), rel=1e-5)


def test_rates_go_to_encoder_hidden_layer_and_clusters():
    system = build("aplc.hidden_size=12")
    groups = system.parameter_groups()
    assert list(groups) == ["encoder", "pooler", "classifier"]
    assert [tuple(p.shape) for p in groups["pooler"]] == [(12, 32), (12,)]
    grouped = {id(p) for parameters in groups.values() for p in parameters}
    assert grouped == {id(p) for p in system.parameters()}


def test_steps_can_be_recorded_only_with_fixed_shapes():
    assert not build("aplc.skip_tails=true").supports_cuda_graphs
    assert build("aplc.skip_tails=false").supports_cuda_graphs
    assert not build("aplc.skip_tails=false", "aplc.reduction=ratio").supports_cuda_graphs


@pytest.mark.parametrize("experts", ['["A-1"]', '["D-last", "A-1"]'])
def test_other_experts_are_refused(experts):
    with pytest.raises(ConfigError, match="one document expert"):
        build(f"experts={experts}")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("aplc.partition=[0.5, 0.6]", "sums to 1.1"),
        ("aplc.partition=half", "must be a list of numbers"),
        ("aplc.q=0.5", "at least 1"),
        ("aplc.tail=fancy", "one of official, plain"),
    ],
)
def test_wrong_settings_are_refused(override, message):
    with pytest.raises(ConfigError, match=message):
        build(override)


def test_a_frozen_encoder_gets_no_gradient():
    system = build("encoder.freeze=true")
    system.training_step(batch_of(gold=gold_matrix()), TrainingPosition(0, 10)).backward()
    assert all(p.grad is None for p in system.encoder.parameters())
    assert all(p.grad is not None for p in system.head.parameters())


# --- recipes and whole runs ----------------------------------------------------------------------

TABLES_2_AND_3 = {  # d_h, clusters, length, batch, epochs, η_x, η_h, η_a
    "eurlex4k": (768, 2, 512, 12, 8, 5e-5, 1e-4, 2e-3),
    "amazoncat-13k": (768, 2, 256, 48, 8, 5e-5, 1e-4, 2e-3),
    "wiki10-31k": (768, 2, 512, 12, 6, 1e-5, 1e-4, 1e-3),
    "wiki-500k": (512, 4, 128, 96, 15, 5e-5, 1e-4, 2e-3),
    "amazon-670k": (384, 4, 128, 28, 20, 5e-5, 1e-4, 2e-3),
}


@pytest.mark.parametrize("name", TABLES_2_AND_3)
def test_paper_recipes_hold_tables_2_and_3(name):
    recipe = load_recipe(f"aplc-xlnet-paper-{name}")
    assert recipe.aplc.skip_tails
    rates = [recipe.train.rates[group] for group in ("encoder", "pooler", "classifier")]
    shown = (recipe.aplc.hidden_size, len(recipe.aplc.partition), recipe.encoder.max_length)
    shown += (recipe.train.batch_size, recipe.train.epochs, *rates)
    assert shown == TABLES_2_AND_3[name]
    assert recipe.aplc.partition == (1 / len(recipe.aplc.partition),) * len(recipe.aplc.partition)
    assert (recipe.aplc.q, recipe.train.warmup, recipe.train.clip_norm) == (2.0, 0.0, 1.0)
    assert (recipe.system, recipe.encoder.name) == ("aplc-xlnet", "xlnet-base-cased")


@pytest.mark.parametrize(
    "overrides",
    [
        ["aplc.partition=[1.0]", "aplc.bias=false"],
        ["aplc.partition=[0.1, 0.8, 0.1]", "aplc.tail=plain", "aplc.reduction=ratio"],
    ],
    ids=["one-cluster", "a-cluster-of-one-label"],
)
def test_unusual_partitions_train_save_and_load(overrides, tmp_path):
    settings = ["train.epochs=1", "train.schedule=slanted-triangular", "train.warmup=0.0"]
    fit(
        tiny_recipe("aplc", *settings, *overrides),
        tiny_corpus(24),
        dev=tiny_corpus(8, seed=1),
        out=tmp_path / "model",
        device="cpu",
    )
    predictor = Predictor.load(tmp_path / "model", device="cpu")
    assert predictor.recipe.aplc == tiny_recipe("aplc", *overrides).aplc
    texts = ["the red cat", "a green owl a a a"]
    found = predictor.predict(texts, k=3)
    assert np.isfinite(found.scores).all()
    again = Predictor.load(tmp_path / "model", device="cpu").predict(texts, k=3)
    np.testing.assert_array_equal(found.indices, again.indices)


def test_accumulation_equals_the_whole_batch_for_the_ratio_of_sums(tmp_path):
    losses = {}
    for parts in (1, 4):
        recipe = tiny_recipe("aplc", "aplc.reduction=ratio", f"train.accumulation={parts}")
        fit(recipe, tiny_corpus(32), out=tmp_path / str(parts), device="cpu")
        log = (tmp_path / str(parts) / "train_log.jsonl").read_text().splitlines()
        losses[parts] = [json.loads(line)["loss"] for line in log if '"loss"' in line]
    assert len(losses[1]) == 4
    assert losses[4] == pytest.approx(losses[1], rel=1e-3)


def test_xlnet_reads_cls_last_and_padding_changes_nothing(tmp_path):
    folder = xlnet_folder(tmp_path / "xlnet")
    recipe = tiny_recipe("aplc", f"encoder.name=random:{folder}", "train.epochs=1")
    fit(recipe, tiny_corpus(32), out=tmp_path / "model", device="cpu")
    predictor = Predictor.load(tmp_path / "model", device="cpu")
    assert predictor.tokenizer.facts.cls_last
    assert predictor.tokenizer.facts.cls_type_id == 2
    texts = ["red cat", "the green owl a a a a a a a a", "blue"]
    k = len(predictor.labels)
    together = predictor.predict(texts, k=k)
    for row, text in enumerate(texts):
        alone = predictor.predict([text], k=k)
        np.testing.assert_array_equal(together.indices[row], alone.indices[0])
        np.testing.assert_allclose(together.scores[row], alone.scores[0], rtol=1e-5)
