"""A child process reads and compiles clients' code before the agent does: which code passes, which does not, and what
happens to a child that the code breaks."""

from __future__ import annotations

import importlib
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import export
from jax.sharding import AbstractMesh, AxisType, NamedSharding

from backend.auth.trust import Rules
from backend.pjrt.code.launchable_code import Unusable
from backend.pjrt.jax_errors import CompilerFault, of
from backend.sandbox import targets
from backend.sandbox.checkers import TRIES
from backend.sandbox.code_gate import CodeGate
from core.model.place import line
from core.model.plan import Gang, Plan
from core.model.program import Arg, Out
from tests.backend.real import await_end

from ..pjrt.pjrt_rig import P, Work, blob, value

ROWS = value((8,), ("x",))
factors = itertools.count(2)
PATIENCE = 60.0  # seconds, after which a wait has failed
WITHHELD = "tf.call_tf_function"
CALLBACK = "xla_ffi_python_cpu_callback"


def calling(target: str, platforms: tuple[str, ...] = ("cpu",)) -> bytes:
    """Code that calls a foreign function, as `jax.export` writes it without its own check."""
    mesh = AbstractMesh((1,), ("x",), axis_types=(AxisType.Auto,))
    shape: Any = jax.ShapeDtypeStruct
    rows = shape((8,), jnp.float32, sharding=NamedSharding(mesh, P("x")))
    call: Any = jax.ffi.ffi_call(target, shape((8,), jnp.float32))
    off = [export.DisabledSafetyCheck.custom_call(target)]
    return bytes(export.export(jax.jit(call), platforms=platforms, disabled_checks=off)(rows).serialize())


def plain(fn: Callable[[Any], Any], devices: int = 1) -> bytes:
    return blob(fn, (devices,), [ROWS], [ROWS])


def plan_of(code: bytes, name: str = "step", devices: int = 1, base: int = 0) -> tuple[Plan, dict[str, bytes]]:
    work = Work((devices,), ROWS)
    work.call(name, None, [Arg(0)], [ROWS], [ROWS], exported=code)
    return work.plan(line(0, base, devices), Out(0)), work.blobs


def check(gate: CodeGate, code: bytes, name: str = "step", devices: int = 1, base: int = 0) -> None:
    plan, blobs = plan_of(code, name, devices, base)
    (found,) = plan.codes
    gang = plan.steps[found.step]
    assert isinstance(gang, Gang)
    inputs, outputs = ([plan.slots[slot].layout for slot in slots] for slots in (gang.inputs, gang.outputs))
    gate.check(found, gang, inputs, outputs, blobs, tuple(range(devices)))


def refusal(gate: CodeGate, code: bytes, name: str = "step", **options: int) -> str:
    with pytest.raises((Unusable, CompilerFault)) as caught:
        check(gate, code, name, **options)
    return str(caught.value)


def pid_of(gate: CodeGate) -> int:
    """The child's process id; 0: there is none."""
    return next((child._process.pid for child in gate.checkers._children if child.alive), 0)


@contextmanager
def code_gate(rules: Rules | None = None, platform: str = "cpu", cache: Path | None = None) -> Iterator[CodeGate]:
    found = CodeGate(rules or Rules(), platform, cache)
    try:
        yield found
    finally:
        found.checkers.close()


@pytest.fixture(scope="module")
def gate() -> Iterator[CodeGate]:
    with code_gate(Rules(largest=1 << 20)) as found:
        yield found


@pytest.fixture(scope="module")
def good() -> bytes:
    return plain(lambda x: jnp.sin(x) + jnp.sort(x))


# --- what code may call ---------------------------------------------------------------------------------------------


def test_each_foreign_function_that_jax_calls_stable_is_decided_upon() -> None:
    inside: Any = importlib.import_module("jax._src.export._export")
    stable = inside._CUSTOM_CALL_TARGETS_GUARANTEED_STABLE
    assert set(targets.WITHHELD) <= stable | set(targets.SPARSE)
    assert stable <= targets.ALLOWED | set(targets.WITHHELD)
    assert not targets.ALLOWED & set(targets.WITHHELD)
    assert not any(map(targets.is_callback, targets.ALLOWED))


def test_each_kernel_that_jaxlib_has_for_cpus_is_decided_upon() -> None:
    kernels: set[str] = set()
    for name in ("_lapack", "_sparse"):
        module: Any = importlib.import_module(f"jaxlib.cpu.{name}")
        kernels.update(module.registrations())
    assert len(kernels) > 50
    assert kernels <= targets.ALLOWED | set(targets.WITHHELD)
    assert kernels & set(targets.WITHHELD) == {"cpu_csr_sparse_dense_ffi"}


def test_code_that_calls_a_listed_function_passes(gate: CodeGate) -> None:
    solves = plain(lambda x: x + jnp.linalg.cholesky(jnp.eye(8, dtype=x.dtype) * 4)[0])
    assert b"lapack_spotrf_ffi" in solves
    check(gate, solves)


