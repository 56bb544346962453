import json
import sys
import tomllib

import pytest

from glocal.cli.train import summary
from glocal.data.builtin import load_builtin
from glocal.train.run import FitResult
from tests.cli.conftest import TINY, write_jsonl


def train(run, files, out, *options):
    return run("train", files.train, "--out", out, *TINY, *options)


def test_model_directory_and_summary(run, files, model):
    present = {path.name for path in model.iterdir()}
    assert {"glocal.toml", "labels.parquet", "model.safetensors", "README.md"} <= present


def test_says_what_to_run_next(run, files, tmp_path):
    result = train(run, files, tmp_path / "m", "--dev", files.dev)
    assert result.exit_code == 0, result.output
    assert not result.stdout
    assert "On dev: P@1 " in result.stderr
    assert f"glocal eval {tmp_path / 'm'}" in result.stderr


def test_one_score_on_dev_is_the_models(run, files, tmp_path):
    result = train(run, files, tmp_path / "m", "--dev", files.dev)
    shown = [line for line in result.stderr.splitlines() if "on dev" in line.lower()]
    # During training it is the network's; the model's is given once, and stored.
    assert len([line for line in shown if not line.startswith("network on dev after step")]) == 1
    metrics = json.loads((tmp_path / "m" / "metrics.json").read_text(encoding="utf-8"))
    assert f"On dev: P@1 {100 * metrics['dev']['P@1']:.1f}" in shown[-1]
    assert any(line.startswith("network on dev after step") for line in shown)


def test_the_summary_gives_one_score(tmp_path):
    metrics = {"best_step": 10, "dev": {"P@1": 0.6, "P@5": 0.3}}
    metrics["evaluations"] = [{"step": 10, "scores": {"P@1": 0.5, "P@5": 0.25}}]
    lines = summary(FitResult(tmp_path, metrics, 5.0)).splitlines()
    assert lines[1:] == ["On dev: P@1 60.0, P@5 30.0."]


def test_quiet_says_nothing(run, files, tmp_path):
    result = run("--quiet", "train", files.train, "--out", tmp_path / "m", *TINY)
    assert result.exit_code == 0, result.output
    assert not result.output


def test_existing_model_is_not_replaced(run, files, model):
    before = (model / "model.safetensors").read_bytes()
    result = train(run, files, model)
    assert result.exit_code == 1
    assert "--overwrite" in result.stderr
    assert (model / "model.safetensors").read_bytes() == before


def test_several_files_make_one_training_set(run, files, tmp_path):
    result = run("train", files.train, files.dev, "--out", tmp_path / "m", *TINY)
    assert result.exit_code == 0, result.output
    assert "80 texts" in result.stderr


def test_wrong_settings_are_reported_before_the_data_is_read(run, tmp_path):
    result = run("train", tmp_path / "absent.jsonl", "--out", tmp_path / "m", "-s", "train.epoch=1")
    assert result.exit_code == 1
    assert "did you mean 'epochs'?" in result.stderr


def test_own_column_names(run, tmp_path):
    rows = [{"subject": f"word{i % 3} text", "tags": [f"t{i % 3}"]} for i in range(12)]
    path = write_jsonl(tmp_path / "own.jsonl", rows)
    result = run(
        "train", path, "--out", tmp_path / "m", *TINY,
        "--text-field", "subject", "--labels-field", "tags",
    )  # fmt: skip
    assert result.exit_code == 0, result.output


def test_skipped_rows_are_counted_and_named(run, files, tmp_path):
    rows = [json.loads(line) for line in files.train.read_text().splitlines()]
    rows[4]["text"] = " "
    path = write_jsonl(tmp_path / "bad.jsonl", rows)
    refused = run("train", path, "--out", tmp_path / "m", *TINY)
    assert refused.exit_code == 1
    assert f"{path}:5: " in refused.stderr
    assert "add --skip-bad-rows to skip such rows" in refused.stderr
    assert not (tmp_path / "m").exists()
    accepted = run("train", path, "--out", tmp_path / "m", *TINY, "--skip-bad-rows")
    assert accepted.exit_code == 0, accepted.output
    assert "1 row was skipped" in accepted.stderr
    assert f"{path}:5: " in accepted.stderr
    assert "63 texts" in accepted.stderr


def test_row_without_labels_is_refused(run, tmp_path):
    rows = [{"text": "one", "labels": ["a"]}, {"text": "two", "labels": []}]
    path = write_jsonl(tmp_path / "train.jsonl", rows)
    result = run("train", path, "--out", tmp_path / "m", *TINY)
    assert result.exit_code == 1
    assert f"{path}:2: " in result.stderr
    assert "no labels" in result.stderr


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.jsonl", b"", "empty"),
        ("koi8.jsonl", '{"text": "привет", "labels": ["a"]}\n'.encode("koi8-r"), "UTF-8"),
        ("bad.jsonl", b'{"text": "a", "labels": ["b"]}\n{"text": \n', ":2: "),
        ("cut.parquet", b"PAR1 and no more", "cut.parquet"),
    ],
)
def test_bad_file_is_one_error(run, tmp_path, name, content, words):
    path = tmp_path / name
    path.write_bytes(content)
    result = run("train", path, "--out", tmp_path / "m", *TINY)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {path}")
    assert words in result.stderr
    assert "Traceback" not in result.output
    assert not (tmp_path / "m").exists()


