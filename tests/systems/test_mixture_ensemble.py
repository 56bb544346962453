"""Several mixtures as one: mean log-odds, shortlists, the model directory."""

import numpy as np
import pytest
import torch

from glocal.errors import ModelError
from glocal.ranking.combination import Combination
from glocal.storage.integrity import update_checksums
from glocal.storage.model_directory import StoredModel, load_model, save_model
from glocal.systems.mixture_ensemble import MixtureEnsemble, mixtures_of
from glocal.systems.system import LabelStatistics
from glocal.vocabulary.label_space import LabelSpace
from tests.collating import collate
from tests.tiny import build_system, tiny_corpus, tiny_recipe

CORPUS = tiny_corpus(24)
LABELS = LabelSpace.build(CORPUS)


def build(seed, *overrides, recipe="glocalxml"):
    """A system with random weights that differ from label to label, and its tokenizer."""
    torch.manual_seed(seed)
    statistics = LabelStatistics(LABELS.counts, LABELS.n_documents)
    system, tokenizer = build_system(tiny_recipe(recipe, *overrides), statistics)
    with torch.no_grad():
        for parameter in system.experts.parameters() if hasattr(system, "experts") else ():
            parameter.normal_(0.0, 0.5)
    return system.eval(), tokenizer


def ensemble_of(n, *overrides):
    built = [build(seed, *overrides) for seed in range(n)]
    ensemble = MixtureEnsemble([system for system, _ in built]).eval()
    ensemble.combination = Combination({"D-last": 0.8, "A-1": 0.3}, -0.5, -0.4)
    return ensemble, built[0][1]


def batch_of(tokenizer, n=6):
    tokens = [np.array(ids) for ids in tokenizer.encode_batch(CORPUS.texts(0, n), 24)]
    facts = tokenizer.facts
    return collate(tokens, np.arange(n), pad_id=facts.pad_id, left=facts.cls_last)


@torch.no_grad()
def mean_logits(ensemble, batch):
    every = slice(0, len(LABELS))
    found = [m.expert_logits(m.prepare(batch), every) for m in mixtures_of(ensemble)]
    return {name: torch.stack([f[name] for f in found]).mean(0) for name in found[0]}


@pytest.mark.parametrize("overrides", [(), ("train.chunk_elements=200",)])
def test_scores_are_those_of_the_mean_log_odds(overrides):
    ensemble, tokenizer = ensemble_of(3, *overrides)
    batch = batch_of(tokenizer)
    logits = mean_logits(ensemble, batch)
    found = ensemble.topk(batch, len(LABELS), experts=ensemble.expert_names)
    expected = {name: torch.sigmoid(z) for name, z in logits.items()}
    rarity = -0.4 * torch.from_numpy(LABELS.counts).log()
    expected["all"] = torch.sigmoid(0.8 * logits["D-last"] + 0.3 * logits["A-1"] + rarity - 0.5)
    best = {**found.experts, "all": found.combined}
    assert best.keys() == expected.keys()
    for name, scores in expected.items():
        torch.testing.assert_close(best[name].scores, scores.sort(1, descending=True).values)
        torch.testing.assert_close(scores.gather(1, best[name].indices), best[name].scores)


def test_candidates_and_allowed_labels_score_the_same():
    ensemble, tokenizer = ensemble_of(2)
    batch = batch_of(tokenizer)
    whole = ensemble.topk(batch, len(LABELS)).combined
    given = ensemble.topk(batch, 3, candidates=whole.indices[:, 4:7]).combined
    assert torch.equal(given.indices, whole.indices[:, 4:7])
    torch.testing.assert_close(given.scores, whole.scores[:, 4:7])
    allowed = torch.zeros(len(LABELS), dtype=torch.bool)
    allowed[[1, 3]] = True
    assert set(ensemble.topk(batch, 2, allowed=allowed).combined.indices.unique().tolist()) == {
        1,
        3,
    }


def test_shortlists_are_what_any_member_puts_forward():
    overrides = ("candidates.mode=shortlist", "candidates.predict=2")
    ensemble, tokenizer = ensemble_of(3, *overrides)
    batch = batch_of(tokenizer)
    states = ensemble.prepare(batch)
    proposed = ensemble.shortlist(batch, states, 2, None)
    for member, state in zip(ensemble.mixtures(), states, strict=True):
        own = member.shortlist(batch, state, 2, None)
        assert (own.unsqueeze(2) == proposed.unsqueeze(1)).any(2).all()
    kept = proposed[proposed >= 0]
    assert len(kept) > 2 * len(batch)  # members differ
    rows = [row[row >= 0].tolist() for row in proposed]
    assert all(len(set(row)) == len(row) for row in rows)
    found = ensemble.topk(batch, 2).combined
    assert all(
        set(best) <= set(row) for best, row in zip(found.indices.tolist(), rows, strict=True)
    )


def test_one_member_is_the_mixture_itself():
    system, tokenizer = build(0)
    batch = batch_of(tokenizer)
    alone, ensemble = system.topk(batch, 5), MixtureEnsemble([system]).topk(batch, 5)
    assert torch.equal(alone.combined.indices, ensemble.combined.indices)
    torch.testing.assert_close(alone.combined.scores, ensemble.combined.scores)


def test_an_infinite_log_odds_does_not_silence_the_others():
    ensemble, tokenizer = ensemble_of(2)
    first = next(ensemble.mixtures())
    with torch.no_grad():
        first.experts[0].bias[0] = -torch.inf
    logits = ensemble.expert_logits(ensemble.prepare(batch_of(tokenizer)), slice(0, len(LABELS)))
    assert logits["D-last"].isfinite().all()


def test_a_system_of_label_clusters_is_no_mixture():
    system, _ = build(0, recipe="aplc")
    assert mixtures_of(system) == []


# --- the model directory ---------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    ensemble, tokenizer = ensemble_of(2)
    recipe = tiny_recipe("glocalxml", "train.members=2", "candidates.mode=full")
    save_model(tmp_path / "model", StoredModel(ensemble, recipe, LABELS, tokenizer))
    return tmp_path / "model"


def test_members_are_stored_apart_and_all_else_once(folder):
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert names == {
        "glocal.toml", "labels.parquet", "tokenizer.json", "encoder/config.json", "metrics.json",
        "README.md", "checksums.json", "members/0/model.safetensors", "members/1/model.safetensors",
    }  # fmt: skip
    assert "2 members, seeds 0 to 1" in (folder / "README.md").read_text("utf-8")


def test_loading_gives_the_same_predictions(folder):
    before, tokenizer = ensemble_of(2)
    after = load_model(folder)
    batch = batch_of(tokenizer)
    assert after.recipe.train.members == 2
    old, new = (
        system.topk(batch, 5, experts=system.expert_names) for system in (before, after.system)
    )
    assert old.experts.keys() == new.experts.keys() == {"D-last", "A-1"}
    pairs = [(old.combined, new.combined)]
    pairs += [(old.experts[name], new.experts[name]) for name in old.experts]
    for before, after in pairs:
        assert torch.equal(before.indices, after.indices)
        assert torch.equal(before.scores, after.scores)


def test_a_missing_member_is_named(folder):
    (folder / "members" / "1" / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"incomplete: members/1/model.safetensors is missing"):
        load_model(folder)


def test_a_damaged_member_is_a_damaged_directory(folder):
    path = folder / "members" / "0" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ModelError, match=r"damaged: members/0/model.safetensors changed"):
        load_model(folder)
    update_checksums(folder)
    with pytest.raises(ModelError, match="damaged or incomplete"):
        load_model(folder)
