"""The door as a process, with real JAX programs: it turns on by three variables, refuses what it must, ends in order.

What programs may do is in `checks`, and what happens when one of the two ends in `test_two_ends`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.admin.children import environment
from backend.door.server.door_process import environment as for_jax
from backend.door.server.door_process import variables
from backend.xla import DEVICE_COUNT
from seaway.cli import main
from tests.backend.real import await_end, children_of

PATIENCE = 100.0  # seconds, on a busy machine

HOSTILE = """
import jax, jax.numpy as jnp, numpy as np, os, sys
folder = sys.argv[1]

def said(f):
    try:
        return f()
    except Exception as error:
        return str(error).splitlines()[0]

mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
cut = jax.device_put(np.ones(4, np.float32), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x")))

@jax.jit
def inspecting(x):
    jax.debug.inspect_array_sharding(x, callback=print)
    return x + 1

print("inspect:", said(lambda: inspecting(cut)), flush=True)
dumping = jax.jit(lambda x: x * 3, compiler_options={"xla_dump_to": folder})
print("dump:", float(dumping(np.float32(2))), flush=True)
print("option:", said(lambda: jax.jit(lambda x: x * 4, compiler_options={"no_flag": "1"})(np.float32(2))), flush=True)
print("devices:", len(jax.devices()), len(jax.devices("cpu")), flush=True)
print("alive:", np.asarray(cut + 1).tolist(), flush=True)
"""


CRASH = "its process was ended by SIGABRT: Check failed: bit_offset != nullptr"
BREAKING = """
import sys, jax, jax.numpy as jnp, numpy as np
print("began", float(jax.jit(lambda x: x + 1)(np.float32(1))), flush=True)
sys.stdin.readline()
try:
    jax.jit(lambda x: jnp.concatenate([x, x]))(jnp.zeros(3, "int2"))
except jax.errors.JaxRuntimeError as error:
    print(str(error).partition(" ((")[0], flush=True)
print("alive", float(jax.jit(lambda x: x + 2)(np.float32(1))), flush=True)
"""

FULL = """
import jax, jax.numpy as jnp, numpy as np
def said(f):
    try:
        return f()
    except jax.errors.JaxRuntimeError as error:
        return str(error).partition(". ")[0]
x = jax.device_put(np.ones(1 << 20, np.float32))
step = jax.jit(lambda x: x + 1, donate_argnums=0)
for _ in range(5):
    x = step(x)
print(x[0])
print(said(lambda: jax.block_until_ready([x * at for at in range(8)])))
print(x[1])
"""


class RunningDoor:
    def __init__(self, *options: str, more: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "seaway", "door", *options], env=environment(more or {}), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.env: dict[str, str] = {}
        for line in self.process.stdout:
            if found := re.fullmatch(r"export (\w+)=(.*)\n", line):
                self.env[found[1]] = found[2]
            if len(self.env) == 3:
                break

    def program(self, code: str, *arguments: str, **more: str) -> str:
        """What a JAX program prints that finds the door's variables and nothing else."""
        env = environment({"TF_CPP_MIN_LOG_LEVEL": "3"} | self.env | more)
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], env=env, text=True, capture_output=True, timeout=PATIENCE,
            check=False,
        )  # fmt: skip
        return done.stdout or done.stderr[-2000:]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            for pipe in (self.process.stdout, self.process.stderr):
                if pipe is not None:
                    pipe.close()


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDoor]:
    path = tmp_path_factory.mktemp("door") / "d.sock"
    running = RunningDoor("--listen", f"unix:{path}", "--devices", "2")
    assert path.is_socket()
    yield running
    assert running.end() == 0
    assert not path.exists()


def test_the_three_variables_are_all_that_a_program_needs(door: RunningDoor) -> None:
    assert door.env == variables(door.env["JAX_BACKEND_TARGET"].removeprefix("grpc://"))
    code = "import jax; x = jax.numpy.arange(3.) + 1; print(x.device, x.tolist(), len(jax.devices()))"
    assert door.program(code) == "cpu:0 [1.0, 2.0, 3.0] 2\n"


