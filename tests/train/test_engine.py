import pytest
import torch

from glocal.errors import ConfigError
from glocal.train.engine import Engine
from tests.tiny import tiny_recipe
from tests.train.runs import losses, train, weights


def test_the_cpu_computes_in_fp32_unless_told_otherwise():
    assert Engine("cpu", "auto").precision == "fp32"
    assert Engine("cpu", "fp16").precision == "fp32"  # which a CPU does not have
    assert Engine("cpu", "bf16").precision == "bf16"
    assert Engine("cpu", "bf16").compute_dtype is None


def test_it_says_what_it_runs_on():
    engine = Engine("cpu", "fp32")
    assert engine.describe().startswith("CPU, ")
    assert engine.describe().endswith("cores, fp32")
    assert (engine.rank, engine.world, engine.is_main) == (0, 1, True)


def test_a_device_that_is_not_there():
    with pytest.raises(ConfigError, match="auto, cpu, cuda or cuda:N, not 'tpu'"):
        Engine("tpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there():
    with pytest.raises(ConfigError, match="PyTorch sees no GPU"):
        Engine("cuda")


def test_bf16_trains_on_fp32_weights(tmp_path):
    train(tiny_recipe("glocalxml", "train.precision=bf16"), tmp_path / "m")
    assert {tensor.dtype for tensor in weights(tmp_path / "m").values()} == {torch.float32}
    train(tiny_recipe("glocalxml"), tmp_path / "exact")
    rounded, exact = losses(tmp_path / "m"), losses(tmp_path / "exact")
    assert rounded != exact
    assert rounded == pytest.approx(exact, rel=0.1)


def test_the_loss_scale_of_a_resumed_run_is_put_back():
    first, second = Engine("cpu", "fp32"), Engine("cpu", "fp32")
    assert first.scaler_state() == {}
    first.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1)
    second.accelerator.scaler = torch.amp.GradScaler("cpu")
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    first.accelerator.scaler.scale(weight.sum()).backward()
    first.accelerator.scaler.step(optimizer)
    first.accelerator.scaler.update()
    second.restore_scaler(first.scaler_state())
    assert second.accelerator.scaler.get_scale() == 16.0
    assert second.scaler_state() == first.scaler_state()
