"""Documents longer than the encoder's window, from the recipe to the prediction."""

import numpy as np
import pytest
import torch

from glocal.data.corpus import Corpus
from glocal.errors import ConfigError, Interrupted
from glocal.predict.predictor import Predictor
from glocal.storage.integrity import update_checksums
from glocal.systems.system import LabelStatistics, TrainingPosition
from tests.collating import collate
from tests.encoders.folders import xlnet_folder
from tests.predict.test_explain import check_spans
from tests.predict.test_predictor import dense, predictor_of
from tests.tiny import ANIMALS, build_system, tiny_corpus, tiny_recipe
from tests.train.runs import Recorder, assert_same_run, losses, train, train_in_processes

LONG = ("encoder.max_length=16", "encoder.document_length=60", "encoder.overlap=4")
CUT = ("encoder.max_length=16",)
FULL, SHORTLIST = "candidates.mode=full", "candidates.mode=shortlist"
CHUNKS = "document.reads=chunks"

SHORT = ["the red cat", "an owl", "a bee"]
LONGER = ["a hen " * 9 + "and a fox", "the blue pig " * 7, "a cow a cow a cow a cow"]


def scores(predictor, texts, **options):
    n_labels = len(predictor.labels)
    found = predictor.predict(texts, k=n_labels, per_expert=True, calibrated=False, **options)
    parts = {**found.experts, "all": found}
    return {name: dense(predictions, n_labels) for name, predictions in parts.items()}


@pytest.mark.parametrize("reads", ["first", "chunks"])
def test_a_text_that_fits_has_exactly_the_scores_it_had(reads):
    whole = scores(predictor_of(*LONG, FULL, f"document.reads={reads}"), SHORT)
    cut = scores(predictor_of(*CUT, FULL), SHORT)
    for name, expected in cut.items():
        np.testing.assert_array_equal(whole[name], expected)


@pytest.mark.parametrize("reads", ["first", "chunks"])
def test_only_the_experts_that_read_on_score_a_long_text_otherwise(reads):
    whole = scores(predictor_of(*LONG, FULL, f"document.reads={reads}"), LONGER)
    cut = scores(predictor_of(*CUT, FULL), LONGER)
    assert not np.allclose(whole["A-1"], cut["A-1"], atol=1e-4)
    assert np.allclose(whole["D-last"], cut["D-last"], atol=1e-6) == (reads == "first")


@pytest.mark.parametrize("mode", [FULL, SHORTLIST])
@pytest.mark.parametrize("reads", ["first", "chunks"])
@pytest.mark.parametrize("kind", ["bert", "xlnet"])
def test_the_company_a_text_is_in_does_not_change_its_scores(kind, reads, mode, tmp_path):
    settings = [*LONG, mode, f"document.reads={reads}", "candidates.predict=6"]
    if kind == "xlnet":
        settings.append(f"encoder.name=random:{xlnet_folder(tmp_path / 'xlnet')}")
    predictor = predictor_of(*settings)
    texts = [SHORT[0], LONGER[0], SHORT[1], LONGER[1], LONGER[2]]
    together = scores(predictor, texts)
    for row, text in enumerate(texts):
        for name, alone in scores(predictor, [text]).items():
            np.testing.assert_allclose(together[name][row], alone[0], rtol=0, atol=2e-5)


def test_texts_are_read_up_to_the_document_length():
    predictor = predictor_of(*LONG, FULL)
    start = "the red cat " * 9  # 90 tokens
    first, other = scores(predictor, [start + "owl"]), scores(predictor, [start + "and a bee"])
    np.testing.assert_array_equal(first["A-1"], other["A-1"])
    start = "the red cat " * 5  # 50 tokens
    first, other = scores(predictor, [start + "owl"]), scores(predictor, [start + "bee"])
    assert not np.allclose(first["A-1"], other["A-1"], atol=1e-5)
    np.testing.assert_array_equal(first["D-last"], other["D-last"])


