"""Laws of the client library, on drawn programs: a program computes what Python would, on whatever slices, and both
fidelities of the simulator play it alike."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec

import seaway as sw
from tests.seaway.small_sessions import small

P: Any = PartitionSpec  # which has no types

SLICES = [sw.slice(devices=1), sw.slice(devices=4, name="four"), sw.slice(mesh={"a": 2, "b": 2}), sw.slice(devices=2)]
SPECS = [P(), P("x"), P("b", "a"), P(None, "x")]
SHAPE = (4, 8)
NAMES = ("add", "scale", "both")


def computation(name: str, where: int, out: bool) -> Any:
    home, spec = SLICES[where], SPECS[where]
    functions: dict[str, Any] = {
        "add": lambda x, y: x + y,
        "scale": lambda x: x * 2 - 1,
        "both": lambda x, y: (x - y, y * 3),
    }
    return sw.jit(functions[name], devices=home, name=name, in_shardings=spec, out_shardings=spec if out else None)


COMPUTATIONS = {
    (name, where, out): computation(name, where, out) for name in NAMES for where in range(4) for out in (False, True)
}
step = st.tuples(st.sampled_from(sorted(COMPUTATIONS)), st.integers(0, 99), st.integers(0, 99))
programs = st.lists(step, min_size=1, max_size=7)


def run_steps(steps: list[Any], values: list[Any], call: Any) -> list[Any]:
    """Run the steps. Each step reads two of the values so far, and adds its own."""
    values = list(values)
    for key, first, second in steps:
        args = [values[first % len(values)], values[second % len(values)]]
        made = call(key, args[:1] if key[0] == "scale" else args)
        values += made if isinstance(made, tuple) else [made]
    return values


def by_numpy(key: Any, args: list[Any]) -> Any:
    if key[0] == "scale":
        return args[0] * 2 - 1
    x, y = args
    return x + y if key[0] == "add" else (x - y, y * 3)


def by_seaway(key: Any, args: list[Any]) -> Any:
    return COMPUTATIONS[key](*args)


def inputs() -> list[Any]:
    return [np.arange(32, dtype=np.float32).reshape(SHAPE), np.float32(2) * np.ones(SHAPE, np.float32)]


@settings(max_examples=25)
@given(programs)
def test_a_program_computes_what_python_would(steps: list[Any]) -> None:
    wanted = run_steps(steps, inputs(), by_numpy)
    traced = sw.program(lambda *values: tuple(run_steps(steps, list(values), by_seaway)), name="drawn")
    with small(values="compute"):
        placed = [sw.put(value, devices=SLICES[1]) for value in inputs()]
        found = sw.get(traced(*placed))
    assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


@settings(max_examples=25)
@given(programs)
def test_a_program_is_the_calls_that_it_was_traced_from(steps: list[Any]) -> None:
    with small(values="compute"):
        found = sw.get(run_steps(steps, inputs(), by_seaway))
    assert all(np.array_equal(a, b) for a, b in zip(found, run_steps(steps, inputs(), by_numpy), strict=True))


@settings(max_examples=10)
@given(programs, st.integers(1, 3), st.sampled_from(["fifo", "stride", "round_robin"]))
def test_both_fidelities_simulate_clients_identically(steps: list[Any], clients: int, policy: str) -> None:
    traced = sw.program(lambda *values: tuple(run_steps(steps, list(values), by_seaway)), name="drawn")

    def work(pause: int) -> None:
        made = traced(*inputs())
        sw.sleep(f"{10 * pause}us")
        sw.block_until_ready(made)
        sw.block_until_ready(run_steps(steps, inputs(), by_seaway))

    def gangs(fidelity: Any) -> list[tuple[int, ...]]:
        with small(hosts=4, fidelity=fidelity, policy=policy, noise={"latency": "3us"}, seed=5) as s:
            for number in range(clients):
                s.spawn(work, number, name=f"c{number}", weight=number + 1)
        rows = s.trace.core.rows("gangs")
        return [(row["seq"], row["run"], row["entered"], row["started"], row["ended"]) for row in rows]

    assert gangs("cohort") == gangs("exact")
