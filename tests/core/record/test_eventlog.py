"""A log replays to the byte, a replay names the first event that differs, and a damaged log raises an error."""

from collections.abc import Sequence
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import protocol as p
from core.link import codec as wire
from core.model.errors import Illegal
from core.record.eventcodec import EventCodec, UnknownKind
from core.record.eventlog import MAGIC, Diverged, Log, LogAbout, LogError, Recorder, Replayable, decode, replayed
from tests.core import structs
from tests.laws import examples


class CountingMachine:
    """A very small machine: it ends each run one second after it came, and counts them."""

    def __init__(self, odd_at: int = -1) -> None:
        self.handled = 0
        self.due: list[tuple[int, int, int]] = []
        self._odd_at = odd_at

    def handle(self, event: p.Event, now: int) -> list[p.Command]:
        if isinstance(event, p.Disconnected):
            raise Illegal("nobody is connected")
        self.handled += 1
        if isinstance(event, p.MessageReceived) and isinstance(event.message, p.Submit):
            self.due.append((now + 1_000_000_000, event.peer, event.message.run))
        over = [item for item in self.due if item[0] <= now]
        self.due = [item for item in self.due if item[0] > now]
        if self.handled == self._odd_at:
            return [p.LogLine("odd")]
        return [p.Send((peer,), p.Ended(run)) for _, peer, run in over]

    def next_wakeup(self) -> int | None:
        return self.due[0][0] if self.due else None


EVENTS: list[tuple[int, p.Event]] = [
    (1_000, p.Connected(3)),
    (2_000, p.MessageReceived(3, p.Submit(1, 1, (5, b"x"), (6,), waited=(0,), think=250))),
    (2_000, p.MessageReceived(3, p.Submit(2, 1, (), ()))),
    (1_000_002_000, p.Wakeup()),
    (1_000_003_000, p.Finished(7, p.Blame("user", "1/0"), (3, 4))),
]


def recorded(**options: Any) -> Recorder:
    recorder = Recorder(
        CountingMachine(), LogAbout(core="0.1", policy="fifo", config={"window": 4}), start=500, **options
    )
    for now, event in EVENTS:
        recorder.handle(event, now)
    return recorder


# --- there and back ---------------------------------------------------------------------------------------


def test_a_log_gives_back_every_event_with_its_time() -> None:
    log = decode(recorded().log())
    assert [(entry.now, entry.event) for entry in log.entries] == EVENTS
    assert (log.about.core, log.about.policy, log.about.config) == ("0.1", "fifo", {"window": 4})


def test_a_recorder_behaves_like_the_machine_it_wraps() -> None:
    recorder, machine = Recorder(CountingMachine()), CountingMachine()
    for now, event in EVENTS:
        assert recorder.handle(event, now) == machine.handle(event, now)
        assert recorder.next_wakeup() == machine.next_wakeup()


def test_pieces_written_as_events_come_are_the_whole_log() -> None:
    pieces: list[bytes] = []
    recorded(sink=pieces.append).close()
    assert b"".join(pieces) == recorded().log()


def test_a_log_can_be_taken_while_it_grows() -> None:
    recorder = recorded()
    before = decode(recorder.log())
    recorder.handle(p.Wakeup(), 2_000_000_000)
    assert decode(recorder.log()).entries[:-1] == before.entries[:]


def test_a_refused_event_is_not_in_the_log() -> None:
    recorder = recorded()
    with pytest.raises(Illegal):
        recorder.handle(p.Disconnected(3), 1_000_004_000)
    assert len(decode(recorder.log()).entries) == len(EVENTS)


def test_an_event_of_an_unknown_kind_is_refused_before_it_happens() -> None:
    class Odd(msgspec.Struct, frozen=True):
        number: int

    recorder = recorded()
    with pytest.raises(UnknownKind, match="Odd"):
        recorder.handle(Odd(1), 1_000_004_000)
    assert isinstance(recorder.machine, CountingMachine)
    assert recorder.machine.handled == len(EVENTS)


def kinds_of_events() -> list[type[msgspec.Struct]]:
    local = [
        kind for kind in vars(p.effects).values() if isinstance(kind, type) and issubclass(kind, p.Event | p.Command)
    ]
    return [*(kind for kind in local if kind not in (p.Event, p.Command)), *get_args(wire.Message)]


@pytest.mark.parametrize("kind", kinds_of_events(), ids=lambda kind: kind.__name__)
@given(data=st.data())
@examples(5)
def test_every_kind_of_event_comes_back(kind: type[msgspec.Struct], data: st.DataObject) -> None:
    event = data.draw(structs.of(kind, message=p.Submit | p.Ended))
    codec = EventCodec()
    assert codec.decode(*codec.encode(event)) == event


def test_an_event_costs_a_few_bytes_more_than_its_message() -> None:
    submit = p.Submit(1, 1, (5,), (6,))
    one, many = Recorder(CountingMachine()), Recorder(CountingMachine())
    for recorder, times in ((one, 1), (many, 101)):
        for number in range(times):
            recorder.handle(p.MessageReceived(3, submit), number * 1000)
    assert (len(many.log()) - len(one.log())) / 100 < len(wire.encode(submit)) + 26


# --- replay -----------------------------------------------------------------------------------------------


def test_replay_gives_the_same_commands_to_the_byte() -> None:
    machine = CountingMachine()
    live = [list(machine.handle(event, now)) for now, event in EVENTS]
    answers = list(replayed(decode(recorded().log()), CountingMachine()))
    assert answers == live
    assert msgspec.msgpack.encode(answers) == msgspec.msgpack.encode(live)