def test_readers_read_the_first_chunk():
    predictor = predictor_of(*LONG, FULL, 'experts=["R-last", "A-1"]', name="treaderxml")
    cut = predictor_of(*CUT, FULL, 'experts=["R-last", "A-1"]', name="treaderxml")
    whole, expected = scores(predictor, LONGER), scores(cut, LONGER)
    np.testing.assert_allclose(whole["R-last"], expected["R-last"], rtol=0, atol=1e-6)
    assert not np.allclose(whole["A-1"], expected["A-1"], atol=1e-4)


def test_label_clusters_can_read_all_chunks():
    whole = scores(predictor_of(*LONG, CHUNKS, name="aplc"), LONGER)
    cut = scores(predictor_of(*CUT, name="aplc"), LONGER)
    assert not np.allclose(whole["all"], cut["all"], atol=1e-5)


def hidden_word_corpus(n=48):
    """Labels that only the end of a text tells, far beyond the first chunk."""
    random = np.random.default_rng(0)
    animals = [str(random.choice(ANIMALS[:4])) for _ in range(n)]
    return Corpus.from_texts(["in it " * 5 + animal for animal in animals], [[a] for a in animals])


def test_learns_what_only_the_end_of_a_text_tells(tmp_path):
    corpus, found = hidden_word_corpus(), {}
    settings = [
        'experts=["A-1"]', FULL, "encoder.freeze=true", "train.rates.attention=3e-2",
        "train.batch_size=8", "train.epochs=10", "train.evaluations=1",
    ]  # fmt: skip
    for name, lengths in {"cut": CUT, "whole": LONG}.items():
        recipe = tiny_recipe("glocalxml", *lengths, *settings)
        result = train(recipe, tmp_path / name, corpus=corpus, dev=corpus)
        found[name] = result.metrics["dev"]["P@1"]
    assert found["whole"] > 0.9
    assert found["cut"] < 0.6
    predictor = Predictor.load(tmp_path / "whole", device="cpu")
    assert predictor.recipe.encoder.document_length == 60
    assert "first 60 tokens" in (tmp_path / "whole" / "README.md").read_text()
    text = "in it " * 5 + "owl"
    explanation = predictor.explain(text, k=1, words=3)[0]
    assert explanation.id == "owl"
    check_spans(explanation, text)


@pytest.mark.parametrize("kind", ["bert", "xlnet"])
def test_words_beyond_the_window_are_explained_at_their_place(kind, tmp_path):
    settings = [*LONG, FULL, 'experts=["D-last", "A-1", "A-0"]']
    if kind == "xlnet":
        settings.append(f"encoder.name=random:{xlnet_folder(tmp_path / 'xlnet')}")
    predictor = predictor_of(*settings)
    text = " ".join(["the", "Red", "cät,", "and"] * 3)
    ids, _, _ = predictor.tokenizer.encode_with_offsets(text, 60)
    assert 30 < len(ids) < 60
    for explanation in predictor.explain(text, k=2, words=1000):
        check_spans(explanation, text)
        # The window of the encoder ends before the middle of the text.
        assert max(span.end for span in explanation.spans_of("A-1")) > len(text) // 2


@pytest.mark.parametrize("mode", [FULL, SHORTLIST])
def test_a_resumed_run_equals_an_uninterrupted_one(mode, tmp_path):
    corpus, dev = hidden_word_corpus(40), hidden_word_corpus(8)
    settings = [*LONG, mode, CHUNKS, "attention.query_init=tokens", "encoder.dropout=0.1"]
    recipe = tiny_recipe("glocalxml", *settings, "candidates.hard=2", "candidates.random=2")
    train(recipe, tmp_path / "whole", corpus=corpus, dev=dev)
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "m", corpus=corpus, dev=dev, listener=Recorder(stop_at=2))
    train(recipe, tmp_path / "m", corpus=corpus, dev=dev, resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "m")


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_equal_one(tmp_path):
    settings = ["encoder.max_length=12", "encoder.document_length=60", "encoder.overlap=4", CHUNKS]
    train_in_processes(tmp_path / "two", 2, "glocalxml", *settings, FULL)
    recipe = tiny_recipe("glocalxml", *settings, FULL)
    train(recipe, tmp_path / "one", dev=tiny_corpus(9, seed=1))
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-4)


