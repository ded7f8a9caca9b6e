"""Arrays made of shards, and shards that are used alone, in an unmodified JAX program on two hosts of four devices."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from backend.server import eventlogs
from core.protocol import Calls, Get, MessageReceived, Put, Submit, View
from experiments.bench.frame.door_server import Served, on_cluster

from ..jax_programs import await_nothing_held, program
from ..program_runs import output, python

BEGIN = """
import sys
import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
devices = jax.devices()
rows = NamedSharding(jax.sharding.Mesh(np.array(devices), "x"), P("x"))
back = NamedSharding(jax.sharding.Mesh(np.array(devices[::-1]), "x"), P("x"))
alone = jax.jit(lambda x: x + 1)
double = jax.jit(lambda x: 2 * x)
takes = jax.jit(lambda x: 2 * x, donate_argnums=0)
total = jax.jit(lambda x: x.sum())

def parts(fill=0, size=2048):
    filled = [np.full(size, at + fill - 1, np.float32) for at in range(8)]
    return [alone(jax.device_put(*each)) for each in zip(filled, devices)]

def made(arrays, sharding=rows):
    return jax.make_array_from_single_device_arrays((8 * len(arrays[0]),), sharding, arrays)

def firsts(x):
    return np.asarray(x).reshape(8, -1)[:, 0].tolist()

def says(*words):
    print(*words, flush=True)
"""

WORKS = (
    BEGIN
    + """
x = made(parts())
says("made", firsts(x), float(total(x)))

sources = parts()
x = made(sources)
for each in sources[:4]:
    each.delete()
says("deleted sources", firsts(x), firsts(double(x)))

sources = parts()
x = made(sources)
y = takes(x)
says("donated view", firsts(y), [float(alone(each)[0]) for each in sources], x.is_deleted())

sources = parts()
x = made(sources)
ys = [takes(each) for each in sources]
says("donated sources", firsts(x), firsts(made(ys)))

x = double(made(parts()))
shards = [each.data for each in x.addressable_shards]
ones = [alone(each) for each in shards]
y = takes(x)
says("used shards of what is donated", firsts(y), [float(alone(each)[0]) for each in shards])

x = double(made(parts()))
shards = [each.data for each in x.addressable_shards]
y = made(shards[::-1], back)
z = takes(y)
says("in another order", y.is_deleted(), firsts(z), firsts(x))

scalars = jax.pmap(lambda x: jax.lax.psum(x, "i") + x, "i")(np.arange(8.0, dtype=np.float32))
says("numbers", [float(alone(each.data).ravel()[0]) for each in scalars.addressable_shards])

same = jax.device_put(np.arange(4096, dtype=np.float32), NamedSharding(rows.mesh, P()))
same = double(same)
says("copies", float(alone(same.addressable_shards[5].data)[1]))
shards = [each.data for each in same.addressable_shards]
again = jax.make_array_from_single_device_arrays(same.shape, same.sharding, shards)
says("copies as one", float(takes(again)[3]))
empty = double(jax.device_put(np.zeros((8, 0), np.float32), rows))
says("empty", alone(empty.addressable_shards[2].data).shape)
"""
)
SAYS = """
made [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0] 57344.0
deleted sources [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0] [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]
donated view [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0] True
donated sources [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0] [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]
used shards of what is donated [0.0, 4.0, 8.0, 12.0, 16.0, 20.0, 24.0, 28.0] [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0]
in another order True [28.0, 24.0, 20.0, 16.0, 12.0, 8.0, 4.0, 0.0] [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]
numbers [29.0, 30.0, 31.0, 32.0, 33.0, 34.0, 35.0, 36.0]
copies 3.0
copies as one 12.0
empty (8, 0)
""".strip()

NO_CONTENTS = (
    BEGIN
    + """
x = double(jax.device_put(np.ones(16384, np.float32), rows))
x = double(made([alone(each.data) for each in x.addressable_shards]))
x.block_until_ready()
for _ in range(4):
    x = made([alone(each.data) for each in x.addressable_shards])
x.block_until_ready()
says(float(total(x)))
"""
)

MANY = (
    BEGIN
    + """
