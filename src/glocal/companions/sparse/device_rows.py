"""A sparse matrix by rows on a torch device."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glocal.companions.sparse.row_kernels import Rows, has_kernels, row_products
from glocal.companions.sparse.sparse_rows import as_stored


@dataclass(frozen=True, eq=False)
class DeviceRows:
    """The arrays of a CSR matrix as tensors.

    Attributes:
        bounds: (n + 1,) int64, where each row starts, and the end of the last.
        columns: (entries,) int32.
        values: (entries,) float32.
        width: Number of columns.
    """

    bounds: Tensor
    columns: Tensor
    values: Tensor
    width: int

    @classmethod
    def of(cls, matrix: Any, device: torch.device | str) -> DeviceRows:
        """Copy a CSR matrix of numpy arrays to a device."""

        def moved(array: Any, kind: type) -> Tensor:
            # Copied, since torch warns of arrays that cannot be written to, such as mapped files.
            return torch.from_numpy(np.array(array, dtype=kind)).to(device)

        matrix = as_stored(matrix).as_rows()
        return cls(
            moved(matrix.indptr, np.int64),
            moved(matrix.indices, np.int32),
            moved(matrix.data, np.float32),
            matrix.shape[1],
        )

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def arrays(self) -> Rows:
        """The tensors, as kernels take them."""
        return self.bounds, self.columns, self.values

    @property
    def device(self) -> torch.device:
        """The device the tensors are on."""
        return self.values.device

    def take(self, rows: Tensor) -> DeviceRows:
        """Return some rows, in the order given."""
        starts = self.bounds[rows]
        lengths = self.bounds[rows + 1] - starts
        bounds = _bounds(lengths)
        total = int(bounds[-1])
        shift = torch.repeat_interleave(starts - bounds[:-1], lengths, output_size=total)
        entries = shift + torch.arange(total, device=self.device)
        return DeviceRows(bounds, self.columns[entries], self.values[entries], self.width)

    def row_numbers(self) -> Tensor:
        """Return the row of each entry, int64."""
        rows = torch.arange(len(self), device=self.device)
        return torch.repeat_interleave(rows, self.bounds.diff(), output_size=len(self.columns))

    def within(self, columns: Tensor) -> DeviceRows:
        """Return the matrix of the columns given, sorted, among which are all that have entries."""
        place = torch.zeros(self.width, dtype=torch.int32, device=self.device)
        place[columns] = torch.arange(len(columns), dtype=torch.int32, device=self.device)
        return DeviceRows(self.bounds, place[self.columns], self.values, len(columns))

    def transposed(self) -> DeviceRows:
        """Return the transposed matrix; the entries of its rows are sorted."""
        order = torch.sort(self.columns, stable=True).indices
        bounds = _bounds(torch.bincount(self.columns, minlength=self.width))
        rows = self.row_numbers()[order].int()
        return DeviceRows(bounds, rows, self.values[order], len(self))

    def product(self, dense: Tensor) -> Tensor:
        """Return this matrix (n, m) times a dense one (m, k)."""
        if has_kernels(self.device):
            return row_products(self.arrays, dense.contiguous())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that torch's own are "in beta state"
            matrix = torch.sparse_csr_tensor(
                self.bounds, self.columns.long(), self.values, (len(self), self.width)
            )
            product: Tensor = matrix @ dense
        return product


def _bounds(lengths: Tensor) -> Tensor:
    """Return where rows of these lengths start, and the end of the last."""
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
