"""ME-XML's losses against direct implementations of its equations, through the whole system."""

import itertools

import pytest
import torch
from torch.nn import functional

from glocal.config import load_recipe
from glocal.config.expert_names import parse_experts
from glocal.data.tokens import TokenStore
from glocal.losses.diversity import diversity
from glocal.systems.system import LabelStatistics, TrainingPosition
from glocal.vocabulary.label_space import LabelSpace
from tests.collating import collate
from tests.tiny import build_system, tiny_corpus, tiny_recipe

BEFORE, AFTER = TrainingPosition(0, 100), TrainingPosition(99, 100)


def build(*overrides, recipe="me-xml"):
    """A system, a batch of the tiny corpus, its dense gold matrix and the training counts."""
    torch.manual_seed(0)
    corpus = tiny_corpus(24)
    labels = LabelSpace.build(corpus)
    settings = tiny_recipe(recipe, "candidates.mode=full", *overrides)
    system, tokenizer = build_system(settings, LabelStatistics(labels.counts, labels.n_documents))
    tokens = TokenStore.in_memory(tokenizer.encode_batch(corpus.texts(), 24))
    gold = labels.encode(corpus)
    batch = collate(
        tokens,
        torch.arange(24).numpy(),
        pad_id=0,
        left=False,
        gold=gold,
        n_labels=len(labels),
    )
    dense = torch.from_numpy(gold.toarray()[:, : len(labels)]).float()
    return system, batch, dense, torch.from_numpy(labels.counts).float()


def expert_logits(system, batch):
    states = system.prepare(batch)
    every = slice(0, system.n_labels)
    return [expert.logits(states[expert.name], every) for expert in system.experts]


def bce(logits, dense):
    """Summed over labels, averaged over documents."""
    total = functional.binary_cross_entropy_with_logits(logits, dense, reduction="sum")
    return total / len(dense)


