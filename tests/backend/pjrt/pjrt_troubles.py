"""What real devices do when something fails or changes. `test_pjrt.py` runs these tests in a child process."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from backend.devices.interface import WorldSpec
from backend.pjrt import completions, jax_errors
from backend.pjrt.store import MissingBuffer
from core.model.place import line
from core.model.plan import Gang, Layout
from core.model.program import Arg, Out, Sharding
from core.protocol import effects as e
from core.protocol.messages import Blame

from ..door.jax_programs import until
from .pjrt_rig import Rig, Work, sharding, value
from .pjrt_stage import ARRAY, DEVICES, HERE, MESH, ROWS, add_sum, adding, layout, rig, shared

__all__ = ["rig", "shared"]  # fixtures

# --- failures ------------------------------------------------------------------------------------------------------


def test_a_launch_with_placeholders_runs_whatever_inputs_are_there(rig: Rig) -> None:
    plan = rig.ready(adding(donate=(0,)), Out(0), ident=80)
    seq, (made,) = rig.launch(plan, 0, [99999], placeholders=True)
    assert rig.wait(e.Finished, seq=seq).blame is None
    assert rig.array(made, layout(ROWS)).shape == (8, 4)


def test_a_missing_input_is_blamed_and_its_gang_still_runs(rig: Rig) -> None:
    plan = rig.ready(adding(), Out(0), ident=81)
    seq, (made,) = rig.launch(plan, 0, [99999])
    blame = rig.wait(e.Finished, seq=seq).blame
    assert "buffer 99999, input 0 of 'add the sum', is not on this host" in blame.cause
    with pytest.raises(LookupError, match="buffer 99999"):
        rig.devices.shards(made)


def test_a_gang_that_reads_a_spoilt_buffer_reports_its_cause(rig: Rig) -> None:
    plan = rig.ready(adding(), Out(0), ident=81)
    x = rig.buffer()
    rig.devices.make(e.MakeBuffer(x, layout(ROWS), None, ()))
    rig.devices.spoil(x, "9 rows go to shard 1, and its capacity is 8")
    seq, _ = rig.launch(plan, 0, [x])
    assert rig.wait(e.Finished, seq=seq).blame.cause == "9 rows go to shard 1, and its capacity is 8"


def test_nothing_is_launched_behind_a_failed_launch_until_it_is_abandoned(rig: Rig) -> None:
    plan = rig.ready(adding(), Out(0), ident=82)
    unknown = adding().plan(HERE, Out(0), ident=83)  # never compiled
    x = rig.literal(layout(ROWS), ARRAY)
    failed, (void,) = rig.launch(unknown, 0, [x])
    blame = rig.wait(e.LaunchFailed, seq=failed).blame
    assert "'add the sum' is not compiled" in blame.cause
    held, (made,) = rig.launch(plan, 0, [x])
    gone, _ = rig.launch(plan, 0, [x])
    rig.settle()
    assert rig.usage()["held"] == 2
    rig.devices.abandon([gone])
    rig.settle()
    assert rig.usage()["held"] == 2
    rig.devices.abandon([failed])
    assert rig.wait(e.Finished, seq=held).blame is None
    assert rig.usage()["held"] == 0
    np.testing.assert_array_equal(rig.array(made, layout(ROWS)), ARRAY + ARRAY.sum())
    assert not [said for said in rig.seen if getattr(said, "seq", -1) in (gone, failed)]
    with pytest.raises(LookupError, match=f"buffer {void} holds nothing"):
        rig.devices.shards(void)
    rig.devices.free(void, 1)


def test_a_program_that_raises_is_blamed_in_the_users_words_and_its_readers_go_on(rig: Rig) -> None:
    plan = rig.ready(adding(), Out(0), ident=84)
    x = rig.literal(layout(ROWS), ARRAY)
    rig.settle()
    code = rig.devices._codes.get(plan.id, 0)
    assert code is not None
    kept, code.keeping = code.keeping, _Failing("the user's own words")
    try:
        seq, (made,) = rig.launch(plan, 0, [x])
        assert rig.wait(e.Finished, seq=seq).blame == Blame("user", "RuntimeError: the user's own words")
    finally:
        code.keeping = kept
    seq, _ = rig.launch(plan, 0, [made], placeholders=True)
    assert rig.wait(e.Finished, seq=seq).blame is None


class _Failing:
    def __init__(self, words: str) -> None:
        self.words = words

    def __call__(self, *inputs: Any) -> Any:
        raise RuntimeError(self.words)


@pytest.mark.parametrize(
    ("fn", "exported", "words"),
    [
        (None, b"", "has a duration and no code"),
        (None, b"no blob at all", "the code of computation 'bad' cannot be read"),
        (lambda x: (x, x), b"", "computation 'bad' makes 2 arrays, but the plan has 1"),
    ],
    ids=["synthetic", "garbage", "other results"],
)
def test_invalid_code_is_refused_by_name(rig: Rig, fn: Any, exported: bytes, words: str) -> None:
    work = Work(MESH, ROWS)
    work.call("bad", fn, [Arg(0)], [ROWS], [ROWS] * (2 if fn else 1), exported=exported)
    if fn:
        node = work.nodes[0]
        work.nodes[0] = type(node)(node.name, 0, 0, node.inputs, node.expects, (ROWS,))
    (said,) = rig.compile(work.plan(HERE, Out(0), ident=85), work.blobs)
    assert said.blame is not None
    assert said.blame.code == "user"
    assert words in said.blame.cause


def test_code_for_other_arrays_than_those_of_the_plan_is_refused(rig: Rig) -> None:
    work, other = Work(MESH, ROWS), value((8, 8))
    work.call("bad", add_sum, [Arg(0)], [other], [other])
    node = work.nodes[0]
    work.nodes[0] = type(node)(node.name, 0, 0, node.inputs, (ROWS,), (ROWS,))
    (said,) = rig.compile(work.plan(HERE, Out(0), ident=86), work.blobs)
    assert said.blame is not None
    assert "takes float32[8, 8], but the plan gives it float32[8, 4]" in said.blame.cause


def test_code_that_needs_more_memory_than_there_is_is_refused() -> None:
    rig = Rig(DEVICES, memory=20)
    assert rig.devices.about().memory == 20
    work = adding()
    (said,) = rig.compile(work.plan(HERE, Out(0), ident=1), work.blobs)
    assert said.blame is not None
    assert said.blame.code == "no-memory"
    assert "bytes on each device" in said.blame.cause
    rig.close()


# --- abandoned and stuck gangs ---------------------------------------------------------------------------------------


class _Stuck:
    """The token of a program that never ends."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.addressable_shards: list[Any] = []

    def block_until_ready(self) -> _Stuck:
        self.over.wait(20)
        return self

    def is_ready(self) -> bool:
        return self.over.is_set()


