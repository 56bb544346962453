"""Size of an environment with glocal and some of its extras, as `pip install` makes it.

Builds the wheel, installs it with each set of extras into an empty virtual environment of its own,
pinned by `constraints.txt`, and prints the size on disk.

    python benchmarks/install_sizes.py "" runtime "serve,runtime" train demo
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from startup import ROOT


def main() -> None:
    """Install and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("extras", nargs="*", default=["", "runtime", "train", "demo"])
    parser.add_argument("--work", help="folder for the environments; the default temporary one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.work) as name:
        folder = Path(name)
        pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps")
        subprocess.run([*pip, "--wheel-dir", str(folder), str(ROOT)], check=True)
        (wheel,) = folder.glob("*.whl")
        print(f"{'extras':20} {'MB':>6}  packages")
        for extras in options.extras:
            size, packages = install(folder / "environment", f"{wheel}[{extras}]")
            print(f"{extras or 'none':20} {size:6.0f}  {packages}", flush=True)


def install(environment: Path, target: str) -> tuple[float, int]:
    """Install into an empty environment; return its megabytes and number of packages."""
    venv.create(environment, with_pip=True, clear=True)
    python = environment / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    constraints = str(ROOT / "constraints.txt")
    subprocess.run([*pip, "install", "--quiet", "-c", constraints, target], check=True)
    listed = subprocess.run([*pip, "list"], check=True, capture_output=True, text=True).stdout
    files = (file for file in environment.rglob("*") if file.is_file() and not file.is_symlink())
    return sum(file.stat().st_size for file in files) / 1e6, len(listed.splitlines()) - 2


if __name__ == "__main__":
    main()
