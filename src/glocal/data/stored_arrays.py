"""Arrays and tables read from disk, checked before compiled code sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

_LARGEST = 1e6  # of a weight


def read_array(
    path: Path,
    kind: type[Any],
    *,
    ndim: int = 1,
    mapped: Literal["r", "c"] | None = None,
) -> NDArray[Any]:
    """Read a `.npy` file.

    Args:
        path: The file.
        kind: Type of the values, or a group of types such as `np.integer`.
        ndim: Number of dimensions.
        mapped: Map the file into memory, read-only (`r`) or with changes kept in memory (`c`).

    Raises:
        ValueError: The file holds something else, or less than its header says.
        OSError: The file cannot be read.
    """
    try:
        # Mapped first: a header that promises more than the file has must not reserve memory.
        with np.errstate(over="ignore"):
            array = np.load(path, mmap_mode=mapped or "r", allow_pickle=False)
    except (ValueError, TypeError, EOFError, OverflowError, SyntaxError) as error:
        raise ValueError(f"{path.name} is not a readable array: {error}") from error
    if array.ndim != ndim or not np.issubdtype(array.dtype, kind) or not array.dtype.isnative:
        raise ValueError(
            f"{path.name} holds {array.dtype} values of shape {array.shape}; expected "
            f"{kind.__name__} in {ndim} dimension{'s' * (ndim > 1)}"
        )
    return array if mapped and array.size else np.array(array)


def check_range(name: str, values: NDArray[Any], low: int, high: int) -> None:
    """Check that whole numbers are from `low` up to, not including, `high`.

    Raises:
        ValueError: One is not.
    """
    if values.size and not (low <= values.min() and values.max() < high):
        raise ValueError(
            f"{name} has values from {values.min()} to {values.max()}; expected {low} to {high - 1}"
        )


def check_finite(name: str, values: NDArray[Any]) -> None:
    """Check that numbers are finite and of a size that weights have.

    Raises:
        ValueError: One is not.
    """
    # The extremes of an array with a NaN are NaN, which no comparison holds for.
    if values.size and not (values.min() >= -_LARGEST and values.max() <= _LARGEST):
        raise ValueError(
            f"{name} has values from {values.min()} to {values.max()}; expected finite weights"
        )


def check_csr(name: str, matrix: Any) -> None:
    """Check that compiled code can read a CSR matrix without leaving its arrays.

    Raises:
        ValueError: It cannot.
    """
    bounds, columns = matrix.indptr, matrix.indices
    whole = (
        len(bounds) == matrix.shape[0] + 1
        and bounds[0] == 0
        and bounds[-1] == len(matrix.data) == len(columns)
        and bool((np.diff(bounds) >= 0).all())
    )
    if not whole:
        raise ValueError(f"the bounds of {name} do not fit its {len(columns)} values")
    check_range(f"the columns of {name}", columns, 0, matrix.shape[1])


def read_columns(path: Path, schema: pa.Schema) -> pa.Table:
    """Read the columns of a Parquet file as given types, without missing values.

    Raises:
        ValueError: A column is absent, has another type or a missing value.
        OSError: The file cannot be read.
    """
    table = pq.ParquetFile(path).read()  # `read_table` would import pyarrow.dataset and pandas
    found = {}
    for field in schema:
        if field.name not in table.column_names:
            raise ValueError(f"{path.name} has no column '{field.name}'")
        column = table.column(field.name)
        if column.type != field.type:
            column = column.cast(field.type)
        column = column.combine_chunks()
        column.validate(full=True)
        inner = column.values if hasattr(column, "value_lengths") else column
        if column.null_count or inner.null_count:
            raise ValueError(f"the column '{field.name}' of {path.name} has missing values")
        found[field.name] = column
    return pa.table(found, metadata=table.schema.metadata)
