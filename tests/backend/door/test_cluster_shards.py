"""Arrays made of shards, and shards that are used alone, in an unmodified JAX program on two hosts of four devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.bench.door.shards import calls_of
from experiments.bench.frame.door_server import Served, on_cluster

from .jax_programs import held, program, until
from .programs import output, python

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
    return [alone(jax.device_put(np.full(size, at + fill - 1, np.float32), device)) for at, device in enumerate(devices)]

def made(arrays, sharding=rows):
    return jax.make_array_from_single_device_arrays((8 * len(arrays[0]),), sharding, arrays)

def firsts(x):
    return np.asarray(x).reshape(8, -1)[:, 0].tolist()

def says(*words):
    print(*words, flush=True)
"""

WORKS = BEGIN + """
x = made(parts())
says("made", firsts(x), float(total(x)))

sources = parts()
x = made(sources)
del sources
says("dropped sources", firsts(double(x)))

sources = parts()
x = made(sources)
for each in sources[:4]:
    each.delete()
says("deleted sources", firsts(x), firsts(double(x)))

sources = parts()
x = made(sources)
x.delete()
says("deleted view", [float(each[0]) for each in sources], firsts(made(sources)))

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
y = takes(x)
says("shards of what is donated", firsts(y))

x = double(made(parts()))
shards = [each.data for each in x.addressable_shards]
ones = [alone(each) for each in shards]
y = takes(x)
says("shards that were used, of what is donated", firsts(y), [float(alone(each)[0]) for each in shards])

x = double(made(parts()))
shards = [each.data for each in x.addressable_shards]
y = made(shards[::-1], back)
z = takes(y)
says("in another order", y.is_deleted(), firsts(z), firsts(x))

x = made(parts())
for _ in range(5):
    x = made([alone(each.data) for each in x.addressable_shards])
says("again and again", firsts(x))

scalars = jax.pmap(lambda x: jax.lax.psum(x, "i") + x, "i")(np.arange(8.0, dtype=np.float32))
says("numbers", [float(alone(each.data).ravel()[0]) for each in scalars.addressable_shards])

same = jax.device_put(np.arange(4096, dtype=np.float32), NamedSharding(rows.mesh, P()))
same = double(same)
says("copies", float(alone(same.addressable_shards[5].data)[1]))
again = jax.make_array_from_single_device_arrays(same.shape, same.sharding, [each.data for each in same.addressable_shards])
says("copies as one", float(takes(again)[3]))
empty = double(jax.device_put(np.zeros((8, 0), np.float32), rows))
says("empty", alone(empty.addressable_shards[2].data).shape)
"""
SAYS = """
made [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0] 57344.0
dropped sources [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]
deleted sources [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0] [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]
deleted view [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0] [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
donated view [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0] True
donated sources [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0] [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]
shards of what is donated [0.0, 4.0, 8.0, 12.0, 16.0, 20.0, 24.0, 28.0]
shards that were used, of what is donated [0.0, 4.0, 8.0, 12.0, 16.0, 20.0, 24.0, 28.0] [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0]
in another order True [28.0, 24.0, 20.0, 16.0, 12.0, 8.0, 4.0, 0.0] [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]
again and again [5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0]
numbers [29.0, 30.0, 31.0, 32.0, 33.0, 34.0, 35.0, 36.0]
copies 3.0
copies as one 12.0
empty (1, 0)
""".strip()

NO_CONTENTS = BEGIN + """
x = double(made([alone(each.data) for each in double(jax.device_put(np.ones(16384, np.float32), rows)).addressable_shards]))
x.block_until_ready()
says("begun")
for _ in range(4):
    x = made([alone(each.data) for each in x.addressable_shards])
x.block_until_ready()
says(float(total(x)))
"""

MANY = BEGIN + """
import time
step = jax.jit(lambda *xs: [x + 1 for x in xs])
def parameters(count):
    xs = [jax.device_put(np.zeros(8192, np.float32), rows) for _ in range(count)]
    return [[each.data for each in x.addressable_shards] for x in step(*xs)]
for count in (10, 1000, 1000):
    given = parameters(count)
    jax.block_until_ready(given)
    begun = time.perf_counter()
    xs = jax.block_until_ready([made(shards, rows) for shards in given])
    says(count, time.perf_counter() - begun, len({id(x) for x in xs}))
"""

LOST = BEGIN + """
x, y = made(parts()), jax.device_put(np.arange(4096, dtype=np.float32), devices[0])
shards = [each.data for each in double(x).addressable_shards]
ones = [alone(each) for each in shards]
jax.block_until_ready([x, *ones])
says("begun")
while True:
    try:
        jax.block_until_ready(double(x))
    except jax.errors.JaxRuntimeError as error:
        says(error)
        break
for each in (x, shards[7]):
    try:
        jax.block_until_ready(alone(each))
        says("nothing is lost")
    except jax.errors.JaxRuntimeError as error:
        says(error)
sys.stdin.readline()
x = made(parts(3))
says("again", firsts(double(x)))
"""


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with on_cluster() as found:
        yield found


def test_arrays_of_shards_live_and_die_by_themselves(served: Served) -> None:
    assert output(python("-c", WORKS, env=served.door.env)).strip() == SAYS
    nothing = dict.fromkeys(held(served.cluster), 0)
    until(lambda: held(served.cluster) == nothing, lambda: held(served.cluster))
