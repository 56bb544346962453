"""Recorded steps against plain ones; needs a GPU."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from glocal.systems.system import LabelStatistics, TrainingPosition
from tests.collating import collate
from tests.tiny import build_system, tiny_recipe

pytestmark = pytest.mark.gpu


def batch_of(tokenizer, texts, gold, chunking):
    random = np.random.default_rng(int(gold.sum()))
    scope = np.stack([random.permutation(22)[:5] for _ in texts]).astype(np.int32)
    scope[:, 4] = -1
    votes = random.random((len(texts), 5), dtype=np.float32)
    extra = {"scope": torch.from_numpy(scope), "scope_weight": torch.from_numpy(votes)}
    tokens = [np.array(ids) for ids in tokenizer.encode_batch(texts, 24)]
    options = {"pad_id": 0, "left": False, "multiple": 8, "chunking": chunking}
    batch = collate(tokens, np.arange(len(texts)), **options)
    padded = torch.full((len(texts), 8), -1)
    padded[:, : gold.shape[1]] = gold
    changes = {"gold": padded, "padded": True, "companion_features": extra}
    return replace(batch, denominator=float(len(texts)), **changes)


LONG = ("encoder.max_length=8", "encoder.document_length=24", "encoder.overlap=2")

CASES = [
    ("glocalxml",),
    ("glocalxml", 'experts=["D-last", "A-1", "T"]'),
    ("treaderxml",),
    ("treaderxml", "reader.votes=true", "reader.scope=mean"),
    ("glocalxml", *LONG),
    ("glocalxml", *LONG, "document.reads=chunks"),
]


@pytest.mark.parametrize("case", CASES, ids=["-".join(case) for case in CASES])
def test_a_replayed_step_equals_a_plain_one(case):
    from glocal.train.graphs import StepGraphs

    torch.manual_seed(0)
    recipe = tiny_recipe(*case, "candidates.mode=full")
    vectors = np.random.default_rng(0).normal(size=(22, 32)).astype(np.float32)
    system, tokenizer = build_system(recipe, LabelStatistics(np.full(20, 5), 100, vectors))
    system.cuda().train()
    graphs, position = StepGraphs(system, None), TrainingPosition(0, 10)
    texts = [["a red dog", "an owl at night"], ["the black cat", "a hen and a pig"]]
    replayed = 0
    for turn in range(6):
        gold = torch.tensor([[turn, 7], [3, 19 - turn]])
        batch = batch_of(tokenizer, texts[turn % 2], gold, system.chunking)
        assert (batch.continuation is None) == (system.chunking is None)
        loss = graphs.step(batch, position)
        if loss is None:  # met for the first time
            continue
        replayed += 1
        found = {n: p.grad.clone() for n, p in system.named_parameters() if p.grad is not None}
        system.zero_grad(set_to_none=True)
        plain = system.training_step(batch.to(torch.device("cuda")), position)
        plain.backward()
        torch.testing.assert_close(loss, plain.detach(), rtol=1e-4, atol=1e-5)
        for name, parameter in system.named_parameters():
            if parameter.grad is not None:
                torch.testing.assert_close(found[name], parameter.grad, rtol=1e-3, atol=1e-5)
        system.zero_grad(set_to_none=True)
        del plain
    assert replayed >= 3
