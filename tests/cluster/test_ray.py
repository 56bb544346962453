"""Bulk prediction on a Ray cluster of two nodes on this machine."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402

from glocal.cluster import ray_cluster  # noqa: E402
from glocal.cluster.ray_cluster import _connection_error, check_machines, connected  # noqa: E402
from glocal.cluster.ray_preparation import prepare_on_ray  # noqa: E402
from glocal.cluster.ray_shards import RayEngine  # noqa: E402
from glocal.cluster.ray_training import Board, RayTrainer, _train  # noqa: E402
from glocal.cluster.ray_tuning import trials_on_ray  # noqa: E402
from glocal.data.corpus import Corpus  # noqa: E402
from glocal.errors import ConfigError, DataError, GlocalError  # noqa: E402
from glocal.predict.sharded import predict_sharded, shard_folder  # noqa: E402
from glocal.predict.shards import ShardJob  # noqa: E402
from glocal.train.prepare import Preparation, prepare_data  # noqa: E402
from glocal.tune.tuning import tune_recipe  # noqa: E402
from tests.cli.conftest import invoke  # noqa: E402
from tests.tiny import tiny_corpus, tiny_recipe  # noqa: E402
from tests.train.runs import Recorder, losses, train  # noqa: E402

pytestmark = [pytest.mark.dist, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def cluster():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # 15 by default: tests share their cores
        yield from started_cluster()


def started_cluster():
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


def test_tokens_and_words_are_those_of_one_process(cluster, tmp_path, monkeypatch):
    settings = ['experts=["D-last", "S"]', "sparse.cluster_size=2"]
    texts = Preparation(tiny_recipe("glocalxml", *settings), tiny_corpus(230))
    found = []
    for prepare, folder in ((prepare_data, "one"), (prepare_on_ray, "ray")):
        monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / folder))
        found.append(prepare(texts))
    assert found[0] == found[1]
    assert found[0].tokens > 1000
    files = [
        {path.relative_to(tmp_path / folder): path for path in (tmp_path / folder).rglob("*.*")}
        for folder in ("one", "ray")
    ]
    assert files[0].keys() == files[1].keys()
    compared = [name for name in files[0] if name.parts[0] in ("tokens", "sparse")]
    assert len(compared) > 8  # some texts are held out
    for name in compared:
        assert files[0][name].read_bytes() == files[1][name].read_bytes(), name


def test_training_gives_the_run_of_one_process(cluster, tmp_path):
    recipe, dev, heard = tiny_recipe("glocalxml"), tiny_corpus(9, seed=1), Recorder()
    train(recipe, tmp_path / "one", dev=dev)
    trainer = RayTrainer(workers=2)
    result = trainer(
        recipe, tiny_corpus(), out=tmp_path / "two", dev=dev, device="cpu", listener=heard
    )
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-4)
    assert result.metrics["steps"] == 8
    assert "2 processes" in " ".join(heard.messages)


def test_an_error_of_a_process_ends_the_run(cluster, tmp_path, monkeypatch):
    """Ray Train starts processes again after an error; the second time they end at once."""
    monkeypatch.setattr("ray.train.get_context", lambda: SimpleNamespace(get_world_rank=lambda: 0))
    board = ray.remote(num_cpus=0)(Board).remote()
    unlabelled = Corpus.from_texts(["a text"], [[]])
    options = {"out": str(tmp_path / "model"), "dev": unlabelled, "device": "cpu"}
    call = ray.put((tiny_recipe("glocalxml"), tiny_corpus(), options))
    work = {"board": board, "sharding": {}, "call": call}
    with pytest.raises(DataError, match="none of the 1 dev texts has labels"):
        _train(work)
    assert "none of the 1 dev texts" in ray.get(board.answer.remote())["error"]
    _train(work)
    assert not (tmp_path / "model").exists()


def test_trials_of_a_search_run_at_once(cluster, tmp_path):
    with trials_on_ray(workers=2) as trials_in:
        found = tune_recipe(
            "fast",
            tiny_corpus(96),
            tiny_corpus(24, seed=1),
            out=tmp_path / "tuned.toml",
            trials=3,
            trials_in=trials_in,
        )
    assert found.n_trials == 3
    assert found.after >= found.before > 0


def test_training_on_more_than_the_cluster_has(cluster, tmp_path):
    with pytest.raises(ConfigError, match="9 processes need 9 CPUs, and the cluster has 2"):
        RayTrainer(workers=9)(tiny_recipe(), tiny_corpus(), out=tmp_path / "model")


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


def test_another_server_at_the_address_is_one_line(cluster, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    with (
        pytest.raises(ConfigError, match=r"no Ray cluster answers at .*something else listens"),
        connected(f"127.0.0.1:{server.server_port}"),
    ):
        pytest.fail("it connected")
    thread.join()
    server.server_close()
    ray_cluster._check_reachable(cluster.address)  # which is one


def test_machines_with_another_version_are_one_line(cluster, monkeypatch):
    check_machines(ray)
    monkeypatch.setattr("glocal.cluster.ray_cluster.__version__", "0.0.0")
    with pytest.raises(GlocalError, match=r"has glocal 0\.0\.0: \S+ has glocal \d") as error:
        check_machines(ray)
    assert "\n" not in str(error.value)


def test_a_cluster_of_another_ray_is_one_line(cluster):
    """Ray's own check, with the version of this process changed."""
    code = (
        "import ray, sys; ray.__version__ = '1.0.0'\n"
        "from glocal.cluster.ray_cluster import connected\n"
        "from glocal.errors import GlocalError\n"
        "try:\n"
        "    with connected(sys.argv[1]): pass\n"
        "except GlocalError as error: print(error)\n"
    )
    command = [sys.executable, "-c", code, cluster.address]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert re.search(r"has other versions than this process \(.*Ray 1\.0\.0", said.stdout), said
    assert said.stdout.count("\n") == 1


def test_other_versions_are_one_line():
    error = RuntimeError(
        "Version mismatch: The cluster was started with:\n    Ray: 2.9.0\n    Python: 3.9.1\n"
        "This process on node 127.0.0.1 was started with:\n    Ray: 2.60.0\n    Python: 3.11.7\n"
    )
    found = _connection_error(error, "head:6379")
    assert "\n" not in str(found)
    assert "Ray 2.9.0, Python 3.9.1, Ray 2.60.0, Python 3.11.7" in str(found)
