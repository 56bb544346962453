"""The state of a run on disk: enough to resume to the same result after a kill.

`OUT.run/` holds `checkpoint-STEP/` (weights, optimizer, random state in safetensors, the rest in
JSON), `best.safetensors` and `train_log.jsonl`. In a run with several members, `members/` holds the
same for the member in training, and the finished ones. `plan.json` holds the plan of the run. A
checkpoint is written under another name and renamed; only then is the previous one removed. No
pickle.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError

from glocal.data.atomic import atomic_write, replace_dir, temporary_dir, write_text
from glocal.errors import Remedy, TrainingError
from glocal.storage.tensors import write_tensors

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from glocal.systems.system import System

START_AGAIN = Remedy("overwrite", "start from scratch")

_NAME = re.compile(r"checkpoint-(\d+)")


@dataclass
class RunState:
    """The position of a run, without its tensors."""

    fingerprint: str
    step: int = 0
    steps: int = 0  # of the whole run
    best_score: float | None = None
    best_step: int = 0
    stale_evaluations: int = 0
    averaged: int = 0
    seconds: float = 0.0
    scaler: dict[str, float] = field(default_factory=dict)  # state of fp16's loss scaling
    losses: list[float] = field(default_factory=list)  # losses of the steps since the last log line
    evaluations: list[dict[str, Any]] = field(default_factory=list)


def read_state(folder: Path, fingerprint: str, *, about: str) -> RunState:
    """Read the state of a run from a folder.

    Raises:
        TrainingError: It is that of another run.
    """
    state = RunState(**json.loads((folder / "state.json").read_text("utf-8")))
    if state.fingerprint != fingerprint:
        raise TrainingError(
            f"{about} had another recipe or other data, such as other labels, so the run cannot be "
            "resumed with these",
            remedies=[START_AGAIN],
        )
    return state


class RunFolder:
    """The folder that holds the state of an unfinished run.

    Args:
        out: The model directory the run will write; the run's folder is next to it.
    """

    def __init__(self, out: Path) -> None:
        self.path = out.with_name(out.name + ".run")
        self.log_path = self.path / "train_log.jsonl"
        self.best_path = self.path / "best.safetensors"
        self.plan_path = self.path / "plan.json"
        self.members_path = self.path / "members"

    @property
    def unfinished(self) -> bool:
        """Whether the folder holds a run that can be resumed."""
        return self.latest() is not None or self.members_path.is_dir()

    def latest(self) -> Path | None:
        """Return the newest complete checkpoint; None where there is none."""
        if not self.path.is_dir():
            return None
        found = [(int(m[1]), p) for p in self.path.iterdir() if (m := _NAME.fullmatch(p.name))]
        return max(found)[1] if found else None

    def save(
        self,
        state: RunState,
        system: System,
        optimizer: torch.optim.Optimizer,
        *,
        average: Mapping[str, Tensor],
        random_states: Sequence[Mapping[str, Tensor]],
    ) -> None:
        """Write a checkpoint, then remove the ones before it.

        Args:
            state: The position of the run.
            system: The system, for its weights.
            optimizer: The optimizer, for its moments.
            average: Averaged weights, if any.
            random_states: The `random_state` of every process.
        """

        def finish(folder: Path) -> None:
            for rank, states in enumerate(random_states):
                write_tensors(states, folder / f"random-{rank}.safetensors")
            (folder / "state.json").write_text(json.dumps(asdict(state)), encoding="utf-8")

        final = self.path / f"checkpoint-{state.step}"
        moments = optimizer_tensors(system, optimizer)
        groups = {"model": system.state_dict(), "optimizer": moments, "average": average}
        with self._writing():
            self._publish(final, groups, finish)
        self._remove_others(final)

    def _publish(
        self,
        final: Path,
        groups: Mapping[str, Mapping[str, Tensor]],
        finish: Callable[[Path], None],
    ) -> None:
        """Write the tensors of several groups into a folder that appears when it is finished."""
        with temporary_dir(final) as folder:
            for group, tensors in groups.items():
                write_tensors(tensors, folder / f"{group}.safetensors")
            finish(folder)
            replace_dir(folder, final)

    def _remove_others(self, kept: Path) -> None:
        """Remove the checkpoints before the newest one."""
        for old in self.path.iterdir():
            if _NAME.fullmatch(old.name) and old != kept:
                shutil.rmtree(old, ignore_errors=True)

    def _read(self, folder: Path, group: str) -> dict[str, Tensor]:
        """Return the tensors of a checkpoint: `model`, `optimizer` or `average`."""
        from safetensors.torch import load_file

        return dict(load_file(folder / f"{group}.safetensors"))

    def load(
        self, system: System, optimizer: torch.optim.Optimizer, *, fingerprint: str, rank: int = 0
    ) -> tuple[RunState, dict[str, Tensor]]:
        """Restore the newest checkpoint; return the run's state and the averaged weights."""
        from safetensors.torch import load_file

        latest = self.latest()
        assert latest is not None, "there is a checkpoint"
        try:
            state = read_state(latest, fingerprint, about=f"the unfinished run in {self.path}")
            device = next(system.parameters()).device
            self._restore(system, optimizer, latest)
            random = latest / f"random-{rank}.safetensors"
            if rank == 0 or random.is_file():  # there may be more processes now
                _restore_random(load_file(random))
            average = self._read(latest, "average")
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
            raise TrainingError(
                f"the checkpoint {latest} cannot be read: {error}", remedies=[START_AGAIN]
            ) from error
        return state, {name: t.to(device) for name, t in average.items()}

    def _restore(self, system: System, optimizer: torch.optim.Optimizer, folder: Path) -> None:
        """Set weights and moments to those of a checkpoint."""
        system.load_state_dict(self._read(folder, "model"))
        restore_optimizer(system, optimizer, self._read(folder, "optimizer"))

    def save_best(self, weights: Mapping[str, Tensor]) -> None:
        """Keep the weights of the best evaluation so far."""
        from safetensors.torch import save as to_bytes

        plain = {name: t.detach().cpu().contiguous() for name, t in weights.items()}
        with self._writing(), atomic_write(self.best_path) as file:
            file.write(to_bytes(plain))

    def load_best(self) -> dict[str, Tensor]:
        """Return the weights of the best evaluation."""
        from safetensors.torch import load_file

        return dict(load_file(self.best_path))

    def log(self, entry: Mapping[str, Any]) -> None:
        """Append a line to the training log."""
        with self._writing(), self.log_path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def cut_log(self, step: int) -> None:
        """Drop what was logged after the checkpoint a run resumes from."""
        if not self.log_path.is_file():
            return
        lines = self.log_path.read_text("utf-8").splitlines()
        kept = [line for line in lines if _logged_step(line) <= step]
        write_text(self.log_path, "".join(f"{line}\n" for line in kept))

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Report a failure to write, and how the run can be continued."""
        try:
            yield
        except OSError as error:
            latest = self.latest()
            raise TrainingError(
                f"cannot save the state of the run in {self.path}: {error.strerror or error}; free "
                "some space or fix the folder, then run it again",
                remedies=[Remedy("resume", f"continue from {latest.name}")] if latest else [],
            ) from error

    def clear(self) -> None:
        """Create the folder and empty it, except for the plan of this run."""
        self.path.mkdir(parents=True, exist_ok=True)
        for entry in self.path.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry != self.plan_path:
                entry.unlink()

    def remove(self) -> None:
        """Delete the folder and all it holds."""
        shutil.rmtree(self.path, ignore_errors=True)


def _logged_step(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError):
        return float("inf")  # half a line, from a kill


def optimizer_tensors(system: System, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state of an optimizer by `KEY|PARAMETER`."""
    import torch

    names = {id(p): name for name, p in system.named_parameters()}
    return {
        f"{key}|{names[id(parameter)]}": torch.as_tensor(value)
        for parameter, values in optimizer.state.items()
        for key, value in values.items()
    }


def restore_optimizer(
    system: System, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]
) -> None:
    """Set the state of an optimizer to what `optimizer_tensors` returned."""
    parameters = dict(system.named_parameters())
    for joined, value in tensors.items():
        key, _, name = joined.partition("|")
        parameter = parameters[name]
        optimizer.state[parameter][key] = value.to(parameter.device)


def random_state() -> dict[str, Tensor]:
    """Return the state of this process's random generators."""
    import torch

    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _restore_random(states: Mapping[str, Tensor]) -> None:
    import torch

    torch.set_rng_state(states["cpu"])
    if torch.cuda.is_available() and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])


def seed_everything(seed: int, rank: int) -> None:
    """Seed every random generator used in training; each process has its own dropout."""
    import torch

    torch.manual_seed(seed * 1000 + rank)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - third-party code may use the global generator