def test_a_gang_behind_stuck_ones_goes_on_when_they_are_abandoned() -> None:
    told: list[e.Event] = []
    waiting, stuck, also = completions.Completions(told.append), _Stuck(), _Stuck()
    done = jnp.int32(0)
    for seq, token in ((1, stuck), (2, also), (3, done)):
        waiting.add(completions.Flight(seq, token, (), multi=True, together=True, name="g"))
    time.sleep(0.05)
    assert (told, waiting.outstanding) == ([], 3)
    waiting.abandon([1, 2])
    until(lambda: bool(told), "they do not end")
    assert told == [e.Finished(3)]
    assert waiting.outstanding == 0
    assert waiting.clear()  # two are stuck
    stuck.over.set()
    also.over.set()
    time.sleep(0.05)
    assert told == [e.Finished(3)]
    assert not waiting.clear()
    waiting.end()


def test_a_gang_that_is_already_over_is_reported_at_once_but_never_ahead_of_others() -> None:
    told: list[e.Event] = []
    waiting, stuck, done = completions.Completions(told.append), _Stuck(), jnp.int32(0).block_until_ready()
    waiting.add(completions.Flight(1, done, (), multi=True, together=True, name="g"))
    assert (told, waiting.outstanding) == ([e.Finished(1)], 0)
    waiting.add(completions.Flight(2, stuck, (), multi=True, together=True, name="g"))
    waiting.add(completions.Flight(3, done, (), multi=True, together=True, name="g"))
    assert (told, waiting.outstanding) == ([e.Finished(1)], 2)
    stuck.over.set()
    until(lambda: waiting.outstanding == 0 and len(told) == 3, "they do not end")
    assert told == [e.Finished(1), e.Finished(2), e.Finished(3)]
    waiting.end()


