"""What JAX says of this machine's devices, in a process of its own."""

from __future__ import annotations

from backend.devices import accelerators_here


def test_a_process_of_its_own_says_what_the_devices_are() -> None:
    about = accelerators_here("cpu")
    assert about is not None
    assert (about.platform, about.kind, about.memory) == ("cpu", "cpu", 0)
    assert about.devices >= 1


def test_nothing_is_said_of_devices_that_are_not_here() -> None:
    assert accelerators_here("no such platform") is None
