"""Label matrices in bf16 and fp8 that are updated chunk by chunk."""

import numpy as np
import pytest
import torch

from glocal.errors import ConfigError, Interrupted
from glocal.predict.predictor import Predictor
from glocal.systems.system import LabelStatistics
from glocal.train import row_updates
from glocal.train.optim import build_optimizer, set_rates
from glocal.train.row_updates import RowUpdates, round_label_matrices, update_rows
from tests.tiny import build_system, tiny_corpus, tiny_recipe
from tests.train.runs import Recorder, losses, train, weights

BF16 = ("train.label_precision=bf16", "candidates.mode=full")
KINDS = {torch.bfloat16: 2**-7, torch.float8_e4m3fn: 2**-2}  # and the step between two values
TINIEST = {torch.bfloat16: 1e-6, torch.float8_e4m3fn: 2**-9}

both_kinds = pytest.mark.parametrize("kind", KINDS)


def problem(rows=400, width=48, *, kind=torch.bfloat16):
    torch.manual_seed(0)
    weight = torch.randn(rows, width).to(kind)
    gradient = torch.randn(rows, width) * torch.rand(rows, 1)
    return weight, gradient, torch.rand(rows) * 0.1


@both_kinds
def test_rows_move_by_their_gradient_over_its_mean_size(kind):
    weight, gradient, squares = problem(kind=kind)
    mean = 0.999 * squares + 0.001 * gradient.square().mean(1)
    exact = weight.float() - 0.01 * gradient / mean.sqrt()[:, None]
    update_rows(weight, gradient, squares, torch.tensor(0.01))
    torch.testing.assert_close(squares, mean)
    torch.testing.assert_close(weight.float(), exact, rtol=KINDS[kind], atol=TINIEST[kind])


@pytest.mark.parametrize("start", [1.0, 0.003, -0.5])
@both_kinds
def test_small_steps_count_on_average(kind, start):
    weight = torch.full((4000, 32), start).to(kind)
    before, squares = weight.float().mean().item(), torch.ones(4000)
    for _ in range(20):  # each far below the precision
        update_rows(weight, torch.full((4000, 32), -1.0), squares, torch.tensor(1e-4))
    assert weight.float().mean().item() == pytest.approx(before + 0.002, abs=5e-4)


def test_weights_stay_within_what_fp8_can_hold():
    weight = torch.full((3, 8), 448.0).to(torch.float8_e4m3fn)
    update_rows(weight, torch.full((3, 8), -1.0), torch.ones(3), torch.tensor(100.0))
    assert (weight.float() == 448.0).all()


def test_rows_whose_gradient_is_not_finite_stay_as_they_are():
    weight, gradient, squares = problem()
    gradient[3, 5], gradient[7] = float("nan"), float("inf")
    before, squares_before = weight.clone(), squares.clone()
    update_rows(weight, gradient, squares, torch.tensor(0.1))
    assert weight[[3, 7]].equal(before[[3, 7]])
    assert squares[[3, 7]].equal(squares_before[[3, 7]])
    assert not weight[4].equal(before[4])


@both_kinds
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_kernel_does_the_same(device, kind):
    pytest.importorskip("triton", minversion="3.6" if device == "cuda" else "3.9")
    if (device == "cuda") != torch.cuda.is_available():
        pytest.skip("needs a CUDA device" if device == "cuda" else "Triton compiles on a GPU")
    weight, gradient, squares = (t.to(device) for t in problem(300, 40, kind=kind))
    gradient[3, 5] = float("nan")
    ours, ours_squares = weight.clone(), squares.clone()
    rate, step = torch.tensor(0.01, device=device), torch.tensor(7.0, device=device)
    options = {"DECAY": 0.999, "EPSILON": 1e-8, "W": 64}
    for row in range(0, 300, 100):
        chunk = slice(row, row + 100)
        row_updates._update_kernel[(100,)](
            ours[chunk], gradient[chunk], ours_squares[chunk], rate, step, row, 40, **options
        )
    plain = weight.clone()
    update_rows(plain, gradient, squares, rate)
    torch.testing.assert_close(ours_squares, squares)
    ours, plain, weight = ours.float(), plain.float(), weight.float()
    torch.testing.assert_close(ours, plain, rtol=KINDS[kind], atol=TINIEST[kind])
    assert ours[3].equal(weight[3])
    assert (ours - plain).mean().abs() < 0.01
    assert 0.2 < (ours == plain).float().mean() < 0.99  # each with noise of its own


def test_a_pause_lets_nothing_change():
    recipe = tiny_recipe("glocalxml", *BF16)
    system, _ = build_system(recipe, LabelStatistics(np.full(20, 5), 100))
    round_label_matrices(system)
    optimizer = build_optimizer(system, recipe.train, torch.device("cpu"))
    set_rates(optimizer, 1.0)
    updates = RowUpdates(system, optimizer)
    matrix = system.label_matrices()[0]
    before, gradient = matrix.detach().clone(), torch.ones_like(matrix)
    update = system.row_updates[id(matrix)]
    updates.start_step()
    with updates.paused():
        update(slice(0, 20), gradient)
    assert matrix.equal(before)
    update(slice(0, 10), gradient[:10])
    assert not matrix[:10].equal(before[:10])
    assert matrix[10:].equal(before[10:])


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_trains_about_as_well_as_in_fp32(tmp_path, precision):
    options = ("train.epochs=8", "candidates.mode=full", "train.rates.classifier=0.02")
    lean = (*options, f"train.label_precision={precision}", "train.averaging=0.2")
    train(tiny_recipe("glocalxml", *options), tmp_path / "fp32")
    train(tiny_recipe("glocalxml", *lean), tmp_path / "lean", dev=tiny_corpus(9, seed=1))
    full, rounded = losses(tmp_path / "fp32"), losses(tmp_path / "lean")
    assert rounded[0] == pytest.approx(full[0], rel=0.01 if precision == "bf16" else 0.05)
    assert sum(rounded[-8:]) < 1.03 * sum(full[-8:])
    assert weights(tmp_path / "lean")["experts.0.weight"].dtype == torch.bfloat16
    scores = Predictor.load(tmp_path / "lean", device="cpu").predict(["the red cat"], k=3)
    assert np.isfinite(scores.scores).all()


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, precision):
    precision = f"train.label_precision={precision}"
    recipe = tiny_recipe("glocalxml", *BF16, precision, "train.epochs=2")
    train(recipe, tmp_path / "whole", dev=tiny_corpus(9, seed=1))
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "m", dev=tiny_corpus(9, seed=1), listener=Recorder(stop_at=3))
    train(recipe, tmp_path / "m", dev=tiny_corpus(9, seed=1), resume=True)
    whole, resumed = weights(tmp_path / "whole"), weights(tmp_path / "m")
    assert all(resumed[name].equal(tensor) for name, tensor in whole.items())


@pytest.mark.parametrize(
    "setting", ["loss.diversity_weight=0.1", "candidates.mode=shortlist", "train.accumulation=2"]
)
def test_what_it_does_not_go_with_is_refused(setting, tmp_path):
    recipe = tiny_recipe("glocalxml", *BF16, setting)
    with pytest.raises(ConfigError, match="label_precision"):
        train(recipe, tmp_path / "m")
