"""Models of another commit: predictions of today's code, and weights when trained again.

    git worktree add /tmp/before e35a16d
    python benchmarks/old_models.py --before /tmp/before/src            # predictions
    python benchmarks/old_models.py --before /tmp/before/src --retrain  # weights as well

Trains a tiny model of each recipe of the other commit there: texts of ICD-10-CM, a random encoder,
CPU, one thread, seed 0. Both versions then predict the same texts with it; printed are the slots
whose label differs and the largest difference of a score, of the model and of its experts. With
`--retrain`, today's code also trains each model again by the settings stored with it; printed are
the arrays of weights that differ and by how much. `--undo` brings back, in that training alone, a
computation of before: `attention` PyTorch's gradient of label attention, `bce` autograd's gradient
of the BCE, `clusters` the order in which APLC's clusters are computed. Models of words are compared
where texts have several lines (`--lines 2`); with one, today's have no features of the first.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import numpy as np

NOW = Path(__file__).resolve().parents[1] / "src"
SIZES = {"train": 500, "dev": 150, "test": 120}
BEST = 100
TINY = [
    "encoder.name=random:tiny",
    "encoder.max_length=24",
    "attention.key_size=32",
    "attention.hidden_size=32",
    "reader.bottleneck=16",
    "train.batch_size=16",
    "train.epochs=2",
    "train.precision=fp32",
    "train.rates.encoder=3e-3",
    "train.rates.pooler=1e-2",
    "train.rates.attention=3e-3",
    "train.rates.classifier=1e-2",
    "train.rates.queries=1e-2",
    "train.rates.mlp=1e-2",
]
# Settings of single recipes; an encoder of `none` stays.
MORE = {
    "fast": ["encoder.name=none"],
    "auto": ["train.members=1"],
    "best": ["train.members=2"],
}
# Models beside those of the recipes: a recipe and its settings.
LONG = ("encoder.max_length=12", "encoder.document_length=48", "encoder.overlap=4")
VARIANTS = {
    "long-documents": ("glocalxml", *LONG, "document.reads=chunks"),
    "shortlist": ("glocalxml", "candidates.mode=shortlist"),
    "label-text": ("glocalxml", "labels.text=tied"),
    "accumulation": ("glocalxml", "train.accumulation=2"),
}


def cases(names: list[str]) -> dict[str, tuple[str, ...]]:
    """Return each model's recipe and settings."""
    found = {name: (name, *TINY, *MORE.get(name, ())) for name in names}
    return found | {name: (made[0], *TINY, *made[1:]) for name, made in VARIANTS.items()}


def train(work: Path, only: list[str]) -> None:
    """Train the models with this process's version."""
    from glocal import load_recipe, recipe_names

    for name, (recipe, *settings) in cases(recipe_names()).items():
        if not only or name in only:
            fit(work, work / "old" / name, load_recipe, recipe, settings)


def train_again(work: Path, only: list[str], undo: list[str]) -> None:
    """Train the models again with this process's version."""
    from glocal import Predictor

    for change in undo:
        UNDO[change]()
    for path in stored(work, only):
        fit(work, work / "new" / path.name, lambda path: Predictor.load(path).recipe, path)


def undo_attention() -> None:
    """Leave the gradient of label attention on a CPU to PyTorch."""
    from glocal.experts import cpu_attention

    cpu_attention.suits = lambda query, keys: False


def undo_bce() -> None:
    """Leave the gradient of the BCE to autograd."""
    from torch.nn import functional

    from glocal.losses import bce
    from glocal.systems import registry  # noqa: F401 (imports all that uses the loss)

    def plain(logits, gold, start, *, targets=None):
        logits, local, width = logits.float(), gold - start, logits.shape[1]
        inside = (gold >= 0) & (local >= 0) & (local < width)
        positive = logits.gather(1, local.clamp(0, width - 1)) * inside
        return functional.softplus(logits).sum() - positive.sum()

    today = bce.bce_chunk
    for module in [*sys.modules.values()]:
        if getattr(module, "bce_chunk", None) is today:
            module.bce_chunk = plain


