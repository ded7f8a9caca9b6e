"""Whoever ends in the middle of something, on a cluster: a JAX program, its door, the controller. Nothing is left
over, nobody waits in vain, and a session that can go on does."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from backend.admin.children import environment
from experiments.bench.frame.deployed import Deployed
from experiments.bench.frame.door_server import Door, on_cluster, opened

from ..jax_programs import JaxProgram, await_nothing_held, compiling, held, program, running, until
from ..program_runs import DEVICES

LEASE = ["--lease", "3"]
HELD = 5  # arrays that each program keeps
PARTS = f"""
import sys, jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

rows = NamedSharding(Mesh(np.array(jax.devices()), "x"), P("x"))
held = [jax.device_put(np.full((64, 512), each, np.float32), rows) for each in range({HELD})]
step = jax.jit(lambda x: x + x.mean())

@jax.jit
def long(x, times):
    return jax.lax.fori_loop(0, times, lambda _, x: jnp.sin(x) + 1, x)

def wide(x):
    for each in range(150):
        x = jnp.sin(x @ x) + each
    return x

def say(*words):
    print(*words, flush=True)

def heard():
    sys.stdin.readline()

def begin_long(times=int(sys.argv[1])):
    "Takes seconds: longer than anyone needs to see that it runs."
    return long(held[0], times)

def begin_wide():
    return jax.jit(wide)(held[0][:, :64])
"""
TIMES = "12000"  # of the long call
LONGER = "60000"  # for what takes a process that has to start first

WARM = PARTS + "say(float(step(held[1])[0, 0]), float(long(held[0], 1)[0, 0]) > 0)\nheard()\n"
CALL = WARM + "x = begin_long()\nsay('begun')\nx.block_until_ready()\nsay('over')\nheard()\n"
COMPILE = WARM + "say('begun')\nx = begin_wide()\nsay('over')\nheard()\n"
UNDER_WAY: dict[str, tuple[str, Callable[[Deployed], bool]]] = {
    "a call": (CALL, running),
    "a compilation": (COMPILE, compiling),
}

# Says how its call ends, and whether the session goes on.
CAUGHT = """
try:
    say("over" if {what}.block_until_ready() is not None else "")
except KeyboardInterrupt:
    say("interrupted")
except jax.errors.JaxRuntimeError as error:
    say(str(error))
try:
    say("again", float(step(held[3])[0, 0]))
except jax.errors.JaxRuntimeError as error:
    say("no more:", str(error))
heard()
"""
CATCHES = {
    "a call": WARM + "say('begun')\n" + CAUGHT.format(what="begin_long()"),
    "a compilation": WARM + "say('begun')\n" + CAUGHT.format(what="begin_wide()"),
}


class Watched(NamedTuple):
    """A cluster, a door, and a program that holds arrays all the time: `before` is what the controller has for it."""

    cluster: Deployed
    door: Door
    bystander: JaxProgram
    before: dict[str, int]

    def is_as_before(self) -> None:
        until(lambda: held(self.cluster) == self.before, lambda: f"{held(self.cluster)}, before: {self.before}")


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    with on_cluster(controller=LEASE) as (cluster, door), program(WARM, door.env, TIMES) as bystander:
        assert bystander.line() == "2.0 True", bystander.errors()
        until(lambda: not running(cluster), "the first program's calls do not end")
        until(lambda: held(cluster)["buffers"] == HELD, "what the first program has dropped is not freed")
        yield Watched(cluster, door, bystander, held(cluster))
        assert bystander.process.poll() is None


def begun(found: JaxProgram, cluster: Deployed, under_way: Callable[[Deployed], bool]) -> None:
    """The program is in the middle of it."""
    assert found.line() == "2.0 True", found.errors()
    found.go_on()
    assert found.line() == "begun", found.errors()
    until(lambda: under_way(cluster), "nothing begins")


# --- a program ----------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("what", UNDER_WAY)
def test_a_program_that_is_ended_in_the_middle_leaves_nothing(
    watched: Watched, what: str, number: signal.Signals
) -> None:
    code, under_way = UNDER_WAY[what]
    with program(code, watched.door.env, TIMES) as found:
        begun(found, watched.cluster, under_way)
        assert found.end(number) != 0
        watched.is_as_before()


ENDLESS = """
def wide(x):
    for each in range(6000):
        x = jnp.sin(x @ x) + each
    return x

say("begun")
jax.jit(wide).lower(held[0][:, :64]).compile()
say("over")
"""
OTHER = """
def other(x):
    return jnp.cos(x) * int(sys.argv[2])

