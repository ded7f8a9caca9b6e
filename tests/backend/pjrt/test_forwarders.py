"""What an executable calls in its client's process: the answer, or a fault that every run of it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from backend.contents import callbacks
from backend.contents.callbacks import CallbackFault
from backend.pjrt.code.forwarders import Forwarders
from backend.pjrt.code.stablehlo_reading import ArrayFacts, CallbackFacts

PAIR = CallbackFacts(7, (ArrayFacts("f32", (2,)),))
ORDERED = CallbackFacts(8, (None, ArrayFacts("ui8", ())))
X = np.ones(2, np.float32)


class Client:
    """Answers at once with what `says` returns; keeps what was asked."""

    def __init__(self, says: Callable[[int, list[Any]], bytes | None]) -> None:
        self.says, self.asked = says, list[int]()

    def ask(self, body: bytes, came: Callable[[bytes], None]) -> None:
        function, operands = callbacks.call_of(body)
        self.asked.append(function)
        if (answer := self.says(function, operands)) is not None:
            came(answer)


def doubled(function: int, operands: list[Any]) -> bytes:
    return callbacks.answered([None if each is None else each * 2 for each in operands])


def silent(function: int, operands: list[Any]) -> None:
    return None


def refused(function: int, operands: list[Any]) -> bytes:
    return callbacks.failed("ValueError: no room")


def test_each_function_is_asked_by_its_number_and_its_results_come_back() -> None:
    client = Client(doubled)
    forwarders = Forwarders([PAIR, ORDERED], client.ask, 1.0, alone=True)
    run = forwarders.begin()
    (found,) = forwarders.functions[0](X)
    assert found.tolist() == [2, 2]
    token, number = forwarders.functions[1](None, np.uint8(4))
    assert (token, int(number)) == (None, 8)
    assert client.asked == [7, 8]
    run.end()


@pytest.mark.parametrize(
    ("says", "text"),
    [
        (refused, "ValueError: no room"),
        (silent, "not answered in 0 s, which is the limit here"),
        (lambda *_: callbacks.answered([]), "a callback returned"),
        (lambda *_: callbacks.answered([np.ones(3, np.float32)]), "a callback returned"),
        (lambda *_: callbacks.answered([np.ones(2, np.float64)]), "a callback returned"),
        (lambda *_: b"nonsense", "cannot be read"),
    ],
)
def test_a_program_of_one_device_fails_and_one_of_several_goes_on_with_zeros(says: Any, text: str) -> None:
    alone = Forwarders([PAIR], Client(says).ask, 0, alone=True)
    run = alone.begin()
    with pytest.raises(CallbackFault, match=text):
        alone.functions[0](X)
    with pytest.raises(CallbackFault, match=text):
        run.end()
    client = Client(says)
    several = Forwarders([PAIR, ORDERED], client.ask, 0, alone=False)
    run = several.begin()
    assert [each.tolist() for each in several.functions[0](X)] == [[0, 0]]
    assert several.functions[1](None, np.uint8(4))[0] is None
    assert client.asked == [7], "a run that has failed asks for nothing more"
    with pytest.raises(CallbackFault, match=text):
        run.end()


def test_what_ran_before_and_what_runs_after_a_failure_is_not_to_blame() -> None:
    client = Client(doubled)
    forwarders = Forwarders([PAIR], client.ask, 1.0, alone=False)
    before = forwarders.begin()
    forwarders.functions[0](X)
    before.end()
    client.says = refused
    failing, beside = forwarders.begin(), forwarders.begin()
    forwarders.functions[0](X)
    for run in (failing, beside):  # which of these two has called is not known
        with pytest.raises(CallbackFault, match="no room"):
            run.end()
    client.says = doubled
    after = forwarders.begin()
    assert forwarders.functions[0](X)[0].tolist() == [2, 2]
    after.end()
    before.end()


def test_a_run_that_begins_before_a_failed_one_has_ended_is_never_given_zeros_in_silence() -> None:
    client = Client(refused)
    forwarders = Forwarders([PAIR], client.ask, 1.0, alone=False)
    failing = forwarders.begin()
    assert forwarders.functions[0](X)[0].tolist() == [0, 0]
    after = forwarders.begin()  # nobody has waited for the first one yet
    client.says = doubled
    assert forwarders.functions[0](X)[0].tolist() == [2, 2]
    after.end()
    with pytest.raises(CallbackFault, match="no room"):
        failing.end()
