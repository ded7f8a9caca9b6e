"""A session on an agent that does not trust its clients: forbidden code ends as an error of the program."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import seaway as sw
from tests.backend.real import Real, await_end, children_of

from ..pjrt.test_pjrt import ENVIRONMENT, ROOT

CHECKER = "checker"
ALL = sw.slice(2, name="all")


@sw.jit(devices=ALL)
def doubled(x: Any) -> Any:
    return x * 2


@sw.jit(devices=ALL)
def solved(x: Any) -> Any:
    return jnp.linalg.solve(jnp.eye(4) * 2, x)


@sw.jit(devices=ALL)
def borrowed(x: Any) -> Any:
    """A function that `jax.export` allows and the agent does not."""
    shape: Any = jax.ShapeDtypeStruct
    call: Any = jax.ffi.ffi_call("tf.call_tf_function", shape(x.shape, x.dtype))
    return call(x)


async def test_refused_code_fails_its_program_by_name_and_the_session_goes_on(tmp_path: Path) -> None:
    """Also, the number of devices that an agent is given comes before that of its environment."""
    cache = tmp_path / "cache"
    ones = np.ones(4, np.float32)

    def program(address: str, agent: int) -> None:
        with sw.connect(f"grpc://{address}"):
            assert np.asarray(doubled(ones)).tolist() == [2.0] * 4
            compiled = sorted(each.name for each in cache.iterdir() if each.is_file())
            with pytest.raises(sw.errors.RunError) as caught:
                borrowed(ones).block_until_ready()
            assert "the code of computation 'borrowed' is refused" in str(caught.value)
            assert "--allow-custom-call tf.call_tf_function" in str(caught.value)
            (checker,) = children_of(agent, CHECKER)
            os.kill(checker, signal.SIGKILL)
            await_end(checker)
            assert np.asarray(solved(doubled(ones))).tolist() == [1.0] * 4
            assert children_of(agent, CHECKER) not in ([], [checker])
        # the agent loaded what its child had compiled, and compiled nothing itself
        assert len(compiled) == 1

    found = Real(tmp_path, 1, 2, platform="cpu", lease=8.0)
    try:
        found.start_controller()
        agent = found.agent(0, "--cache", str(cache), env={"JAX_NUM_CPU_DEVICES": "1"})
        await found.ready()
        await asyncio.to_thread(program, found.address, agent.process.pid)
    finally:
        await found.stop()


async def test_code_for_several_hosts_is_compiled_where_jax_counts_the_devices_itself(tmp_path: Path) -> None:
    """The checker stands for all devices of a gang, the agent has only its own: the number that JAX finds in the
    agent's environment is not the checker's."""
    counted = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}

    def program(address: str) -> None:
        with sw.connect(f"grpc://{address}"):
            assert np.asarray(doubled(np.ones(4, np.float32))).tolist() == [2.0] * 4

    found = Real(tmp_path, 2, 1, platform="auto", lease=8.0)
    try:
        found.start_controller()
        for host in range(2):
            found.agent(host, "--devices", "0", env=counted)
        await found.ready()
        await asyncio.to_thread(program, found.address)
    finally:
        await found.stop()


@pytest.mark.full
def test_untrusted_clients_can_do_all_that_trusted_clients_can() -> None:
    words = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "tests.backend.sandbox.pjrt_checked"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *words, str(ROOT / "tests" / "backend" / "pjrt" / "pjrt_cases.py")], cwd=ROOT,
        env=os.environ | ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout
