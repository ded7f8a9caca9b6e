"""The door as a process, with real JAX programs: it turns on by three variables, refuses what it must, ends in order.

What programs may do is in `checks`, and what happens when one of the two ends in `test_two_ends`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.admin.children import Children
from backend.door.server.door_process import environment as for_jax
from backend.door.server.door_process import variables
from backend.xla import DEVICE_COUNT
from experiments.bench.frame.door_server import Door, opened
from tests.backend.real import await_end, children_of
from tests.command_lines import refused

from .jax_programs import program
from .program_runs import python

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
print("dump:", said(lambda: dumping(np.float32(2))), flush=True)
quick = {"xla_llvm_disable_expensive_passes": True, "xla_embed_ir_in_executable": False}
print("quick:", float(jax.jit(lambda x: x * 3, compiler_options=quick)(np.float32(2))), flush=True)
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


def said(door: Door, code: str, *arguments: str, **more: str) -> str:
    """What a JAX program prints that finds the door's variables and nothing else."""
    ended = python("-c", code, *arguments, env=door.env | more)
    return ended.out or ended.err[-2000:]


def end(door: Door, number: int = signal.SIGTERM) -> int:
    door.child.process.send_signal(number)
    return door.child.process.wait(PATIENCE)


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with opened(2) as found:
        path = Path(found.env["JAX_BACKEND_TARGET"].removeprefix("grpc://unix:"))
        assert path.is_socket()
        yield found
        assert end(found) == 0
        assert not path.exists()


def test_the_three_variables_are_all_that_a_program_needs(door: Door) -> None:
    assert door.env == variables(door.env["JAX_BACKEND_TARGET"].removeprefix("grpc://"))
    code = "import jax; x = jax.numpy.arange(3.) + 1; print(x.device, x.tolist(), len(jax.devices()))"
    assert said(door, code) == "cpu:0 [1.0, 2.0, 3.0] 2\n"
    assert "flags have no effect" not in door.child.tail()


def test_what_reaches_into_the_doors_process_is_refused_and_the_door_lives_on(door: Door, tmp_path: Path) -> None:
    """`InspectSharding` ends a server that compiles it. Flags that write files come by options and by environment."""
    folder, other = tmp_path / "a", tmp_path / "b"
    text = said(door, HOSTILE, str(folder), XLA_FLAGS=f"--xla_dump_to={other}")
    lines = dict(line.split(": ", 1) for line in text.splitlines())
    assert "calls back into Python ('InspectSharding')" in lines["inspect"], text
    assert "the compile option 'xla_dump_to' is not passed on" in lines["dump"]
    assert "the program's own XLA flags have no effect" in door.child.tail()
    assert lines["quick"] == "6.0"
    assert lines["option"] == "INVALID_ARGUMENT: No such compile option: 'no_flag'"
    assert lines["alive"] == "[2.0, 2.0, 2.0, 2.0]"
    assert not folder.exists()
    assert not [each for each in other.glob("*") if "cpu_gpu" in each.name or "before_opt" in each.name]


def test_a_program_that_breaks_the_compiler_ends_neither_the_door_nor_anybodys_session(door: Door) -> None:
    """Both programs have a session before it happens, and use it afterwards."""
    with program(BREAKING, door.env) as first, program(BREAKING, door.env) as second:
        for each in (first, second):
            assert each.line() == "began 2.0"
        for each in (first, second):
            each.go_on()
            assert each.line() == f"INTERNAL: the compiler crashed on this program: {CRASH}"
            assert each.line() == "alive 3.0"
    assert door.child.process.poll() is None


def test_a_door_that_is_killed_leaves_no_compiler_behind() -> None:
    with opened(1) as door:
        assert said(door, "import jax; print(float(jax.numpy.float32(1) + 1))") == "2.0\n"
        (compiler,) = children_of(door.child.pid, f"checker of door {door.child.pid}")
        assert end(door, signal.SIGKILL) == -signal.SIGKILL
        await_end(compiler)


def test_a_session_has_as_much_memory_as_the_door_says() -> None:
    with opened(1, ["--memory-per-session", "20MiB", "--trust-programs"]) as door:
        lines = said(door, FULL).splitlines()
    assert lines[0] == "6.0", lines
    assert lines[1].startswith("RESOURCE_EXHAUSTED: 4.0 MiB more would be too much: arrays of this session take ")
    assert "a session may have 20.0 MiB (--memory-per-session of the door)" in lines[1]
    assert lines[2] == "6.0"


def test_without_an_address_it_takes_a_socket_that_only_this_user_may_open_and_that_is_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "seaway-door.sock"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    children = Children(tmp_path)
    door = Door(children, ["door", "--devices", "1"])
    assert door.env["JAX_BACKEND_TARGET"] == f"grpc://unix:{path}"
    assert path.stat().st_mode & 0o777 == 0o600
    assert end(door, signal.SIGINT) == 0
    assert not path.exists()
    children.end_all()


REFUSED = {
    "--listen unix:/tmp/Door.sock": "without capital letters",
    "--check-seconds 0": "--check-seconds and --callback-seconds must be more than 0",
    "--memory-per-session 8": "--memory-per-session '8' has no unit",
    "--devices 0": "--devices 0: give a number from 1 to 1024",
    "--listen unix:/nowhere/at/all.sock": "/nowhere/at/all.sock",
    "--listen 0.0.0.0:0": "0.0.0.0",
}


def test_an_option_that_cannot_be_is_one_clear_error() -> None:
    for (code, text), says in zip(
        refused([["door", *line.split()] for line in REFUSED]), REFUSED.values(), strict=True
    ):
        assert code == 1
        assert text.startswith("seaway: ")
        assert says in text
        assert "Traceback" not in text


def test_the_doors_environment_is_its_own() -> None:
    given = {"XLA_FLAGS": f"--a=1 {DEVICE_COUNT}=3", "JAX_PLATFORMS": "proxy,cpu"}
    assert for_jax(16, given) == {
        "NPROC": "64", "XLA_FLAGS": f"--a=1 {DEVICE_COUNT}=16", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3",
    }  # fmt: skip
    assert for_jax(None, {"TF_CPP_MIN_LOG_LEVEL": "0"}) == {"NPROC": "32"}
    assert os.environ.get("NPROC") != "64"