def undo_clusters() -> None:
    """Project documents into each of APLC's tails where the tail's loss is computed."""
    from torch.nn import functional

    from glocal.heads.aplc import APLC

    def loss(self, document, gold, weights, *, limit, skip_tails=True):
        ranks = self.rank_gold(gold)
        present = self.present(ranks)
        gates = self.gates.logits(document, slice(None)).float()
        absent = functional.softplus(gates) * ~present
        total = (absent.sum(1) * weights).sum() + self._head_loss(document, ranks, weights, limit)
        for tail in range(self.n_tails):
            inside = weights * present[:, tail]
            rows = inside.nonzero()[:, 0] if skip_tails else slice(None)
            projected = self.cluster(tail + 1).project(document[rows])
            total = total + self._tail_loss(
                tail + 1, projected, gates[rows, tail], ranks[rows], inside[rows], limit=limit
            )
        return total

    APLC.loss = loss


UNDO = {"attention": undo_attention, "bce": undo_bce, "clusters": undo_clusters}


def fit(work: Path, out: Path, read_recipe, *source) -> None:
    """Train one model on the texts in the folder; an error is reported and does not end the run."""
    from glocal import fit, read_corpus, read_label_table

    texts, dev = (read_corpus(work / f"{part}.jsonl") for part in ("train", "dev"))
    table = read_label_table("icd10cm")
    try:
        recipe = read_recipe(*source)
        fit(recipe, texts, dev=dev, label_table=table, out=out, device="cpu", overwrite=True)
    except Exception:
        sys.stderr.write(f"{out.name}: {traceback.format_exc()}\n")


def stored(work: Path, only: list[str]) -> list[Path]:
    """Return the models that the other commit has trained."""
    paths = sorted(path.parent for path in (work / "old").glob("*/glocal.toml"))
    return [path for path in paths if not only or path.name in only]


def predict(work: Path, only: list[str], version: str) -> None:
    """Predict with every stored model by this process's version."""
    from glocal import Predictor

    rows = (work / "test.jsonl").read_text("utf-8").splitlines()
    texts = [json.loads(row)["text"] for row in rows]
    for path in stored(work, only):
        predictor = Predictor.load(path, device="cpu")
        k = min(BEST, len(predictor.labels))
        found = predictor.predict(texts, k=k, per_expert=True)
        if not isinstance(found, dict):
            found = {"combined": found, **found.experts}
        parts = {}
        for part, one in found.items():
            parts |= {f"{part}/labels": one.indices, f"{part}/scores": one.scores}
        np.savez(work / f"{path.name}-{version}.npz", **parts)


def compare_predictions(work: Path, only: list[str]) -> None:
    """Print what differs in the predictions of each model."""
    for path in stored(work, only):
        before, now = (np.load(work / f"{path.name}-{v}.npz") for v in ("before", "now"))
        parts = [name.removesuffix("/labels") for name in before.files if "/labels" in name]
        counts = []
        for part in parts:
            one, other = (file[f"{part}/labels"] for file in (before, now))
            own, its = (np.nan_to_num(file[f"{part}/scores"]) for file in (before, now))
            counts.append((int((one != other).sum()), float(np.abs(own - its).max()), one.size))
        differing, scores, sizes = zip(*counts, strict=True)
        print(f"  {path.name}: {sum(differing)} of {sum(sizes)} labels differ, scores by at most "
              f"{max(scores):.2g}")  # fmt: skip


def compare_weights(work: Path, only: list[str]) -> None:
    """Print what differs in the weights of each model and of the same trained again."""
    from glocal import Predictor

    for path in stored(work, only):
        both = [work / kind / path.name for kind in ("old", "new")]
        if not both[1].exists():
            print(f"  {path.name}: not trained again")
            continue
        before, now = (Predictor.load(each, device="cpu").system for each in both)
        if not hasattr(before, "state_dict"):
            print(f"  {path.name}: {words_apart(*both)}")
            continue
        before, now = before.state_dict(), now.state_dict()
        new = [name for name in now if name not in before]
        apart = {
            name: float((value.double() - now[name].double()).abs().max())
            for name, value in before.items()
        }
        count, worst = sum(map(bool, apart.values())), max(apart, key=lambda name: apart[name])
        place = f" ({worst})" if count else ""
        print(f"  {path.name}: {count} of {len(apart)} arrays differ, at most by "
              f"{apart[worst]:.2g}{place}{f'; new: {new}' if new else ''}")  # fmt: skip


