"""The training loop: one for every system.

- a step's documents are split over processes and accumulation parts;
- evaluation on dev selects the best weights and stops early; averaged weights compete too;
- batches are prepared by a thread while the device computes;
- a checkpoint is written at the end of every epoch, at Ctrl-C, and more often if asked.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from glocal.config import TrainConfig
from glocal.config.rules import LEAN_LABELS
from glocal.data.batches import Batch, Collator, epoch_batches, prediction_batches, shard
from glocal.errors import Interrupted, Remedy, TrainingError
from glocal.losses.chunked import FP8, widened
from glocal.systems.system import System, TrainingPosition
from glocal.train.checkpoint import START_AGAIN, RunState, random_state
from glocal.train.context import RunContext
from glocal.train.dev import DevScores
from glocal.train.engine import Engine
from glocal.train.graphs import StepGraphs
from glocal.train.optim import count_stale, schedule_factor, set_rates
from glocal.train.prefetch import Prefetch
from glocal.train.row_updates import RowUpdates
from glocal.train.signals import StopSignals


class Loop:
    """One run over its steps.

    Args:
        system: The system, on the CPU; it is moved to the engine's device.
        optimizer: The optimizer of its parameters.
        data: The training documents.
        config: The run's settings.
        context: Where the run computes, keeps its state and reports.
        state: The position of the run, new or restored.
        evaluate: Computes scores on dev; None without dev.
    """

    def __init__(
        self,
        system: System,
        optimizer: torch.optim.Optimizer,
        data: Collator,
        *,
        config: TrainConfig,
        context: RunContext,
        state: RunState,
        evaluate: Callable[[], DevScores] | None,
    ) -> None:
        self.data, self.config, self.state, self.evaluate = data, config, state, evaluate
        assert isinstance(context.engine, Engine), "an encoder is trained with torch"
        self.engine: Engine = context.engine
        self.folder, self.listener = context.folder, context.listener
        engine = self.engine
        self.parts = engine.world * config.accumulation
        self.system = system
        self.model, self.optimizer = engine.wrap(system, optimizer)
        self.average: dict[str, Tensor] = {}
        self.losses: list[Tensor] = []  # losses of the steps since the last log line
        self.steps_per_epoch = len(self._epoch(0))
        self.steps = self.steps_per_epoch * config.epochs
        self.trained = [p for p in system.parameters() if p.requires_grad]
        self.stop = StopSignals(self.listener.on_message)
        alone = engine.device.type == "cuda" and self.parts == 1
        dtypes = {"fp32": None, "bf16": torch.bfloat16}
        recorded = config.graphs and alone and engine.precision in dtypes and not config.compile
        self.row_updates = None
        if config.label_precision in LEAN_LABELS:
            self.row_updates = RowUpdates(system, optimizer)
        self.graphs = None
        if recorded:
            self.graphs = StepGraphs(system, dtypes[engine.precision], self.row_updates)
        # Few shapes on a GPU, so that kernels and graphs are reused; no padding waste on a CPU.
        self.multiple = 64 if engine.device.type == "cuda" else 1

    # --- the run ------------------------------------------------------------------------------

    def run(self) -> None:
        """Train from the state's step to the end, or until patience runs out."""
        config, state = self.config, self.state
        started, documents = time.monotonic(), 0
        before = state.seconds
        self.losses = [torch.tensor(loss, device=self.engine.device) for loss in state.losses]
        evaluation_steps = self._evenly(config.evaluations or config.epochs)
        checkpoint_steps = self._evenly(config.epochs * (config.checkpoints + 1))
        log_every = max(1, self.steps_per_epoch // 20)
        self.model.train()
        with self.stop, Prefetch(self._batches(state.step), self.engine.device) as batches:
            while state.step < self.steps and not self._patience_is_out():
                loss, count = self._step(batches)
                self.losses.append(loss)
                documents += count
                state.step += 1
                self._update_average()
                if state.step % log_every == 0 or state.step == self.steps:
                    state.seconds = before + time.monotonic() - started
                    self._report(documents / max(1e-9, time.monotonic() - started))
                if self.evaluate is not None and state.step in evaluation_steps:
                    self._evaluate()
                state.seconds = before + time.monotonic() - started
                if state.step in checkpoint_steps and state.step < self.steps:
                    self._checkpoint()
                if self._interrupted():
                    self._save_and_leave()
        if self._patience_is_out():
            self.listener.on_message(
                f"stopped at step {state.step}: no gain in {config.patience} evaluations"
            )

    def _step(self, batches: Iterator[Batch]) -> tuple[Tensor, int]:
        """Take one optimizer step; return its loss and number of documents."""
        position = TrainingPosition(self.state.step, self.steps, self.config.seed)
        total, count = torch.zeros((), device=self.engine.device), 0
        set_rates(self.optimizer, self._rate_factor())
        if self.row_updates is not None:
            self.row_updates.start_step()
        for part in range(self.config.accumulation):
            batch = next(batches)
            total += self._pass(batch, position, last=part == self.config.accumulation - 1)
            count += len(batch)
        skipped = self.engine.clip(self.trained, self.config.clip_norm, self.optimizer)
        total = torch.where(skipped > 0, torch.nan, total)  # the log skips it too
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total, count * self.engine.world

    def _rate_factor(self) -> float:
        """Return the schedule's factor; a resumed run knows the evaluations of the first part."""
        scores = (entry["scores"][self.config.metric] for entry in self.state.evaluations)
        return schedule_factor(self.config, self.state.step, self.steps, stale=count_stale(scores))

    def _pass(self, batch: Batch, position: TrainingPosition, *, last: bool) -> Tensor:
        """Run forward and backward, replayed where the shape is recorded."""
        if self.graphs is not None:
            replayed = self.graphs.step(batch, position)
            if replayed is not None:
                return replayed
        batch = batch.to(self.engine.device)
        with self.engine.accumulate(self.model, last=last):
            with self.engine.autocast():
                loss: Tensor = self.model(batch, position)
            self.engine.backward(loss)
        return loss.detach()

    # --- data ---------------------------------------------------------------------------------

    def _epoch(self, epoch: int) -> list[np.ndarray]:
        config = self.config
        return epoch_batches(
            self.data.tokens.lengths,
            config.batch_size,
            seed=config.seed,
            epoch=epoch,
            parts=self.parts,
        )

    def _batches(self, first_step: int) -> Iterator[Batch]:
        """Yield this process's parts of every step, from a step on."""
        for epoch in range(first_step // self.steps_per_epoch, self.config.epochs):
            skip = max(0, first_step - epoch * self.steps_per_epoch)
            for positions in self._epoch(epoch)[skip:]:
                for part in range(self.config.accumulation):
                    yield self._collate(positions, part * self.engine.world + self.engine.rank)

    def documents(self, most: int | None = None) -> Iterator[Batch]:
        """Yield training documents once, on the device, in batches of similar length.

        Args:
            most: The number of documents, the same in every run; by default all.
        """
        order = np.random.default_rng(self.config.seed).permutation(len(self.data))
        chosen = np.sort(order[:most])
        for places in prediction_batches(self.data.tokens.lengths[chosen], self.config.batch_size):
            yield self.data(chosen[places]).to(self.engine.device)

    def _collate(self, positions: np.ndarray, part: int) -> Batch:
        return self.data(
            shard(positions, part=part, parts=self.parts),
            denominator=self.system.denominator(self.data.gold, positions) / self.engine.world,
            multiple=self.multiple,
        )

    # --- between steps ------------------------------------------------------------------------

    def _evenly(self, count: int) -> set[int]:
        return {math.ceil(self.steps * (i + 1) / count) for i in range(count)}

    def _patience_is_out(self) -> bool:
        patience = self.config.patience
        return patience > 0 and self.state.stale_evaluations >= patience

    def _check_finite(self, *, loss: float | None = None) -> None:
        """Refuse to evaluate, save or report weights or a loss that are not finite."""
        if loss is None:
            checked = [p for p in self.trained if p.dtype != FP8]  # which is always finite
            finite = self.engine.all_finite(checked)
            found = "" if finite else "some weights were no longer finite"
        else:
            found = "" if math.isfinite(loss) else f"the loss became {loss}"
        if not found:
            return
        saved = self.folder.latest()
        kept = f" (the last checkpoint is kept: {saved})" if saved else ""
        raise TrainingError(
            f"{found} at step {self.state.step} of {self.steps}; lower the learning rates "
            f"(train.rates), clip (train.clip_norm) or use train.precision=fp32{kept}",
            remedies=[START_AGAIN],
        )

    def _report(self, speed: float) -> None:
        state = self.state
        losses = torch.stack(self.losses)
        loss = self.engine.mean(float(losses.nanmean()))
        skipped = int(losses.isnan().sum())
        self.losses = []
        self._check_finite(loss=loss)
        if skipped:
            self.listener.on_message(
                f"{skipped} of the last {len(losses)} steps skipped: gradients were not finite"
            )
        left = state.seconds / max(1, state.step) * (self.steps - state.step)
        info = {
            "step": state.step,
            "steps": self.steps,
            "epoch": state.step / self.steps_per_epoch,
            "loss": loss,
            "docs_per_second": speed,
            "seconds_left": left,
        }
        if self.engine.is_main:
            self.listener.on_step(info)
            self.folder.log({k: info[k] for k in ("step", "epoch", "loss", "docs_per_second")})

    def _update_average(self) -> None:
        """Update the running mean of the weights over the last part of the run."""
        start = self.steps - round(self.config.averaging * self.steps)
        if not self.config.averaging or self.state.step <= start:
            return
        self.state.averaged += 1
        named = self.system.named_parameters()
        weights = {n: self.engine.local_part(p) for n, p in named if p.requires_grad}
        if not self.average:
            self.average = {name: widened(w).clone() for name, w in weights.items()}
            return
        # By name: the averages of a resumed run come in another order.
        averages = [self.average[name] for name in weights]
        latest = [widened(w) for w in weights.values()]
        torch._foreach_lerp_(averages, latest, 1.0 / self.state.averaged)

    def _evaluate(self) -> None:
        assert self.evaluate is not None
        self._check_finite()
        state = self.state
        with self._averaged():
            with self.engine.whole(self.system):
                scores = self.evaluate()
            score = scores.model[self.config.metric]
            better = state.best_score is None or score > state.best_score
            if better:
                state.best_score, state.best_step, state.stale_evaluations = score, state.step, 0
                if self.engine.saves:
                    self.folder.save_best(self.system.state_dict())
            else:
                state.stale_evaluations += 1
        entry = {
            "step": state.step,
            "epoch": state.step / self.steps_per_epoch,
            "scores": scores.model,
            "experts": scores.experts,
        }
        state.evaluations.append(entry)
        if self.engine.is_main:
            self.folder.log(entry)
            self.listener.on_evaluation({**entry, "metric": self.config.metric, "best": better})

    def _checkpoint(self) -> None:
        self._check_finite()
        self.state.scaler, self.state.steps = self.engine.scaler_state(), self.steps
        self.state.losses = [self.engine.mean(float(loss)) for loss in self.losses]
        states = self.engine.gather([random_state()])
        if self.engine.saves:
            self.folder.save(
                self.state,
                self.system,
                self.optimizer,
                average=self.average,
                random_states=states,
            )
        self.engine.wait()

    def _interrupted(self) -> bool:
        """Whether any process was asked to stop."""
        return self.engine.any_process(self.stop.requested, step=self.state.step)

    def _save_and_leave(self) -> None:
        self._checkpoint()
        raise Interrupted(
            f"stopped at step {self.state.step} of {self.steps}; the state is saved in "
            f"{self.folder.path}",
            remedies=[Remedy("resume", "continue from there")],
        )

    def final_weights(self) -> dict[str, Tensor]:
        """Return the best weights on dev, else the averaged ones, else the last."""
        self.engine.wait()  # the first process may still be writing the best ones
        if self.evaluate is not None and self.folder.best_path.exists():
            return self.folder.load_best()
        with self._averaged(), self.engine.whole(self.system):
            return {name: t.detach().clone() for name, t in self.system.state_dict().items()}

    @contextlib.contextmanager
    def _averaged(self) -> Iterator[None]:
        """Let the system have the averaged weights, if any, within the block."""
        self._swap_average()
        try:
            yield
        finally:
            self._swap_average()

    def _swap_average(self) -> None:
        parameters = dict(self.system.named_parameters())
        for name, weight in self.average.items():
            self.average[name] = self.engine.replace_part(parameters[name], weight)
