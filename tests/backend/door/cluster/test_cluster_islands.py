"""Sessions of several islands: programs run on one, arrays move between them, and one that is down holds up nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from backend.contents import StableHLOCode, stablehlo_code
from backend.door.cluster.cluster_opening import ClusterSessions, Serves
from backend.door.cluster.cluster_programs import SessionIsland
from backend.door.protocol.ifrt_messages import StatusCode
from backend.door.protocol.ifrt_shardings import ShardSpec, Tiles
from backend.door.session.session_devices import ArrayCopy, ArrayType, StatusError
from backend.door.session.session_port import Version
from core.model import Reshard
from core.protocol import Blame
from core.protocol import messages as m
from experiments.bench.frame.door_server import Served, on_cluster

from ...cluster import wait_until
from ..cluster_rig import F32, ClusterRig, FakeLink, Told
from ..jax_programs import await_nothing_held, program
from ..session_rig import SessionRig

ISLANDS = SessionIsland("i0", 4), SessionIsland("i1", 2)
DOWN = Blame("host-lost", "slice 'i1' is down: it waits for hosts 1 of island 'i1' (lost)")
BOTH = "these devices are of islands 'i0' and 'i1'"


@pytest.fixture
def rig() -> ClusterRig:
    return ClusterRig(islands=ISLANDS)


# --- what a session calls -----------------------------------------------------------------------------------------


def test_arrays_and_programs_are_on_the_slice_of_their_island(rig: ClusterRig) -> None:
    step = rig.executable(devices=(4, 5))
    (y,) = rig.run(step, rig.large(devices=(4, 5)))
    put, submit = rig.calls()
    assert (put.slice, submit.args) == (rig.places.roots[1], (put.buffer,))
    assert (put.slice.island, put.slice.absent) == ("i1", "fail")
    assert [each.name for each in step.ir.slices] == ["i1"]
    told = rig.told(y)
    rig.link.say(m.Ended(submit.run, DOWN))
    assert (told[0].code, told[0].text) == (StatusCode.DATA_LOSS, str(DOWN))


def test_a_copy_to_another_island_moves_between_its_slice_and_this_one(rig: ClusterRig) -> None:
    x = rig.large(devices=(1,))
    rig.ready(rig.calls()[0].buffer)
    rig.devices.copy([ArrayCopy(x.type, ArrayType(F32, (128, 64), ShardSpec((5,), Tiles())), x)], False)
    register, submit = rig.calls()
    assert [each.name for each in register.ir.slices] == ["i0", "i1", "i0[1]", "i1[1]"]
    (node,) = register.ir.nodes
    assert isinstance(node, Reshard)
    assert [each.slice for each in (*register.ir.args, *node.outputs)] == [2, 3]
    assert submit.args == (x.name,)


def test_arrays_and_programs_over_two_islands_are_refused_by_their_names(rig: ClusterRig) -> None:
    both = ArrayType(F32, (128, 64), ShardSpec((3, 4), Tiles()))
    x, contents, told = rig.large(), np.ones((128, 64), np.float32), Told()
    shards = [rig.large(devices=(at,)) for at in (3, 4)]
    rig.calls()
    for wrong in (
        lambda: rig.devices.put(both, [contents, contents]),
        lambda: rig.devices.assemble(both, shards),
        lambda: rig.devices.copy([ArrayCopy(x.type, both, x)], False),
        lambda: rig.put([1, 2], devices=(3, 4)),
    ):
        with pytest.raises(StatusError, match=BOTH) as refused:
            wrong()
        assert refused.value.code == StatusCode.INVALID_ARGUMENT

    async def compiled() -> None:
        rig.devices.compile(b"nothing reads this", b"", (3, 4), lambda executable, facts: told(facts))
        await asyncio.gather(*rig.programs._tasks)

    asyncio.run(compiled())
    assert told[0].code == StatusCode.INVALID_ARGUMENT
    assert BOTH in told[0].text
    assert rig.calls() == []


# --- an island is down --------------------------------------------------------------------------------------------


async def compiled_elsewhere(rig: ClusterRig, *answers: tuple[bytes, Blame | None]) -> bytes:
    """What is known of code for device 5, whose island is down, when hosts of others answer so."""
    fault = StatusError(StatusCode.DATA_LOSS, str(DOWN))
    asking = asyncio.ensure_future(rig.programs._answer_elsewhere(StableHLOCode(b"step", b""), "step", (5,), fault))
    for answer in answers:
        await wait_until(lambda: any(isinstance(call, m.Register) for call in rig.link.calls))
        (register,) = (call for call in rig.calls() if isinstance(call, m.Register))
        assert register.ir.slices[-1].of != "i1"
        rig.link.say(m.ProgramCompiled(register.program, *answer))
    return await asking


async def test_what_compiles_for_an_island_that_is_down_is_answered_by_another_with_such_devices() -> None:
    rig = ClusterRig(islands=[*ISLANDS, SessionIsland("i2", 2)])
    rig.link.heard = lambda command: rig.devices._answers._heard(command)
    rig.places.kinds = "v4", "v4", "v4"
    assert await compiled_elsewhere(rig, (b"", DOWN), (b"about", None)) == b"about"
    with pytest.raises(StatusError, match="no such operation") as refused:
        await compiled_elsewhere(rig, (b"", Blame("user", "no such operation")))
    assert refused.value.code == StatusCode.INTERNAL
    with pytest.raises(StatusError, match="is down") as refused:
        await compiled_elsewhere(rig, (b"", DOWN), (b"", DOWN))
    assert refused.value.code == StatusCode.DATA_LOSS
    rig.places.kinds = "v4", "v5e", "v4"
    with pytest.raises(StatusError, match="is down"):
        await compiled_elsewhere(rig)


# --- a session is opened ------------------------------------------------------------------------------------------


class Source:
    """A cluster whose hosts answer when the test says so."""

    name = "ann"

    def __init__(self) -> None:
        self.link: Any = FakeLink()
        self.islands: tuple[SessionIsland, ...] = ISLANDS

    def line(self, name: str) -> tuple[Any, Serves]:
        return self.link, lambda devices: devices

    async def seen(self) -> dict[Any, Any]:
        return {}


async def test_a_session_waits_for_all_its_islands_and_from_then_on_for_none() -> None:
    source, rig = Source(), SessionRig()
    sessions = ClusterSessions(source, ())
    rig.session = sessions(Version(25, 6), rig)
    init = rig.ask("init")
    device = stablehlo_code.PlatformDevice("cpu", ("device",), 0, "CpuDevice(id=7)", "TFRT_CPU_7", {})
    for root, count in ISLANDS:
        await wait_until(lambda: any(isinstance(call, m.Register) for call in source.link.calls))
        (register,) = (call for call in source.link.since() if isinstance(call, m.Register))
        *opening, asked = register.ir.slices
        assert [(each.island, each.absent) for each in opening] == [("i0", "wait"), ("i1", "wait")]
        assert (asked.name, asked.absent) == (root, "fail")
        assert rig.sent == []
        about = stablehlo_code.PlatformAbout("cpu", "1", "TFRT", 6, (device,) * count)
        source.link.say(m.ProgramCompiled(register.program, stablehlo_code.encode_about(about)))
    await wait_until(lambda: rig.sent)
    devices = rig.answer(init).init_response.all_devices
    assert [each.id for each in devices] == list(range(6))
    assert [each.attributes.attributes["slice_index"].int64_value for each in devices] == [0, 0, 0, 0, 1, 1]
    calls = source.link.since()
    assert [type(call) for call in calls] == [m.Unregister, m.ReleaseSlice, m.ReleaseSlice]
    assert [call.name for call in calls[1:]] == ["i0 (opening)", "i1 (opening)"]
    rig.session.ended("the client has gone")
    await sessions.end()


# --- a real cluster -----------------------------------------------------------------------------------------------

PROGRAM = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P


def say(*words):
    print(*words, flush=True)


def said(f, *given):
    try:
        jax.block_until_ready(f(*given))
    except (ValueError, jax.errors.JaxRuntimeError) as error:
        return str(error).splitlines()[0]
    return "nothing"


devices = jax.devices()
say([(each.id, each.slice_index) for each in devices], devices[0].client.runtime_type)
slices = [[each for each in devices if each.slice_index == at] for at in (0, 1)]
rows = [NamedSharding(Mesh(np.array(each), "x"), P("x")) for each in slices]
x = np.arange(64 * 128, dtype=np.float32).reshape(64, 128)
step = jax.jit(lambda x: 2 * x + 0 * x.sum() + 1)
here, there = (step(jax.device_put(x, each)) for each in rows)
say("runs", np.array_equal(here, 2 * x + 1), np.array_equal(there, 2 * x + 1))
moved = jax.device_put(here, rows[1])
say("moves", moved.sharding == rows[1], np.array_equal(step(moved), 4 * x + 3))
columns = jax.device_put(moved, NamedSharding(rows[0].mesh, P(None, "x")))
alone = jax.device_put(jax.device_put(x, slices[0][1]), slices[1][1])
say("resharded", np.array_equal(columns, 2 * x + 1), np.array_equal(alone, x))
grid = mesh_utils.create_hybrid_device_mesh((1, 2), (2, 1))
say("hybrid", [[each.slice_index for each in row] for row in grid])
both = NamedSharding(Mesh(grid, ("slice", "x")), P(None, "x"))
say("refused", said(jax.jit(lambda: jnp.ones((8, 8)), out_shardings=both)))
say("refused", said(jax.device_put, x, both))
say("refused", said(jax.make_mesh, (4,), ("x",)))
sys.stdin.readline()
while said(step, there) == "nothing":
    pass
say("lost", said(step, there))
say("down", said(step, jax.device_put(x, rows[1])))
less = jax.jit(lambda x: x - 1)
say("down", *(said(less, jax.device_put(np.float32(1), each[0])) for each in slices))
say("goes on", np.array_equal(step(here), 4 * x + 3))
sys.stdin.readline()
while said(step, jax.device_put(x, rows[1])) != "nothing":
    pass
say("back", np.array_equal(step(jax.device_put(step(here), rows[1])), 8 * x + 7))
"""


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with on_cluster(1, 2, islands=2, controller=["--lease", "3"]) as found:
        yield found


