"""The import contracts of pyproject.toml hold, and each of them can fail."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("core", "sim", "backend", "seaway", "experiments")
FACED = ("core", "sim", "backend", "seaway")  # packages that are imported only by their `__init__`
PACKAGES = tuple(
    path.parent.relative_to(ROOT).as_posix()
    for room in ROOMS
    for path in sorted((ROOT / room).rglob("*/__init__.py"))
)


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the packages in `folder`, by the contracts of the pyproject.toml there."""
    command = "from importlinter.cli import lint_imports_command as run; run(['--no-cache', '--no-logo'])"
    return subprocess.run(
        [sys.executable, "-c", command], cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_contracts_hold() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """Empty packages with our contracts."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for room in (*ROOMS, *PACKAGES):
        (tmp_path / room).mkdir(exist_ok=True)
        (tmp_path / room / "__init__.py").touch()
    return tmp_path


def test_empty_packages_pass(house: Path) -> None:
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
        pytest.param("core/model", "from ..protocol import peers", id="a value knows who speaks of it"),
        pytest.param("core/schedule", "from ..controller import Run", id="the scheduler looks up"),
        pytest.param("core/host", "def late():\n    from ..client import Client", id="a host knows clients"),
        pytest.param("sim/network", "from ..hosts import Process", id="a message knows who sends it"),
        pytest.param("sim/hosts", "from ..simulation import Simulation", id="a host knows the simulation"),
        pytest.param("backend/node", "from ..server import Server", id="a node knows the controller"),
        pytest.param(
            "backend/agent",
            "def late():\n    from ..server import Server",
            id="an agent knows the controller",
        ),
        pytest.param("seaway/graph", "from ..sessions import Session", id="a graph knows who runs it"),
        pytest.param("seaway/sessions", "from ..api import jit", id="a session knows what it is called by"),
        pytest.param("sim", "import backend", id="the simulator knows the backend"),
        pytest.param("backend", "import sim", id="the backend knows the simulator"),
        pytest.param("sim", "import seaway", id="a driver looks up"),
        pytest.param("seaway", "import experiments", id="the client looks up"),
        pytest.param("experiments/bench/frame", "from ..real import order", id="the frame knows a benchmark"),
        pytest.param(
            "experiments/bench/prediction", "from ..real import order", id="benchmarks know each other"
        ),
    ],
)
def test_forbidden_imports_are_found(house: Path, room: str, planted: str) -> None:
    (house / room / "planted.py").write_text(planted)
    result = lint_imports(house)
    assert result.returncode == 1
    assert "1 broken" in result.stdout
    assert f"{room.replace('/', '.')}.planted" in result.stdout


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
def test_allowed_imports_pass(house: Path, room: str, planted: str) -> None:
    (house / room / "planted.py").write_text(planted)
    result = lint_imports(house)
    assert result.returncode == 0, result.stdout


# --- packages are imported by their `__init__` --------------------------------------------------------------------


def imported(path: Path, text: str) -> list[str]:
    """All modules that it imports from, by their full names; also inside functions, and for types alone."""
    package = [*path.relative_to(ROOT).parent.parts]
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            found.append(".".join([*base, *filter(None, [node.module])]))
    return found


def past_a_face(path: Path, text: str) -> list[str]:
    """The names that it imports of a package otherwise than from that package's `__init__`."""
    found = []
    for name in imported(path, text):
        file = ROOT.joinpath(*name.split(".")).with_suffix(".py")
        inside = file.parent == path.parent or file.parent in path.parents
        if name.count(".") > 1 and name.split(".")[0] in FACED and file.is_file() and not inside:
            found.append(name)
    return found


def test_packages_are_imported_by_their_init() -> None:
    past = {
        str(path.relative_to(ROOT)): names
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if (names := past_a_face(path, path.read_text()))
    }
    assert not past


@pytest.mark.parametrize(
    ("path", "planted", "past"),
    [
        ("sim/planted.py", "from core.model import Place, spans", []),
        ("sim/planted.py", "from core.schedule.policy import Fifo", []),
        ("sim/planted.py", "from core.model.place import Place", ["core.model.place"]),
        ("core/link/planted.py", "from .codec import encode", []),
        ("core/link/planted.py", "from ..model import spans", []),
        ("core/link/planted.py", "def late():\n    from ..model.spans import union", ["core.model.spans"]),
        ("core/schedule/policy/planted.py", "from ..contention import Window", []),
        ("core/schedule/planted.py", "from .policy.fifo import Fifo", ["core.schedule.policy.fifo"]),
        ("backend/planted.py", "import core.client.client", ["core.client.client"]),
        ("seaway/planted.py", "from sim.hardware import load, setups", []),
        ("seaway/planted.py", "from sim.hardware.setups import load", ["sim.hardware.setups"]),
    ],
)
def test_an_import_past_the_init_is_found(path: str, planted: str, past: list[str]) -> None:
    assert past_a_face(ROOT / path, planted) == past
