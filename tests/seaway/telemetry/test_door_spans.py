"""JAX programs that come through a door to a cluster have spans: of runs, puts and reads, as the door makes them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler
from opentelemetry.trace import SpanKind, StatusCode

from core.protocol import Blame
from core.protocol import messages as m
from seaway.telemetry import door_spans_of
from tests.backend.door.cluster_rig import HOST_LOST, ClusterRig, Told

from .spans import Spans, about, collected, times

US = 1_000


class Watched:
    """A session of a door, on a cluster that the test plays."""

    def __init__(self, found: Spans) -> None:
        made = door_spans_of()
        assert made is not None
        self.found, self.door = found, made
        self.rig = ClusterRig(watch=made.watch)

    def at(self, time: int) -> None:
        self.rig.link.clock = time

    def ended(self) -> list[str]:
        """Names of all spans that are over."""
        self.door.end_spans()
        return [span.name for span in self.found.all()]

    def took(self, name: str) -> int:
        begin, end = times(self.found.one(name))
        return end - begin


@pytest.fixture
def watched() -> Iterator[Watched]:
    with collected() as found:
        yield Watched(found)


def fetched(rig: ClusterRig, array: Any) -> Told:
    told = Told()
    rig.devices.fetch(array, told)
    return told


def test_a_run_a_put_and_a_read_are_spans_from_the_call_until_the_door_hears_that_they_are_over(
    watched: Watched,
) -> None:
    rig = watched.rig
    step = rig.executable()
    watched.at(5 * US)
    x = rig.large()
    watched.at(8 * US)
    (y,) = rig.run(step, x)
    put, submit = rig.calls()
    assert watched.ended() == []
    watched.at(30 * US)
    rig.ready(put.buffer)
    watched.at(40 * US)
    rig.link.say(m.Ended(submit.run))
    watched.at(50 * US)
    told = fetched(rig, y)
    (get,) = rig.calls()
    watched.at(90 * US)
    rig.brings(get.request, np.zeros((128, 64)))
    assert len(told) == 1
    assert watched.ended() == ["put", "step", "get"]
    assert [watched.took(name) for name in ("put", "step", "get")] == [25 * US, 32 * US, 40 * US]
    found = watched.found
    assert about(found.one("step"), "client", "program", "run") == ("ann", "step", submit.run)
    assert [about(found.one(name), "nbytes") for name in ("put", "get")] == [(128 * 64 * 4,)] * 2
    assert {span.kind for span in found.all()} == {SpanKind.SERVER}
    assert {span.parent for span in found.all()} == {None}
    assert {span.status.status_code for span in found.all()} == {StatusCode.UNSET}


def test_what_fails_says_why(watched: Watched) -> None:
    rig = watched.rig
    step, x = rig.executable(), rig.large()
    (_y,) = rig.run(step, x)
    put, submit = rig.calls()
    rig.ready(put.buffer, blame=HOST_LOST)
    rig.link.say(m.Ended(submit.run, HOST_LOST))
    assert watched.ended() == ["put", "step"]
    for span in watched.found.all():
        assert span.status.status_code == StatusCode.ERROR
        assert (span.attributes or {})["error.type"] == "host-lost"
        assert about(span, "error.host") == (1,)


def test_a_read_that_is_refused_has_failed(watched: Watched) -> None:
    rig = watched.rig
    x = rig.large()
    rig.ready(rig.calls()[0].buffer)
    told = fetched(rig, x)
    (get,) = rig.calls()
    rig.brings(get.request, None, blame=Blame("user", "it was released"))
    assert len(told) == 1
    assert watched.ended() == ["put", "get"]
    assert watched.found.one("get").status.status_code == StatusCode.ERROR


def test_the_put_of_an_array_that_is_dropped_is_over(watched: Watched) -> None:
    x = watched.rig.large()
    assert watched.ended() == []
    del x
    watched.rig.later()
    assert watched.ended() == ["put"]


def test_what_is_under_way_when_a_session_ends_is_abandoned(watched: Watched) -> None:
    rig = watched.rig
    rig.run(rig.executable(), rig.large())
    rig.link.close()
    assert sorted(watched.ended()) == ["put", "step"]
    assert {(span.attributes or {})["error.type"] for span in watched.found.all()} == {"abandoned"}


def test_small_arrays_travel_in_calls_and_have_no_spans(watched: Watched) -> None:
    fetched(watched.rig, watched.rig.put([1, 2]))
    assert watched.ended() == []


@pytest.mark.parametrize(("sampler", "count"), [(ALWAYS_ON, 1), (ALWAYS_OFF, 0)])
def test_the_users_sampler_decides(sampler: Sampler, count: int) -> None:
    with collected(sampler) as found:
        watched = Watched(found)
        array = watched.rig.large()
        watched.rig.ready(array.name)
        assert len(watched.ended()) == count


def test_a_thread_ends_spans_while_the_door_serves_and_the_rest_at_its_end() -> None:
    """An exporter may take its time: the thread of the sessions does not wait for it."""
    with collected() as found:
        door = door_spans_of()
        assert door is not None

        rig = ClusterRig(watch=door.watch)
        x = rig.large()
        rig.ready(1)
        door.close()
        assert [span.name for span in found.all()] == ["put"]
        assert x is not None


WITHOUT = """
import sys
from seaway.telemetry import door_spans_of
assert door_spans_of() is None
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
import opentelemetry.trace
assert door_spans_of() is None, "no provider is set"
from opentelemetry.sdk.trace import TracerProvider
opentelemetry.trace.set_tracer_provider(TracerProvider())
assert type(door_spans_of()).__name__ == "DoorSpans"
"""


def test_without_a_provider_a_door_has_no_spans_and_imports_nothing_for_them() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
