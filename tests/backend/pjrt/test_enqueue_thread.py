"""The thread that enqueues reads the controller's stream while it has nothing to do, and never stands in its way."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager

import pytest

from backend.pjrt.worker_thread import WorkerThread
from backend.streams import LentReading
from backend.streams.lent_reading import LONG
from tests.backend.cluster import wait_until
from tests.backend.streams.rig import PATIENCE, End, packet, pair, say

BLOCKED = 10 * LONG / 1e9  # seconds


class Host:
    """An enqueueing thread, a node's lock, and the end of a stream that the thread may read. What comes is taken as a
    node takes it; `threads` tells which thread took each frame."""

    def __init__(self, here: End) -> None:
        self.here, self.lock = here, threading.RLock()
        self.errors: list[BaseException] = []
        self.looks = 0
        self.threads: list[int] = []
        self.done: list[int] = []
        self.line = WorkerThread("enqueue", self.errors.append)
        self.between: Callable[[], float | None] = lambda: None
        self.lent = LentReading(asyncio.get_running_loop(), self.lock, self._looked)
        self.line.reads(self.lent, lambda: self.between())
        self.take: Callable[[bytes], None] = lambda message: None
        here.connection.start(self._arrived)
        self.lent.offer(here.connection)

    def _looked(self) -> None:
        self.looks += 1

    def _arrived(self) -> None:
        with self.lock:
            while (frame := self.here.connection.next()) is not None:
                self.threads.append(threading.get_ident())
                self.here.frames.append(frame)
                self.take(frame.message)

    def take_one_at_a_time(self) -> None:
        """As a node whose slice is over after each frame."""
        with self.lock:
            if (frame := self.here.connection.next()) is not None:
                self.here.frames.append(frame)
                self.take(frame.message)
                self.here.connection.rest_for_others()

    async def got(self, count: int) -> None:
        await wait_until(lambda: len(self.here.frames) >= count)
        assert len(self.here.frames) == count


@asynccontextmanager
async def a_host() -> AsyncIterator[tuple[Host, End]]:
    """A host, and the other end of its stream."""
    here, there = pair()
    there.start()
    host = Host(here)
    try:
        yield host, there
        assert host.errors == []
    finally:
        here.close()
        there.close()
        assert await asyncio.to_thread(host.line.end)
        await here.over()  # a stream that the thread reads just now is closed later: the loop has to live until then


# --- who reads --------------------------------------------------------------------------------------------------------


async def test_what_comes_while_there_is_no_work_is_taken_by_the_thread() -> None:
    async with a_host() as (host, there):
        for number in range(3):
            say(there, packet(b"message"))
            await host.got(number + 1)
        assert set(host.threads) == {host.line.ident}


async def test_what_a_message_causes_is_done_by_the_thread_that_took_it_after_the_node_has_decided() -> None:
    async with a_host() as (host, there):
        order: list[str] = []

        def take(message: bytes) -> None:
            host.line.do(lambda: order.append(f"done {threading.get_ident() == host.line.ident}"))
            order.append("decided")

        host.take = take
        say(there, packet(b"one"), packet(b"two"))
        await wait_until(lambda: len(order) == 4)
        assert order == ["decided", "decided", "done True", "done True"]


async def test_the_loop_reads_while_one_piece_of_work_takes_long_and_the_thread_again_after_it() -> None:
    async with a_host() as (host, there):
        begun, go_on = threading.Event(), threading.Event()

        def long() -> None:
            begun.set()
            go_on.wait(PATIENCE)

        host.line.do(long)
        await wait_until(begun.is_set)  # until then the thread may read this itself
        say(there, packet(b"abandon"))
        await host.got(1)
        assert host.threads == [threading.get_ident()]
        assert host.looks
        go_on.set()
        await wait_until(lambda: host.lent.fileno() >= 0)
        say(there, packet(b"more"))
        await host.got(2)
        assert host.threads[1] == host.line.ident


async def test_a_thread_with_much_short_work_reads_in_between() -> None:
    async with a_host() as (host, there):
        over = threading.Event()

        def again() -> None:
            time.sleep(0.0005)
            if not over.is_set():
                host.line.do(again)

        again()
        say(there, packet(b"message"))
        await host.got(1)
        over.set()


async def test_nobody_looks_while_the_thread_has_nothing_to_do() -> None:
    async with a_host() as (host, _):
        host.line.do(time.sleep, 0.02)
        await wait_until(lambda: host.looks > 1)
        await wait_until(lambda: not host.lent._looks)
        before = host.looks
        await asyncio.sleep(0.05)
        assert host.looks == before


@pytest.mark.parametrize("seed", range(3))
async def test_while_reading_changes_hands_every_frame_is_taken_once_and_in_order(seed: int) -> None:
    async with a_host() as (host, there):
        chance = random.Random(seed)
        sent = [packet(b"%d" % number, chance.randbytes(chance.choice([0, 0, 100_000]))) for number in range(300)]
        for each in sent:
            say(there, each)
            if chance.random() < 0.1:
                host.line.do(time.sleep, chance.choice([0.001, 0.004, 0.01, 0.02]))
            if chance.random() < 0.2:
                await asyncio.sleep(chance.choice([0, 0.001, 0.006]))
        await wait_until(lambda: len(host.here.frames) >= 300)
        assert host.here.frames == sent
        assert len(set(host.threads)) == 2


async def test_frames_beyond_a_slice_are_taken_without_waiting_for_others_to_come() -> None:
    async with a_host() as (host, there):
        await wait_until(lambda: host.lent.fileno() >= 0)
        host.here.connection._arrived = host.take_one_at_a_time
        say(there, *(packet(b"%d" % number) for number in range(50)))
        await host.got(50)


@pytest.mark.parametrize("attempt", range(6))
async def test_a_stream_that_ends_while_frames_are_left_is_let_go(attempt: int) -> None:
    """The thread, which has the reading while the loop asks for it, must not read on at once for ever."""
    async with a_host() as (host, there):
        await wait_until(lambda: host.lent.fileno() >= 0)
        host.here.connection._arrived = host.take_one_at_a_time
        host.take = lambda message: there.connection._sock.shutdown(socket.SHUT_WR) if message == b"0" else None
        say(there, *(packet(b"%d" % number) for number in range(50)))
        await wait_until(host.here.connection.over.is_set)


# --- the node's lock --------------------------------------------------------------------------------------------------


async def test_who_has_the_node_may_wait_for_work_of_the_thread() -> None:
    async with a_host() as (host, there):

        def ask() -> int:
            with host.lock:
                say(there, packet(b"message"))  # so that the thread wants the node, too
                time.sleep(0.02)
                return host.line.ask(lambda: 7)

        async with asyncio.timeout(PATIENCE):
            assert await asyncio.to_thread(ask) == 7
        await host.got(1)


async def test_a_node_that_decides_in_the_thread_may_ask_for_work_behind_what_it_has_decided() -> None:
    async with a_host() as (host, there):
        found: list[int] = []

        def take(message: bytes) -> None:
            host.line.do(found.append, 1)
            host.line.ask(found.append, 2)

        host.take = take
        say(there, packet(b"message"))
        await wait_until(lambda: len(found) == 2)
        assert found == [1, 2]


# --- between pieces of work -------------------------------------------------------------------------------------------


async def test_what_the_thread_wants_to_tell_later_is_told_although_nothing_comes() -> None:
    async with a_host() as (host, _):
        told: Future[float] = Future()
        due = time.monotonic() + 0.03

        def between() -> float | None:
            left = due - time.monotonic()
            if left > 0:
                return left
            if not told.done():
                told.set_result(time.monotonic())
            return None

        host.between = between
        host.line.do(lambda: None)
        assert await asyncio.wait_for(asyncio.wrap_future(told), PATIENCE) >= due


async def test_an_unexpected_error_is_told_and_the_thread_goes_on() -> None:
    async with a_host() as (host, _):

        def fail() -> None:
            raise ZeroDivisionError("as a test wants it")

        host.line.do(fail)
        assert await asyncio.to_thread(host.line.ask, lambda: 7) == 7
        assert [type(error) for error in host.errors] == [ZeroDivisionError]
        host.errors.clear()


# --- ends -------------------------------------------------------------------------------------------------------------


async def test_a_stream_that_the_other_end_closes_ends_while_it_is_lent() -> None:
    async with a_host() as (host, there):
        await wait_until(lambda: host.lent.fileno() >= 0)
        there.close()
        assert await host.here.over() == "the other end has closed the connection"
        assert host.lent.fileno() == -1


@pytest.mark.parametrize("busy", [False, True])
async def test_a_stream_is_closed_while_it_is_lent(busy: bool) -> None:
    async with a_host() as (host, there):
        await wait_until(lambda: host.lent.fileno() >= 0)
        await asyncio.sleep(BLOCKED)  # by now the thread waits for the stream in poll
        if busy:
            host.line.do(time.sleep, BLOCKED)
        host.here.connection.close("no longer wanted")
        assert await host.here.over() == "no longer wanted"
        await there.over()


async def test_a_stream_is_not_closed_while_the_thread_reads_it() -> None:
    async with a_host() as (host, there):
        taking, go_on = threading.Event(), threading.Event()

        def take(message: bytes) -> None:
            taking.set()
            go_on.wait(PATIENCE)

        host.take = take
        say(there, packet(b"one"), packet(b"two"))
        await asyncio.to_thread(taking.wait, PATIENCE)
        host.here.connection.close("no longer wanted")
        await asyncio.sleep(0.01)
        assert not host.here.connection.over.is_set()
        go_on.set()
        await host.here.over()
        assert [each.message for each in host.here.frames] == [b"one"]  # nothing is taken from a closed stream


async def test_the_next_stream_is_read_instead_of_one_that_was_given_up() -> None:
    async with a_host() as (host, _):
        await wait_until(lambda: host.lent.fileno() >= 0)
        one, other = socket.socketpair()
        first, host.here = host.here, End(one)
        far = End(other)
        far.start()
        host.here.connection.start(host._arrived)
        host.lent.offer(host.here.connection)
        first.close()
        say(far, packet(b"message"))
        await host.got(1)
        assert host.threads == [host.line.ident]
        assert first.connection.over.is_set()
        host.here.close()
        far.close()
        await host.here.over()


async def test_the_loop_may_wait_for_the_thread_though_what_it_puts_wakes_the_thread_behind_the_turn() -> None:
    async with a_host() as (host, _):
        await wait_until(lambda: host.line._asleep)
        assert host.line.ask(threading.get_ident) == host.line.ident
        await wait_until(lambda: host.line._asleep)
        done: list[int] = []
        host.line.do(done.append, 1)
        assert host.line._late
        assert host.line._asleep  # until the loop has done what it does now
        await wait_until(lambda: done == [1])
        await wait_until(lambda: host.line._asleep)
        begun = time.monotonic()
        assert host.line.end()
        assert time.monotonic() - begun < PATIENCE / 2
