"""Code for hosts: exported here, for devices that this process does not have, and run there."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import PartitionSpec

import seaway as sw
from backend.node.calls import CallError
from backend.wire.call_messages import StepTimes
from seaway.api import routing
from seaway.api.computation import Computation
from seaway.api.routing import _Plan
from seaway.graph.signature import Signature
from seaway.sessions.connected.driver import RealDriver
from seaway.sessions.connected.exported_code import ExportedCode, code_of
from seaway.sessions.connected.pricing import ConnectedPricing
from seaway.specs import avals

ROOT = Path(__file__).parents[3]
P: Any = PartitionSpec
psum: Any = jax.lax.psum
FOUR = sw.slice(mesh={"data": 4})

RUN = """
import sys
import jax
import numpy as np
from jax import export
from jax.sharding import AxisType, Mesh

mesh = Mesh(jax.devices(), ("data",), axis_types=(AxisType.Auto,))
for path in sys.argv[1:]:
    code = export.deserialize(bytearray(open(path, "rb").read()))
    args = [
        jax.device_put(np.arange(aval.size, dtype=aval.dtype).reshape(aval.shape), sharding)
        for aval, sharding in zip(code.in_avals, code.in_shardings_jax(mesh))
    ]
    for out in jax.jit(code.call)(*args):
        print(np.asarray(out).tolist(), [shard.data.shape for shard in out.addressable_shards])
"""


def signature(computation: Computation[Any], *args: object) -> Signature:
    return computation.match(args, {})[0]


def exported(computation: Computation[Any], *args: object) -> Any:
    return export.deserialize(bytearray(code_of(signature(computation, *args), ("cpu",)).blob))


def on_four_devices(folder: Path, *codes: ExportedCode) -> list[str]:
    paths = [folder / f"code{number}" for number in range(len(codes))]
    for path, code in zip(paths, codes, strict=True):
        path.write_bytes(code.blob)
    env = {key: word for key, word in os.environ.items() if not key.lower().endswith("_proxy")}
    env |= {"JAX_PLATFORMS": "cpu", "NPROC": "8", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = subprocess.run(
        [sys.executable, "-c", RUN, *map(str, paths)], env=env, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_sum_and_a_pmap_over_devices_that_the_client_does_not_have_run_on_them(tmp_path: Path) -> None:
    @sw.jit(devices=FOUR, in_shardings=P("data"), out_shardings=(P("data"), None))
    def step(x):  # type: ignore[no-untyped-def]
        return x - x.mean(0), x.sum()

    code = code_of(signature(step, np.zeros((8, 1), np.float32)), ("cpu",))
    assert code.name == sha256(code.blob).hexdigest()
    mapped = sw.pmap(lambda x: x + psum(x, "all"), "all", devices=FOUR)
    other = code_of(signature(mapped, np.zeros(4, np.float32)), ("cpu",))
    centred, total, added = on_four_devices(tmp_path, code, other)
    assert centred == f"{[[number - 3.5] for number in range(8)]} {[(2, 1)] * 4}"
    assert total == f"28.0 {[()] * 4}"
    assert added == f"[6.0, 7.0, 8.0, 9.0] {[(1,)] * 4}"


def test_exported_code_has_the_inputs_and_outputs_of_the_signature() -> None:
    @sw.jit(devices=FOUR, in_shardings=(P(None, "data"), None), out_shardings=P("data"))
    def step(x, scale):  # type: ignore[no-untyped-def]
        return {"b": (x * scale).T, "a": jax.random.split(jax.random.key(0), 4)}

    found = exported(step, np.zeros((2, 4), np.float32), 2.0)
    mesh = FOUR.mesh
    assert found.nr_devices == 4
    assert [each.spec for each in found.in_shardings_jax(mesh)] == [P(None, "data"), P()]
    assert [(aval.shape, aval.dtype.name) for aval in found.out_avals] == [((4,), "key<fry>"), ((4, 2), "float32")]
    assert [each.spec for each in found.out_shardings_jax(mesh)] == [P("data"), P("data", None)]


def test_a_python_number_takes_its_type_from_the_other_operand() -> None:
    found = exported(sw.jit(lambda x, y: x * y, devices=1), 2.0, jnp.ones(3, jnp.bfloat16))
    assert [aval.dtype.name for aval in found.out_avals] == ["bfloat16"]


def test_one_code_serves_all_platforms_of_a_session() -> None:
    made = signature(sw.jit(lambda x: x + 1, devices=1), 1.0)
    blob = code_of(made, ("cpu", "cuda", "tpu")).blob
    assert export.deserialize(bytearray(blob)).platforms == ("cpu", "cuda", "tpu")


def test_code_is_exported_once() -> None:
    made = signature(sw.jit(lambda x: x + 1, devices=1), 1.0)
    assert code_of(made, ("cpu",)) is code_of(made, ("cpu",))


def test_a_function_that_cannot_be_exported_is_named() -> None:
    def chatty(x):  # type: ignore[no-untyped-def]
        jax.debug.print("{}", x)
        return x

    with pytest.raises(NotImplementedError) as caught:
        code_of(signature(sw.jit(chatty, devices=1), 1.0), ("cpu",))
    assert "while computation 'chatty' on Slice(x=1) was exported for cpu" in caught.value.__notes__


def test_a_synthetic_computation_has_no_code() -> None:
    made = signature(sw.synthetic("idle", devices=1, duration="1ms"), 1.0)
    with pytest.raises(TypeError, match="'idle' is only its cost, with nothing to compute, so no cpu device can run"):
        code_of(made, ("cpu",))


class CodeStore(dict[str, bytes]):
    def keep(self, code: ExportedCode) -> None:
        self[code.name] = code.blob


def test_the_controller_is_told_the_hash_of_the_code_and_its_cost() -> None:
    store = CodeStore()
    price = ConnectedPricing(("cpu",), store.keep)
    stated = price(signature(sw.jit(lambda x: x, devices=2, cost="3ms", name="stated"), 1.0))
    worked_out = price(signature(sw.jit(lambda x: x @ x, devices=1), np.zeros((512, 512), np.float32)))
    assert (stated.name, stated.cost, stated.key) == ("stated", 3_000_000, stated.code)
    assert worked_out.cost == round(2 * 512**3 / 2e10 * 1e9)
    assert list(store) == [stated.code, worked_out.code]
    assert [row["source"] for row in price.table()] == ["stated", "estimate"]


def test_a_recorded_time_replaces_an_estimate_but_not_a_stated_time() -> None:
    seen = {"f": (5, 777_000), "g": (5, 777_000), "rare": (1, 5)}
    price = ConnectedPricing(("cpu",), CodeStore().keep, lambda: seen)
    costs = [
        price(signature(sw.jit(lambda x: x + 1, devices=1, name=name, cost=cost), 1.0)).cost
        for name, cost in (("f", None), ("g", "2ms"), ("rare", None))
    ]
    assert costs == [777_000, 2_000_000, 1_000]


def test_a_connected_session_asks_for_recorded_times_now_and_then() -> None:
    class Remote:
        """A driver, as far as recorded times are concerned: its loop and the controller's process are this object."""

        def __init__(self) -> None:
            self._loop = self._head = self
            self._seen: Any = {}
            self._seen_until = 0.0
            self.asked = 0
            self.wrong = False

        def ask(self, request: Any, timeout: float) -> StepTimes:
            self.asked += 1
            if self.wrong:
                raise CallError("it has other things to do")
            return StepTimes({"f": (5, self.asked)})

        def do(self, work: Any) -> Any:
            return work

    driver: Any = Remote()
    assert [RealDriver.recorded(driver) for _ in range(3)] == [{"f": (5, 1)}] * 3
    driver._seen_until, driver.wrong = 0.0, True
    assert RealDriver.recorded(driver) == {"f": (5, 1)}  # recent times are used as they are
    assert driver.asked == 2


