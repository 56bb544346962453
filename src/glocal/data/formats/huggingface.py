"""Hugging Face datasets saved on disk (`Dataset.save_to_disk`); needs the extra `datasets`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from glocal.data.corpus import Document
from glocal.data.formats.fields import ReadOptions
from glocal.data.formats.rows import Problems, documents_from_rows
from glocal.data.formats.source import Source
from glocal.errors import require

MARKERS = ("dataset_info.json", "dataset_dict.json", "state.json")


def is_saved_dataset(source: Source) -> bool:
    """Return whether a folder is a saved dataset."""
    return any((source.path / name).is_file() for name in MARKERS)


def read_huggingface(
    source: Source, options: ReadOptions, problems: Problems
) -> Iterator[Document]:
    """Stream the documents of a saved dataset; class numbers become their names."""
    dataset = _load(source)
    class_names = _class_names(dataset, options.labels_field)

    def named(row: dict[str, Any]) -> dict[str, Any]:
        if class_names and row.get(options.labels_field) is not None:
            row[options.labels_field] = [class_names[i] for i in row[options.labels_field]]
        return row

    rows = enumerate(map(named, dataset), 1)
    return documents_from_rows(rows, options, problems, source)


def _load(source: Source) -> Any:
    datasets = require("datasets", extra="datasets", purpose="reading Hugging Face datasets")
    try:
        dataset = datasets.load_from_disk(str(source.path))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise source.error(
            f"the saved dataset cannot be read ({error!s:.120}); save it again"
        ) from error
    if isinstance(dataset, datasets.DatasetDict):
        raise source.error(
            f"the folder holds several splits; name one of them: "
            f"{', '.join(str(source.path / split) for split in dataset)}"
        )
    return dataset


def _class_names(dataset: Any, labels_field: str) -> list[str] | None:
    """Return the class names of a column that is a list of `ClassLabel`."""
    feature = dataset.features.get(labels_field)
    inner = getattr(feature, "feature", None)
    return getattr(inner, "names", None)
