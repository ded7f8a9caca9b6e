"""Executors are confluent: what one does depends on the events that it was given and not on their times.

Each effect names its causes. The laws hold for any stream that a controller may write, whatever the delays of stream,
devices, transfers and compiler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import protocol as p
from core.host import plans
from core.model import FEW
from tests.core.hostworld import Life, Stream, ours
from tests.laws import examples

seeds = st.integers(0, 2**32)
lanes = st.sampled_from(["host", "device"])


@pytest.fixture(autouse=True, scope="module", params=[FEW, 2], ids=["", "neighbours are one"])
def few(request: pytest.FixtureRequest) -> Iterator[None]:
    """How many neighbours a gang must make or read to take them as one."""
    with patch.object(plans, "FEW", request.param):
        yield


def live(seed: int, lane: str, delay: int) -> Life:
    return Life(Stream(Random(seed)), Random(delay), lane)


def channels(life: Life, lane: str) -> dict[Any, list[Any]]:
    """By ordered channel, what was said on it: each launch queue, and either half of each transfer."""
    found: dict[Any, list[Any]] = {}
    for _, effect in life.effects:
        match effect:
            case p.Launch(run=run, step=step):
                for queue in life._devices(run, step) if lane == "device" else ["host"]:
                    found.setdefault(("queue", queue), []).append(effect)
            case p.OpenRecv(transfer=transfer) | p.ExpectRecv(transfer=transfer):
                found.setdefault(("recv", transfer), []).append(effect)
            case p.OpenSend(transfer=transfer) | p.CountRows(transfer=transfer):
                found.setdefault(("send", transfer), []).append(effect)
            case p.DropTransfer(transfer=transfer):
                found.setdefault(("recv", transfer), []).append(effect)
                found.setdefault(("send", transfer), []).append(effect)
            case _:
                pass
    return found


def an_effect_happens_exactly_when_the_last_of_its_causes_has(life: Life, lane: str) -> None:
    for at, effect in life.effects:
        causes = effect.causes  # type: ignore[union-attr]
        assert causes, effect
        assert at == max(life.times[cause] for cause in causes), effect


def every_gang_is_launched_once_and_everything_ends_once(life: Life, lane: str) -> None:
    wanted = [seq for message in life.stream.messages for seq in ours(message)]
    gangs = [s.seq for m in life.stream.messages for s in m.steps if isinstance(s, p.GangStep) and s.seq in wanted]
    launched = [effect.seq for _, effect in life.effects if isinstance(effect, p.Launch)]
    assert sorted(launched) == sorted(gangs)
    if lane == "host":
        assert launched == gangs
    done = [e.report.seq for _, e in life.effects if isinstance(e, p.ToController) and isinstance(e.report, p.Done)]
    assert sorted(done) == sorted(wanted)
    assert not [e for _, e in life.effects if isinstance(e, p.ToController) and isinstance(e.report, p.HostFault)]


def a_buffer_is_freed_once_and_never_while_it_is_in_use(life: Life, lane: str) -> None:
    users: dict[int, list[tuple[str, int]]] = {}
    freed: dict[int, int] = {}
    for at, effect in life.effects:
        match effect:
            case p.Launch(seq=seq):
                for buffer in (*effect.inputs, *effect.outputs):
                    assert buffer not in freed
                    users.setdefault(buffer, []).append(("done", seq))
                freed.update(dict.fromkeys(effect.donated, at))
            case p.OpenSend(transfer=transfer) | p.OpenRecv(transfer=transfer):
                ends = "sent" if isinstance(effect, p.OpenSend) else "recv"
                for buffer in effect.buffers:
                    assert buffer not in freed
                    users.setdefault(buffer, []).append((ends, transfer))
            case p.SpillBuffer(seq=seq, buffer=buffer) | p.RestoreBuffer(seq=seq, buffer=buffer):
                assert buffer not in freed
                users.setdefault(buffer, []).append(("done", seq))
            case p.FreeBuffer():
                for buffer in effect.buffers:
                    assert buffer not in freed
                    freed[buffer] = at
                    assert all(life.times[use] <= at for use in users.get(buffer, ())), effect
            case _:
                pass
    assert set(users) <= set(freed)  # in the end the stream releases everything


def in_the_end_nothing_is_remembered(life: Life, lane: str) -> None:
    state = life.executor._state
    assert not state.pending
    assert not state.records
    assert not state.gangs
    for kept in (state.sends, state.receives, state.copies, state.runs, state.plans, state.buffers, state.codes):
        assert not kept
    join = life.executor.describe()
    assert (join.held, join.unfinished) == ((), ())


def blame_goes_from_a_spoilt_value_to_all_that_reads_it(life: Life, lane: str) -> None:
    """An oracle that knows the readers of each value and the answers of the world."""
    fates = life.stream.fates
    spoilt: set[int] = set()
    blames = {
        e.report.seq: e.report.blame
        for _, e in life.effects
        if isinstance(e, p.ToController) and isinstance(e.report, p.Done)
    }
    for _, effect in life.effects:
        match effect:
            case p.OpenRecv(transfer=transfer, buffers=buffers):
                if fates["recv", transfer] != "data":
                    spoilt.update(buffers)
            case p.RestoreBuffer(seq=seq, buffer=buffer):
                if fates["done", seq] is not None:
                    spoilt.add(buffer)
            case p.Launch(seq=seq, inputs=inputs, outputs=outputs, placeholders=placeholders):
                bad = not spoilt.isdisjoint(inputs)
                assert bad or not placeholders
                assert (blames[seq] is not None) == (bad or fates["done", seq] is not None)
                if blames[seq] is not None:
                    spoilt.update(outputs)
            case p.OpenSend(buffers=buffers, blame=blame):
                assert (blame is not None) == (not spoilt.isdisjoint(buffers))
            case _:
                pass


LAWS = (
    an_effect_happens_exactly_when_the_last_of_its_causes_has,
    every_gang_is_launched_once_and_everything_ends_once,
    a_buffer_is_freed_once_and_never_while_it_is_in_use,
    in_the_end_nothing_is_remembered,
    blame_goes_from_a_spoilt_value_to_all_that_reads_it,
)


@examples(50)
@given(seeds, lanes, seeds, seeds)
def test_effects_and_their_causes_are_the_same_whatever_the_delays(seed: int, lane: str, one: int, other: int) -> None:
    """And each life by itself obeys the laws."""
    first, second = live(seed, lane, one), live(seed, lane, other)
    assert Counter(effect for _, effect in first.effects) == Counter(effect for _, effect in second.effects)
    assert channels(first, lane) == channels(second, lane)
    for life in (first, second):
        for law in LAWS:
            law(life, lane)


def test_the_world_of_this_test_draws_every_kind_of_case() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(60):
        for lane in ("host", "device"):
            life = live(seed, lane, seed)
            kinds.update(type(effect).__name__ for _, effect in life.effects)
            kinds["placeholders"] += sum(e.placeholders for _, e in life.effects if isinstance(e, p.Launch))
    wanted = (p.Launch, p.Prepare, p.MakeBuffer, p.FreeBuffer, p.SpillBuffer, p.RestoreBuffer, p.CountRows, p.OpenSend,
              p.OpenRecv,              p.ExpectRecv, p.DropTransfer, p.CompileCode, p.ToController)  # fmt: skip
    for kind in [*(effect.__name__ for effect in wanted), "placeholders"]:
        assert kinds[kind] >= 20, (kind, kinds)