def test_malformed_line_17_of_a_csv(run, tmp_path):
    path = tmp_path / "rows.csv"
    lines = ["text,labels", *(f"text {i},a;b" for i in range(2, 17)), 'bad,"a', "text 18,a"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    result = run("train", path, "--out", tmp_path / "m", *TINY)
    assert result.exit_code == 1
    assert f"{path}:17: " in result.stderr


@pytest.mark.parametrize("path", ["absent.jsonl", "."])
def test_unreadable_path(run, tmp_path, path):
    result = run("train", tmp_path / path, "--out", tmp_path / "m", *TINY)
    assert result.exit_code == 1
    assert str(tmp_path) in result.stderr
    assert result.stderr.startswith("error: ")


def test_a_malformed_expert_is_refused_before_anything_is_read(run, tmp_path):
    result = run("train", tmp_path / "absent.jsonl", "--out", tmp_path / "m", "-s", 'experts=["Q"]')
    assert result.exit_code == 1
    assert "expert 'Q' is not of the form D-n, A-n" in result.stderr


def test_loss_that_is_not_finite(run, files, tmp_path):
    result = train(
        run, files, tmp_path / "m", "-s", "train.rates.encoder=1e30", "-s", "train.clip_norm=0"
    )
    assert result.exit_code == 1
    assert "the loss became" in result.stderr
    assert not (tmp_path / "m").exists()


def test_missing_extra_names_the_pip_line(run, files, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "simple_icd_10_cm", None)
    # A set that was built before, on disk or in memory, needs no package.
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))
    load_builtin.cache_clear()
    result = run("train", "icd10cm:train", "--out", tmp_path / "m", *TINY)
    assert result.exit_code == 1
    assert "pip install 'glocal[demo]'" in result.stderr


def test_full_disk_while_saving(run, files, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    result = train(run, files, tmp_path / "m")
    assert result.exit_code == 1
    assert "o space left on device" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "m").exists()


def test_seed_and_epochs_are_plain_options(run, files, tmp_path):
    arguments = ("train", files.train, "--recipe", "fast", "--out", tmp_path / "m")
    result = run(*arguments, "--seed", "7", "--epochs", "1", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["path"] == str(tmp_path / "m")
    settings = tomllib.loads((tmp_path / "m" / "glocal.toml").read_text("utf-8"))
    assert settings["recipe"]["train"]["seed"] == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-s", "seed=3"), "unknown key 'seed' (did you mean 'train.seed'?)"),
        (("--seed", "1", "-s", "train.seed=2"), "--seed 1 and -s train.seed=2 set the same"),
        (("--budget", "10m", "--epochs", "2"), "--budget 10m decides the number of epochs"),
    ],
)
def test_settings_that_cannot_be_meant(run, files, tmp_path, options, message):
    result = run("train", files.train, "--out", tmp_path / "m", *options)
    assert result.exit_code == 1
    assert message in result.stderr


def test_ids_need_not_be_unique_or_present(run, files, tmp_path):
    rows = [json.loads(line) for line in files.train.read_text().splitlines()]
    for row in rows[:10]:
        row["id"] = "same"
    del rows[11]["id"]
    path = write_jsonl(tmp_path / "ids.jsonl", rows)
    result = run("train", path, "--recipe", "fast", "--out", tmp_path / "m")
    assert result.exit_code == 0, result.output
    inspected = run("data", "inspect", path)
    assert inspected.exit_code == 1
    assert "the id 'same' is that of an earlier row" in inspected.stdout


def test_a_second_training_into_the_same_place_is_refused(run, files, tmp_path):
    from glocal.data.atomic import exclusive

    with exclusive(tmp_path / "m"):
        result = run("train", files.train, "--recipe", "fast", "--out", tmp_path / "m")
    assert result.exit_code == 1
    assert f"another training is writing to {tmp_path / 'm'} (process " in result.stderr


@pytest.mark.parametrize("out", [".", "/"])
def test_the_current_folder_is_refused_before_texts_are_read(run, out):
    result = run("train", "absent.jsonl", "--recipe", "fast", "--out", out)
    assert result.exit_code == 1
    assert f"a model cannot replace the folder {out}; give the path of a new one" in result.stderr


def test_a_model_of_words_from_the_cache_is_announced(run, files, tmp_path, monkeypatch):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))
    first, second = (
        run("train", files.train, "--recipe", "fast", "--out", tmp_path / name) for name in "ab"
    )
    assert "read from the cache" not in first.stderr
    assert "linear model of words: read from the cache" in second.stderr


def test_several_files_are_one_training_set(run, files, tmp_path):
    result = run("train", files.train, files.dev, "--recipe", "fast", "--out", tmp_path / "m")
    assert result.exit_code == 0, result.output
    assert "80 texts" in result.stderr


def test_further_training(run, files, model, tmp_path):
    result = run(
        "train", files.train, "--from", model, "--add", files.dev, "--out", tmp_path / "new"
    )
    assert result.exit_code == 0, result.output
    assert "texts added" in result.stdout
    assert "learnt, 0 new labels" in result.stderr
    assert (tmp_path / "new" / "history.jsonl").is_file()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--add", "x.jsonl"], "give it with --from"),
        (["--from", "model"], "give them with --add"),
        (["--from", "m", "--add", "x.jsonl", "--epochs", "2", "-s", "x=1"], "leave them out"),
        ([], "training texts (FILE) missing"),
        (["x.jsonl"], "a place for the model (--out) missing"),
    ],
)
def test_options_that_do_not_fit_are_refused(run, options, expected):
    result = run("train", *options)
    assert result.exit_code == 1
    assert expected in result.stderr