@jax.jit
def step(*xs):
    return [x + 1 for x in xs]

zero = jax.device_put(np.zeros(8192, np.float32), rows)
given = [[each.data for each in x.addressable_shards][::-1] for x in step(*[zero] * 1000)]
jax.block_until_ready(given)
xs = jax.block_until_ready([made(shards, back) for shards in given])
says(firsts(xs[999]), len(xs))
"""
)

LOST = (
    BEGIN
    + """
x, y = made(parts()), jax.device_put(np.arange(4096, dtype=np.float32), devices[0])
shards = [each.data for each in double(x).addressable_shards]
ones = [alone(each) for each in shards]
jax.block_until_ready([x, *ones])
says("begun")
while True:
    try:
        jax.block_until_ready(double(x))
    except jax.errors.JaxRuntimeError as error:
        says(str(error).splitlines()[0])
        break
for work, lost in ((double, x), (alone, shards[7])):
    try:
        jax.block_until_ready(work(lost))
        says("nothing is lost")
    except jax.errors.JaxRuntimeError as error:
        says(str(error).splitlines()[0])
sys.stdin.readline()
x = made(parts(3))
says("again", firsts(double(x)))
"""
)


COUNTED: dict[type, str] = {Submit: "runs", View: "views", Get: "gets", Put: "puts"}


class Recorded:
    """A cluster with a door, and what all programs have asked it for so far."""

    def __init__(self, served: Served, log: Path) -> None:
        self.served, self._log = served, log

    def asked(self) -> Counter[str]:
        """The log is written twice a second."""
        return Counter(COUNTED[type(call)] for calls in self._calls() for call in calls if type(call) in COUNTED)

    def messages(self) -> int:
        """Those of clients that have a view, which may be one of several."""
        return sum(any(isinstance(call, View) for call in calls) for calls in self._calls())

    def _calls(self) -> Iterator[Sequence[object]]:
        """The calls in each message that the controller got."""
        for entry in eventlogs.read(self._log, partial=True).entries:
            if isinstance(entry.event, MessageReceived):
                message = entry.event.message
                yield message.calls if isinstance(message, Calls) else (message,)

    def run(self, code: str) -> tuple[str, Counter[str]]:
        """What a program prints, and what it asked for."""
        before = self.asked()
        said = output(python("-c", code, env=self.served.door.env)).strip()
        await_nothing_held(self.served.cluster)
        time.sleep(2 * eventlogs.EVERY)
        return said, self.asked() - before


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    log = tmp_path_factory.mktemp("shards")
    with on_cluster(controller=["--record", str(log)]) as served:
        yield Recorded(served, log / "ev.1")


def test_arrays_of_shards_live_and_die_by_themselves(recorded: Recorded) -> None:
    said, _ = recorded.run(WORKS)
    assert said == SAYS


def test_no_contents_are_moved_by_what_is_made_of_shards_and_computed_with_them(recorded: Recorded) -> None:
    """One array is put, and one number is read."""
    said, asked = recorded.run(NO_CONTENTS)
    assert float(said) == 16384 * 10
    assert (asked["puts"], asked["gets"], asked["views"]) == (1, 1, 8 + 1 + 4 * (8 + 1))


def test_a_thousand_arrays_that_are_made_at_once_share_messages(recorded: Recorded) -> None:
    before = recorded.messages()
    said, asked = recorded.run(MANY)
    assert said == "[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0] 1000"
    assert asked["views"] == 1000
    assert recorded.messages() - before < 1000


@pytest.mark.full
def test_what_shares_the_memory_of_a_lost_host_is_lost_by_name_and_the_session_goes_on() -> None:
    with on_cluster(controller=["--lease", "3"]) as served, program(LOST, served.door.env) as found:
        found.until("begun")
        served.cluster.agents[1].process.kill()
        for _ in range(3):
            said = found.line()
            assert said.startswith("DATA_LOSS: [host-lost] host 1 of island"), said
        served.cluster.again(1)
        found.go_on()
        assert found.until("again") == "again [6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0]"
