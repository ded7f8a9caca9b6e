"""Serving, against a simulation that makes one step after another, and against queueing theory."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import pytest

import seaway as sw
from examples import serving
from examples.serving import Continuous, Request, Server, Static

S = 1_000_000_000
DEVICES = 8  # of each slice, TPU v4s on two hosts
FLOPS, BANDWIDTH, TOKEN = 0.6 * 275e12 * DEVICES, 0.6 * 1.2e12 * DEVICES, 2 * 80 * 2 * 8 * 128
LINK, LINKS = 50e9, 8  # bytes a second of each; how many lead from one slice to the other


def requests(rate: float, count: int, tokens: tuple[int, int], output: int, seed: int = 1) -> list[Request]:
    rng, load = Random(seed), sw.workload.poisson(rate, f"{2 * count / rate}s", seed=seed)[:count]
    return [Request(each.at, rng.randint(*tokens), rng.randint(1, output)) for each in load]


def served(policy: Continuous | Static, asked: Sequence[Request], room: int = 0, link: float = LINK) -> None:
    with sw.simulate("v4-32", profile="ideal", ici_bandwidth=int(link)):
        server = Server(DEVICES, DEVICES, policy)
        server.decode.room = room or server.decode.room
        server.serve(asked)


# --- against another simulation ---------------------------------------------------------------------------------


@dataclass(eq=False)
class Answer:
    input: int
    output: int
    first: float
    last: float
    made: int = 1
    ready: float = 0.0  # when its cache is on the decode slice


def expected(asked: Sequence[Request], most: int, kept: bool, room: int, link: float, hop: int) -> list[Answer]:
    """Prompts in turn, caches over the links in turn, and steps one by one. kept: a batch stays until all are over."""
    free, answers = 0.0, list[Answer]()
    for request in asked:
        free = max(free, request.at) + 2 * 70e9 * request.input / FLOPS * S
        answers.append(Answer(request.input, request.output, free, free))
    coming, waiting, batch = [each for each in answers if each.output > 1], list[Answer](), list[Answer]()
    now, links_free = 0.0, 0.0
    while coming or waiting or batch:
        left = [each for each in batch if each.made < each.output]
        if not (kept and left):
            room += sum(each.input + each.output for each in batch if each not in left)
            joining = [each for each in waiting if each.ready <= now][: most - len(left)]
            waiting = [each for each in waiting if each not in joining]
            batch = left + joining
        tokens = sum(each.input + each.output / 2 for each in batch)
        step = (140e9 + tokens * TOKEN) / BANDWIDTH + len(batch) * 2 * 70e9 / FLOPS
        end = now + step * S if batch else min([each.ready for each in waiting], default=float("inf"))
        while coming and coming[0].first <= end and room >= coming[0].input + coming[0].output:
            moves = coming.pop(0)
            room -= moves.input + moves.output
            links_free = max(links_free, moves.first, now) + moves.input * TOKEN / (LINKS * link) * S
            moves.ready = links_free + hop
            waiting.append(moves)
            end = end if batch else min(end, moves.ready)
        for each in batch:
            if each.made < each.output:
                each.made, each.last = each.made + 1, end
        now = end
    return answers


@pytest.mark.parametrize(
    ("policy", "most", "room", "link", "hop"),
    [
        (Continuous(most=6), 6, 100_000, LINK, 1_000),
        (Static(size=6), 6, 100_000, LINK, 1_000),
        (Continuous(most=20), 20, 4_000, 10_000 * LINK, 2_000),  # the longest way: two hops
    ],
)
def test_tokens_come_at_the_microsecond_at_which_a_simulation_of_single_steps_has_them(
    policy: Continuous | Static, most: int, room: int, link: float, hop: int
) -> None:
    """Where caches wait for room, several move at once, and share links in a way that the other simulation has not:
    these are fast."""
    asked = requests(8, 150, (1, 1500), output=40)
    served(policy, asked, room, link)
    wanted = expected(asked, most, isinstance(policy, Static), room, link, hop)
    for found, each in zip(asked, wanted, strict=True):
        assert abs(found.first - each.first) < 1_000
        assert abs(found.last - each.last) < 1_000
    waited = [each.ready - each.first for each in wanted if each.output > 1]
    assert (max(waited) > 0.1 * S) == (room == 4_000)  # caches did wait for room


# --- against what is known --------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [(750, 750), (1, 1500)])
def test_prompts_of_answers_of_one_token_wait_as_pollaczek_and_khinchine_say(tokens: tuple[int, int]) -> None:
    rate, asked = 6.0, requests(6, 1_000, tokens, output=1)
    served(Continuous(most=8), asked)
    took = np.arange(tokens[0], tokens[1] + 1) * 2 * 70e9 / FLOPS
    wanted = rate * np.mean(took**2) / (2 * (1 - rate * np.mean(took)))
    waits = np.array([(each.first - each.at) / S - each.input * 2 * 70e9 / FLOPS for each in asked])
    parts = waits.reshape(10, -1).mean(axis=1)  # nearly independent of one another
    assert abs(waits.mean() - wanted) < 3 * parts.std(ddof=1) / np.sqrt(len(parts)) < wanted
    assert all(each.first == each.last for each in asked)


@pytest.mark.parametrize("size", [1, 4, 16])
def test_at_saturation_batches_that_requests_join_are_over_no_later_than_batches_that_are_kept(size: int) -> None:
    over = []
    for policy in (Continuous(most=size), Static(size=size)):
        asked = requests(1_000, 60, (1, 400), output=60)
        served(policy, asked)
        assert all(each.left == 0 for each in asked)
        over.append(max(each.last for each in asked))
    assert over[0] <= over[1]
    assert (over[0] == over[1]) == (size == 1)


def test_a_request_for_which_no_slice_has_room_is_named() -> None:
    with pytest.raises(ValueError, match=r"no room for Request\(at=0, input=500000, output=2"):
        served(Continuous(most=8), [Request(0, 500_000, 2)])


# --- on agents --------------------------------------------------------------------------------------------------


def test_the_same_file_runs_on_timed_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.jsonl"
    rows = [{"timestamp": 50 * number, "input_length": 64, "output_length": 4 + number} for number in range(4)]
    log.write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.setattr(sys, "argv", ["serving.py", "--log", str(log), "--splits", "8:8"])
    with sw.local(hosts=2, devices_per_host=8, platform="timed", memory="32GiB"):
        runpy.run_path(serving.__file__, run_name="__main__")
    continuous, static = (line.split() for line in capsys.readouterr().out.splitlines()[2:])
    assert continuous[:2] == ["8:8", "Continuous"]
    assert static[:2] == ["8:8", "Static"]
    assert float(continuous[4]) > 1_000 * 140e9 / BANDWIDTH  # milliseconds for each token: no less than for the weights
