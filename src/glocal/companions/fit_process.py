"""A process that fits companions and leaves them in the cache, where another one finds them.

    python -m glocal.companions.fit_process FOLDER

The folder holds the inputs as `start_fit` wrote them: `recipe.json`, `train.arrow`,
`labels.parquet`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from glocal.companions.companion import Companion, FitInputs
from glocal.companions.companion_list import companions_of
from glocal.config import recipe_from_mapping, recipe_to_mapping
from glocal.data.atomic import write_json
from glocal.data.corpus import Corpus
from glocal.vocabulary.label_space import LabelSpace

_NICENESS = 5  # the network in the other process comes first


def start_fit(
    kinds: Sequence[type[Companion]], inputs: FitInputs, folder: Path
) -> subprocess.Popen[bytes]:
    """Start to fit companions in another process.

    Args:
        kinds: The companions, none of which reads a label table or word vectors.
        inputs: The recipe, the training texts and the labels.
        folder: An empty folder for the inputs; it is needed until the process ends.
    """
    names = [kind.folder for kind in kinds]
    recipe = recipe_to_mapping(inputs.recipe)
    document = {"recipe": recipe, "companions": names, "device": inputs.device}
    write_json(folder / "recipe.json", document)
    table = inputs.train.table
    with (
        pa.OSFile(str(folder / "train.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)
    inputs.labels.save(folder / "labels.parquet")
    with (folder / "errors.txt").open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )


def main(folder: Path) -> None:
    """Fit the companions named in a folder of inputs."""
    with contextlib.suppress(AttributeError, OSError):  # not on every system
        os.nice(_NICENESS)
    document = json.loads((folder / "recipe.json").read_text("utf-8"))
    recipe = recipe_from_mapping(document["recipe"], source=str(folder))
    table = pa.ipc.open_file(pa.memory_map(str(folder / "train.arrow"))).read_all()
    labels = LabelSpace.load(folder / "labels.parquet")
    for kind in companions_of(recipe):
        if kind.folder in document["companions"]:
            kind.fit(FitInputs(recipe, Corpus(table), labels, device=document["device"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
