"""Simulated time can be set back to play again what led to now; calls that were to come can be dropped."""

from __future__ import annotations

from sim.engine.clock import SimClock


def test_what_is_played_again_ends_now_and_the_rest_is_still_to_come() -> None:
    clock = SimClock()
    log: list[tuple[int, str]] = []

    def note(what: str) -> None:
        log.append((clock.now, what))

    def again() -> None:
        note("begins")
        for at in (40, 100, 120):
            clock.at(at, note, f"played for {at}")

    clock.at(110, note, "was to come at 110")
    clock.at(100, clock.replay, 30, again)
    clock.at(100, note, "was to come at 100")
    clock.run(until=1000)
    assert log == [
        (30, "begins"), (40, "played for 40"), (100, "was to come at 100"), (100, "played for 100"),
        (110, "was to come at 110"), (120, "played for 120"),
    ]  # fmt: skip


def test_dropped_calls_do_not_come_and_events_do() -> None:
    clock = SimClock()
    log: list[str] = []
    clock.timeout(5).callbacks.append(lambda event: log.append("event"))
    for at, what in ((1, "a"), (2, "b"), (3, "a")):
        clock.at(at, log.append, what)
    clock.drop(lambda call, args: args == ("a",))
    clock.run(until=10)
    assert log == ["b", "event"]
