import json

import pytest

from tests.cli.conftest import TINY


@pytest.fixture
def layers(run, files, tmp_path):
    def call(*options):
        data = [files.train, "--dev", files.dev, "--test", files.test, "--out", tmp_path / "out"]
        return run("analyze", "layers", *data, *TINY, "-s", "train.epochs=1", *options)

    return call


def test_layers(layers, tmp_path):
    result = layers("--layers", "0,1")
    assert result.exit_code == 0, result.output
    for words in ("Local expert by layer: P@5", "A-0", "A-1", "global", "mean", "JSD", "24 texts"):
        assert words in result.stdout
    assert "A-2" not in result.stdout
    assert (tmp_path / "out" / "layers-scores-dark.svg").is_file()
    more = layers("--layers", "2", "--json", "--no-plots")
    assert [point["layer"] for point in json.loads(more.stdout)["points"]] == [0, 1, 2]


def test_second_expert(layers, tmp_path):
    result = layers("--second-expert", "--layers", "1")
    assert result.exit_code == 0, result.output
    assert "D-1" in result.stdout
    assert "gold KL" in result.stdout
    assert (tmp_path / "out" / "second-expert.png").is_file()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--layers", "1,9"], "layer 9: the encoder has layers 0 to 2"),
        (["--layers", "first"], "expected layer numbers, such as 0,1,6"),
        (["-s", "experts=['D-1']"], "it is what they differ in"),
        (["-s", "encoder.name=/no/such/folder"], "cannot load the encoder"),
    ],
)
def test_wrong_layers(layers, options, message, tmp_path):
    result = layers(*options)
    assert result.exit_code == 1
    assert message in result.stderr
    assert not (tmp_path / "out").exists()


def test_bands_of_two_models(run, models, files, tmp_path):
    options = ["--bands", "rare=1-6,common=7-", "--out", tmp_path, "-k", "3"]
    result = run("analyze", "bands", *models, files.test, *options)
    assert result.exit_code == 0, result.output
    for words in ("model0", "model1", "difference", "rare F", "over labels with gold"):
        assert words in result.stdout
    assert (tmp_path / "bands-all-labels.png").is_file()
    found = run("analyze", "bands", *models, files.test, "--json", "-k", "3", "--bands", options[1])
    rows = {(r["model"], r["band"], r["over"]): r for r in json.loads(found.stdout)["rows"]}
    report = json.loads(
        run("eval", models[1], files.test, "--json", "-k", "3", "--bands", options[1]).stdout
    )
    expected = report["macro"]["combined"]["3"]["rare"]["all_labels"]
    assert rows["model1", "rare", "all_labels"]["f1"] == pytest.approx(expected["f1"])
    assert rows["model1", "rare", "all_labels"]["labels"] == expected["n_labels"]


def test_bands_of_one_model_and_its_experts(run, model, files):
    result = run("analyze", "bands", model, files.test, "--experts")
    assert result.exit_code == 0, result.output
    for words in ("model0", "model0 D-last", "model0 A-1"):
        assert words in result.stdout.replace("\n", " ")
    assert "difference" not in result.stdout


def test_models_of_the_same_folder_name(run, models, files, tmp_path):
    import shutil

    other = shutil.copytree(models[1], tmp_path / "model0")
    found = run("analyze", "bands", models[0], other, files.test, "--json")
    names = {row["model"] for row in json.loads(found.stdout)["rows"]}
    assert names == {str(models[0]), str(other)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bands", "few=1-20,more=15-"], "overlap"),
        (["--bands", "few"], "is malformed"),
        (["--bands", ""], "is malformed"),
        (["--bands", "few=1-20,more=25-"], "gap"),
    ],
)
def test_wrong_bands(run, model, files, options, message):
    result = run("analyze", "bands", model, files.test, *options)
    assert result.exit_code == 1
    assert message in result.stderr


def test_a_model_is_not_compared_with_itself(run, model, files):
    result = run("analyze", "bands", model, model, files.test)
    assert result.exit_code == 1
    assert f"{model} is given twice" in result.stderr


@pytest.mark.parametrize("command", ["bands", "heads", "layers"])
def test_a_file_in_the_place_of_the_folder(run, model, files, command):
    arguments = {
        "bands": [model, files.test],
        "heads": ["--labels", "50"],
        "layers": [files.train, "--test", files.test, *TINY],
    }[command]
    before = files.dev.read_text()
    result = run("analyze", command, *arguments, "--out", files.dev)
    assert result.exit_code == 1
    assert f"--out {files.dev}: {files.dev} is a file" in result.stderr
    assert files.dev.read_text() == before


def test_bands_without_a_model(run, files):
    result = run("analyze", "bands", files.test)
    assert result.exit_code == 1
    assert "MODEL [MODEL2] FILE" in result.stderr