def assert_same(system, found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    parameters = [p for p in system.parameters() if p.requires_grad]
    ours = torch.autograd.grad(found, parameters, retain_graph=True, allow_unused=True)
    theirs = torch.autograd.grad(expected, parameters, allow_unused=True)
    assert any(grad is not None and grad.any() for grad in theirs)
    for mine, other in zip(ours, theirs, strict=True):
        if mine is None or other is None:
            assert mine is other is None
        else:
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("chunk_elements", [0, 24 * 16 * 4], ids=["one chunk", "four chunks"])
class TestLosses:
    def test_one_expert_is_the_document_classifier(self, chunk_elements):
        system, batch, dense, _ = build(
            'experts=["D-last"]', f"train.chunk_elements={chunk_elements}"
        )
        (expert,) = system.experts
        features = system.encoder(batch)
        logits = functional.linear(features.hidden[2][:, 0], expert.weight, expert.bias)
        assert_same(system, system.training_step(batch, AFTER), bce(logits, dense))
        best = system.topk(batch, system.n_labels).combined
        torch.testing.assert_close(
            best.scores, torch.sigmoid(logits).gather(1, best.indices), rtol=1e-5, atol=1e-6
        )

    def test_collaborative_loss_is_the_bce_of_the_mean_logit(self, chunk_elements):
        system, batch, dense, _ = build(
            "loss.kind=collaborative",
            "loss.diversity_weight=0",
            f"train.chunk_elements={chunk_elements}",
        )
        mean = torch.stack(expert_logits(system, batch)).mean(0)
        assert_same(system, system.training_step(batch, AFTER), bce(mean, dense))

    def test_individual_loss_is_the_mean_of_the_experts_bce(self, chunk_elements):
        system, batch, dense, _ = build(
            "loss.diversity_weight=0",
            'experts=["D-last", "A-1", "A-0"]',
            f"train.chunk_elements={chunk_elements}",
        )
        losses = [bce(logits, dense) for logits in expert_logits(system, batch)]
        assert_same(system, system.training_step(batch, AFTER), torch.stack(losses).mean())

    @pytest.mark.parametrize("projections", ["true", "false"])
    def test_total_loss_with_diversity(self, chunk_elements, projections):
        system, batch, dense, counts = build(
            "loss.diversity_weight=0.3",
            'experts=["D-last", "A-1", "D-1"]',
            f"attention.projections={projections}",
            f"train.chunk_elements={chunk_elements}",
        )
        logits = expert_logits(system, batch)
        individual = torch.stack([bce(z, dense) for z in logits]).mean()
        expected = individual + 0.3 * equations(logits, dense, counts) / len(dense)
        assert_same(system, system.training_step(batch, AFTER), expected)


def equations(logits, dense, counts):
    """Eq. 6–9 with probabilities over all labels, mean over ordered pairs."""
    total = 0.0
    pairs = list(itertools.permutations(logits, 2))
    for first, second in pairs:
        p, q = torch.sigmoid(first), torch.sigmoid(second)
        scale = dense * (1 - torch.maximum(p, q).detach()) / counts
        kl = p * torch.log(p / q) + (1 - p) * torch.log((1 - p) / (1 - q))
        total = total - (scale * kl).sum()
    return total / len(pairs)


def test_diversity_starts_part_of_the_way_through():
    system, batch, dense, _ = build("loss.diversity_weight=0.3", "loss.diversity_start=0.5")
    individual = torch.stack([bce(z, dense) for z in expert_logits(system, batch)]).mean()
    torch.testing.assert_close(system.training_step(batch, TrainingPosition(49, 100)), individual)
    assert system.training_step(batch, TrainingPosition(50, 100)) < individual


def test_diversity_weighs_as_the_bce_does_when_labels_are_averaged():
    overrides = ("loss.diversity_weight=0.3", "loss.diversity_start=0")
    summed, batch, dense, _ = build(*overrides)
    averaged, *_ = build(*overrides, "loss.label_reduction=mean")
    averaged.load_state_dict(summed.state_dict())
    torch.testing.assert_close(
        averaged.training_step(batch, AFTER), summed.training_step(batch, AFTER) / dense.shape[1]
    )


def test_lambda_carries_no_gradient():
    torch.manual_seed(0)
    first, second = (torch.randn(3, 2, requires_grad=True) for _ in range(2))
    counts, gold = torch.full((3, 2), 4.0), torch.ones(3, 2)
    found = torch.autograd.grad(diversity([first, second], counts, gold), [first, second])
    with torch.no_grad():
        p, q = torch.sigmoid(first), torch.sigmoid(second)
        scale = (1 - torch.maximum(p, q)) / counts
        # Of ½ (KL(p‖q) + KL(q‖p)), with λ a constant.
        first_grad = p * (1 - p) * (first - second) + p - q
        second_grad = q * (1 - q) * (second - first) + q - p
    torch.testing.assert_close(found[0], -scale * first_grad / 2)
    torch.testing.assert_close(found[1], -scale * second_grad / 2)


def test_labels_that_are_gold_for_no_document_do_not_diverge():
    system, batch, _, _ = build("loss.diversity_weight=1.0")
    states = system.prepare(batch)
    some = torch.where(batch.gold == batch.gold.max(), -1, batch.gold)
    alone = system._diversity(type(batch)(**{**vars(batch), "gold": some}), states)
    grads = torch.autograd.grad(alone, [expert.bias for expert in system.experts])
    absent = int(batch.gold.max())
    for grad in grads:
        assert grad[absent] == 0
        assert grad.abs().sum() > 0


def test_more_training_texts_mean_less_diversity():
    logits = [torch.tensor([[1.0, 1.0]]), torch.tensor([[-1.0, -1.0]])]
    rare = diversity(logits, torch.tensor([[1.0, 1.0]]), torch.ones(1, 2))
    common = diversity(logits, torch.tensor([[50.0, 50.0]]), torch.ones(1, 2))
    torch.testing.assert_close(common * 50, rare)


@pytest.mark.parametrize(
    ("recipe", "experts"),
    [
        ("me-xml-1", [("D", (6,))]),
        ("me-xml", [("D", (6,)), ("A", (1,))]),
        ("me-xml-3", [("D", (6,)), ("A", (1,)), ("A", (3,))]),
    ],
)
def test_recipes_of_one_two_and_three_experts(recipe, experts):
    found = parse_experts(load_recipe(recipe).experts, 6)
    assert [(expert.kind, expert.layers) for expert in found] == experts


@pytest.mark.parametrize(
    ("recipe", "queries", "mlp", "encoder", "rest"),
    [
        ("me-xml-paper-eurlex4k", 2e-4, 2e-3, 5e-5, (8, 8, 512)),
        ("me-xml-paper-wiki10-31k", 1e-4, 1e-3, 1e-5, (5, 5, 512)),
        ("me-xml-paper-amazoncat-13k", 5e-4, 2e-3, 5e-5, (12, 4, 192)),
    ],
)
def test_paper_recipes_have_the_settings_of_tables_5_and_6(recipe, queries, mlp, encoder, rest):
    found = load_recipe(recipe)
    rates, train = found.train.rates, found.train
    assert (rates["queries"], rates["mlp"], rates["encoder"]) == (queries, mlp, encoder)
    assert rates["classifier"] == mlp
    assert (train.batch_size, train.epochs, found.encoder.max_length) == rest
    assert found.encoder.name == "roberta-base"
    assert not found.attention.projections
    assert found.loss.diversity_weight == 0.01


def test_concatenated_layers_make_one_wider_expert():
    system, batch, _, _ = build('experts=["D-(last+1)"]')
    assert system.expert_names == ["D-(last+1)"]
    assert system.experts[0].weight.shape == (system.n_labels, 2 * 32)
    features = system.encoder(batch)
    both = torch.cat([features.hidden[2][:, 0], features.hidden[1][:, 0]], dim=1)
    (logits,) = expert_logits(system, batch)
    expected = functional.linear(both, system.experts[0].weight, system.experts[0].bias)
    torch.testing.assert_close(logits, expected)
