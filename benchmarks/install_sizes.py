"""Size of glocal with some of its extras, from the packages installed here.

Follows the requirements of each set of extras and adds up the files of all packages they lead to;
nothing is installed. Run it in the environment of `make setup`, which has them all.

    python benchmarks/install_sizes.py "" runtime serve,runtime train demo,serve
"""

from __future__ import annotations

import argparse
import re
from importlib import metadata

from packaging.requirements import Requirement


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("extras", nargs="*", default=["", "runtime", "train", "demo,serve"])
    options = parser.parse_args()
    print(f"{'extras':20} {'MB':>6}  packages  largest")
    for extras in options.extras:
        found: dict[str, float] = {}
        collect("glocal", frozenset(filter(None, extras.split(","))), found, set())
        largest = sorted(found, key=lambda name: -found[name])[:5]
        shown = ", ".join(f"{name} {found[name]:.0f}" for name in largest)
        print(f"{extras or 'none':20} {sum(found.values()):6.0f}  {len(found):8}  {shown}")


def collect(
    name: str, extras: frozenset[str], found: dict[str, float], seen: set[tuple[str, frozenset]]
) -> None:
    """Add the megabytes of a package and of all it requires, by package."""
    name = re.sub(r"[-_.]+", "-", name).lower()
    if (name, extras) in seen:
        return
    seen.add((name, extras))
    package = metadata.distribution(name)
    found[name] = sum(size(file) for file in package.files or ()) / 1e6
    for line in package.requires or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": e}) for e in ("", *extras)):
            collect(requirement.name, frozenset(requirement.extras), found, seen)


def size(file: metadata.PackagePath) -> int:
    """Return the bytes of a file on disk; 0 for one that is no longer there."""
    path = file.locate()
    return path.stat().st_size if path.is_file() else 0


if __name__ == "__main__":
    main()
