"""Bulk prediction on a Ray cluster of two nodes on this machine."""

import contextlib
import json
import os
import signal
import socket
from pathlib import Path

import pytest

ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402

from glocal.cluster.ray_cluster import _connection_error, connected  # noqa: E402
from glocal.cluster.ray_shards import RayEngine  # noqa: E402
from glocal.errors import ConfigError, GlocalError  # noqa: E402
from glocal.predict.sharded import predict_sharded, shard_folder  # noqa: E402
from glocal.predict.shards import ShardJob  # noqa: E402
from tests.cli.conftest import invoke  # noqa: E402

pytestmark = [pytest.mark.dist, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def cluster():
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    found.add_node(num_cpus=1)
    ray.init(address=found.address, log_to_driver=False)
    yield found
    ray.shutdown()
    found.shutdown()


def tagged(engine, model, texts, output, **options):
    job = ShardJob(str(model), shard_folder(str(output)), rows=7, options={"k": 2, **options})
    return predict_sharded(engine, job, [texts], str(output))


def test_output_is_that_of_one_process(cluster, words_model, texts, expected, tmp_path):
    tagged(RayEngine(), words_model, texts, tmp_path / "tags.jsonl")
    assert (tmp_path / "tags.jsonl").read_bytes() == expected


def test_killed_workers_are_replaced(cluster, words_model, texts, expected, tmp_path):
    killed = []

    class Killing(RayEngine):
        def run(self, job, shards):
            for number, shard in enumerate(super().run(job, shards)):
                if number in (0, 2):
                    killed.append(kill_one_worker())
                yield shard

    tagged(Killing(workers=2), words_model, texts, tmp_path / "tags.jsonl")
    assert len(killed) == 2
    assert (tmp_path / "tags.jsonl").read_bytes() == expected


def kill_one_worker():
    """Kill a process that holds an actor; Ray gives it a title."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if entry.read_bytes().startswith(b"ray::ShardWorker"):
                os.kill(int(entry.parent.name), signal.SIGKILL)
                return int(entry.parent.name)
    pytest.fail("no worker runs")


def test_errors_of_workers_are_one_line(cluster, words_model, texts, tmp_path):
    with pytest.raises(GlocalError, match="k must be between 1 and"):
        tagged(RayEngine(), words_model, texts, tmp_path / "tags.jsonl", k=1000)


def test_workers_that_fit_nowhere(cluster, words_model, texts, tmp_path):
    with pytest.raises(GlocalError, match="no machine of the cluster has 1 CPUs and 2 GPUs"):
        tagged(RayEngine(gpus=2), words_model, texts, tmp_path / "tags.jsonl")


def test_the_command(cluster, words_model, texts, tmp_path):
    output = tmp_path / "tags.jsonl"
    found = invoke("predict", words_model, texts, "-k", 2, "--engine", "ray", "--output", output)
    assert found.exit_code == 0, found.stderr
    assert len(output.read_text().splitlines()) == 50
    assert json.loads(output.read_text().splitlines()[3])["error"]


def test_an_unreachable_cluster_is_one_line(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with (
        pytest.raises(ConfigError, match=f"no Ray cluster answers at {address}"),
        connected(address),
    ):
        pytest.fail("it connected")
    with pytest.raises(ConfigError, match="is not the address"), connected("http://x/y"):
        pytest.fail("it connected")


def test_other_versions_are_one_line():
    error = RuntimeError(
        "Version mismatch: The cluster was started with:\n    Ray: 2.9.0\n    Python: 3.9.1\n"
        "This process on node 127.0.0.1 was started with:\n    Ray: 2.60.0\n    Python: 3.11.7\n"
    )
    found = _connection_error(error, "head:6379")
    assert "\n" not in str(found)
    assert "Ray 2.9.0, Python 3.9.1, Ray 2.60.0, Python 3.11.7" in str(found)
