import json


def test_info_shows_what_a_model_is(run, model):
    result = run("info", model)
    assert result.exit_code == 0, result.output
    for words in (
        "glocalxml",
        "D-last + A-1",
        "15",
        "training texts  64",
        "on dev: P@1",
        "or more per text",
    ):
        assert words in result.stdout


def test_info_as_json(run, model):
    found = json.loads(run("info", model, "--json").stdout)
    assert found["n_labels"] == 15
    assert found["recipe"]["train"]["seed"] == 0
    assert found["n_bytes"] == sum(p.stat().st_size for p in model.rglob("*") if p.is_file())


def test_info_of_something_else(run, tmp_path):
    result = run("info", tmp_path)
    assert result.exit_code == 1
    assert "is not a model directory" in result.stderr
