"""One client's machine in a process: contents are kept exactly as long as they are needed, and code is sent once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backend.client.remote import Remote
from backend.contents.code_blobs import hash_of
from backend.node.calls import CallError
from backend.wire import framing
from core.client.client import Client
from core.model.program import Sharding, SliceSpec, Value
from core.protocol import effects as e
from tests.backend.cluster import User, chain, cluster, wait_until

VALUE = Value((8, 3), "float32", 0, Sharding(((0,), ())))
ALL = SliceSpec("all", 4)


def put(user: User, array: Any) -> tuple[int, Any]:
    """The buffer, and the offer of it whose contents are still missing."""
    found: list[Any] = []

    def act(client: Client, now: int) -> Any:
        buffer = client.put(VALUE, ALL, now)
        assert isinstance(buffer, int)
        found.append(user.remote.offer(buffer))
        return buffer

    buffer = user.call(act)
    if array is not None:
        found[0].give(array)
    return buffer, found[0]


def ready(buffer: int) -> Callable[[e.Command], bool]:
    return lambda effect: isinstance(effect, e.BuffersReady) and buffer in effect.buffers


def holds(remote: Remote) -> tuple[int, ...]:
    shelves: list[dict[int, Any]] = [remote._offered, remote._sources]
    shelves += [remote._sinks, remote._arrived]
    return tuple(map(len, shelves))


async def test_the_contents_of_a_put_are_released_when_the_hosts_have_them(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        user = found.user()
        buffer, _ = put(user, np.ones((8, 3), np.float32))
        assert (await user.until(ready(buffer))).blame is None
        await wait_until(lambda: holds(user.remote) == (0, 0, 0, 0))
        assert user.remote.node.carried[1] == 8 * 3 * 4  # bytes: each distinct shard went to one host, once


async def test_hosts_wait_for_contents_that_are_still_being_copied(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        user = found.user()
        buffer, offer = put(user, None)
        await user.until(lambda effect: isinstance(effect, e.OpenSend))
        await asyncio.sleep(0.1)
        assert not any(map(ready(buffer), user.heard))
        threading.Thread(target=offer.give, args=(np.zeros((8, 3), np.float32),)).start()
        assert (await user.until(ready(buffer))).blame is None


async def test_the_contents_of_a_get_are_taken_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        user = found.user()
        buffer, _ = put(user, np.ones((8, 3), np.float32))
        request = user.call(lambda client, now: client.get(buffer, now))
        await user.until(lambda effect: isinstance(effect, e.Received))
        array = user.remote.taken(request)
        assert array is not None
        assert (array.shape, array.dtype) == ((8, 3), np.float32)
        assert user.remote.taken(request) is None
        assert holds(user.remote) == (0, 0, 0, 0)


async def test_contents_that_a_retry_may_need_are_kept_until_it_cannot(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        user = found.user()
        program = user.call(lambda client, now: client.register(chain(300, 4), now))
        value = Value((8,), "float32", 0, Sharding(((0,),)))

        def act(client: Any, now: int) -> tuple[int, int]:
            buffer = client.put(value, ALL, now, again=True)
            user.remote.offer(buffer, again=True).give(np.ones(8, np.float32))
            run, _ = client.submit(program, (buffer,), now, retries=2)
            client.release((buffer,), now)
            return buffer, run

        buffer, run = user.call(act)
        await user.until(lambda effect: isinstance(effect, e.Sent))
        assert holds(user.remote) == (1, 0, 0, 0)
        await wait_until(lambda: found.server.trace.counted("gangs") > 3)  # the run is under way
        await found.agents[1].stop()
        await found.agent(1, name="host-1")
        assert (await user.ended(run)).blame is None
        again = [effect for effect in user.heard if isinstance(effect, e.RunAgain)]
        assert [effect.run for effect in again] == [run] * len(again)
        assert again
        opened = [effect.buffers for effect in user.heard if isinstance(effect, e.OpenSend)]
        assert opened == [(buffer,)] * (1 + len(again))
        assert e.PutContentsUnneeded((buffer,)) in user.heard
        await wait_until(lambda: holds(user.remote) == (0, 0, 0, 0))


async def test_a_refused_put_keeps_no_contents(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        user = found.user()
        wide = SliceSpec("wide", 8)

        def act(client: Client, now: int) -> Any:
            buffer = client.put(VALUE, wide, now)
            assert isinstance(buffer, int)
            user.remote.offer(buffer).give(np.ones((8, 3), np.float32))
            return buffer

        buffer = user.call(act)
        blame = (await user.until(ready(buffer))).blame
        assert "asks for 8 devices" in blame.cause
        assert holds(user.remote) == (0, 0, 0, 0)


async def test_threads_may_call_at_the_same_time_and_each_gets_its_own_answer(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        user = found.user()
        program = user.call(lambda client, now: client.register(chain(1, 4), now))
        runs: list[int] = []

        def calls() -> None:
            literal = np.ones(8, np.float32).tobytes()
            for _ in range(50):
                submitted = user.call(lambda client, now: client.submit(program, (literal,), now))
                runs.append(submitted.run)

        threads = [threading.Thread(target=calls) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert sorted(runs) == list(range(1, 201))
        for run in runs:
            assert (await user.ended(run)).blame is None
        assert user.failures == []


async def test_code_is_uploaded_to_the_controller_once_by_its_hash(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        user, blobs = found.user(), found.server.blobs
        await user.head.keep([b"some code", b"more code", b"some code"])
        assert blobs.find(hash_of(b"some code")) == b"some code"
        assert len(blobs) == 2
        with pytest.raises(CallError, match="pass it as an argument"):
            await user.head.keep([bytes(framing.MESSAGE)])


async def test_a_client_is_told_of_its_program_also_by_devices_that_compile_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        user = found.user()
        number = user.call(lambda client, now: client.register(chain(2, 4), now, tell=True))
        told = await user.until(lambda effect: isinstance(effect, e.ProgramTold))
        assert told == e.ProgramTold(number, b"", None)
