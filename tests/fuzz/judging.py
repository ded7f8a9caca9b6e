"""What a client of a case must have seen in the end: of its runs, its registrations, its gets.

Neighbours: `play` brings them here when all faults have ended. `possible`: the blames that the case can explain.
"""

from __future__ import annotations

from core.model.program import Node, Program
from tests.world.script import Fetch, RunHandle, Script


class Failed(Exception):
    """The case shows a fault."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind, self.text = kind, text


def judge_run(key: int, run: RunHandle, possible: set[str]) -> None:
    if run.ends != 1:
        raise Failed("ends", f"run {run.name} (submit {key}) ended {run.ends} times")
    if run.blame is not None and run.blame.code not in possible:
        raise Failed("blame", f"run {run.name} (submit {key}) failed, and nothing was done to it: {run.blame}")
    steps = [run.program.computations[node.computation].steps for node in run.program.nodes if isinstance(node, Node)]
    most = 0 if run.blame is not None else sum(number for number in steps if number > 1)
    if not 0 <= run.undone <= most:
        raise Failed("steps", f"run {run.name} (submit {key}) has left {run.undone} steps undone, of {most}")


def judge_told(script: Script, program: Program, number: int, possible: set[str]) -> None:
    """It is told once, by the right host, of the place of node 0."""
    said = script.heard.get(number)
    if said is None:
        raise Failed("told", f"{script.name} was never told of program {number}")
    if said.blame is not None:
        if said.blame.code not in possible:
            raise Failed("blame", f"{program.name} is not compiled, and nothing was done: {said.blame}")
        return
    first = program.nodes[0]
    about = said.about.decode()
    if isinstance(first, Node) and not about.startswith(first.name):
        raise Failed("told", f"{script.name} was told {about!r} of {program.name}")
    if isinstance(first, Node) and about.count(",") + 1 != program.slices[first.slice].devices:
        raise Failed("told", f"{script.name} was told {about!r} of {program.name}: other devices")


def judge_fetch(script: Script, fetch: Fetch, possible: set[str]) -> None:
    if fetch.blame is None and not fetch.right:
        raise Failed(
            "wrong contents", f"client {script.name} got {fetch.digest} of buffer {fetch.handle.name},"
            f" which should be {fetch.handle.digest}",
        )  # fmt: skip
    if fetch.blame is not None and fetch.handle.released and fetch.blame.code == "user":
        return  # it was released before it had contents
    if fetch.blame is not None and fetch.blame.code not in possible:
        raise Failed("blame", f"a get of {script.name} failed, and nothing was done to it: {fetch.blame}")
