"""The notebooks run as a user would run them, without a warning, and are committed with their outputs.

`make test ARGS="tests/test_notebooks.py --rewrite"` runs them and keeps their current outputs; look at the pictures
before you commit them. Text has to stay the same; pictures have to be there.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import nbformat
import pytest
from matplotlib import image
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PATIENCE = 300  # seconds for a cell, on a machine that is busy; a notebook takes a few
PROGRESS = re.compile(r"\s*(?:\r|simulated [^\r\n]*)*\s*")  # a line that appears only on a slow machine


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def sections(notebook: Any) -> Iterator[tuple[str, list[Any]]]:
    """(heading, code cells) of each part that begins with `## `."""
    heading, cells = "", list[Any]()
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            if heading:
                yield heading, cells
            heading, cells = cell.source.splitlines()[0][3:], []
        elif cell.cell_type == "code":
            cells.append(cell)
    yield heading, cells


def pictures(cells: list[Any]) -> int:
    """Pictures that show something."""
    found = [output.get("data", {}).get("image/png") for cell in cells for output in cell.outputs]
    return sum(drawn(base64.b64decode(each)) > 0.01 for each in found if each)


def drawn(png: bytes) -> float:
    """The part of it that is not white."""
    pixels = image.imread(BytesIO(png), format="png")[:, :, :3]
    return float((pixels < 0.99).any(axis=2).mean())


def texts(notebook: Any) -> list[str]:
    """The output in words: tables, and printed text. A picture's text is its object's name, and means nothing."""
    found = []
    for output in (output for cell in notebook.cells for output in cell.get("outputs", ())):
        data = output.get("data", {})
        if output.output_type == "stream":
            found.append(output.text)
        elif "image/png" not in data:
            found.append(data.get("text/plain", ""))
    return found


def executed(path: Path, folder: Path) -> Any:
    """Run it in an empty folder. Lines that come and go are left out."""
    notebook = read(path)
    client = NotebookClient(
        notebook, timeout=PATIENCE, record_timing=False, resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    notebook.metadata.language_info = {"name": "python"}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [
                output
                for output in cell.outputs
                if output.output_type != "stream" or not PROGRESS.fullmatch(output.text)
            ]
    return notebook


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write and read nothing in the home of the user that runs the tests."""
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "SEAWAY_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")


def test_there_are_notebooks() -> None:
    assert {"utilisation", "policies", "pipeline", "one_core"} <= {path.stem for path in NOTEBOOKS}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_gives_its_committed_output(path: Path, tmp_path: Path, rewrite: bool) -> None:
    now = executed(path, tmp_path)
    errors = [output for cell in now.cells for output in cell.get("outputs", ()) if output.get("name") == "stderr"]
    assert not errors, f"it warns: {errors}"
    if rewrite:
        nbformat.write(now, path)  # type: ignore[no-untyped-call]
    assert texts(now) == texts(read(path)), "its outputs are old: run with --rewrite, and look at them"
    for heading, cells in sections(now):
        assert pictures(cells), f"no picture in {heading!r}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_with_its_outputs(path: Path) -> None:
    notebook = read(path)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "not run from the top"
    for heading, cells in sections(notebook):
        assert heading
        assert pictures(cells), f"no picture in {heading!r}"


def test_a_notebook_keeps_the_page_of_its_trace() -> None:
    """Whole, so that it needs no server; and its text has no link, which would differ each time."""
    cells = [cell for cell in read(ROOT / "notebooks" / "utilisation.ipynb").cells if cell.source == "trace.live()"]
    (output,) = cells[0].outputs
    page = output.data["text/html"]
    assert page.startswith("<iframe srcdoc=")
    assert "packed-numbers" in page
    assert "http://127.0.0.1" not in page + output.data["text/plain"]
    assert len(page) < 200_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_imports_only_public_names(path: Path) -> None:
    code = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "code")
    assert "import seaway as sw" in code
    assert not re.search(r"^\s*(?:from|import) (?:core|sim|experiments|tests)\b", code, re.MULTILINE)
    assert not re.search(r"\._[a-z]", code), "something private"
