import pytest

from glocal.errors import ConfigError, MissingExtraError
from glocal.lab.baselines import baseline_registry as registry
from glocal.lab.baselines.baseline_registry import BASELINES, baseline_spec, build_baseline


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'bonsai'"):
        baseline_spec("bonsay")


def test_a_missing_library_answers_with_the_pip_line(monkeypatch):
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    assert BASELINES["plt"].version == ""
    with pytest.raises(MissingExtraError, match=r"pip install 'glocal\[baselines\]'"):
        build_baseline("plt", {})


def test_the_matched_setting_of_linear_ones_is_the_squared_hinge_with_c_1():
    assert BASELINES["plt"].matched["loss"] == "l2"
    assert BASELINES["plt"].default == {}
    assert BASELINES["svm"].matched["C"] == 1.0
    # Omikuji's default is that setting already.
    assert BASELINES["parabel"].matched == BASELINES["parabel"].default
    omikuji = pytest.importorskip("omikuji")
    default = omikuji.Model.default_hyper_param()
    assert default.linear_loss_type == omikuji.LossType.HINGE.value
    assert (default.linear_c, round(default.linear_eps, 6)) == (1.0, 0.1)
