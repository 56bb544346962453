import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon

from glocal.data.tokens import TokenStore
from glocal.errors import ConfigError
from glocal.lab.divergence import batch_divergence, bernoulli_jsd, expert_divergence
from glocal.predict.predictor import Predictor
from glocal.storage.model_directory import StoredModel
from glocal.systems.system import LabelStatistics
from tests.collating import collate
from tests.tiny import build_system, tiny_corpus, tiny_recipe


def predictor(*overrides):
    from glocal.vocabulary.label_space import LabelSpace

    torch.manual_seed(3)
    labels = LabelSpace.build(tiny_corpus(40))
    recipe = tiny_recipe("glocalxml", "candidates.mode=full", *overrides)
    system, tokenizer = build_system(recipe, LabelStatistics(labels.counts, labels.n_documents))
    for expert in system.experts:  # experts that differ visibly
        torch.nn.init.normal_(expert.label_tensors()[-1], std=2.0)
    return Predictor(StoredModel(system, recipe, labels, tokenizer), device="cpu", batch_size=7)


def all_logits(found, corpus):
    """(documents, labels) of both experts: only a test may hold it."""
    tokens = TokenStore.in_memory(found.tokenizer.encode_batch(corpus.texts(), 24))
    batch = collate(tokens, np.arange(len(corpus)), pad_id=0, left=False)
    with torch.inference_mode():
        states = found.system.prepare(batch)
        every = slice(0, found.system.n_labels)
        return [e.logits(states[e.name], every).double() for e in found.system.experts]


@pytest.mark.parametrize("chunk_elements", [0, 7 * 24 * 2, 1])
def test_equals_the_direct_computation(chunk_elements):
    corpus = tiny_corpus(20, seed=5)
    found = predictor(f"train.chunk_elements={chunk_elements}")
    measured = expert_divergence(found, corpus)
    first, second = (torch.sigmoid(z).numpy() for z in all_logits(found, corpus))
    # scipy normalises each row to sum 1 and gives the square root of the divergence.
    expected = np.mean(jensenshannon(first, second, axis=1) ** 2)
    assert measured.jsd == pytest.approx(expected, rel=1e-5)
    pairs = [np.stack([p, 1 - p], axis=-1) for p in (first, second)]
    assert measured.bernoulli_jsd == pytest.approx(
        np.mean(jensenshannon(*pairs, axis=-1) ** 2), rel=1e-4
    )
    gold = found.labels.encode(corpus).toarray()[:, : found.system.n_labels]
    kl = first * np.log(first / second) + (1 - first) * np.log((1 - first) / (1 - second))
    back = second * np.log(second / first) + (1 - second) * np.log((1 - second) / (1 - first))
    assert measured.gold_kl == pytest.approx(np.mean((gold * (kl + back) / 2).sum(1)), rel=1e-4)
    assert measured.documents == measured.documents_with_gold == 20


def test_an_expert_does_not_differ_from_itself():
    logits = torch.tensor([-200.0, -3.0, 0.0, 3.0, 200.0]).double()
    torch.testing.assert_close(bernoulli_jsd(logits, logits), torch.zeros(5).double())


def test_opposite_certainties_differ_by_ln_2():
    logits = torch.tensor([200.0]).double()
    assert bernoulli_jsd(logits, -logits).item() == pytest.approx(np.log(2))


def test_documents_without_known_gold_do_not_count_for_kl():
    corpus = tiny_corpus(6, seed=5)
    from glocal.data.corpus import Corpus

    texts = [*corpus.texts(), "a new one", "another"]
    wider = Corpus.from_texts(texts, [*corpus.labels(), ["never seen"], []])
    found = predictor()
    assert expert_divergence(found, wider).documents_with_gold == 6
    assert expert_divergence(found, wider).gold_kl == pytest.approx(
        expert_divergence(found, corpus).gold_kl, rel=1e-6
    )


def test_no_dense_matrix_is_held(monkeypatch):
    found = predictor("train.chunk_elements=1")
    widths = []
    for expert in found.system.experts:
        score = type(expert).score

        def watched(self, state, rows, score=score):
            logits = score(self, state, rows)
            widths.append(logits.shape[1])
            return logits

        monkeypatch.setattr(type(expert), "score", watched)
    tokens = TokenStore.in_memory(found.tokenizer.encode_batch(["red cat", "blue dog"], 24))
    batch = collate(tokens, np.arange(2), pad_id=0, left=False)
    batch_divergence(found.system, batch)
    assert max(widths) == 1


@pytest.mark.parametrize("experts", ['["D-last"]', '["D-last", "A-1", "A-0"]'])
def test_two_experts_are_needed(experts):
    with pytest.raises(ConfigError, match="exactly two"):
        expert_divergence(predictor(f"experts={experts}"), tiny_corpus(2))
