"""Type checkers see through the library: a user's file, and the lines in it at which they must complain."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core.controller import Bounds, Config
from seaway.sessions.simulated import typed_options as options
from sim.engine import Noise
from sim.hardware import setups

ROOT = Path(__file__).parents[2]
WRONG = "  # wrong"

FILE = """# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
import jax
import numpy as np

import seaway as sw

double = sw.jit(lambda x: x * 2, devices=2)
wait = sw.synthetic("wait", devices=2, duration="1ms")


@sw.jit(devices=2)
def both(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return x, x + 1


@sw.jit(devices=2)
def named(x: jax.Array) -> dict[str, jax.Array]:
    return {"x": x}


@sw.program
def chain(x: object) -> sw.Array:
    a, b = both(double(x))
    return double(a)


@sw.program(retries=2)
def undeclared(x):
    return double(x)


def main() -> None:
    with sw.simulate("B", policy="stride", hosts=2, noise={"latency": "1us"}, config={"window": 4}) as s:
        x = double(np.float32(1)).block_until_ready()
        loss = float(x) + 1
        a, b = both(x)
        a.block_until_ready()
        named(x)["x"].is_ready()
        chain(x).run.wait()
        undeclared(x).block_until_ready()
        wait(x).block_until_ready()
        s.trace.clients()["client"].tolist()
        s.env.timeout(3)
        s.spawn(lambda: 3).result().bit_length()
        double(x).blok()  # wrong
        wait(x).blok()  # wrong
        a.blok()  # wrong
        named(x)["x"].blok()  # wrong
        named(x).blok()  # wrong
        chain(x).blok()  # wrong
        undeclared(x).blok()  # wrong
        chain(x, 2)  # wrong
        chain(x).run.wiat()  # wrong
        s.blok()  # wrong
        s.trace.blok()  # wrong
        s.spawn(lambda: 3).result().blok()  # wrong
    sw.simulate("B", polcy="stride")  # wrong
    sw.simulate("B", hosst=2)  # wrong
    sw.simulate("B", dispatch="both")  # wrong
    sw.simulate("B", noise={"latncy": 3})  # wrong
    sw.simulate("B", config={"windw": 3})  # wrong
    sw.local(hosts=2, polcy="stride")  # wrong
    sw.local(hosts="2")  # wrong
    sw.jit(lambda x: x, device=2)  # wrong
    sw.workload.poisson(10, "1s", sead=3)  # wrong
    sw.workload.Jobs([sw.workload.Job(at="1h", step={"tpu-v4": "2s"})]).play().summary(by="user")
    sw.workload.Job(at="1h", step="2s", stepz=3)  # wrong
    print(loss, b)
"""
EXPECTED = {number for number, line in enumerate(FILE.splitlines(), 1) if line.endswith(WRONG)}


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    file = tmp_path / "users_program.py"
    file.write_text(FILE)
    return file


def output(*command: str | Path, cwd: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, cwd=cwd, env=environment, check=False
    )
    assert not done.stderr, done.stderr
    return done.stdout


def test_mypy_complains_of_each_mistake_in_a_users_file_and_of_nothing_else(file: Path) -> None:
    # `make lint`, with the same settings, has filled it: then this takes a second
    cache = ROOT / ".mypy_cache"
    said = output(
        sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", "--cache-dir", cache, file, cwd=ROOT
    )
    assert {int(number) for number in re.findall(r"\.py:(\d+): error:", said)} == EXPECTED, said


def test_pyright_complains_of_each_mistake_in_a_users_file_and_of_nothing_else(file: Path) -> None:
    beside = str(Path(sys.executable).parent) + os.pathsep + os.environ.get("PATH", "")
    pyright = next((found for name in ("pyright", "basedpyright") if (found := shutil.which(name, path=beside))), None)
    if pyright is None:
        pytest.skip("no pyright here; pip install basedpyright, whose wheel has all that it needs")
    settings: dict[str, Any] = {"include": [file.name], "extraPaths": [str(ROOT)], "typeCheckingMode": "basic"}
    (file.parent / "pyrightconfig.json").write_text(json.dumps(settings))
    said = output(pyright, "-p", file.parent, "--pythonpath", sys.executable, "--outputjson", cwd=file.parent)
    errors = [each for each in json.loads(said)["generalDiagnostics"] if each["severity"] == "error"]
    assert {each["range"]["start"]["line"] + 1 for each in errors} == EXPECTED, errors


@pytest.mark.parametrize(
    ("table", "takes"),
    [
        (options.HardwareOptions, set(setups.OVERRIDES)),
        (options.NoiseOptions, set(Noise.__struct_fields__)),
        # accounts are for drivers that know whose a connection is
        (options.ConfigOptions, set(Config.__struct_fields__) - {"accounts"}),
        (options.BoundOptions, set(Bounds.__struct_fields__)),
    ],
)
def test_the_tables_for_type_checkers_have_the_keys_that_the_options_take(table: Any, takes: set[str]) -> None:
    assert set(table.__annotations__) == takes
