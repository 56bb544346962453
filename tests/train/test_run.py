"""Choosing weights, stopping early, averaging, and what a run refuses."""

import json
from math import isfinite

import pytest
import torch

from glocal.data.corpus import Corpus
from glocal.errors import ConfigError, DataError, Interrupted, ModelError, TrainingError
from glocal.predict.metric_scores import metric_value
from glocal.predict.predictor import Predictor
from glocal.systems.mixture import ExpertMixture
from glocal.train.dev import DevScores
from glocal.train.loop import Loop
from tests.tiny import tiny_corpus, tiny_recipe
from tests.train.runs import Recorder, assert_same_run, entries, losses, train, weights

DEV = tiny_corpus(16, seed=1)


def script_scores(monkeypatch, scores):
    """Make dev scores a script, and note the weights that each of them is given to."""
    seen = []

    def evaluate(self):
        seen.append({n: t.clone() for n, t in self.system.state_dict().items()})
        value = scores[len(seen) - 1]
        names = ["P@1", "P@3", "P@5", "nDCG@5"]
        return DevScores(dict.fromkeys(names, value), {})

    monkeypatch.setattr("glocal.train.dev.DevEvaluator.__call__", evaluate)
    return seen


def assert_equal_weights(path, expected):
    found = weights(path)
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert tensor.equal(expected[name]), name


# --- evaluation on dev ------------------------------------------------------------------------


def test_the_weights_of_the_best_evaluation_are_kept(tmp_path, monkeypatch):
    seen = script_scores(monkeypatch, [0.2, 0.6, 0.6, 0.1])
    listener = Recorder()
    recipe = tiny_recipe("glocalxml", "train.evaluations=4")
    result = train(recipe, tmp_path / "m", dev=DEV, listener=listener)
    assert_equal_weights(tmp_path / "m", seen[1])  # the first of two equal ones
    assert result.metrics["best_step"] == 4
    assert [e["best"] for e in listener.evaluations] == [True, True, False, False]
    assert [e["step"] for e in listener.evaluations] == [2, 4, 6, 8]
    assert result.metrics["evaluations"][1]["scores"]["P@5"] == 0.6


def test_patience_stops_the_run(tmp_path, monkeypatch):
    seen = script_scores(monkeypatch, [0.2, 0.6, 0.5, 0.6, 0.9])
    recipe = tiny_recipe("glocalxml", "train.epochs=5", "train.patience=2")
    listener = Recorder()
    result = train(recipe, tmp_path / "m", dev=DEV, listener=listener)
    assert len(seen) == 4
    assert result.metrics["steps"] == listener.steps[-1] == 16
    assert_equal_weights(tmp_path / "m", seen[1])
    assert "stopped at step 16: no gain in 2 evaluations" in listener.messages


def test_a_gain_renews_patience(tmp_path, monkeypatch):
    seen = script_scores(monkeypatch, [0.2, 0.1, 0.3, 0.2, 0.1])
    train(tiny_recipe("glocalxml", "train.epochs=5", "train.patience=2"), tmp_path / "m", dev=DEV)
    assert len(seen) == 5


def test_a_run_out_of_patience_takes_no_step_when_resumed(tmp_path, monkeypatch):
    recipe = tiny_recipe("glocalxml", "train.epochs=5", "train.patience=1")
    script_scores(monkeypatch, [0.4, 0.3])
    train(recipe, tmp_path / "whole", dev=DEV)
    script_scores(monkeypatch, [0.4, 0.3])
    with pytest.raises(Interrupted, match="step 8"):
        train(recipe, tmp_path / "m", dev=DEV, listener=Recorder(stop_at=8))
    listener = Recorder()
    train(recipe, tmp_path / "m", dev=DEV, listener=listener, resume=True)
    assert not listener.steps
    assert_same_run(tmp_path / "whole", tmp_path / "m")


def test_without_dev_the_last_weights_are_kept(tmp_path):
    result = train(tiny_recipe("glocalxml"), tmp_path / "m")
    assert result.metrics["best_step"] == result.metrics["steps"] == 8
    assert "dev" not in result.metrics


def test_the_metric_named_in_the_recipe_decides(tmp_path):
    recipe = tiny_recipe("glocalxml", "train.metric=PSP@3", "train.epochs=3")
    listener = Recorder()
    result = train(recipe, tmp_path / "m", dev=DEV, listener=listener)
    values = {e["step"]: e["scores"]["PSP@3"] for e in listener.evaluations}
    assert result.metrics["best_step"] == max(values, key=lambda step: (values[step], -step))
    with pytest.raises(ConfigError, match="P@5"):
        train(tiny_recipe("glocalxml", "train.metric=p5"), tmp_path / "other", dev=DEV)


