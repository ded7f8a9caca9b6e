"""`session.resizes`: what a program of an elastic slice sees, in simulated sessions; the example does it on devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import seaway as sw

workers = sw.slice(devices=(2, 4, 8), name="workers", exclusive=True)
wide = sw.slice(devices=6, name="wide", exclusive=True)
OPTIONS = {"hosts": 2, "devices_per_host": 4, "values": "compute", "config": {"preempt_keep": "1ms"}}


def test_a_program_goes_on_with_each_size_and_its_numbers_are_those_of_one_size() -> None:
    sizes: list[int] = []
    with sw.simulate("B", **OPTIONS) as s:  # type: ignore[arg-type]

        def trains() -> None:
            x: Any = np.arange(16, dtype=np.float32)
            done = 0
            for part in s.resizes(workers):
                sizes.append(part.devices)
                x = sw.put(x, devices=part)
                step = sw.jit(lambda x: x + 1, devices=part)
                while done < 60 and not s.resized(workers):
                    x, done = step(x), done + 1
                    x.block_until_ready()
                if done == 60:
                    break
            assert np.array_equal(np.asarray(x), np.arange(16, dtype=np.float32) + 60)
            s.release(workers)

        def other() -> None:
            sw.sleep("30ms")
            sw.jit(lambda x: x * 2, devices=wide)(np.float32(1)).block_until_ready()
            s.release(wide)

        s.spawn(trains)
        s.spawn(other)
    assert sizes == [8, 2, 8]


def test_another_loop_goes_on_with_what_it_is_and_released_it_is_asked_for_anew() -> None:
    with sw.simulate("B", **OPTIONS) as s:  # type: ignore[arg-type]
        assert next(s.resizes(workers)).devices == 8
        assert not s.resized(workers)
        s.release(workers)
        sw.jit(lambda x: x * 2, devices=wide)(np.float32(1)).block_until_ready()
        assert next(s.resizes(workers)).devices == 2


def test_a_program_that_does_not_move_on_to_more_keeps_nobody_waiting_and_goes_on_with_what_it_has() -> None:
    with sw.simulate("B", **OPTIONS) as s:  # type: ignore[arg-type]
        double = sw.jit(lambda x: x * 2, devices=wide)
        double(np.float32(1)).block_until_ready()
        parts = s.resizes(workers)
        part = next(parts)
        x = sw.put(np.arange(16, dtype=np.float32), devices=part)
        s.release(wide)
        sw.sleep("30ms")
        assert s.resized(workers)
        double(np.float32(1)).block_until_ready()
        assert not s.resized(workers), "it has been taken back"
        s.release(wide)
        sw.sleep("30ms")
        assert s.resized(workers)
        double(np.float32(1)).block_until_ready()
        assert next(s.resizes(workers)) is part
        assert np.array_equal(np.asarray(sw.jit(lambda x: x + 1, devices=part)(x)), np.arange(16) + 1)
        s.release(wide)
        assert next(parts) is not part


def test_a_program_that_leaves_its_body_for_more_that_is_then_taken_back_goes_on_with_what_it_has() -> None:
    with sw.simulate("B", **OPTIONS) as s:  # type: ignore[arg-type]
        double = sw.jit(lambda x: x * 2, devices=wide)
        double(np.float32(1)).block_until_ready()
        parts = s.resizes(workers)
        part = next(parts)
        s.release(wide)
        sw.sleep("30ms")
        assert s.resized(workers)
        double(np.float32(1)).block_until_ready()
        assert next(parts) is part
        assert not s.resized(workers)
        s.release(wide)
        assert next(parts) is not part


ANOTHER = r"this session's slice 'workers' .* asks for .*: release it first, or give one of them another name"


def test_another_slice_of_its_name_is_refused_until_it_is_released() -> None:
    plain, fewer = sw.slice(devices=2, name="workers"), sw.slice(devices=(2, 4), name="workers")
    double = sw.jit(lambda x: x * 2, devices=plain)
    with sw.simulate("B", **OPTIONS) as s:  # type: ignore[arg-type]
        part = next(s.resizes(workers))
        with pytest.raises(sw.errors.RunError, match=ANOTHER):
            double(np.float32(1)).block_until_ready()
        with pytest.raises(sw.errors.NotNow, match=ANOTHER):
            s.resizes(fewer)
        sw.jit(lambda x: x + 1, devices=part)(np.float32(1)).block_until_ready()
        s.release(workers)
        double(np.float32(1)).block_until_ready()
        with pytest.raises(sw.errors.NotNow, match=ANOTHER):
            next(s.resizes(workers))
        s.release(plain)
        assert next(s.resizes(fewer)).devices == 4


def test_what_cannot_be_is_refused_by_name() -> None:
    large = sw.slice(devices=(100, 200), name="large")
    with sw.simulate("B", **OPTIONS) as s:  # type: ignore[arg-type]
        with pytest.raises(sw.errors.NotNow, match=r"session.resizes: .*100 devices"):
            next(s.resizes(large))
        with pytest.raises(sw.errors.NotNow, match="this client has not asked for ElasticSlice"):
            s.resized(workers)
        with pytest.raises(TypeError, match=r"sw.slice\(devices=\(4, 16\)\) makes it"):
            s.resizes(wide)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"sw\.put needs one slice, and ElasticSlice"):
            sw.put(np.zeros(2), devices=workers)  # type: ignore[arg-type]


@pytest.mark.parametrize("sizes", [(4,), (4, 2), (0, 4), (4, 4), (1.5, 4), ()])
def test_sizes_are_whole_and_increase(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="each larger than the one before"):
        sw.slice(devices=sizes)


def test_a_range_goes_in_steps_of_its_least_and_ends_with_its_most() -> None:
    assert sw.slice(devices=(4, 16)).sizes == (4, 8, 12, 16)
    assert sw.slice(devices=(3, 7)).sizes == (3, 6, 7)
    with pytest.raises(ValueError, match="no mesh"):
        sw.slice(devices=(1, 2), mesh=(1, 2))  # type: ignore[call-overload]