def test_accumulated_parts_equal_one_batch():
    recipe = tiny_recipe("glocalxml", *LONG, FULL, CHUNKS)
    torch.manual_seed(0)
    system, tokenizer = build_system(recipe, LabelStatistics(np.array([3, 1, 2, 2]), 5))
    tokens = [np.array(ids) for ids in tokenizer.encode_batch([*SHORT, *LONGER], 60)]

    def gradients(groups):
        system.zero_grad()
        for group in groups:
            batch = collate(
                tokens, np.array(group), pad_id=0, left=False, denominator=6,
                chunking=system.chunking,
            )  # fmt: skip
            system(batch, TrainingPosition(0, 1)).backward()
        return {n: p.grad.clone() for n, p in system.named_parameters() if p.grad is not None}

    whole, parts = gradients([range(6)]), gradients([[0, 5], [1, 2], [4, 3]])
    assert whole.keys() == parts.keys()
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-3, atol=1e-5)


PROBLEMS = [
    (["encoder.document_length=12"], r"'encoder.document_length' = 12 is below .* = 16"),
    (["encoder.document_length=60", "encoder.overlap=14"], r"overlap' = 14 .* must be below 14"),
    (["encoder.document_length=60", 'experts=["D-last"]'], r"none of the experts \['D-last'\]"),
    ([CHUNKS], r"'document.reads' = chunks, but texts are cut at 'encoder.max_length' = 16"),
    (
        ["encoder.document_length=60", "encoder.name=none", 'experts=["S"]'],
        r"= 60, but 'encoder.name' = none",
    ),
]


@pytest.mark.parametrize(("settings", "words"), PROBLEMS)
def test_settings_that_do_not_go_together_are_refused(settings, words):
    recipe = tiny_recipe("glocalxml", *CUT, *settings)
    with pytest.raises(ConfigError, match=words):
        build_system(recipe, LabelStatistics(np.array([3, 1]), 4))


def test_word_vectors_have_no_window():
    with pytest.raises(ConfigError, match=r"word vectors have no window"):
        predictor_of(*LONG, 'experts=["R-0", "A-0"]', "reader.encode=static", name="treaderxml")


def test_all_problems_are_told_at_once():
    settings = ("encoder.document_length=12", "encoder.overlap=4", 'experts=["D-last"]')
    recipe = tiny_recipe("glocalxml", *CUT, *settings)
    with pytest.raises(ConfigError) as caught:
        build_system(recipe, LabelStatistics(np.array([3, 1]), 4))
    assert len(caught.value.problems) == 2


def test_old_models_without_the_settings_load(tmp_path):
    train(tiny_recipe("glocalxml", *CUT, FULL, "train.epochs=1"), tmp_path / "m")
    path = tmp_path / "m" / "glocal.toml"
    lines = path.read_text().splitlines()
    new = ("document_length", "overlap", "reads")
    kept = [line for line in lines if not line.startswith(new)]
    assert len(kept) == len(lines) - 3
    path.write_text("\n".join(kept))
    update_checksums(tmp_path / "m")
    assert Predictor.load(tmp_path / "m", device="cpu").system.chunking is None


def test_the_recipe_is_stored_with_the_model(tmp_path):
    train(tiny_recipe("glocalxml", *LONG, FULL, "train.epochs=1"), tmp_path / "m")
    loaded = Predictor.load(tmp_path / "m", device="cpu")
    again = Predictor.load(tmp_path / "m", device="cpu")
    assert loaded.system.chunking.window == 16
    corpus = Corpus.from_texts(LONGER, [["x"]] * 3)
    first = loaded.predict(LONGER, k=5)
    second = again.predict_corpus(corpus, k=5)
    np.testing.assert_array_equal(first.indices, second.indices)
    np.testing.assert_array_equal(first.scores, second.scores)