@pytest.mark.parametrize("dev", [Corpus.from_texts(["a", "b"]), Corpus.from_texts([])])
def test_a_dev_set_without_labels_is_refused_before_training(tmp_path, dev):
    listener = Recorder()
    with pytest.raises(DataError, match=f"none of the {len(dev)} dev texts has labels"):
        train(tiny_recipe("glocalxml"), tmp_path / "m", dev=dev, listener=listener)
    assert not listener.steps
    assert not list(tmp_path.iterdir())


def test_dev_labels_that_training_does_not_know_count_as_misses(tmp_path):
    dev = Corpus.from_texts(["the red cat", "the dog"], [["unheard of"], ["unseen"]])
    result = train(tiny_recipe("glocalxml"), tmp_path / "m", dev=dev)
    assert result.metrics["dev"]["P@5"] == 0.0


# --- averaging --------------------------------------------------------------------------------


@pytest.fixture
def trajectory(monkeypatch):
    """The weights after every step of the runs to come."""
    steps = []
    update = Loop._update_average

    def watched(self):
        steps.append({n: p.detach().double() for n, p in self.system.named_parameters()})
        update(self)

    monkeypatch.setattr(Loop, "_update_average", watched)
    return steps


def test_averaging_equals_the_mean_of_the_last_steps(tmp_path, trajectory):
    train(tiny_recipe("glocalxml", "train.averaging=0.6"), tmp_path / "m")
    assert len(trajectory) == 8
    last = trajectory[3:]  # 60% of 8 steps, rounded
    found = weights(tmp_path / "m")
    for name in last[0]:
        mean = torch.stack([step[name] for step in last]).mean(0)
        torch.testing.assert_close(found[name].double(), mean, rtol=1e-5, atol=1e-6)


def test_averaged_weights_are_evaluated_and_training_goes_on_with_its_own(
    tmp_path, trajectory, monkeypatch
):
    seen = script_scores(monkeypatch, [0.1, 0.2])
    train(tiny_recipe("glocalxml", "train.averaging=1.0"), tmp_path / "m", dev=DEV)
    for step, evaluated in zip((4, 8), seen, strict=True):
        for name in trajectory[0]:
            mean = torch.stack([weights[name] for weights in trajectory[:step]]).mean(0)
            torch.testing.assert_close(evaluated[name].double(), mean, rtol=1e-5, atol=1e-6)
    averaged = list(trajectory)
    trajectory.clear()
    train(tiny_recipe("glocalxml"), tmp_path / "plain")
    for with_average, without in zip(averaged, trajectory, strict=True):
        assert all(with_average[name].equal(without[name]) for name in without)


# --- loss that is not finite ------------------------------------------------------------------


@pytest.fixture
def breaks_at(monkeypatch):
    """Make the loss NaN at a step."""
    step_of = ExpertMixture.training_step

    def at(step):
        def training_step(self, batch, position):
            loss = step_of(self, batch, position)
            return loss * float("nan") if position.step == step else loss

        monkeypatch.setattr(ExpertMixture, "training_step", training_step)

    return at


@pytest.fixture
def spoils_at(monkeypatch):
    """Make a weight NaN at a step."""
    step_of = ExpertMixture.training_step

    def at(step):
        def training_step(self, batch, position):
            if position.step == step:
                next(p for p in self.parameters() if p.requires_grad).data.view(-1)[0] = torch.nan
            return step_of(self, batch, position)

        monkeypatch.setattr(ExpertMixture, "training_step", training_step)

    return at


@pytest.mark.parametrize("clip", ["10.0", "0.0"])
def test_a_step_whose_gradient_is_not_finite_is_left_out(tmp_path, breaks_at, clip):
    # Logged every third step, so that the steps beside it are finite.
    settings = ["train.batch_size=1", "train.epochs=1", f"train.clip_norm={clip}"]
    breaks_at(30)
    listener = Recorder()
    train(tiny_recipe("glocalxml", *settings), tmp_path / "m", listener=listener)
    assert "1 of the last 3 steps skipped: gradients were not finite" in listener.messages
    assert all(tensor.isfinite().all() for tensor in weights(tmp_path / "m").values())
    assert all(isfinite(entry["loss"]) for entry in entries(tmp_path / "m") if "loss" in entry)


