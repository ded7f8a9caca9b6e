"""The import contracts of pyproject.toml hold, and each of them can fail."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("core", "sim", "backend", "seaway", "experiments")


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the rooms in `folder`, by the contracts of the pyproject.toml there."""
    command = "from importlinter.cli import lint_imports_command as run; run(['--no-cache', '--no-logo'])"
    return subprocess.run(
        [sys.executable, "-c", command], cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_contracts_hold() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """An empty house with our contracts."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for room in ROOMS:
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").touch()
    return tmp_path


def test_an_empty_house_is_in_order(house: Path) -> None:
    assert lint_imports(house).returncode == 0


@pytest.mark.parametrize(
    ("room", "planted"),
    [
        pytest.param("core", "import time", id="a clock in core"),
        pytest.param("core", "from os.path import join", id="a file in core"),
        pytest.param("core", "def late():\n    import random", id="chance in core, imported late"),
        pytest.param("core", "import jax.numpy as jnp", id="a framework in core"),
        pytest.param("core", "import seaway", id="core looks up"),
        pytest.param("core", "import sim", id="core knows the simulator"),
        pytest.param("sim", "import backend", id="the simulator knows the backend"),
        pytest.param("backend", "import sim", id="the backend knows the simulator"),
        pytest.param("sim", "import seaway", id="a driver looks up"),
        pytest.param("seaway", "import experiments", id="the client looks up"),
    ],
)
def test_what_a_room_may_not_import(house: Path, room: str, planted: str) -> None:
    (house / room / "planted.py").write_text(planted)
    result = lint_imports(house)
    assert result.returncode == 1
    assert "1 broken" in result.stdout
    assert f"{room}.planted" in result.stdout


@pytest.mark.parametrize(
    ("room", "planted"),
    [
        ("core", "import heapq, msgspec"),
        ("sim", "import core, simpy"),
        ("backend", "import core, asyncio, grpc"),
        ("seaway", "import core, sim, backend"),
        ("experiments", "import core, sim, backend, seaway"),
    ],
)
def test_what_a_room_may_import(house: Path, room: str, planted: str) -> None:
    (house / room / "planted.py").write_text(planted)
    result = lint_imports(house)
    assert result.returncode == 0, result.stdout
