"""Mistakes of a driver, planted in one host's agent: forced parity finds each, and describes it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from backend.agent.agent import Agent
from backend.node.node import NetworkNode
from core.link.endpoint import Write
from core.link.link import Frame
from core.protocol import effects as e
from core.protocol.dataplane import Chunk, Grant
from core.schedule.policy import Fifo
from seaway.tools.parity.compare import Comparison
from tests.backend.cluster import Cluster, wait_until

from . import rig, shapes
from .rig import Scene

THIRD = 3  # which of them is wrong


class Swaps(Agent):
    """Enqueues one gang behind the next."""

    count = 0
    kept: e.Launch | None = None

    def _perform(self, effect: Any) -> None:
        if isinstance(effect, e.Launch):
            self.count += 1
            if self.count == THIRD:
                self.kept = effect
                return
        super()._perform(effect)
        if self.kept is not None and isinstance(effect, e.Launch):
            kept, self.kept = self.kept, None
            super()._perform(kept)


class Forgets(Agent):
    """Does not free one buffer."""

    count = 0

    def _perform(self, effect: Any) -> None:
        if isinstance(effect, e.FreeBuffer):
            self.count += 1
            if self.count == THIRD:
                return
        super()._perform(effect)


class Hurries(Agent):
    """Frees the outputs of a gang as soon as it is enqueued."""

    done = False

    def _perform(self, effect: Any) -> None:
        super()._perform(effect)
        if isinstance(effect, e.Launch) and effect.step == 0 and not self.done:
            self.done = True
            super()._perform(e.FreeBuffer(effect.outputs[0], ()))


def repeats(agent: Agent) -> None:
    """Each chunk is written twice."""
    node: NetworkNode = agent.node
    write = node._write

    def twice(each: Write) -> None:
        write(each)
        if isinstance(each.packet, Frame) and isinstance(each.packet.message, Chunk):
            write(each)

    node._write = twice  # type: ignore[method-assign, assignment]


def loses_credit(agent: Agent) -> None:
    """One credit does not reach core."""
    machine: Any = agent.node.endpoint.machine
    handle = machine.handle
    lost: list[e.MessageReceived] = []

    def deaf(event: e.Event, now: int) -> Any:
        if isinstance(event, e.MessageReceived) and isinstance(event.message, Grant) and not lost:
            lost.append(event)
            return []
        return handle(event, now)

    machine.handle = deaf
    agent.lost = lost  # type: ignore[attr-defined]


def chains() -> Scene:
    """Chains without donation, so that there is much to free."""
    (program, *_) = shapes.resharding()
    return Scene(Fifo, [program] * 2, window=8)


def crossing() -> Scene:
    return Scene(Fifo, shapes.crossing(), islands=2, window=8)


def compared(scene: Scene, folder: Path, *texts: str) -> Comparison:
    _, found = rig.judged(scene, folder)
    assert not found.equal, rig.text(found)
    for text in texts:
        assert text in rig.text(found)
    return found


def unequal(found: Comparison) -> list[str]:
    return [row.what for row in found.rows if not row.equal]


def test_a_driver_without_mistakes_is_equal(tmp_path: Path) -> None:
    asyncio.run(rig.real(crossing(), tmp_path))
    _, found = rig.judged(crossing(), tmp_path)
    assert found.equal, rig.text(found)
    assert all(int(row.left) > 0 for row in found.rows)


def test_a_swapped_enqueue_is_found(tmp_path: Path) -> None:
    asyncio.run(rig.real(chains(), tmp_path, {1: Swaps}))
    found = compared(
        chains(), tmp_path, "device 2 of host 1 was given another gang than commanded: number 2 in its sequence"
    )
    assert "gangs enqueued, device by device" in unequal(found)
    difference = found.differences[0].splitlines()
    left, right = (line for line in difference if line.startswith("  > "))
    assert "run 1 of 'resharding'" in left
    assert left != right


def test_a_skipped_free_is_found(tmp_path: Path) -> None:
    asyncio.run(rig.real(chains(), tmp_path, {0: Forgets}))
    found = compared(chains(), tmp_path, "host 0 never freed slot ")
    assert unequal(found) == ["buffers freed, host by host"]
    assert len(found.differences) == 1


def test_a_free_that_comes_too_soon_and_twice_is_found(tmp_path: Path) -> None:
    asyncio.run(rig.real(chains(), tmp_path, {0: Hurries}))
    found = compared(chains(), tmp_path, "host 0 freed slot ", " 2 times")
    assert unequal(found) == ["buffers freed, host by host"]


def test_a_chunk_that_is_sent_twice_is_found(tmp_path: Path) -> None:
    """The link drops the second one, so no other check would notice."""
    asyncio.run(rig.real(crossing(), tmp_path, plants={2: repeats}))
    found = compared(crossing(), tmp_path, "host 2 sent the same ", " 2 times to host 0: piece ", "'move to step ")
    assert unequal(found) == ["bytes sent, by pairs of hosts"]


def test_a_lost_credit_is_found(tmp_path: Path) -> None:
    async def until_lost(scene: Scene, found: Cluster) -> None:
        await rig.submit_all(scene, found)
        await wait_until(lambda: found.agents[0].lost)  # type: ignore[attr-defined]

    asyncio.run(rig.real(crossing(), tmp_path, plants={0: loses_credit}, play=until_lost))
    found = compared(crossing(), tmp_path, "host 0 sent 0 of ", "'move to step ")
    assert "bytes sent, by pairs of hosts" in unequal(found)