def test_a_loss_that_is_not_finite_names_the_step_and_the_way_out(tmp_path, breaks_at):
    breaks_at(5)
    with pytest.raises(TrainingError, match=r"loss became nan at step 6 of 8.*train\.rates") as e:
        train(tiny_recipe("glocalxml"), tmp_path / "m")
    run = tmp_path / "m.run"
    assert f"{run / 'checkpoint-4'}" in str(e.value)
    assert "overwrite=True" in str(e.value)
    assert [path.name for path in run.glob("checkpoint-*")] == ["checkpoint-4"]
    assert not (tmp_path / "m").exists()


def test_a_checkpoint_never_holds_weights_that_are_not_finite(tmp_path, spoils_at):
    # 64 steps an epoch are logged every third one: a checkpoint comes before the next report.
    settings = ["train.batch_size=1", "train.checkpoints=1", "train.epochs=1"]
    spoils_at(31)
    with pytest.raises(TrainingError, match="no longer finite at step 32 of 64"):
        train(tiny_recipe("glocalxml", *settings), tmp_path / "m")
    assert not list((tmp_path / "m.run").glob("checkpoint-*"))


def test_weights_that_are_not_finite_are_not_evaluated(tmp_path, spoils_at, monkeypatch):
    seen = script_scores(monkeypatch, [0.5])
    settings = ["train.batch_size=1", "train.evaluations=2", "train.epochs=1"]
    spoils_at(31)
    with pytest.raises(TrainingError, match="no longer finite at step 32 of 64"):
        train(tiny_recipe("glocalxml", *settings), tmp_path / "m", dev=DEV)
    assert not seen


# --- places -----------------------------------------------------------------------------------


def test_an_existing_model_needs_overwrite(tmp_path):
    out = tmp_path / "m"
    train(tiny_recipe("glocalxml"), out)
    before = weights(out)
    with pytest.raises(ModelError, match="already holds a model; pass overwrite=True"):
        train(tiny_recipe("glocalxml", "train.seed=1"), out)
    assert_equal_weights(out, before)
    train(tiny_recipe("glocalxml", "train.seed=1"), out, overwrite=True)
    assert any(not tensor.equal(before[name]) for name, tensor in weights(out).items())


def test_a_file_or_a_foreign_folder_is_never_replaced(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ModelError, match="is a file"):
        train(tiny_recipe("glocalxml"), tmp_path / "file", overwrite=True)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "letter.txt").write_text("mine")
    with pytest.raises(ModelError, match="not empty and not a model directory"):
        train(tiny_recipe("glocalxml"), tmp_path / "folder", overwrite=True)
    assert (tmp_path / "folder" / "letter.txt").read_text() == "mine"


@pytest.fixture
def unfinished(tmp_path):
    with pytest.raises(Interrupted):
        train(tiny_recipe("glocalxml"), tmp_path / "m", dev=DEV, listener=Recorder(stop_at=3))
    return tmp_path / "m"


def test_an_unfinished_run_needs_resume_or_overwrite(unfinished):
    with pytest.raises(ModelError, match="holds an unfinished run; pass resume=True"):
        train(tiny_recipe("glocalxml"), unfinished, dev=DEV)
    listener = Recorder()
    train(tiny_recipe("glocalxml"), unfinished, dev=DEV, overwrite=True, listener=listener)
    assert listener.steps == list(range(1, 9))


@pytest.mark.parametrize("change", ["recipe", "texts", "labels", "dev"])
def test_a_checkpoint_of_another_run_is_refused(unfinished, change):
    corpora = {"texts": tiny_corpus(64), "dev": DEV}
    recipe = tiny_recipe("glocalxml", *(["train.seed=5"] if change == "recipe" else []))
    if change in {"texts", "dev"}:
        corpora[change] = _altered(corpora[change], text="the cow")
    elif change == "labels":
        corpora["texts"] = _altered(corpora["texts"], labels=["cat", "dog"])
    with pytest.raises(TrainingError, match="another recipe or other data"):
        train(recipe, unfinished, corpus=corpora["texts"], dev=corpora["dev"], resume=True)
    assert (unfinished.parent / "m.run" / "checkpoint-3").is_dir()


def _altered(corpus, *, text=None, labels=None):
    """The same corpus but for its first document."""
    texts = [document.text for document in corpus.documents()]
    gold = [list(document.labels) for document in corpus.documents()]
    texts[0], gold[0] = text or texts[0], labels or gold[0]
    return type(corpus).from_texts(texts, gold)


def test_resume_without_a_checkpoint_starts_from_the_beginning(tmp_path):
    listener = Recorder()
    train(tiny_recipe("glocalxml"), tmp_path / "m", resume=True, listener=listener)
    assert listener.steps == list(range(1, 9))
    assert any("starting from the beginning" in text for text in listener.messages)