def test_a_program_uses_both_islands_and_goes_on_with_one_while_the_other_is_down(served: Served) -> None:
    cluster, door = served
    with program(PROGRAM, door.env) as found:
        assert found.line() == "[(0, 0), (1, 0), (2, 1), (3, 1)] proxy/pjrt_ifrt"
        assert found.line() == "runs True True"
        assert found.line() == "moves True True"
        assert found.line() == "resharded True True"
        assert found.line() == "hybrid [[0, 0], [1, 1]]"
        for _ in range(2):
            assert f"INVALID_ARGUMENT: {BOTH}" in found.until("refused")
        assert "jax.make_mesh` does not support multi-slice" in found.until("refused")
        cluster.agents[1].process.kill()
        cluster.agents[1].process.wait()
        found.go_on()
        assert "DATA_LOSS: [host-lost] host 1 of island 'i1' was lost" in found.until("lost")
        assert "DATA_LOSS: [host-lost] slice 'i1' is down: it waits for hosts 1 of island 'i1'" in found.until("down")
        assert found.until("down").startswith("down nothing DATA_LOSS: [host-lost] slice 'i1' is down")
        assert found.line() == "goes on True"
        cluster.again(1)
        found.go_on()
        assert found.line() == "back True"
        assert found.process.wait(60) == 0
    await_nothing_held(cluster)
