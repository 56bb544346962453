"""Seconds that parts of a piece of work take, measured while it runs.

Functions are named as `module:name` or `module:class.name`. Each is wrapped while the block runs; a
GPU is waited for before a function's time ends. Parts may contain other parts, and parts of
different threads overlap, so that their sum means nothing.
"""

from __future__ import annotations

import functools
import importlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

ADDING = (
    "glocal.update.label_update:load_model",
    "glocal.vocabulary.label_change:added",
    "glocal.update.expert_rows:changed_system",
    "glocal.update.expert_rows:rebuild_system",
    "glocal.update.new_rows:mean_tokens",
    "glocal.update.learnt_rows:LearntRows._read",
    "glocal.update.learnt_rows:fit_rows",
    "glocal.companions.companion_list:Companions.with_labels",
    "glocal.companions.sparse.changed_model:_widened",
    "glocal.companions.sparse.changed_model:_features",
    "glocal.companions.sparse.changed_model:_new_scorer",
    "glocal.companions.sparse.new_labels:_solved",
    "glocal.companions.sparse.sparse_scoring:LinearScorer.joined",
    "glocal.update.label_update:rewrite_model",
    "glocal.storage.model_directory:_write",
    "glocal.companions.sparse.sparse_model:write_model",
    "glocal.storage.integrity:update_checksums",
    "glocal.storage.integrity:replace_dir",
)
CONTINUING = (
    "glocal.update.further_training:load_model",
    "glocal.update.further_training:_Report._recall",
    "glocal.update.expert_rows:changed_system",
    "glocal.update.expert_rows:rebuild_system",
    "glocal.update.new_rows:mean_tokens",
    "glocal.update.learnt_rows:LearntRows._read",
    "glocal.update.learnt_rows:LearntRows._old_labels",
    "glocal.update.learnt_rows:fit_rows",
    "glocal.companions.companion_list:Companions.with_labels",
    "glocal.companions.sparse.changed_model:_learnt",
    "glocal.companions.sparse.changed_model:_new_scorer",
    "glocal.update.further_training:rewrite_model",
)


@contextmanager
def stage_times(names: Sequence[str]) -> Iterator[dict[str, float]]:
    """Measure functions while a block runs; the mapping is filled as they end."""
    seconds: dict[str, float] = defaultdict(float)
    with ExitStack() as stack:
        for name in names:
            module, _, path = name.partition(":")
            owner: Any = importlib.import_module(module)
            *parents, own = path.split(".")
            for parent in parents:
                owner = getattr(owner, parent)
            wrapped = _timed(getattr(owner, own), f"{module.rpartition('.')[2]}.{path}", seconds)
            stack.enter_context(mock.patch.object(owner, own, wrapped))
        yield seconds


def _timed(work: Callable[..., Any], name: str, seconds: dict[str, float]) -> Callable[..., Any]:
    @functools.wraps(work)
    def timed(*values: Any, **named: Any) -> Any:
        started = time.perf_counter()
        try:
            return work(*values, **named)
        finally:
            _wait_for_gpu()
            seconds[name] += time.perf_counter() - started

    return timed


def _wait_for_gpu() -> None:
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
