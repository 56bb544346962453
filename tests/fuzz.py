"""Random files, rows and options for the command line, all from a seed.

`python -m tests.fuzz 10000` tries that many in one process; the tests try some. A command may
refuse its input, but never with a traceback, a crash, an escape on the terminal or a fault of ours.
"""

import bz2
import gzip
import json
import lzma
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import feather

NAMES = (
    *("a.jsonl", "a.csv", "a.tsv", "a.json", "a.txt", "a.parquet", "a.feather", "a.gz", "a"),
    *("a.jsonl.gz", "a.csv.bz2", "a.json.xz", "a.txt.zst", "train_texts.txt"),
    *("a\x1b[31m.jsonl", "[bold].csv", "a b.tsv"),
)
PIECES = (
    *(b'{"text": "the red fox", "labels": ["red", "fox"]}\n' for _ in range(4)),
    b'{"id": 1, "text": null}\n',
    b'{"id": "1", "text": "a blue dog", "labels": "blue;dog"}\n',
    b'{"id": "1", "text": "\\u001b[31mdog", "labels": ["[/nope]"]}\n',
    b'{"text": "\\ud800"}\n',
    b'{"title": "a cat", "labels": {"a": 1}}\n',
    b"text,labels\n",
    b'"the red fox","red;fox"\n',
    b'"never closed,red\n',
    b"a text\t<http://red>\n",
    b"2 3 4\n1,2 0:0.5 1:1\n",
    b"__label__red the red fox\n",
    b'{"title": "a cat", "abstract": "sleeps", "meta": {"a": "b"}, "labels": "a|b"}\n',
    b'[{"text": "one", "labels": ["a"]}, {"text":\n "two"}]\n',
    b"Text;Labels;ID\n",
    b"the red fox;red|fox;1\n",
    *(b"%PDF-1.7\n", b"PK\x03\x04", b"SQLite format 3\x00", b"\x80\x04\x95", b"ARROW1\x00\x00"),
    "Mädchen, café\n".encode("latin-1"),
    *(
        b"\xff\xfe",
        b"\x00",
        b"PAR1",
        b"\x1f\x8b",
        b"\x1b[2J",
        b"[1, 2",
        b"\n\n",
        "é\u202e".encode(),
    ),
)
OPTIONS = (
    *("--skip-bad-rows", "--json", "-q", "--format=csv", "--format=annif", "--format=xmc-sparse"),
    *("--text-field=title", "--text-field=", "--labels-field=text", "--id-field=text"),
    *("--label-separator=", "--label-separator=,", "--format=nothing", "--threads=1"),
    *("--text-field=title,abstract", "--text-field=meta.a", "--text-field=,", "--format=fasttext"),
    *("--format=feather", "--format=annif-folder", "--encoding=utf-16", "--encoding=nothing"),
    *("--encoding=latin-1", "--id-field=meta.a", "--format=jsonl", "--format=parquet"),
)
OF_COMMAND = {
    "predict": ("--strict", "--to=csv", "--to=annif", "--to=table", "--to=nothing", "-k=1", "-k=99",
                "--no-names", "--batch-size=1", "--threshold=0.5", "--threshold=2", "--only=none"),
    "eval": ("-k=1", "-k=x", "--bands=few=1-", "--within-bands", "--threshold=nan"),
    "inspect": ("--bands=few=1-5,many=6-", "--bands=x"),
    "split": ("--fractions=0.5,0.5", "--fractions=2,3", "--to=parquet", "--seed=7", "--overwrite"),
    "train": ("--recipe=fast", "--seed=1", "--epochs=1", "-s=seed=3", "-s=x", "--budget=1s"),
}  # fmt: skip


