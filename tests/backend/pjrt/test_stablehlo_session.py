"""Raw StableHLO on two agents of two CPU devices each, which do not trust their clients: a core client registers it, is
told about it, and runs it on any of its devices; results are those of JAX."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from backend.contents import stablehlo_code
from tests.backend.real import Real, children_of
from tests.backend.sandbox.test_stablehlo_check import DEADLY, calling

from .pjrt_rig import value
from .raw_client import Failed, RawClient
from .stablehlo_rig import artifact, lowered

HOSTS, EACH = 2, 2
DEVICES = HOSTS * EACH
SPLIT, WHOLE = value((8, 4), ("x", "")), value((8, 4))
ARRAY = np.arange(32, dtype=np.float32).reshape(8, 4)


class Session:
    def __init__(self, runner: asyncio.Runner, real: Real, client: RawClient) -> None:
        self.runner, self.real, self.client = runner, real, client


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder: Path = tmp_path_factory.mktemp("session")
    real = Real(folder, HOSTS, EACH, platform="cpu", lease=20.0)

    async def start() -> RawClient:
        real.start_controller()
        for host in range(HOSTS):
            real.agent(host, "--cache", str(folder / "cache"), "--verbose")
        await real.ready()
        return RawClient(real.user(), DEVICES)

    with asyncio.Runner() as runner:
        try:
            yield Session(runner, real, runner.run(start()))
        finally:
            runner.run(real.stop())


def in_session(work: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test runs in the session's loop."""

    @functools.wraps(work)
    def run(session: Session, **given: Any) -> None:
        session.runner.run(work(session, **given))

    return run


def psum(x: Any) -> Any:
    """Every row of x times the sum of all of it, and the sum."""
    return x * x.sum(), x.sum()


@in_session
async def test_devices_of_a_session_are_told_by_the_first_host_also_those_of_others(session: Session) -> None:
    client = session.client
    about = stablehlo_code.platform_about(await client.ask(b"", range(DEVICES), "platform"))
    assert (about.name, len(about.devices)) == ("cpu", DEVICES)
    assert len({each.repr for each in about.devices}) == DEVICES
    assert all(each.memories[each.default_memory] == "device" for each in about.devices)


@in_session
async def test_a_program_runs_on_one_device_of_any_host(session: Session) -> None:
    client = session.client
    fn = lambda x: jnp.tanh(x) * 2 + 1  # noqa: E731
    program = lowered(fn, (1,), [WHOLE])
    about = stablehlo_code.compiled_about(await client.ask(program, [3]))
    assert about.output_layouts == ("{1,0}",)
    number = await client.program(program, [3], [WHOLE], [WHOLE])
    (made,) = await client.run(number, await client.put(WHOLE, [3], ARRAY))
    np.testing.assert_allclose(await client.get(made), jax.jit(fn)(ARRAY), rtol=1e-6)


@pytest.mark.parametrize("picks", [(3, 0, 2, 1), (2, 1), (1, 0)])
@in_session
async def test_a_program_runs_on_any_devices_in_any_order(session: Session, picks: tuple[int, ...]) -> None:
    client = session.client
    program = lowered(psum, (len(picks),), [SPLIT])
    about = stablehlo_code.compiled_about(await client.ask(program, picks))
    assert about.output_shardings is not None
    assert len(about.output_shardings) == 2
    number = await client.program(program, picks, [SPLIT], [SPLIT, value(())])
    made, total = await client.run(number, await client.put(SPLIT, picks, ARRAY))
    ours = await client.get(made), await client.get(total)
    for mine, theirs in zip(ours, jax.jit(psum)(ARRAY), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


@in_session
async def test_an_array_moves_to_other_devices_of_any_host_in_any_order(session: Session) -> None:
    client = session.client
    for source, target in (((0,), (1,)), ((0,), (3,)), ((2, 3), (3, 2)), ((0, 1), (1, 2)), ((0, 1, 2, 3), (2, 0))):
        same = lowered(lambda x: x, (len(target),), [SPLIT], [SPLIT])
        number = await client.moving(same, SPLIT, source, target)
        x = await client.put(SPLIT, source, ARRAY)
        (made,) = await client.run(number, x)
        np.testing.assert_array_equal(await client.get(made), ARRAY)
        np.testing.assert_array_equal(await client.get(x), ARRAY)


@in_session
async def test_code_that_is_refused_or_ends_the_compiler_is_told_and_the_agents_live(session: Session) -> None:
    client = session.client
    with pytest.raises(Failed) as caught:
        await client.ask(calling("never_heard_of"), [0], name="guess")
    assert "the code of computation 'guess' is refused: it calls 'never_heard_of'" in str(caught.value)
    with pytest.raises(Failed) as caught:
        await client.ask(artifact(DEADLY), [3], name="deadly")
    assert "computation 'deadly' cannot be compiled: the compiler's process was ended by" in str(caught.value)
    with pytest.raises(Failed, match="is split as"):
        await client.program(
            lowered(lambda x: x, (DEVICES,), [SPLIT], [SPLIT]), range(DEVICES), [WHOLE], [WHOLE], name="unlike"
        )
    for agent in session.real.agents.values():
        assert agent.process.poll() is None
        assert len(children_of(agent.process.pid, "checker")) <= 1
    number = await client.program(lowered(lambda x: x - 1, (1,), [WHOLE]), [3], [WHOLE], [WHOLE])
    (made,) = await client.run(number, ARRAY.tobytes())
    np.testing.assert_array_equal(await client.get(made), ARRAY - 1)


@in_session
async def test_the_agents_load_what_their_checkers_have_compiled(session: Session) -> None:
    folder = session.real.folder / "cache" / "executables"
    before = len(list(folder.iterdir()))
    await session.client.ask(lowered(lambda x: x * 7, (DEVICES,), [SPLIT]), range(DEVICES))
    assert len(list(folder.iterdir())) == before + 1
    for agent in session.real.agents.values():
        assert "cannot be loaded" not in agent.said()


@in_session
async def test_a_registered_program_runs_again_when_an_agent_was_lost_and_came_back(session: Session) -> None:
    """Its code is compiled anew for the next world; what lay on the lost host is lost."""
    client = session.client
    everywhere = range(DEVICES)
    number = await client.program(lowered(psum, (DEVICES,), [SPLIT]), everywhere, [SPLIT], [SPLIT, value(())])
    alone = await client.program(lowered(lambda x: x + 4, (1,), [WHOLE]), [3], [WHOLE], [WHOLE])
    before = await client.run(number, ARRAY.tobytes())
    session.real.agents[1].kill()
    session.real.agent(1, "--cache", str(session.real.folder / "cache"), "--verbose")
    await session.real.ready(epoch=1)
    with pytest.raises(Failed, match="host"):
        await client.run(number, before[0])
    made, total = await client.run(number, ARRAY.tobytes())
    np.testing.assert_allclose(await client.get(made), ARRAY * ARRAY.sum(), rtol=1e-6)
    np.testing.assert_allclose(await client.get(total), ARRAY.sum(), rtol=1e-6)
    (made,) = await client.run(alone, ARRAY.tobytes())
    np.testing.assert_array_equal(await client.get(made), ARRAY + 4)
    program = lowered(lambda x: x * 13, (DEVICES,), [SPLIT])
    assert stablehlo_code.compiled_about(await client.ask(program, everywhere)).fingerprint
