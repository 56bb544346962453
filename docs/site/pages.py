"""Pages of the site that are made while it is built: the README, the notebooks and the interface.

mkdocs calls the functions of this file by their names.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

from griffe import DocstringSectionKind
from griffe._internal.docstrings import google
from mkdocs.structure.files import File, Files

# Docstrings have one example each, under "Example:", which griffe takes for plain text.
google._section_kind["example"] = DocstringSectionKind.examples

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = re.compile(r"\]\((?!https?:|#|docs/)([^)]+)\)")  # links to files that are not pages


def on_files(files: Files, config: Any) -> Files:
    """Add a page for the README, each notebook and the public interface."""
    pages = {"index.md": readme(), "reference/api.md": interface()}
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        pages[f"notebooks/{path.stem}.md"] = notebook(path)
        files.remove(files.src_uris[f"notebooks/{path.name}"])
    for uri, content in pages.items():
        files.append(File.generated(config, uri, content=content))
    return files


def readme() -> str:
    """Return the README with links as the site has them."""
    text = (ROOT / "README.md").read_text("utf-8")
    return REPOSITORY.sub(r"](#)", text).replace("](docs/", "](")


def notebook(path: Path) -> str:
    """Return a notebook as Markdown; code is shown as it is, without output."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def interface() -> str:
    """Return a page with the docstring of every public name, in the order of `__all__`."""
    source = (ROOT / "src" / "glocal" / "__init__.py").read_text("utf-8")
    homes: dict[str, str] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("glocal."):
            homes |= {alias.name: str(node.module) for alias in node.names}
    names = sorted(name for name in homes if name != "__version__")
    parts = [f"::: {homes[name]}.{name}" for name in names]
    return "# Every public name\n\nAll of them are imported from `glocal`.\n\n" + "\n\n".join(parts)
