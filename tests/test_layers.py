"""Each import contract of pyproject.toml can fail; `make lint` checks that they hold."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .sources import PRODUCT, ROOT, Source, files, parsed, relative, source

ROOMS = (*PRODUCT, "experiments")
PACKAGES = tuple(
    path.parent.relative_to(ROOT).as_posix() for room in ROOMS for path in sorted((ROOT / room).rglob("*/__init__.py"))
)


FORBIDDEN = {
    "a clock in core": ("core", "import time"),
    "a file in core": ("core", "from os.path import join"),
    "chance in core, imported late": ("core", "def late():\n    import random"),
    "a framework in core": ("core", "import jax.numpy as jnp"),
    "core looks up": ("core", "import seaway"),
    "core knows the simulator": ("core", "import sim"),
    "a value knows who speaks of it": ("core/model", "from ..protocol import peers"),
    "the scheduler looks up": ("core/schedule", "from ..controller import Run"),
    "a host knows clients": ("core/host", "def late():\n    from ..client import Client"),
    "a message knows who sends it": ("sim/network", "from ..hosts import Process"),
    "a host knows the simulation": ("sim/hosts", "from ..simulation import Simulation"),
    "a node knows the controller": ("backend/node", "from ..server import Server"),
    "an agent knows the controller": ("backend/agent", "def late():\n    from ..server import Server"),
    "a message knows the session": ("backend/door/protocol", "from ..session import StatusError"),
    "a session knows its devices": ("backend/door/session", "from ..cluster import ServedCluster"),
    "a graph knows who runs it": ("seaway/graph", "from ..sessions import Session"),
    "a session knows what it is called by": ("seaway/sessions", "from ..api import jit"),
    "the simulator knows the backend": ("sim", "import backend"),
    "the backend knows the simulator": ("backend", "import sim"),
    "a driver looks up": ("sim", "import seaway"),
    "the client looks up": ("seaway", "import experiments"),
    "the frame knows a benchmark": ("experiments/bench/frame", "from ..real import stages"),
    "benchmarks know each other": ("experiments/bench/prediction", "from ..real import stages"),
}
ALLOWED = {
    "core": "import heapq, msgspec",
    "sim": "import core, simpy",
    "backend": "import core, asyncio, grpc",
    "seaway": "import core, sim, backend",
    "experiments": "import core, sim, backend, seaway",
}


def lint_imports(folder: Path, planted: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs import-linter, by our contracts, on empty packages with these modules planted in them."""
    shutil.copy(ROOT / "pyproject.toml", folder)
    for room in (*ROOMS, *PACKAGES):
        (folder / room).mkdir(exist_ok=True)
        (folder / room / "__init__.py").touch()
    for path, text in planted.items():
        (folder / path).write_text(text)
    command = "from importlinter.cli import lint_imports_command as run; run(['--no-cache', '--no-logo'])"
    return subprocess.run([sys.executable, "-c", command], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What import-linter says of all forbidden imports at once."""
    planted = {f"{room}/planted{n}.py": text for n, (room, text) in enumerate(FORBIDDEN.values())}
    result = lint_imports(tmp_path_factory.mktemp("forbidden"), planted)
    assert result.returncode == 1
    return result.stdout


@pytest.mark.parametrize("what", FORBIDDEN)
def test_forbidden_imports_are_found(complaints: str, what: str) -> None:
    room, number = FORBIDDEN[what][0], list(FORBIDDEN).index(what)
    assert re.search(rf"{room.replace('/', '.')}\.planted{number}\b", complaints)


def test_allowed_imports_pass(tmp_path: Path) -> None:
    result = lint_imports(tmp_path, {f"{room}/planted.py": text for room, text in ALLOWED.items()})
    assert result.returncode == 0, result.stdout


# --- packages are imported by their `__init__` --------------------------------------------------------------------


def imported(path: Path, it: Source) -> list[str]:
    """All modules that it imports from, by their full names; also inside functions, and for types alone."""
    package = [*path.relative_to(ROOT).parent.parts]
    found = []
    for level, module in it.imports:
        base = package[: len(package) - level + 1] if level else []
        found.append(".".join([*base, *filter(None, [module])]))
    return found


def past_a_face(path: Path, it: Source) -> list[str]:
    """The names that it imports of a package otherwise than from that package's `__init__`."""
    found = []
    for name in imported(path, it):
        file = ROOT.joinpath(*name.split(".")).with_suffix(".py")
        inside = file.parent == path.parent or file.parent in path.parents
        if name.count(".") > 1 and name.split(".")[0] in PRODUCT and file.is_file() and not inside:
            found.append(name)
    return found


def test_packages_are_imported_by_their_init() -> None:
    past = {relative(path): names for path in files(*ROOMS) if (names := past_a_face(path, source(path)))}
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
    assert past_a_face(ROOT / path, parsed(planted)) == past
