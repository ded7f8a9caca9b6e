"""What a node counts: messages and gRPC messages, as they were sent, in another process or in the same one."""

from __future__ import annotations

import numpy as np

import seaway as sw
from backend.node.traffic import Traffic
from core.model.spans import one
from core.protocol.messages import ClientMessages, Done, ForgetStep, FreeStep, Heartbeat, Ordered, Reports
from seaway.tools.calibrating.watching import Watch

HOSTS, CALLS = 2, 7


def ordered(*steps: object) -> Ordered:
    return Ordered(0, 0, 0, 1, one(0), 0, (), (), steps)  # type: ignore[arg-type]


def reports(*found: object) -> Reports:
    return Reports(0, 0, 0, found)  # type: ignore[arg-type]


def test_an_order_counts_once_as_sent_and_for_each_host_as_written() -> None:
    traffic, message = Traffic(), ordered(FreeStep((1,)), ForgetStep())
    for host in range(3):
        traffic.ordered(message, first=host == 0)
    traffic.ordered(ClientMessages(()), first=True)
    assert (traffic.orders, traffic.steps, traffic.said) == (3, 6, 2)


def test_ends_and_their_groups_are_counted() -> None:
    traffic = Traffic()
    done = Done(1, one(0))
    traffic.heard(reports(done, done, done))
    traffic.heard(reports(Heartbeat(one(0), 0)))
    traffic.heard(reports(done))
    traffic.heard(None)
    assert (traffic.ends, traffic.groups) == (4, 2)


def test_the_controller_of_a_session_counts_for_its_hosts() -> None:
    step = sw.synthetic("step", devices=sw.slice(devices=HOSTS), duration="10us")
    with sw.local(hosts=HOSTS, platform="timed") as session:
        x = step(np.zeros(HOSTS, np.float32)).block_until_ready()
        watch = Watch(session)
        watch.begin()
        for _ in range(CALLS):
            x = step(x).block_until_ready()
        sample = watch.end("calls", calls=CALLS)
    said = sample.counts
    assert said["ends"] == HOSTS * CALLS  # one a gang and host
    assert said["groups"] == HOSTS * CALLS  # none waits for another
    assert said["steps"] == HOSTS * said["said"] >= HOSTS * CALLS
    assert said["frames_out"] >= said["writes_out"] >= said["groups"] / HOSTS
    assert said["notes"] >= CALLS
    assert said["near_in"] >= CALLS
    assert sample.wall > 0
    assert sample.cpu["caller"] > 0
    assert sample.cpu["host"] > 0
    assert sample.cpu["enqueue"] == sample.cpu["device"] == 0  # devices that only take time