@pytest.mark.parametrize("odd_at", range(1, len(EVENTS) + 1))
def test_a_difference_is_found_at_its_event(odd_at: int) -> None:
    with pytest.raises(Diverged) as caught:
        list(replayed(decode(recorded().log()), CountingMachine(odd_at)))
    assert caught.value.index == odd_at - 1
    assert caught.value.event == EVENTS[odd_at - 1][1]
    assert caught.value.replayed == "LogLine(text='odd', passing=False, alarm=False)"
    assert str(EVENTS[odd_at - 1][1]) in str(caught.value)


class Scripted:
    def __init__(self, answers: Sequence[Sequence[p.Command]]) -> None:
        self._answers = list(answers)

    def handle(self, event: p.Event, now: int) -> Sequence[p.Command]:
        return self._answers.pop(0)

    def next_wakeup(self) -> None:
        return None


def scripted(answers: Sequence[Sequence[p.Command]]) -> Log:
    recorder = Recorder(Scripted(answers))
    for number in range(len(answers)):
        recorder.handle(p.Wakeup(), number)
    return decode(recorder.log())


class Left(p.Event, frozen=True):
    number: int


class Rest(p.Event, frozen=True):
    number: int


A, B = p.Send((1,), p.Ended(1)), p.Send((1,), p.Ended(2))


@pytest.mark.parametrize(
    ("live", "again", "index"),
    [
        pytest.param([[A, B], []], [[A], [B]], 0, id="a command comes an event later"),
        pytest.param([[A, B]], [[B, A]], 0, id="another order"),
        pytest.param([[A]], [[A, A]], 0, id="once too often"),
        pytest.param([[], [A]], [[], []], 1, id="not at all"),
        pytest.param([[A], [A]], [[A], [p.Send((2,), p.Ended(1))]], 1, id="to another peer"),
        pytest.param([[Left(1)]], [[Rest(1)]], 0, id="another kind"),
    ],
)
def test_any_other_commands_are_a_difference(
    live: list[list[p.Command]], again: list[list[p.Command]], index: int
) -> None:
    with pytest.raises(Diverged) as caught:
        list(replayed(scripted(live), Scripted(again)))
    assert caught.value.index == index


def test_a_machine_that_raises_in_a_replay_has_diverged() -> None:
    entry = Replayable(5, p.Disconnected(3), 0)
    with pytest.raises(Diverged, match="Illegal: nobody is connected"):
        list(replayed(Log(LogAbout(), (entry,)), CountingMachine()))


# --- incomplete or foreign logs ---------------------------------------------------------------------------


def test_a_log_cut_anywhere_is_known_to_be_cut() -> None:
    data = recorded().log()
    for end in range(len(data)):
        with pytest.raises(LogError, match=r"byte|starts with"):
            decode(data[:end])


def test_a_log_damaged_anywhere_is_known_to_be_damaged() -> None:
    data = recorded().log()
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= (0x01, 0x80, 0xFF)[at % 3]
        with pytest.raises(LogError, match=r"byte|starts with"):
            decode(bytes(damaged))


@given(st.binary(max_size=40))
@examples(200)
def test_any_bytes_after_the_magic_are_refused(data: bytes) -> None:
    for partial in (False, True):
        with pytest.raises(LogError):
            decode(MAGIC + data, partial=partial)


def test_a_log_that_was_cut_short_can_be_read_as_far_as_it_goes() -> None:
    data = recorded().log()
    ends = [len(decode(data[:end], partial=True).entries) for end in range(len(data) // 2, len(data) + 1)]
    assert ends == sorted(ends)
    assert ends[-1] == len(EVENTS)
    cut = decode(data[:-1], partial=True)
    assert (len(cut.entries), cut.whole) == (len(EVENTS), False)
    assert list(replayed(cut, CountingMachine()))


def test_bytes_behind_the_end_are_refused() -> None:
    with pytest.raises(LogError, match="cut short"):
        decode(recorded().log() + b"\x01")
    twice: list[bytes] = []
    recorder = recorded(sink=twice.append)
    recorder.close()
    recorder.close()
    with pytest.raises(LogError, match="more after the last record"):
        decode(b"".join(twice))


def test_a_removed_record_is_noticed() -> None:
    pieces: list[bytes] = []
    recorded(sink=pieces.append).close()
    for gone in range(1, len(pieces)):
        with pytest.raises(LogError):
            decode(b"".join(pieces[:gone] + pieces[gone + 1 :]))


def test_a_log_of_another_format_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.record.eventlog.FORMAT", 2)
    data = recorded().log()
    monkeypatch.undo()
    with pytest.raises(LogError, match="a log of format 2; this reads format 1"):
        decode(data)


def test_a_log_of_another_core_version_is_refused_by_name() -> None:
    assert decode(recorded().log(), core="0.1").entries
    with pytest.raises(LogError, match=r"recorded by core '0\.1'; this is '0\.2'"):
        decode(recorded().log(), core="0.2")


def test_a_log_with_other_messages_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EventCodec, "vocabulary", "0123")
    data = recorded().log()
    monkeypatch.undo()
    with pytest.raises(LogError, match="events or messages have other fields"):
        decode(data)


def test_a_file_that_is_no_log_is_refused() -> None:
    with pytest.raises(LogError, match=r"not an event log: it starts with b'PK"):
        decode(b"PK\x03\x04")
