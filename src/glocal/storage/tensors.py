"""Tensors on disk in safetensors, written with the errors and permissions of any other file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors to a new safetensors file.

    Raises:
        OSError: The file cannot be written, for instance because the disk is full.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # Its own writer makes the file private; one that exists already keeps its permissions.
    path.touch()
    permissions = path.stat().st_mode
    try:
        save_file(plain, path)
    except SafetensorError as error:  # which hides the operating system's error
        found = re.search(r"os error (\d+)", str(error))
        if found is None:
            raise
        number = int(found[1])
        raise OSError(number, os.strerror(number), str(path)) from error
    path.chmod(permissions)