def packed(chance, content):
    """The content as it is, in another encoding, in a binary format, compressed or damaged."""
    way = chance.randrange(12)
    if way < 4:
        content = content.decode("utf-8", "ignore").encode(ENCODINGS[way])
    elif way < 6:
        content = BINARY[way - 4]()
    way = chance.randrange(12)
    if way < 4:
        content = bytes(COMPRESSIONS[way](content))
    if content and chance.random() < 0.1:
        place = chance.randrange(len(content))
        change = chance.randrange(3)
        content = (
            content[:place]
            if change == 0
            else content[:place] + chance.randbytes(1) + content[place + (change == 1) :]
        )
    return content


def table_file(write):
    """The content of a file that a function writes a table to."""
    target = pa.BufferOutputStream()
    write(pa.table({"text": ["a red fox", None, "x"], "labels": [["red"], [], None]}), target)
    return target.getvalue().to_pybytes()


ENCODINGS = ("utf-8-sig", "utf-16", "utf-16-le", "utf-32")
BINARY = (lambda: table_file(pq.write_table), lambda: table_file(feather.write_feather))
COMPRESSIONS = (gzip.compress, bz2.compress, lzma.compress, pa.Codec("zstd").compress)


def case(seed, folder, model):
    """The arguments and the standard input of one command; its file is written to the folder."""
    chance = random.Random(seed)
    content = b"".join(chance.choice(PIECES) for _ in range(chance.randint(0, 8)))
    if chance.random() < 0.3:
        content += chance.randbytes(chance.randint(1, 60))
    content = packed(chance, content)
    path = folder / chance.choice(NAMES)
    path.write_bytes(content)
    if chance.random() < 0.05:
        path = folder / chance.choice(["a*", "texts", "none-*"])
    command = chance.choice([*OF_COMMAND, "predict", "predict"])
    options = chance.sample([*OPTIONS, *OF_COMMAND[command]], chance.randint(0, 3))
    arguments = {
        "predict": ["predict", model, chance.choice([path, "-"])],
        "eval": ["eval", model, path],
        "inspect": ["data", "inspect", path],
        "split": ["data", "split", path, "--out", folder / "parts"],
        "train": ["train", path, "--recipe=fast", "--out", folder / "model", "--overwrite"],
    }[command]
    return [*arguments, *options], content


def problem(result, arguments):
    """What a command must never do, in words; empty when all is well."""
    # CSV keeps the data as it is, unless it goes to a terminal.
    output = (
        result.stderr
        if {"--to=csv", "--to=annif"} & set(arguments)
        else result.stdout + result.stderr
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"raises {result.exception!r}"
    if result.exit_code not in (0, 1, 2):
        return f"exits with {result.exit_code}"
    if "Traceback" in output or "a fault in glocal" in output:
        return f"fails: {output[-500:]}"
    if set(output) & {"\x1b", "\x9b", "\u202e"}:
        return "writes an escape"
    if result.exit_code and not result.stderr and not result.stdout:
        return "fails without a word"
    return ""


def main():
    """Try many cases, from an optional first one on, and print those that go wrong."""
    from tests.cli.conftest import corpus_rows, invoke, write_jsonl

    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train = write_jsonl(folder / "train.jsonl", corpus_rows(64, 0))
        made = invoke("train", train, "--recipe", "fast", "--out", folder / "fast")
        assert made.exit_code == 0, made.output
        start = int(sys.argv[2]) if len(sys.argv) > 2 else 0
        for seed in range(start, start + int(sys.argv[1])):
            arguments, content = case(seed, folder, folder / "fast")
            found = problem(invoke(*arguments, input=content), arguments)
            wrong += bool(found)
            if found:
                sys.stdout.write(json.dumps([seed, *map(str, arguments), found]) + "\n")
    sys.stdout.write(f"{wrong} of {sys.argv[1]} cases went wrong\n")
    sys.stdout.flush()
    # Damaged model directories, one for every five inputs.
    count, first = str(int(sys.argv[1]) // 5), str(start)
    subprocess.run([sys.executable, "-m", "tests.fuzz_models", count, first], check=False)


if __name__ == "__main__":
    main()
