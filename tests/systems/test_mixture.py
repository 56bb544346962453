"""What is particular to systems made of experts."""

import numpy as np
import pytest
import torch

from glocal.errors import ConfigError
from glocal.systems.expert_builder import initial_bias
from glocal.systems.system import LabelStatistics, TrainingPosition
from tests.collating import collate
from tests.tiny import build_system, tiny_recipe

COUNTS = np.array([5, 1, 3, 2, 2, 1])


def build(*overrides, name="glocalxml"):
    torch.manual_seed(0)
    system, tokenizer = build_system(tiny_recipe(name, *overrides), LabelStatistics(COUNTS, 8))
    tokens = [np.array(t) for t in tokenizer.encode_batch(["a red dog", "an owl", "the bee"], 24)]
    batch = collate(tokens, np.arange(3), pad_id=0, left=False)
    gold = torch.tensor([[0, 2], [1, -1], [4, 5]])
    return system.train(), type(batch)(**{**vars(batch), "gold": gold})


def gradients(system, batch, position=None):
    system.zero_grad()
    loss = system.training_step(batch, position or TrainingPosition(0, 10))
    loss.backward()
    found = {n: p.grad.clone() for n, p in system.named_parameters() if p.grad is not None}
    return float(loss.detach()), found


@pytest.mark.parametrize("name", ["glocalxml", "me-xml"])
def test_a_shortlist_of_every_label_is_the_full_loss(name):
    settings = ["candidates.mode=shortlist", "candidates.hard=6", "candidates.random=0"]
    loss, found = gradients(*build(*settings, name=name), TrainingPosition(9, 10))
    full_loss, expected = gradients(
        *build("candidates.mode=full", name=name), TrainingPosition(9, 10)
    )
    assert loss == pytest.approx(full_loss, rel=1e-5)
    assert found.keys() == expected.keys()
    for key, grad in expected.items():
        torch.testing.assert_close(found[key], grad, rtol=1e-4, atol=1e-5)


def test_the_random_part_changes_with_the_step_and_the_seed_alone():
    system, batch = build("candidates.mode=shortlist", "candidates.hard=1", "candidates.random=2")
    value = {
        p: gradients(system, batch, TrainingPosition(*p))[0]
        for p in [(0, 9, 0), (1, 9, 0), (0, 9, 1)]
    }
    assert len(set(value.values())) == 3
    assert gradients(system, batch, TrainingPosition(0, 9, 0))[0] == value[0, 9, 0]


def test_reductions_scale_the_loss():
    plain = gradients(*build())[0]
    assert gradients(*build("loss.label_reduction=mean"))[0] == pytest.approx(plain / 6, rel=1e-5)
    assert gradients(*build("loss.expert_reduction=mean"))[0] == pytest.approx(plain / 2, rel=1e-5)


def test_stop_gradient_keeps_the_local_expert_out_of_the_encoder():
    both = gradients(*build("attention.stop_gradient=true"))[1]
    alone = gradients(*build('experts=["D-last"]'))[1]
    for name in (n for n in alone if n.startswith("encoder.")):
        torch.testing.assert_close(both[name], alone[name], rtol=1e-4, atol=1e-6)
    assert both["experts.1.query"].abs().sum() > 0


def test_biases_start_at_the_prior_or_a_constant():
    prior = initial_bias("prior", LabelStatistics(COUNTS, 8)).double().sigmoid().numpy()
    np.testing.assert_allclose(prior, (COUNTS + 0.5) / 9, rtol=1e-5)
    assert initial_bias("-5", LabelStatistics(COUNTS, 8)).tolist() == [-5.0] * 6
    every = initial_bias("prior", LabelStatistics(np.array([0, 8]), 8))
    assert every.isfinite().all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["loss.kind=collaborative", "candidates.mode=shortlist"], "candidates.mode=full"),
        (['experts=["A-1"]', "candidates.mode=shortlist"], "needs a document expert"),
        (["loss.bias_init=abc"], "must be prior or a number, not 'abc'"),
        (["experts=[]"], "'experts' is empty"),
        (['experts=["D-last", "D-last"]'], "listed more than once"),
        (['experts=["X-1"]'], "'X-1' is not of the form"),
        (['experts=["A-9"]'], "layers 0 to 2"),
        (['experts=["A-(1+2)"]'], "only document experts"),
        (["system=glocalxlm"], "did you mean 'glocalxml'"),
        (['experts=["S"]'], "the encoder 'random:tiny' is read by none of the experts S"),
    ],
)
def test_settings_that_do_not_go_together(settings, words):
    with pytest.raises(ConfigError) as error:
        build(*settings)
    assert words in str(error.value)


def test_auto_takes_a_shortlist_on_a_cpu_where_labels_are_many(monkeypatch):
    def mode(n_labels, *overrides, device="cpu"):
        statistics = LabelStatistics(np.ones(n_labels, int), n_labels)
        system, _ = build_system(
            tiny_recipe("glocalxml", *overrides), statistics, device_type=device
        )
        return system.recipe.candidates.mode

    monkeypatch.setattr("glocal.config.resolve.SHORTLIST_FROM", 10)
    assert mode(9) == "full"
    assert mode(10) == "shortlist"
    assert mode(10, device="cuda") == "full"
    assert mode(10, "loss.kind=collaborative") == "full"
    assert mode(10, 'experts=["A-1"]') == "full"
    assert mode(10, "candidates.mode=full") == "full"
