"""Texts and tags in S3, from a server of moto on this machine."""

import gzip
import json
import os
import urllib.request

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto import server as moto

from glocal.data import remote
from glocal.data.file_store import open_store
from glocal.data.readers import iter_documents, read_corpus
from glocal.errors import DataError
from glocal.predict.shard_processes import ProcessEngine
from glocal.predict.sharded import predict_sharded, shard_folder
from glocal.predict.shards import ShardJob
from tests.cli.conftest import invoke

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def bucket():
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.get_host_and_port()[1]}")
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_REGION", "us-east-1")
        remote._s3.cache_clear()
        _create("corpus")
        yield "s3://corpus"
        remote._s3.cache_clear()
    server.stop()


def _create(name):
    request = urllib.request.Request(f"{os.environ['AWS_ENDPOINT_URL']}/{name}", method="PUT")
    urllib.request.urlopen(request).close()


def put(address, content):
    with remote.write_file(address) as file:
        file.write(content)
    return address


def test_a_folder_of_files(bucket):
    store = open_store(f"{bucket}/folder/")
    assert store.names() == []
    store.write("b", b"2")
    store.write("a", b"1")
    assert (store.names(), store.read("b")) == (["a", "b"], b"2")
    store.remove()
    assert store.names() == []


def test_corpora_of_several_formats(bucket):
    rows = [{"id": str(i), "text": f"text {i}", "labels": ["x"]} for i in range(5)]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    put(f"{bucket}/a.jsonl", lines)
    with remote.write_file(f"{bucket}/a.parquet") as file:
        pq.write_table(pa.Table.from_pylist(rows), file)
    put(f"{bucket}/a.jsonl.gz", gzip.compress(lines))
    for name in ("a.jsonl", "a.parquet", "a.jsonl.gz"):
        assert list(read_corpus(f"{bucket}/{name}").documents()) == list(
            read_corpus(f"{bucket}/a.jsonl").documents()
        )
    with pytest.raises(DataError, match=r"s3://corpus/b\.jsonl: no such file"):
        next(iter_documents(f"{bucket}/b.jsonl"))


def test_an_unfinished_file_never_appears(bucket):
    def stopped():
        with remote.write_file(f"{bucket}/half.jsonl") as file:
            file.write(b"{")
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        stopped()
    assert not remote.exists(f"{bucket}/half.jsonl")


@pytest.mark.dist
def test_tags_from_and_to_s3(bucket, words_model, texts, expected):
    source, output = put(f"{bucket}/texts.jsonl", texts.read_bytes()), f"{bucket}/tags.jsonl"
    job = ShardJob(str(words_model), shard_folder(output), rows=7, options={"k": 2})
    predict_sharded(ProcessEngine(2), job, [source], output)
    with remote.open_stream(output) as file:
        found = file.read()
    # Errors name the file that was read.
    assert found == expected.replace(str(texts).encode(), source.encode())
    assert open_store(shard_folder(output)).names() == []


@pytest.mark.parametrize("way", ["in", "out"])
def test_missing_credentials_are_one_line(way, bucket, words_model, texts, monkeypatch):
    put(f"{bucket}/texts.jsonl", texts.read_bytes())
    monkeypatch.setenv("COLUMNS", "1000")
    # The server asks for credentials of an account from now on, and there is none.
    monkeypatch.setattr("moto.settings.INITIAL_NO_AUTH_ACTION_COUNT", 0.0)
    words = ["predict", words_model]
    if way == "in":
        found = invoke(*words, f"{bucket}/texts.jsonl")
    else:
        found = invoke(*words, texts, "--workers", 1, "--output", f"{bucket}/denied.jsonl")
    assert found.exit_code == 1
    assert "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE)" in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1