def words_apart(before: Path, now: Path) -> str:
    """Return how far the weights of two models of words are apart."""
    from glocal.companions.sparse.compact_rows import rounded
    from glocal.companions.sparse.sparse_files import read_model
    from glocal.companions.sparse.sparse_rows import as_csr

    first, second = (as_csr(read_model(path / "sparse")[1].weights) for path in (before, now))
    if first.shape != second.shape:
        return f"words alone, {first.shape[0]} features before and {second.shape[0]} now"
    apart = [abs(weights - second).max() for weights in (first, rounded(first))]
    return (
        f"weights of words differ by {apart[0]:.2g} at most, and by {apart[1]:.2g} "
        "when those of before are rounded to 16 bits"
    )


def write_texts(work: Path, lines: int) -> None:
    """Write texts drawn from each split of ICD-10-CM, with others as further lines."""
    from glocal import read_corpus

    for part, count in SIZES.items():
        corpus = read_corpus(f"icd10cm:{part}")
        drawn = sorted(random.Random(0).sample(range(len(corpus)), count))
        chosen = corpus.take(drawn)
        texts, rows = chosen.texts(), []
        for place, labels in enumerate(chosen.labels()):
            more = [texts[(7 * place + 3 * line) % count] for line in range(1, lines)]
            rows.append(json.dumps({"text": "\n".join([texts[place], *more]), "labels": labels}))
        (work / f"{part}.jsonl").write_text("\n".join(rows), encoding="utf-8")


def run(source: Path, step: str, args: argparse.Namespace, work: Path) -> None:
    """Run a step in a process of one version."""
    command = [sys.executable, __file__, "--step", step, "--work", str(work)]
    command += ["--before", str(args.before), *(f"--only={name}" for name in args.only)]
    command += [f"--lines={args.lines}", *(f"--undo={change}" for change in args.undo)]
    threads = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS")}
    cache = {"PYTHONPATH": str(source), "GLOCAL_CACHE": str(work / "cache")}
    subprocess.run(command, env={**os.environ, **threads, **cache}, check=True)


STEPS = {
    "texts": lambda args: write_texts(args.work, args.lines),
    "train": lambda args: train(args.work, args.only),
    "again": lambda args: train_again(args.work, args.only, args.undo),
    "predict before": lambda args: predict(args.work, args.only, "before"),
    "predict now": lambda args: predict(args.work, args.only, "now"),
    "predictions": lambda args: compare_predictions(args.work, args.only),
    "weights": lambda args: compare_weights(args.work, args.only),
}


def main() -> None:
    """Train, predict and compare; every step is a process of its version."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, required=True, help="src of the other commit")
    parser.add_argument("--retrain", action="store_true", help="train again, compare weights")
    parser.add_argument("--undo", action="append", default=[], choices=UNDO, help="with --retrain")
    parser.add_argument("--only", action="append", default=[], help="model to look at; repeatable")
    parser.add_argument("--lines", type=int, default=1, help="lines of a text")
    parser.add_argument("--work", type=Path, help="folder to keep texts and models in")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.step:
        logging.disable(logging.WARNING)  # models of before have no checksums
        STEPS[args.step](args)
        return
    with tempfile.TemporaryDirectory() as folder:
        work = args.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        if not (work / "test.jsonl").exists():
            run(NOW, "texts", args, work)
        if not (work / "old").exists():
            run(args.before, "train", args, work)
            run(args.before, "predict before", args, work)
        for step in ("predict now", "predictions"):
            run(NOW, step, args, work)
        for step in ("again", "weights") if args.retrain else ():
            run(NOW, step, args, work)


if __name__ == "__main__":
    main()