def test_a_launch_that_waits_for_room_is_released_when_it_is_abandoned() -> None:
    waiting, stuck = completions.Completions(lambda event: None), _Stuck()
    for seq in range(completions.OUTSTANDING):
        assert waiting.room(seq)
        waiting.add(completions.Flight(seq, stuck, (), multi=True, together=True, name="g"))
    answers: list[bool] = []
    asking = threading.Thread(target=lambda: answers.append(waiting.room(99)))
    asking.start()
    time.sleep(0.05)
    assert not answers
    waiting.abandon([99])
    asking.join(5)
    assert answers == [False]
    stuck.over.set()
    until(lambda: waiting.outstanding == 0, "they do not end")
    assert waiting.room(100)
    waiting.end()


# --- rows, and epochs ------------------------------------------------------------------------------------------------


def test_rows_are_counted_by_their_target(rig: Rig) -> None:
    # two shards, each on two devices
    source = Layout((8, 3), "int32", line(0, 0, 4), (2, 2), sharding(("x", "")))
    target = Layout((16, 3), "int32", line(0, 8, 16), (16,), Sharding(((0,), ())))  # on two other hosts
    rows = np.zeros((8, 3), np.int32)
    rows[:, 0] = [1, 9, 1, -1, 9, 15, -1, 9]
    buffer = rig.literal(source, rows)
    rig.devices.count(e.CountRows(5, buffer, target, (), source))
    said = rig.wait(e.RowsCounted, transfer=5)
    assert said.blame is None
    assert said.pieces == ((1, 1, 24), (2, 9, 12), (2, 16 + 9, 24), (2, 16 + 15, 12))


def test_a_row_for_a_shard_that_does_not_exist_is_blamed(rig: Rig) -> None:
    source = Layout((8, 3), "int32", line(0, 0, 4), (4,), Sharding(((0,), ())))
    buffer = rig.literal(source, np.full((8, 3), 4, np.int32))
    rig.devices.count(e.CountRows(6, buffer, source, (), source))
    blame = rig.wait(e.RowsCounted, transfer=6).blame
    assert blame == Blame("user", "dest names shard 4, but there are only 4")


def test_a_single_host_keeps_arrays_and_code_over_epochs(rig: Rig) -> None:
    plan = rig.ready(adding(), Out(0), ident=90)
    x = rig.literal(layout(ROWS), ARRAY)
    rig.devices.reform(e.Reform(1, ((0, 1),), ()), WorldSpec(1, "", [0], 0, {0: range(DEVICES)}))
    rig.wait(e.Reformed, epoch=1)
    (made,) = rig.run(plan, x)
    assert rig.wait(e.Finished).blame is None
    np.testing.assert_array_equal(rig.array(made, layout(ROWS)), ARRAY + ARRAY.sum())


def test_the_same_code_in_another_plan_is_not_compiled_again(rig: Rig) -> None:
    work = Work(MESH, ROWS)
    work.call("triple", lambda x: 3 * x, [Arg(0)], [ROWS], [ROWS])
    rig.ready(work, Out(0), ident=91)
    compiled = rig.usage()["compiled"]
    plan = rig.ready(work, Out(0), ident=92)
    assert rig.usage()["compiled"] == compiled
    (made,) = rig.run(plan, rig.literal(layout(ROWS), ARRAY))
    rig.wait(e.Finished)
    np.testing.assert_array_equal(rig.array(made, layout(ROWS)), 3 * ARRAY)


def test_compiled_code_is_kept_on_disk(tmp_path: Path) -> None:
    rig = Rig(DEVICES, cache=tmp_path / "code")
    rig.ready(adding(), Out(0))
    assert list((tmp_path / "code").iterdir())
    rig.close()
    jax.config.update("jax_compilation_cache_dir", None)  # type: ignore[no-untyped-call]