def test_what_reaches_into_the_doors_process_is_refused_and_the_door_lives_on(
    door: RunningDoor, tmp_path: Path
) -> None:
    """`InspectSharding` ends a server that compiles it. Flags that write files come by options and by environment."""
    folder, other = tmp_path / "a", tmp_path / "b"
    said = door.program(HOSTILE, str(folder), XLA_FLAGS=f"--xla_dump_to={other}")
    lines = dict(line.split(": ", 1) for line in said.splitlines())
    assert "calls back into Python ('InspectSharding')" in lines["inspect"], said
    assert lines["dump"] == "6.0"
    assert lines["option"] == "INVALID_ARGUMENT: No such compile option: 'no_flag'"
    assert lines["alive"] == "[2.0, 2.0, 2.0, 2.0]"
    assert not folder.exists()
    assert not [each for each in other.glob("*") if "cpu_gpu" in each.name or "before_opt" in each.name]


def test_a_program_that_breaks_the_compiler_ends_neither_the_door_nor_anybodys_session(door: RunningDoor) -> None:
    """Both programs have a session before it happens, and use it afterwards."""
    env = environment({"TF_CPP_MIN_LOG_LEVEL": "3"} | door.env)
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", BREAKING], env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    try:
        for each in programs:
            assert each.stdout is not None
            assert each.stdout.readline() == "began 2.0\n"
        for each in programs:
            said, _ = each.communicate("\n", PATIENCE)
            assert said.splitlines() == [f"INTERNAL: the compiler crashed on this program: {CRASH}", "alive 3.0"]
    finally:
        for each in programs:
            each.kill()
    assert door.process.poll() is None


def test_a_door_that_is_killed_leaves_no_compiler_behind(tmp_path: Path) -> None:
    running = RunningDoor("--listen", f"unix:{tmp_path}/d.sock", "--devices", "1")
    assert running.program("import jax; print(float(jax.numpy.float32(1) + 1))") == "2.0\n"
    (compiler,) = children_of(running.process.pid, f"checker of door {running.process.pid}")
    assert running.end(signal.SIGKILL) == -signal.SIGKILL
    await_end(compiler)


def test_a_session_has_as_much_memory_as_the_door_says() -> None:
    with tempfile.TemporaryDirectory() as folder:
        running = RunningDoor(
            "--listen", f"unix:{folder}/d.sock", "--devices", "1", "--memory-per-session", "20MiB", "--trust-programs"
        )
        said = running.program(FULL).splitlines()
        assert running.end() == 0
    assert said[0] == "6.0", said
    assert said[1].startswith("RESOURCE_EXHAUSTED: 4.0 MiB more would be too much: arrays of this session take ")
    assert "a session may have 20.0 MiB (--memory-per-session of the door)" in said[1]
    assert said[2] == "6.0"


def test_without_an_address_it_takes_a_socket_that_only_this_user_may_open_and_that_is_gone_afterwards(
    tmp_path: Path,
) -> None:
    path = tmp_path / "seaway-door.sock"
    running = RunningDoor("--devices", "1", more={"XDG_RUNTIME_DIR": str(tmp_path)})
    assert running.env["JAX_BACKEND_TARGET"] == f"grpc://unix:{path}"
    assert path.stat().st_mode & 0o777 == 0o600
    assert running.end(signal.SIGINT) == 0
    assert not path.exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--listen", "unix:/tmp/Door.sock"), "without capital letters"),
        (("--check-seconds", "0"), "--check-seconds must be more than 0"),
        (("--memory-per-session", "8"), "--memory-per-session '8' has no unit"),
        (("--devices", "0"), "--devices 0: give a number from 1 to 1024"),
    ],
)
def test_an_option_that_cannot_be_is_one_clear_error(
    options: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["door", *options]) == 1
    error = capsys.readouterr().err
    assert error.startswith("seaway: ")
    assert says in error


@pytest.mark.parametrize(
    ("address", "says"), [("unix:/nowhere/at/all.sock", "/nowhere/at/all.sock"), ("0.0.0.0:0", "0.0.0.0")]
)
def test_an_address_that_cannot_be_is_one_clear_error(address: str, says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "seaway", "door", "--listen", address], env=environment({}), text=True,
        capture_output=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("seaway: ")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_the_doors_environment_is_its_own() -> None:
    given = {"XLA_FLAGS": f"--a=1 {DEVICE_COUNT}=3", "JAX_PLATFORMS": "proxy,cpu"}
    assert for_jax(16, given) == {
        "NPROC": "64", "XLA_FLAGS": f"--a=1 {DEVICE_COUNT}=16", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3",
    }  # fmt: skip
    assert for_jax(None, {"TF_CPP_MIN_LOG_LEVEL": "0"}) == {"NPROC": "32"}
    assert os.environ.get("NPROC") != "64"