def test_parts_need_documents(tmp_path):
    recipe = tiny_recipe("glocalxml", "train.accumulation=4")
    with pytest.raises(ConfigError, match="3 training texts cannot be split over"):
        train(recipe, tmp_path / "m", corpus=tiny_corpus(3))
    recipe = tiny_recipe("glocalxml", "train.accumulation=4", "train.batch_size=2")
    with pytest.raises(ConfigError, match=r"2 texts of a batch \(train\.batch_size\)"):
        train(recipe, tmp_path / "m")


def test_a_last_batch_smaller_than_the_parts_is_trained_on(tmp_path):
    recipe = tiny_recipe("glocalxml", "train.accumulation=4")
    result = train(recipe, tmp_path / "m", corpus=tiny_corpus(34))  # 16 + 16 + 2
    assert result.metrics["steps"] == 4
    assert len(losses(tmp_path / "m")) == 4


def test_the_log_of_a_resumed_run_has_no_gap_in_its_means(tmp_path):
    # 64 steps logged every third one: the run is stopped between two log lines.
    recipe = tiny_recipe("glocalxml", "train.batch_size=1", "train.epochs=1")
    train(recipe, tmp_path / "whole")

    def stop_soon(self):
        if self.state.step == 10:
            self.stop.requested = True
        return self.stop.requested

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loop, "_interrupted", stop_soon)
        with pytest.raises(Interrupted, match="step 10 of 64"):
            train(recipe, tmp_path / "m")
    train(recipe, tmp_path / "m", resume=True)
    assert [e["step"] for e in entries(tmp_path / "m")][:4] == [3, 6, 9, 12]
    assert_same_run(tmp_path / "whole", tmp_path / "m")


def test_metrics_and_log_are_kept_with_the_model(tmp_path):
    train(tiny_recipe("glocalxml"), tmp_path / "m", dev=DEV)
    metrics = json.loads((tmp_path / "m" / "metrics.json").read_text())
    assert [e["step"] for e in metrics["evaluations"]] == [4, 8]
    logged = entries(tmp_path / "m")
    assert [e["step"] for e in logged if "loss" in e] == list(range(1, 9))
    assert [e["scores"] for e in logged if "scores" in e] == [
        e["scores"] for e in metrics["evaluations"]
    ]
    assert set(metrics["dev_experts"]) == {"D-last", "A-1"}


def test_experts_weights_are_learnt_on_dev_and_stored(tmp_path):
    recipe = tiny_recipe("glocalxml", "train.epochs=4")
    result = train(recipe, tmp_path / "m", dev=DEV)
    predictor = Predictor.load(tmp_path / "m", device="cpu")
    weights = predictor.system.combination.weights
    assert set(weights) == {"D-last", "A-1"}
    assert min(weights.values()) >= 0.0
    found = predictor.predict_corpus(DEV, k=5, calibrated=False)
    value = metric_value("P@5", found, predictor.labels.encode(DEV))
    assert value == pytest.approx(result.metrics["dev"]["P@5"])


def test_the_mean_of_the_experts_on_request(tmp_path):
    train(tiny_recipe("glocalxml", "combine=mean"), tmp_path / "m", dev=DEV)
    assert not Predictor.load(tmp_path / "m", device="cpu").system.combination.weights


def test_two_runs_into_one_place_are_kept_apart(tmp_path):
    from glocal.data.atomic import exclusive

    out = tmp_path / "m"
    with exclusive(out), pytest.raises(ModelError, match=r"another training .*process \d+ holds"):
        train(tiny_recipe("glocalxml"), out)
    assert not out.exists()
    train(tiny_recipe("glocalxml"), out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m"]


@pytest.mark.parametrize("place", [".", "/", ""])
def test_a_model_cannot_replace_the_current_folder(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="give the path of a new one"):
        train(tiny_recipe("glocalxml"), place)


def test_out_of_memory_is_one_line_that_names_what_to_set(tmp_path, monkeypatch):
    def step(self, batches):
        if self.state.step == 5:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(self, batches)

    original = Loop._step
    monkeypatch.setattr(Loop, "_step", step)
    recipe = tiny_recipe("glocalxml", "train.epochs=2")
    with pytest.raises(TrainingError) as caught:
        train(recipe, tmp_path / "m", dev=DEV)
    message = str(caught.value)
    settings = "train.batch_size=8, train.label_precision=bf16, candidates.mode=clusters"
    for part in ("ran out of memory", "16 texts", settings):
        assert part in message
    assert "checkpoint-4" in message
    monkeypatch.undo()
    train(recipe, tmp_path / "m", dev=DEV, resume=True)
