"""MPNet with this library's attention against transformers' own."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from transformers import MPNetConfig, MPNetModel

from glocal.encoders.mpnet import adapt_mpnet
from glocal.systems.system import LabelStatistics, TrainingPosition
from tests.collating import collate
from tests.encoders.folders import MPNET, texts
from tests.tiny import build_system, tiny_recipe


@pytest.fixture
def models():
    torch.manual_seed(0)
    theirs = MPNetModel(MPNetConfig(**{**MPNET, "vocab_size": 50}), add_pooling_layer=False)
    with torch.no_grad():  # of a trained size, so that positions matter
        for parameter in theirs.parameters():
            parameter.mul_(10 if parameter.dim() > 1 else 1)
    ours = copy.deepcopy(theirs)
    adapt_mpnet(ours)
    return theirs, ours


@pytest.mark.parametrize("padded", [True, False])
def test_the_same_states_and_gradients(models, padded):
    tokens, mask = torch.randint(4, 50, (3, 190)), None
    if padded:
        mask = (torch.arange(190) < torch.tensor([[190], [120], [7]])).long()
        tokens[mask == 0] = 1
    found = []
    for model in models:
        states = model(tokens, attention_mask=mask, output_hidden_states=True).hidden_states
        kept = [s if mask is None else s[mask > 0] for s in states]
        (kept[-1] ** 2).mean().backward()
        gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        found.append((kept, gradients))
    (states, gradients), (our_states, our_gradients) = found
    torch.testing.assert_close(our_states, states, rtol=1e-4, atol=1e-5)
    assert our_gradients["encoder.relative_attention_bias.weight"].abs().sum() > 0
    torch.testing.assert_close(our_gradients, gradients, rtol=1e-3, atol=1e-5)


def test_attention_weights_can_be_had(models):
    tokens = torch.randint(4, 50, (2, 12))
    theirs, ours = (m(tokens, output_attentions=True).attentions for m in models)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_positions_are_no_part_of_a_saved_model(models):
    theirs, ours = models
    assert ours.state_dict().keys() == theirs.state_dict().keys()


@pytest.mark.gpu
def test_a_step_is_recorded_and_equals_a_plain_one(mpnet):
    from glocal.train.graphs import StepGraphs

    torch.manual_seed(0)
    recipe = tiny_recipe("glocalxml", f"encoder.name=random:{mpnet}", "candidates.mode=full")
    system, tokenizer = build_system(recipe, LabelStatistics(np.full(20, 5), 100))
    system.cuda().train()
    tokens = [np.array(ids) for ids in tokenizer.encode_batch(texts()[:4], 24)]
    batch = collate(tokens, np.arange(4), pad_id=1, left=False, multiple=8)
    gold = torch.arange(8).view(4, 2)
    batch = dataclasses.replace(batch, gold=gold, padded=True, denominator=4.0)
    graphs, progress = StepGraphs(system, None), TrainingPosition(0, 10)
    assert graphs.step(batch, progress) is None
    loss = graphs.step(batch, progress)
    assert loss is not None
    assert not graphs.failed
    found = {n: p.grad.clone() for n, p in system.named_parameters() if p.grad is not None}
    system.zero_grad(set_to_none=True)
    plain = system.training_step(batch.to(torch.device("cuda")), progress)
    plain.backward()
    torch.testing.assert_close(loss, plain.detach(), rtol=1e-4, atol=1e-5)
    for name, gradient in found.items():
        expected = system.get_parameter(name).grad
        torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=1e-5)