def test_layouts_of_a_gang_are_matched_by_slot(rig: Rig) -> None:
    """An array that is equal on every device under another layout is launched without a resharding."""
    flat, square = value((8, 4), ("x", "")), value((8, 4), ("xy", ""))
    work = Work((8,), flat)
    work.call("same", lambda x: x + 1, [Arg(0)], [flat], [flat])
    plan = work.plan(HERE, Out(0), ident=93)
    assert all(isinstance(step, Gang) for step in plan.steps)
    rig.compile(plan, work.blobs)
    _, (made,) = rig.launch(plan, 0, [rig.literal(layout(square), ARRAY)])
    assert rig.wait(e.Finished).blame is None
    np.testing.assert_array_equal(rig.array(made, layout(flat, mesh=(8,))), ARRAY + 1)


# --- blames -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "together", "code"),
    [
        ("INTERNAL: [/gloo/transport/tcp/pair.cc:552] Connection closed by peer [127.0.0.1]:4242", True, "peer"),
        ("UNAVAILABLE: Socket closed", True, "peer"),
        ("INTERNAL: NCCL operation ncclGroupEnd() failed", True, "peer"),
        ("my check of peer 3 failed", False, "user"),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17 bytes", True, "no-memory"),
        ("x must not be negative", True, "user"),
    ],
)
def test_a_failure_is_blamed_on_a_peer_only_where_there_are_peers(text: str, together: bool, code: str) -> None:
    assert jax_errors.of(ValueError(text), together=together).code == code


LOST = "the connection to another host was lost during a collective"
NOT_MADE = "a connection to another host could not be made for a collective"
PAIR = "[external/xla/third_party/gloo/gloo/transport/tcp/pair.cc:547]"
NEWER = "[external/xla++third_party_ext+gloo/gloo/transport/tcp"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"UNKNOWN: Gloo all-reduce failed: {PAIR} Connection closed by peer [198.19.7.1]:28058", f"{LOST} (closed)"),
        (
            f"UNKNOWN: Gloo AllGather failed: {PAIR} Read error [127.0.0.1]:4242: Connection reset by peer",
            f"{LOST} (reset)",
        ),
        (
            f"UNKNOWN: Gloo all-to-all failed: {NEWER}/unbound_buffer.cc:81] Timed out waiting 20000ms for recv",
            f"{LOST} (timed out)",
        ),
        ("UNKNOWN: Gloo ReduceScatter failed: what nobody has seen", LOST),
        (
            f"UNKNOWN: Gloo context initialization failed: {PAIR} timed out connecting: SO_ERROR: Connection refused",
            f"{NOT_MADE} (refused)",
        ),
        ("UNKNOWN: Gloo context initialization failed: Connect timeout [127.0.0.1]:4242", f"{NOT_MADE} (timed out)"),
        ("my igloo failed: it melted", "my igloo failed: it melted"),
    ],
)
def test_what_happened_to_gloos_connections_is_said_in_plain_words_and_the_log_keeps_its_text(
    text: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "seaway.pjrt")
    blame = jax_errors.of(jax.errors.JaxRuntimeError(text), together=True)
    assert (blame.cause, blame.code) == (said, "peer")
    assert (text in caplog.text) == (said != text)


def test_an_error_that_is_not_ours_is_named_and_ours_and_jaxs_are_their_text_alone() -> None:
    assert jax_errors.text_of(KeyError("x")) == "KeyError: 'x'"
    assert jax_errors.text_of(MissingBuffer("buffer 3 is not on this host")) == "buffer 3 is not on this host"
    assert jax_errors.text_of(jax.errors.JaxRuntimeError("INTERNAL: no")) == "INTERNAL: no"


def test_a_long_message_of_the_compiler_is_cut() -> None:
    cause = jax_errors.of(RuntimeError("x" * 100_000)).cause
    assert len(cause) < 2 * jax_errors.LONGEST
    assert "100014 characters in all" in cause
