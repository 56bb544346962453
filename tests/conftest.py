"""What all tests share: no network, no cache of the user's, one thread each.

Models here are too small to gain from a second thread; instead two workers share the files of tests
(`make test`). Files that take longest come first, and tests that start processes of their own wait
for one another, so that no two of them fight for the cores.
"""

import contextlib
import gc
import os

import pytest
from filelock import FileLock
from hypothesis import settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
for library in ("OMP", "MKL", "OPENBLAS"):  # before the first test imports one of them
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
if not os.path.exists("/dev/nvidia0"):  # Triton's kernels are then run by its interpreter
    os.environ.setdefault("TRITON_INTERPRET", "1")

# What reaches the disk before the power fails is nothing that a test can see, and tests with
# checkpoints would wait for it. Processes that tests start do wait.
os.fsync = lambda descriptor: None

# How long an example takes is the machine's business, which may be busy.
settings.register_profile("glocal", deadline=None)
settings.load_profile("glocal")


def pytest_collection_modifyitems(config, items):
    skip_without_gpu(items)
    if is_worker(config):
        longest_first = ("dist", "slow")
        items.sort(key=lambda item: [item.get_closest_marker(m) is None for m in longest_first])


def pytest_collection_finish():
    # Modules and tests stay until the end: the garbage collector need not look at them again.
    gc.collect()
    gc.freeze()


def pytest_sessionfinish():
    gc.unfreeze()


def skip_without_gpu(items):
    """Skip the tests marked `gpu` where there is none."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked:
        import torch

        if not torch.cuda.is_available():
            for item in marked:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    shared = is_worker(item.config) and item.get_closest_marker("dist") is not None
    with alone(item.config) if shared else contextlib.nullcontext():
        return (yield)


def is_worker(config):
    """Whether this process is one of several that share the tests."""
    return hasattr(config, "workerinput")


def alone(config):
    """A place where one worker is at a time."""
    shared_by_workers = config._tmp_path_factory.getbasetemp().parent
    return FileLock(shared_by_workers / "processes.lock")


@pytest.fixture(autouse=True)
def private_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
