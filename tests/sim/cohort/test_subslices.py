"""The fidelities agree on sub-slices, on arrays that move between slices that share devices, and on when clients hear
that their programs are compiled.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core.controller import Config
from core.model.program import SliceSpec
from core.protocol import ProgramTold
from sim.hardware import load
from sim.hardware.profiles import profile
from sim.simulation import Simulation
from tests.core.build import Build
from tests.laws import examples
from tests.sim import move_scene, scene

SEEDS = st.integers(0, 1 << 20)


def assert_equal(drawn: scene.Scene) -> None:
    exact = scene.assert_equal(drawn)
    told = [[text for _, text in heard if text.startswith("ProgramTold")] for heard in exact["heard"]]
    assert [len(texts) for texts in told] == [len(drawn.programs)] * drawn.clients


@given(seed=SEEDS)
@examples(4)
def test_programs_on_sub_slices_take_the_same_time(seed: int) -> None:
    assert_equal(scene.draw_parts(seed))


@given(seed=SEEDS)
@examples(4)
def test_moves_between_slices_that_share_devices_take_the_same_time(seed: int) -> None:
    assert_equal(move_scene.draw_parts(seed))


def on_the_last_device(fidelity: Any) -> list[tuple[str, int]]:
    """What a client of 64 hosts hears of a program that runs on one device, and when."""
    sim = Simulation(
        load("B", hosts=64, devices_per_host=4), profile=profile("seaway"), fidelity=fidelity, config=Config(fanout=3)
    )
    sim.about_code = lambda key: f"what is known of {key}".encode()
    client = sim.client("c")
    heard: list[tuple[str, int]] = []
    client.on_effect = lambda effect: heard.append((repr(effect), sim.now))
    build = Build("one", whole=256)
    build.slices.append(SliceSpec("last", 1, of="whole", picks=(255,)))
    program = build.program(build.call("f", "last", [build.arg("last", 8)], cost=20_000))
    client.call(lambda c, now: c.register(program, now, tell=True))
    client.call(lambda c, now: c.submit(1, (bytes(32),), now))
    sim.run(until=lambda: any(text.startswith("RunEnded") for text, _ in heard))
    return heard


def test_a_program_on_one_device_of_an_island_takes_the_same_time_and_its_client_hears_of_its_code() -> None:
    exact = on_the_last_device("exact")
    assert on_the_last_device("cohort") == exact
    (told,) = [text for text, _ in exact if text.startswith("ProgramTold")]
    assert told == repr(ProgramTold(1, b"what is known of key-f"))
