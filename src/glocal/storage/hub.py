"""Models that are shared: copied to a folder, or pushed to the Hugging Face hub and fetched.

A pushed model is its directory with a card that has the hub's fields on top. What is fetched is
checked like any other model directory; nothing in it is executed.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from glocal.data.atomic import replace_dir, temporary_dir, why_not_written
from glocal.data.cache import cache_dir
from glocal.errors import ConfigError, ModelError, Remedy, first_line, require
from glocal.storage.integrity import check_model
from glocal.storage.model_card import with_hub_fields
from glocal.storage.model_directory import read_settings

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,60}")
_PURPOSE = "models on the Hugging Face hub"


def is_hub_id(name: str) -> bool:
    """Return whether a name is a hub id, `owner/name`, and not a folder that could be meant."""
    return bool(_HUB_ID.fullmatch(name)) and not Path(name).parent.is_dir()


def push_model(
    path: str | Path,
    to: str | Path,
    *,
    licence: str | None = None,
    private: bool = False,
    overwrite: bool = False,
) -> str:
    """Copy a model to a folder, or push it to the Hugging Face hub.

    Args:
        path: The model directory.
        to: A folder, or a hub id such as `owner/name`. The hub's own settings apply: the variable
            `HF_TOKEN` or a stored login, and `HF_ENDPOINT` for a hub of one's own.
        licence: Licence of the model, such as `apache-2.0`, for its card.
        private: Make a new repository on the hub private.
        overwrite: Replace an existing folder.

    Returns:
        The folder, or the address on the hub.

    Raises:
        ModelError: The model is damaged, or cannot be copied or pushed.

    Example:
        >>> from glocal import push_model
        >>> push_model("model/", "shared-model", licence="cc0-1.0")
        'shared-model'
    """
    source, target = Path(path), str(to)
    read_settings(source)
    check_model(source)
    if licence is not None and not _LICENCE.fullmatch(licence):
        raise ConfigError(
            f"the licence must be an identifier such as apache-2.0 or cc-by-4.0, not '{licence}'"
        )
    if is_hub_id(target):
        return _push(source, target, licence=licence, private=private)
    return _copy(source, Path(target), licence=licence, overwrite=overwrite)


def fetch_model(name: str | Path) -> Path:
    """Return the folder of a model; one on the hub is downloaded into the cache first.

    Args:
        name: A model directory, or a hub id such as `owner/name`.

    Raises:
        ModelError: It is on the hub, but cannot be downloaded.
    """
    if Path(name).is_dir() or not is_hub_id(str(name)):
        return Path(name)
    hub: Any = require("huggingface_hub", extra="hub", purpose=_PURPOSE)
    try:
        # Into a folder of its own: the hub's cache has links, which a model directory may not.
        folder = cache_dir("models", str(name).replace("/", "--"))
        return Path(hub.snapshot_download(str(name), local_dir=folder))
    except Exception as error:  # of the hub or of the network
        raise ModelError(
            f"cannot fetch the model '{name}' from the hub: {first_line(error)}"
        ) from error


def _copy(source: Path, target: Path, *, licence: str | None, overwrite: bool) -> str:
    if target.exists() and target.resolve() == source.resolve():
        raise ConfigError(f"{target} is the model itself; push it to another folder")
    if target.exists() and not overwrite:
        raise ConfigError(f"{target} exists already", remedies=[Remedy("overwrite", "replace it")])
    try:
        with temporary_dir(target) as folder:
            _prepare(source, folder, licence)
            replace_dir(folder, target)
    except OSError as error:
        raise ModelError(
            f"cannot write {target}: {why_not_written(error)}; nothing there was changed"
        ) from error
    return str(target)


def _push(source: Path, target: str, *, licence: str | None, private: bool) -> str:
    hub: Any = require("huggingface_hub", extra="hub", purpose=_PURPOSE)
    with temporary_dir(source) as folder:
        _prepare(source, folder, licence)
        api = hub.HfApi(library_name="glocal")
        try:
            address = str(api.create_repo(target, private=private, exist_ok=True))
            api.upload_folder(repo_id=target, folder_path=folder, commit_message="Model by glocal")
        except Exception as error:  # of the hub or of the network
            raise ModelError(f"cannot push the model to '{target}': {first_line(error)}") from error
    return address


def _prepare(source: Path, folder: Path, licence: str | None) -> None:
    """Copy a model with the hub's fields in its card, which checksums leave out."""
    shutil.copytree(source, folder, dirs_exist_ok=True)
    card = folder / "README.md"
    text = card.read_text("utf-8") if card.is_file() else ""
    card.write_text(with_hub_fields(text, licence), encoding="utf-8")
