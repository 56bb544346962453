"""Damaged model directories of every kind, all from a seed.

Each case changes one file, computes the checksums again, so that the validation behind them is
tested, and uses the model in a child process: it may be refused or used, but without a crash, a
hang, a traceback or much memory. `python -m tests.fuzz_models 2000` tries that many;
`tests.fuzz` does so too.
"""

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.tiny import tiny_corpus, tiny_recipe

_SMALL = ("train.epochs=1", "train.batch_size=32")
_STATIC = ("reader.encode=static", "teacher.vectors=corpus", "teacher.dimensions=8")
KINDS = {
    "fast": ("fast",),
    "glocalxml": ("glocalxml", *_SMALL),
    "members": ("me-xml", *_SMALL, "train.members=2"),
    "aplc": ("aplc", *_SMALL),
    "teacher-words": ("treaderxml", *_SMALL, "teacher.similarity=words"),
    "teacher-mean": ("treaderxml", *_SMALL, "teacher.similarity=mean"),
    "teacher-ivf": ("treaderxml", *_SMALL, "teacher.similarity=mean", "teacher.index=ivf"),
    "teacher-hnsw": ("treaderxml", *_SMALL, "teacher.similarity=mean", "teacher.index=hnsw"),
    "static": ("treaderxml", *_SMALL, *_STATIC),
    "balanced": ("balanced", *_SMALL),
    "onnx": ("balanced", *_SMALL),
    "openvino": ("glocalxml", *_SMALL),
}
TEXTS = ["the red fox", "", "a blue dog and a green owl", "zzzz"]
SECONDS, WAITING, MOST_BYTES = 60, 300, 800 << 20  # of one case, beyond what the parent has
ODD_NUMBERS = (0, -1, 1, 2, 3, 255, 65_536, 2**31 - 1, 2**31, 2**62, 10**30, -1.5, 1e30)
ODD_VALUES = (*ODD_NUMBERS, None, True, "", "x", "../../x", [], {}, [1, "a", None], "\0")


def make_models(folder, kinds=tuple(KINDS)):
    """Train a small model of each kind."""
    from glocal.config import load_recipe
    from glocal.export.export_model import export_model
    from glocal.ranking.graph_session import RUNTIMES
    from glocal.tagger import Tagger
    from glocal.train.run import fit

    corpus, dev = tiny_corpus(96), tiny_corpus(32, seed=1)
    for kind in kinds:
        name, *settings = KINDS[kind]
        if kind == "fast":  # with the settings of a Tagger beside the model
            labels = corpus.table.column("labels").to_pylist()
            Tagger(load_recipe(name)).fit(corpus.texts(), labels).save(folder / kind)
            continue
        exported = kind in RUNTIMES
        trained = folder / f"{kind}-trained" if exported else folder / kind
        fit(tiny_recipe(name, *settings), corpus, dev=dev, out=trained)
        if exported:
            export_model(trained, folder / kind, to=kind)


def damage(seed, model):
    """Change one file of a model directory; return what was done, in words."""
    from glocal.storage.integrity import update_checksums

    chance = random.Random(seed)
    left_out = {"README.md", "train_log.jsonl", "checksums.json"}
    files = sorted(p for p in model.rglob("*") if p.is_file() and p.name not in left_out)
    path = chance.choice(files)
    ways = [_bytes, _bytes]
    ways += {
        ".npy": [_npy] * 4, ".parquet": [_parquet] * 4, ".safetensors": [_safetensors] * 4,
        ".json": [_json] * 4, ".toml": [_toml] * 6,
    }.get(path.suffix, [])  # fmt: skip
    done = chance.choice(ways)(chance, path)
    if path.exists():
        update_checksums(model)
    return f"{path.relative_to(model)}: {done}"


def _bytes(chance, path):
    content = bytearray(path.read_bytes())
    way = chance.choice(["flip", "noise", "cut", "empty", "longer", "zeros"])
    if way == "flip":
        for _ in range(min(len(content), chance.choice([1, 4, 40]))):
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    elif way == "noise":
        start = chance.randrange(len(content) or 1)
        content[start : start + 64] = chance.randbytes(len(content[start : start + 64]))
    elif way == "zeros":
        start = chance.randrange(len(content) or 1)
        content[start : start + 16] = bytes(len(content[start : start + 16]))
    elif way == "longer":
        content += chance.randbytes(chance.choice([1, 8, 4096]))
    else:
        content = content[: chance.randrange(len(content) or 1) if way == "cut" else 0]
    path.write_bytes(content)
    return way


