"""Members of a world meet at its coordination process, and can stop waiting there."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import pytest

from backend.coordination.rendezvous import LONGEST, Overtaken, Rendezvous, RendezvousMember
from tests.backend.pjrt.test_pjrt_worlds import Process


@contextmanager
def coordination(members: int) -> Iterator[tuple[Process, str]]:
    service = Process("backend.coordination.service", "--members", str(members))
    try:
        yield service, f"127.0.0.1:{service.line()}"
    finally:
        if service.process.returncode is None:
            service.end(kill=True)


@pytest.fixture
def waiting() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def arrive(
    pool: ThreadPoolExecutor, address: str, rank: int, patience: float = 20.0
) -> tuple[RendezvousMember, Future[str]]:
    arrival = RendezvousMember(address, rank)
    return arrival, pool.submit(arrival.wait, patience)


def still_waits(future: Future[str]) -> bool:
    time.sleep(0.2)
    return not future.done()


def test_all_members_learn_the_address_of_jax_when_the_last_has_arrived(waiting: ThreadPoolExecutor) -> None:
    with coordination(3) as (_, address):
        _, first = arrive(waiting, address, 2)
        _, second = arrive(waiting, address, 0)
        assert still_waits(first)
        _, third = arrive(waiting, address, 1)
        told = {each.result(10) for each in (first, second, third)}
        assert len(told) == 1
        assert told != {address}  # JAX's own port
        host, _, port = told.pop().rpartition(":")
        socket.create_connection((host, int(port)), 5).close()


def test_a_member_that_leaves_is_out_at_once_and_is_not_counted(waiting: ThreadPoolExecutor) -> None:
    with coordination(2) as (_, address):
        one, first = arrive(waiting, address, 0)
        assert still_waits(first)
        one.leave()
        with pytest.raises(Overtaken):
            first.result(1)
        _, other = arrive(waiting, address, 1)
        assert still_waits(other)
        _, again = arrive(waiting, address, 0)  # the same rank, in another process
        assert again.result(10) == other.result(10)


NONSENSE = [b"", b"2\n", b"-1\n", b"one\n", b"\xff" * 40, b"0" * 100_000, b"0"]


def test_a_member_that_arrives_twice_counts_once_and_processes_that_are_no_members_change_nothing(
    waiting: ThreadPoolExecutor,
) -> None:
    with coordination(2) as (_, address), ExitStack() as strangers:
        one, first = arrive(waiting, address, 0)
        assert still_waits(first)
        _, again = arrive(waiting, address, 0)
        host, _, port = address.rpartition(":")
        for said in NONSENSE:
            stranger = strangers.enter_context(socket.create_connection((host, int(port)), 5))
            stranger.sendall(said)
        assert still_waits(first)
        assert not again.done()
        one.leave()
        _, second = arrive(waiting, address, 1)
        assert again.result(10) == second.result(10)


async def test_nonsense_from_strangers_raises_no_error_in_the_process() -> None:
    troubles: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: troubles.append(context))
    server = await asyncio.start_server(Rendezvous(2, 1).come, "127.0.0.1", 0, limit=LONGEST)
    for said in NONSENSE:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(said)
        writer.write_eof()
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
    server.close()
    assert not troubles


@pytest.mark.parametrize("dies", ["before", "while it waits"])
def test_when_the_service_dies_a_member_waits_for_the_next_epoch(waiting: ThreadPoolExecutor, dies: str) -> None:
    with coordination(2) as (service, address):
        if dies == "before":
            service.end(kill=True)
        one, first = arrive(waiting, address, 0)
        if dies != "before":
            assert still_waits(first)
            service.end(kill=True)
        assert still_waits(first)
        one.leave()
        with pytest.raises(Overtaken):
            first.result(1)


def test_a_wait_is_bounded(waiting: ThreadPoolExecutor) -> None:
    with coordination(2) as (service, address):
        _, first = arrive(waiting, address, 0, patience=0.5)
        with pytest.raises(TimeoutError, match=r"not all members of the world at .* arrived within 0.5 s"):
            first.result(5)
        service.end(kill=True)
        _, second = arrive(waiting, address, 0, patience=0.5)
        with pytest.raises(
            ConnectionError, match=f"{address}, a child of the controller, cannot be reached: .*refused"
        ):
            second.result(5)


def test_a_member_that_leaves_before_it_waits_does_not_wait(waiting: ThreadPoolExecutor) -> None:
    arrival = RendezvousMember("127.0.0.1:1", 0)
    arrival.leave()
    with pytest.raises(Overtaken):
        waiting.submit(arrival.wait, 20).result(5)
