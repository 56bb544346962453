"""Bulk prediction by shards: the same output as one process, whatever happens to the workers."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from glocal.data.corpus import Document
from glocal.errors import DataError, GlocalError
from glocal.predict import shard_processes, shard_worker
from glocal.predict.bulk import predict_file
from glocal.predict.predictor import Predictor
from glocal.predict.shard_processes import ProcessEngine
from glocal.predict.sharded import predict_sharded, shard_folder
from glocal.predict.shards import MANIFEST, Shard, ShardJob, predict_shard
from glocal.predict.tag_files import open_writer
from glocal.tagger import Tagger
from tests.cli.conftest import invoke
from tests.tiny import tiny_corpus

ROWS = 7


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "fast"
    corpus = tiny_corpus(64)
    documents = list(corpus.documents())
    tagger = Tagger("fast").fit([d.text for d in documents], [d.labels for d in documents])
    tagger.save(path)
    return path


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.jsonl"
    lines = [json.dumps({"id": f"d{i}", "text": f"cat {i} dog red"}) for i in range(50)]
    lines[3] = '{"id": "blank", "text": " "}'
    lines[20] = "not json"
    path.write_text("\n".join(lines) + "\n")
    return path


class HereEngine:
    """Predicts shards in this process and counts them; may stop after some."""

    def __init__(self, stop_after=None):
        self.done, self._stop_after = [], stop_after

    def run(self, job, shards):
        predictor = Predictor.load(job.model, device="cpu")
        for shard in shards:
            if len(self.done) == self._stop_after:
                raise KeyboardInterrupt
            predict_shard(predictor, job, shard)
            self.done.append(shard.number)
            yield shard


def tagged(engine, model, texts, output, **options):
    job = ShardJob(str(model), shard_folder(str(output)), rows=ROWS, options={"k": 2, **options})
    return predict_sharded(engine, job, [texts], str(output))


def expected(model, texts, output):
    with open_writer(output) as write:
        predict_file(Predictor.load(model, device="cpu"), texts, write, k=2, chunk_size=ROWS)
    return Path(output).read_bytes()


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "parquet", "csv"])
def test_output_is_that_of_one_process(model, texts, tmp_path, ending):
    problems = tagged(HereEngine(), model, texts, tmp_path / f"tags.{ending}")
    assert len(problems) == 2
    one = expected(model, texts, tmp_path / f"one.{ending}")
    assert (tmp_path / f"tags.{ending}").read_bytes() == one
    assert not (tmp_path / f"tags.{ending}.shards").exists()


def test_finished_shards_are_never_done_twice(model, texts, tmp_path):
    output, first = tmp_path / "tags.jsonl", HereEngine(stop_after=3)
    with pytest.raises(KeyboardInterrupt):
        tagged(first, model, texts, output)
    assert not output.exists()
    second = HereEngine()
    tagged(second, model, texts, output)
    assert first.done == [0, 1, 2]
    assert second.done == [3, 4, 5, 6]
    assert output.read_bytes() == expected(model, texts, tmp_path / "one.jsonl")


def test_a_full_disk_of_a_worker_is_one_line_and_keeps_finished_shards(
    model, texts, tmp_path, monkeypatch
):
    class Full(HereEngine):
        def run(self, job, shards):
            worker = shard_worker.ShardWorker(job.to_mapping())
            for shard in shards:
                shard_worker.raise_problem(worker.answer(shard.to_list()))
                self.done.append(shard.number)
                yield shard

    def fail(predictor, job, shard):
        if shard.number == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), job.folder)
        predict_shard(predictor, job, shard)

    monkeypatch.setattr(shard_worker, "predict_shard", fail)
    monkeypatch.setattr("glocal.predict.sharded.shard_rows", lambda model: ROWS)
    output = tmp_path / "tags.jsonl"

    def run(engine):
        monkeypatch.setattr("glocal.cli.predict._shard_engine", lambda *_, **__: engine)
        found = invoke("predict", model, texts, "-k", 2, "--workers", 1, "--output", output)
        return found, engine.done

    found, done = run(Full())
    assert (found.exit_code, done) == (1, [0, 1, 2])
    assert "no space left on device; free some space and run the command again" in found.stderr
    assert len(found.stderr.splitlines()) == 1
    found, done = run(HereEngine())
    assert (found.exit_code, done) == (0, [3, 4, 5, 6])
    assert output.read_bytes() == expected(model, texts, tmp_path / "one.jsonl")


def test_shards_of_other_options_are_discarded(model, texts, tmp_path, caplog):
    output = tmp_path / "tags.jsonl"
    with pytest.raises(KeyboardInterrupt):
        tagged(HereEngine(stop_after=3), model, texts, output, k=1)
    again = HereEngine()
    tagged(again, model, texts, output)
    assert len(again.done) == 7
    assert "other options" in caplog.text
    assert output.read_bytes() == expected(model, texts, tmp_path / "one.jsonl")


def test_a_shard_whose_input_changed_is_done_again(model, texts, tmp_path):
    output = tmp_path / "tags.jsonl"
    with pytest.raises(KeyboardInterrupt):
        tagged(HereEngine(stop_after=4), model, texts, output)
    texts.write_text(texts.read_text().replace("cat 10 ", "owl 10 "))
    again = HereEngine()
    tagged(again, model, texts, output)
    assert again.done == [1, 4, 5, 6]
    assert output.read_bytes() == expected(model, texts, tmp_path / "one.jsonl")


def test_a_truncated_shard_is_noticed(model, texts, tmp_path):
    output = tmp_path / "tags.jsonl"
    with pytest.raises(KeyboardInterrupt):
        tagged(HereEngine(stop_after=4), model, texts, output)
    shard = sorted(Path(f"{output}.shards").glob("shard-*"))[1]
    shard.write_bytes(shard.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(GlocalError, match=r"shard-000001.* has 1 rows in place of 7"):
        tagged(HereEngine(), model, texts, output)


def test_two_runs_of_one_output_exclude_each_other(model, texts, tmp_path):
    output = tmp_path / "tags.jsonl"

    class Nested(HereEngine):
        def run(self, job, shards):
            script = (
                "import sys; from glocal.data.file_store import open_store\n"
                "with open_store(sys.argv[1]).exclusive(): pass"
            )
            found = subprocess.run(
                [sys.executable, "-c", script, job.folder], capture_output=True, text=True
            )
            assert "another run writes to it" in found.stderr
            return super().run(job, shards)

    tagged(Nested(), model, texts, output)


def test_no_usable_row_writes_no_file(model, tmp_path):
    texts = tmp_path / "bad.jsonl"
    texts.write_text("nothing\nuseful\n")
    with pytest.raises(DataError, match="none of the 2 rows"):
        tagged(HereEngine(), model, texts, tmp_path / "tags.jsonl")
    assert not (tmp_path / "tags.jsonl").exists()


def test_shards_survive_the_way_to_a_worker():
    error = DataError("broken", path="a.jsonl", line=3, document_id="x\ud800")
    shard = Shard(4, [Document("a", "text é"), error, Document("", "b")])
    other = Shard.from_list(json.loads(json.dumps(shard.to_list())))
    assert other.file_name == shard.file_name
    assert other.rows[1].message == "a.jsonl:3: broken"
    assert Shard(4, [*shard.rows, error]).file_name != shard.file_name
    assert Shard(4, [Document("at", "ext é")]).file_name != Shard(4, [shard.rows[0]]).file_name


@pytest.mark.dist
def test_killed_workers_cost_nothing_but_time(model, texts, tmp_path, monkeypatch):
    """Each worker is killed once, with a shard in its hands, and replaced."""
    killed = []
    start = subprocess.Popen

    def start_and_kill(*arguments, **options):
        worker = start(*arguments, **options)
        if len(killed) < 3:
            killed.append(worker.pid)
            os.kill(worker.pid, signal.SIGKILL)
        return worker

    monkeypatch.setattr(shard_processes.subprocess, "Popen", start_and_kill)
    output = tmp_path / "tags.jsonl"
    tagged(ProcessEngine(2), model, texts, output)
    assert len(killed) == 3
    assert output.read_bytes() == expected(model, texts, tmp_path / "one.jsonl")


@pytest.mark.dist
def test_a_shard_that_loses_every_worker_ends_the_run(model, texts, tmp_path, monkeypatch):
    monkeypatch.setattr(shard_processes.sys, "executable", "/bin/false")
    with pytest.raises(GlocalError, match="5 workers in a row were lost with rows 1 to 7"):
        tagged(ProcessEngine(1), model, texts, tmp_path / "tags.jsonl")


@pytest.mark.dist
def test_errors_of_workers_are_one_line(model, texts, tmp_path):
    with pytest.raises(GlocalError, match="k must be between 1 and"):
        tagged(ProcessEngine(2), model, texts, tmp_path / "tags.jsonl", k=1000)


@pytest.mark.dist
@pytest.mark.dist
def test_a_worker_whose_caller_is_gone_ends_without_a_word(model, tmp_path):
    job = ShardJob(str(model), str(tmp_path / "shards"), rows=ROWS, options={"k": 2})
    shard = Shard(0, [Document("d", "red cat")])
    reading, writing = os.pipe()
    worker = subprocess.Popen(
        [sys.executable, "-m", "glocal.predict.shard_worker"],
        stdin=subprocess.PIPE, stdout=writing, stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(writing)
    os.close(reading)
    lines = (json.dumps(message) + "\n" for message in (job.to_mapping(), shard.to_list()))
    _, said = worker.communicate("".join(lines).encode(), timeout=100)
    assert (worker.returncode, said) == (0, b"")


def test_an_error_of_a_worker_reaches_the_caller(model):
    job = ShardJob(str(model), "/dev/full/tags.shards", rows=ROWS, options={"k": 2})
    shards = [Shard(0, [Document("a", "cat")])]
    with pytest.raises(OSError, match="Not a directory"):
        list(ProcessEngine(1).run(job, shards))


@pytest.mark.slow
@pytest.mark.dist
def test_a_killed_run_continues(model, texts, tmp_path):
    """The whole command is killed after its first shard; its workers end with it."""
    once = texts.read_text()
    texts.write_text(once * 100)
    output = tmp_path / "tags.jsonl"
    command = [sys.executable, "-m", "glocal", "predict", model, texts, "-k", "2"]
    command = [*map(str, command), "--output", str(output)]
    run = subprocess.Popen([*command, "--workers", "1"], stderr=subprocess.DEVNULL)
    folder = Path(f"{output}.shards")
    while run.poll() is None and not list(folder.glob("shard-*")):
        time.sleep(0.01)
    run.kill()
    run.wait()
    assert (folder / MANIFEST).exists()
    assert not output.exists()
    subprocess.run([*command, "--workers", "2"], check=True, stderr=subprocess.DEVNULL)
    lines = output.read_text().splitlines()
    assert len(lines) == 5000
    assert len({json.loads(line)["id"] for line in lines[:50]}) == 50