def _changed_array(chance, array):
    """An array with odd values, or of another type or shape; and what was done."""
    way = chance.choice(["values", "values", "values", "type", "shape", "shorter", "order"])
    array = np.array(array)
    if way == "values" and array.size:
        whole = np.issubdtype(array.dtype, np.integer)
        limits = np.iinfo(array.dtype) if whole else None
        odd = (
            [-1, 0, 1, len(array), limits.min, limits.max, limits.max // 2]
            if whole else [np.nan, np.inf, -np.inf, 0.0, -1e30, 1e30, 1e-40]
        )  # fmt: skip
        for _ in range(chance.choice([1, 1, 5])):
            value = np.array(chance.choice(odd)).astype(array.dtype)
            array.reshape(-1)[chance.randrange(array.size)] = value
    elif way == "type":
        array = array.astype(chance.choice(["f8", "i8", "u1", ">i4", "U3", "c8", "?", "f2"]))
    elif way == "shape":
        wide = chance.choice([(array.size, 1), (1, array.size), (0,), (), (array.size + 1,)])
        array = np.resize(array, wide)
    elif way == "shorter":
        array = array[: chance.randrange(len(array) or 1)]
    else:
        array = array[np.random.default_rng(chance.randrange(99)).permutation(len(array))]
    return array, way


def _npy(chance, path):
    if chance.random() < 0.2:  # a header that asks for more than there is
        with path.open("wb") as file:
            shape = chance.choice([(2**40,), (2**62,), (-1,), (1, 2**33), (3, -5)])
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
        return f"a header with the shape {shape}"
    array, done = _changed_array(chance, np.load(path))
    np.save(path, array)
    return f"an array with other {done}"


def _parquet(chance, path):
    table = pq.read_table(path, partitioning=None)
    place = chance.randrange(table.num_columns)
    name, column = table.column_names[place], table.column(place)
    way = chance.choice(["nulls", "numbers", "strings", "dropped", "rows", "twice", "metadata"])
    n = table.num_rows
    if way == "nulls":
        values = [None if chance.random() < 0.3 else v for v in column.to_pylist()]
        table = table.set_column(place, name, pa.array(values, column.type))
    elif way == "numbers":
        odd = [chance.choice([0, -1, 2**40, 7]) for _ in range(n)]
        nested = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
        table = table.set_column(place, name, pa.array([[v] for v in odd] if nested else odd))
    elif way == "strings":
        odd = [chance.choice(["", "x", "é\u202e", "\x1b[31m"]) for _ in range(n)]
        table = table.set_column(place, name, pa.array(odd))
    elif way == "dropped":
        table = table.remove_column(place)
    elif way == "rows":
        table = table.slice(0, chance.randrange(n or 1))
    elif way == "twice":
        table = pa.concat_tables([table, table])
    else:
        odd = chance.choice(["-1", "x", "0", str(10**30)])
        table = table.replace_schema_metadata({"n_documents": odd})
    pq.write_table(table, path)
    return f"{name}: {way}"


def _safetensors(chance, path):
    from safetensors.numpy import load_file, save_file

    tensors = load_file(path)
    if not tensors:
        return _bytes(chance, path)
    name = chance.choice(sorted(tensors))
    way = chance.choice(["changed", "changed", "dropped", "added", "header"])
    if way == "changed":
        changed, way = _changed_array(chance, tensors[name])
        tensors[name] = changed if changed.dtype.kind in "fiub" else changed.astype("U3").view("u1")
    elif way == "dropped":
        del tensors[name]
    elif way == "added":
        tensors["stray"] = np.zeros((3, 3), dtype=np.float32)
    if way == "header":
        content = path.read_bytes()
        size = int.from_bytes(content[:8], "little")
        digits = [p for p in range(8, 8 + size) if chr(content[p]).isdigit()]
        place = chance.choice(digits or [0])
        path.write_bytes(content[:place] + b"9" + content[place + 1 :])
    else:
        save_file({n: np.ascontiguousarray(t).astype(t.dtype.newbyteorder("=")) for n, t in
                   tensors.items()}, path)  # fmt: skip
    return f"{name}: {way}"


def _spots(value, place=()):
    """The places of all values in nested lists and mappings."""
    yield place
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in list(keys)[:200]:
        yield from _spots(value[key], (*place, key))


def _odd_setting(chance, document):
    """A document with one value changed or removed, and where."""
    place = chance.choice(list(_spots(document))[1:] or [()])
    if not place:
        return chance.choice(ODD_VALUES), "all"
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    way = chance.choice(["number", "number", "value", "removed"])
    if way == "removed":
        del inner[place[-1]]
    else:
        odd = chance.choice(ODD_NUMBERS if way == "number" else ODD_VALUES)
        inner[place[-1]] = odd
        way = repr(odd)
    return document, f"{'.'.join(map(str, place))}: {way}"


def _json(chance, path):
    document, done = _odd_setting(chance, json.loads(path.read_text("utf-8")))
    path.write_text(json.dumps(document), encoding="utf-8")
    return done


def _toml(chance, path):
    lines = path.read_text("utf-8").splitlines()
    places = [n for n, line in enumerate(lines) if "=" in line]
    place = chance.choice(places)
    name = lines[place].partition("=")[0].strip()
    way = chance.choice(["number", "value", "removed"])
    if way == "removed":
        del lines[place]
    else:
        odd = chance.choice(ODD_NUMBERS if way == "number" else ("''", "[]", "{}", "nan", "'x'"))
        lines[place] = f"{name} = {odd}"
        way = odd
    path.write_text("\n".join(lines), encoding="utf-8")
    return f"{name}: {way}"


def use(model):
    """Use a model as users do; return what went wrong, in words."""
    from glocal.errors import GlocalError
    from glocal.tagger import Tagger
    from tests.cli.conftest import invoke
    from tests.fuzz import problem

    rows = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode()
    for arguments in (["info", model], ["predict", model, "-", "-k", "3"],
                      ["explain", model, TEXTS[2]]):  # fmt: skip
        result = invoke(*arguments, input=rows)
        if found := problem(result, arguments):
            return f"{arguments[0]}: {found}"
        if "llocate" in result.stderr or "MemoryError" in result.stderr:
            return f"{arguments[0]}: asks for much memory: {result.stderr}"
    if (model / "tagger.json").exists():
        with contextlib.suppress(GlocalError):
            Tagger.load(model, device="cpu").predict(TEXTS)
    return ""


def try_case(seed, original, folder):
    """Damage a copy of a model and use it in a child process; return a problem in words, or ''."""
    model = folder / f"case{seed}"
    shutil.copytree(original, model)
    done = damage(seed, model)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    read, write = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:  # nothing of the parent may run here
        os.close(read)
        _in_child(model, write)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        found = pipe.read().decode()
    _, status, used = os.wait4(child, 0)
    shutil.rmtree(model)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        late = number in (signal.SIGALRM, signal.SIGPROF)
        found = "hangs" if late else f"dies of signal {number}"
    elif not found and used.ru_maxrss * 1024 > before + MOST_BYTES:
        found = f"takes {used.ru_maxrss >> 10} MB"
    return f"{done}: {found}" if found else ""


def _in_child(model, write):
    found = ""
    try:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of the processor
        signal.alarm(WAITING)
        sizes = Path("/proc/self/statm")
        if sizes.exists():
            limit = int(sizes.read_text().split()[0]) * os.sysconf("SC_PAGESIZE") + 4 * MOST_BYTES
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        found = use(model)
    except BaseException:
        found = traceback.format_exc()
    os.write(write, found.encode()[-4000:])
    os._exit(0)


def try_many(count, *, first=0, made=None):
    """Try cases from one seed on and print those that go wrong; return their number."""
    import torch

    torch.set_num_threads(1)
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["GLOCAL_CACHE"] = str(folder / "cache")
        models = Path(made or folder / "models")
        if not models.exists():
            make_models(models)
        for kind in KINDS:  # also imports everything once, for all children
            assert not (found := use(models / kind)), f"the intact model {kind}: {found}"
        for seed in range(first, first + count):
            kind = list(KINDS)[seed % len(KINDS)]
            if found := try_case(seed, models / kind, folder):
                wrong += 1
                sys.stdout.write(json.dumps([seed, kind, found]) + "\n")
                sys.stdout.flush()
    return wrong


def main():
    """`python -m tests.fuzz_models COUNT [FIRST SEED] [FOLDER OF MODELS]`."""
    count, *rest = sys.argv[1:]
    first, made = [*rest, *("0", "")[len(rest) :]]
    wrong = try_many(int(count), first=int(first), made=made)
    sys.stdout.write(f"{wrong} of {count} model directories went wrong\n")
    return int(wrong > 0)


if __name__ == "__main__":
    # Threads of the parent do not exist in its children, which would wait for them.
    os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    sys.exit(main())