def test_timed_devices_need_no_code() -> None:
    store = CodeStore()
    made = ConnectedPricing(("timed",), store.keep)(signature(sw.synthetic("idle", devices=1, duration="1ms"), 1.0))
    assert (made.cost, made.code, store) == (1_000_000, "", {})


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [("float32", (6, 3)), ("bfloat16", (6, 3)), ("bool", (6, 5)), ("int8", (6,)), ("complex64", (6, 2)),
     ("int16", (6, 1, 3)), ("float8_e4m3fn", (6, 3))],
)  # fmt: skip
def test_rows_of_any_type_arrive_bit_by_bit(dtype: str, shape: tuple[int, ...]) -> None:
    draw = np.random.default_rng(0)
    x = (draw.normal(size=shape) * 5).astype(jnp.dtype(dtype))
    number, dest = np.arange(6, dtype=np.int32), np.array([1, 0, -1, 1, 0, 1], np.int32)
    looks = [avals.of(each) for each in (x, number, dest)]
    plan = _Plan("rows", tuple(looks[:2]), looks[2], sw.slice(2), sw.slice(2), 12)  # type: ignore[arg-type]
    arrived = plan._exchange(jax.jit(routing.pack)(x, number, dest))
    rows, numbers, source = map(np.asarray, jax.jit(routing.unpacker(plan.y))(arrived))
    for shard in range(2):
        mine = np.flatnonzero(dest == shard)
        here = slice(6 * shard, 6 * shard + len(mine))
        np.testing.assert_array_equal(rows[here], x[mine])
        np.testing.assert_array_equal(numbers[here], mine)
        np.testing.assert_array_equal(source[6 * shard : 6 * shard + 6], [*mine, *[-1] * (6 - len(mine))])


def test_the_code_of_an_irregular_computation_returns_arrays_of_the_bound_and_a_count() -> None:
    def above(x):  # type: ignore[no-untyped-def]
        return jnp.sort(x)[::-1], (x > 2).sum()

    for bound in (4, 8, 12):
        made = sw.jit(above, devices=FOUR, irregular=True, max_shape=(bound,))
        found = exported(made, np.zeros(8, np.float32))
        assert [(aval.shape, aval.dtype.name) for aval in found.out_avals] == [((bound,), "float32"), ((), "int32")]