def test_code_that_calls_any_other_function_is_refused_and_told_how_to_allow_it(gate: CodeGate) -> None:
    said = refusal(gate, calling(WITHHELD), "guess")
    assert said.startswith("the code of computation 'guess' is refused: it calls 'tf.call_tf_function'")
    assert "runs TensorFlow in the agent" in said
    assert said.endswith("--allow-custom-call tf.call_tf_function")
    said = refusal(gate, calling("never_heard_of"))
    assert "'never_heard_of', which is not on the list" in said


def test_a_function_that_the_agent_allows_passes_the_list_and_reaches_the_compiler() -> None:
    with code_gate(Rules(("never_heard_of",))) as allowing:
        said = refusal(allowing, calling("never_heard_of"), "guess")
        assert said.startswith("computation 'guess' cannot be compiled: ")
        assert "is refused" not in said
        assert "never_heard_of" in said


def test_callbacks_into_python_are_always_refused(gate: CodeGate) -> None:
    with pytest.raises(
        (ValueError, NotImplementedError), match=r"callback|AbstractMesh"
    ):  # JAX does not export such code: it is forged
        plain(lambda x: jax.pure_callback(np.sin, x, x))
    said = refusal(gate, calling(CALLBACK), "sneaky")
    assert said.startswith("the code of computation 'sneaky' is refused: it calls back into Python")
    assert "never allowed" in said
    for name in ("xla_python_gpu_callback", "xla_ffi_partitioned_python_cpu_callback", "CustomSPMDPartitioning"):
        assert "never allowed" in targets.objection(name, (name,))
    with pytest.raises(ValueError, match=f"--allow-custom-call {CALLBACK}"):
        CodeGate(Rules((CALLBACK,)), "cpu", None)


def test_code_for_other_devices_is_refused(gate: CodeGate, good: bytes) -> None:
    elsewhere = calling("Sharding", ("tpu",))
    assert "it is for tpu, but runs on cpu here" in refusal(gate, elsewhere)
    assert "it is for 4 devices, but the plan runs it on 2" in refusal(gate, plain(jnp.sin, 4), devices=2)
    check(gate, plain(jnp.sin, 4), devices=4)
    check(gate, good, base=5)  # on other devices, but the same number


def test_code_that_is_too_large_is_refused(gate: CodeGate) -> None:
    table = np.random.default_rng(0).random((1 << 18) + 1)
    said = refusal(gate, plain(lambda x: x + jnp.asarray(table, jnp.float32)[:8].sum()), "table")
    assert said.startswith("the code of computation 'table' is refused: it has 1")
    assert said.endswith("but at most 1048576 are allowed")


def test_code_for_accelerators_is_checked_on_a_machine_without_one() -> None:
    with code_gate(Rules(), "tpu") as tpu:
        check(tpu, plain(lambda x: jnp.tanh(x) * jnp.linalg.norm(x)))
        assert "is refused: it is for cpu, but runs on tpu here" in refusal(tpu, calling("Sharding"))
        assert tpu.checked == 2


# --- bytes that are not code ----------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=400))
def test_random_bytes_are_refused_by_name(gate: CodeGate, junk: bytes) -> None:
    if junk:
        assert "computation 'junk'" in refusal(gate, junk, "junk")


def test_truncated_code_is_refused(gate: CodeGate, good: bytes) -> None:
    for size in range(1, len(good) * 3 // 4, len(good) // 12):  # the last bytes are its name, and padding
        assert "computation 'cut'" in refusal(gate, good[:size], "cut")


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_code_does_no_harm_here(gate: CodeGate, good: bytes, spoilt: list[tuple[float, int]]) -> None:
    """Some of it ends the child: JAX's reader is not made for such bytes."""
    broken, said = bytearray(good), "computation 'spoilt'"
    for where, byte in spoilt:
        broken[int(where * len(good))] = byte
    try:
        check(gate, bytes(broken), "spoilt")
    except Unusable as error:
        said = str(error)
    assert "computation 'spoilt'" in said


# --- a child that fails ---------------------------------------------------------------------------------------------


def test_code_whose_child_is_killed_is_checked_in_another(gate: CodeGate) -> None:
    victim, code = child_of(gate), fresh()
    os.kill(victim, signal.SIGSTOP)  # so that the child stays in the middle of the next question
    with asking(gate, code, "unlucky") as said:
        os.kill(victim, signal.SIGKILL)
    assert said == ["passed"]
    assert pid_of(gate) not in (0, victim)


@pytest.mark.skipif(sys.platform != "linux", reason="only there a child can end with the thread that started it")
def test_a_child_outlives_the_thread_whose_question_started_it(gate: CodeGate) -> None:
    os.kill(child_of(gate), signal.SIGKILL)
    wait_until(lambda: pid_of(gate) == 0)
    thread = threading.Thread(target=check, args=(gate, fresh()))
    thread.start()
    task = Path(f"/proc/self/task/{thread.native_id}")
    thread.join(PATIENCE)
    wait_until(lambda: not task.exists())
    child = pid_of(gate)
    assert child_of(gate) == child > 0


def test_code_whose_children_are_all_killed_is_given_up_and_may_be_checked_again(gate: CodeGate) -> None:
    """As the kernel does when memory is short: it takes these processes first."""
    code, killed = fresh(), [child_of(gate)]
    os.kill(killed[0], signal.SIGSTOP)
    with asking(gate, code, "unlucky") as said:
        os.kill(killed[0], signal.SIGKILL)
        while len(killed) < TRIES:
            wait_until(lambda: pid_of(gate) not in (0, killed[-1]))
            killed.append(pid_of(gate))
            os.kill(killed[-1], signal.SIGKILL)
    assert said[0] == (
        "computation 'unlucky' cannot be compiled: the compiler's process was ended by SIGKILL: if nobody did this, "
        "memory ran out. So were the 2 before it, which compiled the same"
    )
    assert of(CompilerFault(said[0])).code == "code"
    check(gate, code, "unlucky")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_child_starts_without_a_warning(gate: CodeGate) -> None:
    assert "Warning" not in Path(f"/proc/{child_of(gate)}/fd/2").read_text(encoding="utf-8")


def child_of(gate: CodeGate) -> int:
    """The process id of a gate's child that has just answered."""
    check(gate, fresh())
    assert pid_of(gate) > 0
    return pid_of(gate)


def fresh() -> bytes:
    """Code that was never checked before."""
    factor = next(factors)
    return plain(lambda x: x * factor)


@contextmanager
def asking(gate: CodeGate, code: bytes, name: str) -> Iterator[list[str]]:
    """Within the block, the gate waits for its child. After it, the list has the gate's answer, or "passed"."""
    said: list[str] = []

    def ask() -> None:
        try:
            check(gate, code, name)
            said.append("passed")
        except (Unusable, CompilerFault) as error:
            said.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: any(child._busy.locked() for child in gate.checkers._asked))
    yield said
    thread.join(PATIENCE)
    assert said, "the check has not ended"


