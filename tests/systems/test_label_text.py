"""Systems whose label vectors know their labels' names."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from glocal.data.corpus import Corpus
from glocal.errors import ConfigError
from glocal.log_odds import log_odds
from glocal.predict.predictor import Predictor
from glocal.storage.integrity import update_checksums
from glocal.systems.system import LabelStatistics, TrainingPosition
from glocal.train.run import fit
from glocal.vocabulary.label_table import LabelTable
from tests.collating import collate
from tests.tiny import build_system, tiny_recipe

COUNTS = np.array([5, 0, 3, 2, 0, 1])
NAMES = ["dog", "cow", "owl", "bee", "", "red"]
UNSEEN = [1, 4]
SHORTLIST = ["candidates.mode=shortlist", "candidates.hard=2", "candidates.random=40"]


def build(*overrides, counts=COUNTS, name="glocalxml"):
    torch.manual_seed(0)
    recipe = tiny_recipe(name, "labels.text=tied", "labels.text_dropout=0", *overrides)
    statistics = LabelStatistics(counts, 12, texts=NAMES)
    system, tokenizer = build_system(recipe, statistics)
    tokens = [np.array(t) for t in tokenizer.encode_batch(["a red dog", "an owl", "the bee"], 24)]
    batch = collate(tokens, np.arange(3), pad_id=0, left=False)
    gold = torch.tensor([[0, 5], [2, -1], [3, -1]])
    return system.train(), type(batch)(**{**vars(batch), "gold": gold})


def step(system, batch):
    system.zero_grad()
    loss = system.training_step(batch, TrainingPosition(0, 10))
    loss.backward()
    return loss.detach()


@pytest.mark.parametrize("text", ["tied", "start"])
@pytest.mark.parametrize(
    "settings",
    [
        ["candidates.mode=full"],
        ["candidates.mode=full", "loss.kind=collaborative"],
        ["candidates.mode=full", "train.chunk_elements=100"],
        SHORTLIST,
    ],
)
def test_labels_without_training_texts_are_no_part_of_the_loss(settings, text):
    system, batch = build(*settings, f"labels.text={text}")
    before = step(system, batch)
    grads = {n: p.grad.clone() for n, p in system.named_parameters()}
    own = [
        g
        for n, g in grads.items()
        if n.endswith(("weight", "query", "bias")) and len(g) == len(NAMES)
    ]
    assert len(own) >= 4
    assert all(not g[UNSEEN].any() for g in own)
    assert all(g[0].abs().sum() > 0 for g in own)
    with torch.no_grad():  # whatever these labels score, nothing changes
        for expert in system.experts:
            vectors = expert.weight if hasattr(expert, "weight") else expert.query
            if text == "tied":
                expert.tie.rows[UNSEEN] = 5.0
            vectors[UNSEEN] = 3.0
            expert.bias[UNSEEN] = 4.0
    torch.testing.assert_close(step(system, batch), before)
    for name, parameter in system.named_parameters():
        torch.testing.assert_close(parameter.grad, grads[name], rtol=1e-4, atol=1e-6)


def test_without_label_text_they_are_trained_as_negatives():
    system, batch = build("labels.text=off")
    step(system, batch)
    assert (system.experts[0].weight.grad[UNSEEN].abs().sum(1) > 0).all()


def test_the_tie_is_trained_by_all_experts_alike():
    system, batch = build('experts=["D-last","A-1","D-(1+2)"]')
    step(system, batch)
    assert [tuple(e.tie.project.shape) for e in system.experts] == [(32, 32), (16, 32), (64, 64)]
    assert all(e.tie.project.grad.abs().sum() > 0 for e in system.experts)


def test_a_reader_is_tied_too():
    counts = np.array([5, 1, 3, 2, 2, 1])
    settings = ["reader.configuration=7", 'experts=["R-last"]']
    system, batch = build(*settings, name="treaderxml", counts=counts)
    step(system, batch)
    (expert,) = system.experts
    assert expert.tie.project.shape == (16, 32)
    assert expert.tie.project.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["document.head=aplc"], "label clusters have none"),
        (["attention.query_init=tokens"], "both say where label queries"),
    ],
)
def test_settings_that_do_not_go_with_label_text(overrides, message):
    with pytest.raises(ConfigError, match=message):
        build(*overrides)


def test_the_clusters_of_aplc_know_no_label_text():
    with pytest.raises(ConfigError, match="label clusters have none"):
        build(name="aplc")


# --- from texts to a model directory -----------------------------------------------------------


def named_words(n, *, seed=0):
    letters = list("abcdefghijklmnopqrstuvwxyz")
    random = np.random.default_rng(seed)
    return sorted({"".join(random.choice(letters, 5)) for _ in range(n)})


WORDS = named_words(40)
TABLE = LabelTable([f"{i:02}" for i in range(len(WORDS))], WORDS)


def corpus(first, last, n, *, seed=0):
    """Texts that hold the name of their label, one of those between first and last."""
    chosen = np.random.default_rng(seed).integers(first, last, size=n)
    return Corpus.from_texts([f"a {WORDS[i]}" for i in chosen], [[f"{i:02}"] for i in chosen])


def train(path, *overrides, table=TABLE):
    settings = ["labels.score_unseen=true", "encoder.pooling=mean", 'experts=["D-0"]', *overrides]
    fit(
        tiny_recipe("glocalxml", "train.epochs=6", *settings),
        corpus(0, 30, 200),
        out=path,
        label_table=table,
        device="cpu",
    )
    return Predictor.load(path, device="cpu")


def first_of_unseen(predictor, texts):
    """How often the right one of the labels 30 to 39 comes first among them."""
    found = predictor.predict_corpus(texts, k=1, only=TABLE.ids[30:]).indices[:, 0]
    return np.mean([predictor.labels.ids[i] for i in found] == np.ravel(texts.labels()))


def test_labels_never_seen_are_found_by_their_names(tmp_path):
    texts = corpus(30, 40, 100, seed=1)
    tied = first_of_unseen(train(tmp_path / "tied", "labels.text=tied"), texts)
    off = first_of_unseen(train(tmp_path / "off"), texts)
    assert tied > 0.35
    assert off < 0.25


def test_a_saved_model_scores_as_the_one_trained(tmp_path):
    predictor = train(tmp_path / "model", "labels.text=tied", 'experts=["D-last","A-1"]')
    again = Predictor.load(tmp_path / "model", device="cpu")
    ours, theirs = (p.predict(["a b", WORDS[35]], k=40) for p in (predictor, again))
    np.testing.assert_array_equal(ours.scores, theirs.scores)
    rows = predictor.system.experts[0].tie.rows
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(40))


def test_labels_never_seen_score_as_the_rarest_do_on_average(tmp_path):
    predictor = train(tmp_path / "model", "labels.text=tied", 'experts=["D-last","A-1"]')
    texts = corpus(0, 30, 200)  # those of the training
    found = predictor.predict(texts, k=40, per_expert=True, calibrated=False)
    counts = predictor.labels.counts
    for expert in found.experts.values():
        odds = np.zeros((len(texts), 40))
        np.put_along_axis(odds, expert.indices, log_odds(expert.scores, (1e-7, 1 - 1e-7)), 1)
        mean, rarest = odds.mean(axis=0), counts == counts[counts > 0].min()
        np.testing.assert_allclose(mean[counts == 0], mean[rarest].mean(), atol=1e-3)
    path = tmp_path / "model" / "model.safetensors"
    stored = {n: v for n, v in load_file(path).items() if not n.endswith(".tie.offset")}
    save_file(stored, path)
    update_checksums(tmp_path / "model")
    older = Predictor.load(tmp_path / "model", device="cpu")  # as earlier versions wrote it
    assert not older.system.experts[0].tie.offset.any()


def test_labels_never_seen_are_levelled_beside_the_words_model(tmp_path):
    words = ("labels.text=tied", 'experts=["D-last","S"]')
    predictor = train(tmp_path / "model", *words)
    assert predictor.system.experts[0].tie.offset.any()


def test_a_run_without_names_says_so(tmp_path):
    numbers = LabelTable(TABLE.ids, TABLE.ids)
    with pytest.raises(ConfigError, match="none of the 40 labels has one"):
        train(tmp_path / "model", "labels.text=tied", table=numbers)