say("begun")
say(float(jax.jit(other)(held[0] * 0)[0, 0]))
"""


@pytest.mark.full
@pytest.mark.parametrize(
    "agents", [["--trust-clients"], ["--no-trust-clients"]], ids=["in the agent", "in its checker"]
)
def test_what_a_dead_program_wanted_compiled_does_not_hold_up_others(agents: list[str]) -> None:
    """It would take much longer than anybody waits here."""
    with on_cluster(controller=LEASE, agents=agents) as (cluster, door):
        with program(PARTS + ENDLESS, door.env, TIMES) as found:
            assert found.line() == "begun", found.errors()
            until(lambda: compiling(cluster), "nothing is compiled")
            with program(PARTS + OTHER, door.env, TIMES, "3") as other:
                assert other.line() == "begun", other.errors()
                with pytest.raises(AssertionError, match="the program says nothing"):
                    other.line(3)  # its code waits
                assert found.process.poll() is None
                found.end()
                assert other.line() == "3.0", other.errors()
        await_nothing_held(cluster)


@pytest.mark.full
@pytest.mark.parametrize("what", UNDER_WAY)
def test_an_interrupted_wait_ends_and_the_session_goes_on(watched: Watched, what: str) -> None:
    with program(CATCHES[what], watched.door.env, TIMES) as found:
        begun(found, watched.cluster, UNDER_WAY[what][1])
        found.process.send_signal(signal.SIGINT)
        assert found.line() in ("interrupted", "over")  # JAX looks for it when the call below it returns
        assert found.line() == "again 6.0"
        found.go_on()
        assert found.process.wait(60) == 0
    watched.is_as_before()


@pytest.mark.full
def test_a_cancelled_call_says_so_and_the_session_goes_on(watched: Watched) -> None:
    with program(CATCHES["a call"], watched.door.env, LONGER) as found:
        begun(found, watched.cluster, running)
        (ours,) = [each for each in watched.cluster.status()["clients"] if each["runs"]]
        words = [sys.executable, "-m", "seaway", "cancel", watched.cluster.address, str(ours["client"])]
        subprocess.run(words, env=environment({}), check=True, capture_output=True)
        assert found.line().startswith("CANCELLED: [cancelled]")
        assert found.line() == "again 6.0"
        found.go_on()
        assert found.process.wait(60) == 0
    watched.is_as_before()


# --- its door -----------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("what", UNDER_WAY)
def test_a_program_hears_at_once_that_its_door_has_ended_which_leaves_nothing(
    watched: Watched, what: str, number: signal.Signals
) -> None:
    options = ["--connect", watched.cluster.address, "--name", "other"]
    with opened(DEVICES, options) as door, program(CATCHES[what], door.env, TIMES) as found:
        begun(found, watched.cluster, UNDER_WAY[what][1])
        door.child.process.send_signal(number)
        assert found.line().startswith("UNAVAILABLE")
        assert found.line().startswith("no more: UNAVAILABLE")
        assert door.child.process.wait(60) == (0 if number == signal.SIGTERM else -signal.SIGKILL)
        watched.is_as_before()


# --- the controller -----------------------------------------------------------------------------------------------

# Steps on and on, and says what is lost when it is; then it begins anew, in the same session.
STEPS = (
    PARTS
    + """
say(float(step(held[1])[0, 0]))
x, lost = held[2], 0
while lost < 1 or "stop" not in sys.argv[2:]:
    try:
        x = step(x) / 2
        x.block_until_ready()
        if lost:
            break
    except jax.errors.JaxRuntimeError as error:
        say(str(error))
        lost += 1
        while True:
            try:
                x = jax.device_put(np.full((64, 512), 7, np.float32), rows)
                say("again", float(step(x)[0, 0]))
                break
            except jax.errors.JaxRuntimeError as error:
                say("not yet:", str(error))
heard()
say("then", float(jax.jit(lambda x: x * 3)(x)[0, 0]))
"""
)


@pytest.mark.full
def test_a_session_outlives_a_restart_of_the_controller(tmp_path: Path) -> None:
    """What ran is lost, by name; what is compiled or put meanwhile waits."""
    options = [*LEASE, "--state", str(tmp_path)]
    with on_cluster(controller=options) as (cluster, door), program(STEPS, door.env, TIMES) as found:
        assert found.line() == "2.0", found.errors()
        cluster.controller.process.kill()
        cluster.controller.process.wait()
        cluster.controller_again()
        assert found.line().startswith("DATA_LOSS: [restart]")
        assert found.until("again") == "again 14.0"
        found.go_on()
        assert found.until("then").startswith("then ")
        assert found.process.wait(60) == 0
        await_nothing_held(cluster)