def wait_until(over: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not over():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_child_that_does_not_answer_is_ended_and_the_computation_is_named(good: bytes) -> None:
    """The limit is too short for any compilation."""
    with code_gate(Rules(seconds=0.001)) as hasty:
        said = refusal(hasty, good, "endless")
        assert said.startswith("the code of computation 'endless' was not ")
        assert "within 0.001 s, which is the limit for clients' code here (--check-seconds of the agent)" in said
        assert pid_of(hasty) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps to this limit")
def test_a_compiler_that_takes_too_much_memory_ends_only_its_own_process(good: bytes) -> None:
    with code_gate(Rules(memory=1 << 20)) as narrow:
        said = refusal(narrow, good, "huge")
        assert "computation 'huge'" in said
        assert "is refused" not in said


def test_a_check_is_interrupted_when_nobody_wants_the_code_and_the_next_goes_on(good: bytes) -> None:
    with code_gate() as gate:
        child = child_of(gate)
        assert not gate.checkers.interrupt()  # it is not asked
        os.kill(child, signal.SIGSTOP)
        with asking(gate, fresh(), "unwanted") as said:
            assert gate.checkers.interrupt()
        assert "computation 'unwanted' cannot be compiled: the compiler's process was ended by SIGKILL" in said[0]
        check(gate, good)


# --- what a child can see -------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_child_knows_no_secrets_and_ends_with_its_gate_in_the_middle_of_a_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "token"
    secret.write_text("the cluster's token", encoding="utf-8")
    for name in ("SEAWAY_TOKEN", "TOKEN", "AWS_SECRET_ACCESS_KEY", "PYTHON_TOKEN", "HF_TOKEN"):
        monkeypatch.setenv(name, "the cluster's token")
    asked = CodeGate(Rules(), "cpu", None)
    with secret.open() as held:
        os.set_inheritable(held.fileno(), True)
        child = child_of(asked)
    about = Path(f"/proc/{child}")
    environment, words = (about / "environ").read_bytes(), (about / "cmdline").read_bytes()
    files = [os.readlink(each) for each in (about / "fd").iterdir()]
    assert b"the cluster's token" not in environment + words
    assert b"JAX_PLATFORMS=cpu" in environment
    assert str(secret) not in files
    (theirs,) = {each for each in files if not re.match(r"pipe:|anon_inode:|/dev/null|.*\(deleted\)$", each)}
    assert theirs.startswith("socket:")  # its line to the gate
    os.kill(child, signal.SIGSTOP)
    with asking(asked, fresh(), "late") as said:
        asked.checkers.close()
    assert "computation 'late'" in said[0]
    assert pid_of(asked) == 0
    assert not about.exists()


PARENT = """
import sys, time
from tests.backend.sandbox.test_code_check import check, pid_of, plain
from backend.sandbox.code_gate import CodeGate
from backend.auth.trust import Rules
gate = CodeGate(Rules(), "cpu", None)
check(gate, plain(lambda x: x + 1))
print(pid_of(gate), flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_child_ends_with_its_agent_even_in_the_middle_of_a_check() -> None:
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, cwd=root,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    ) as parent:  # fmt: skip
        try:
            assert parent.stdout is not None
            child = int(parent.stdout.readline())
            os.kill(child, signal.SIGSTOP)
        finally:
            parent.kill()
    await_end(child)
