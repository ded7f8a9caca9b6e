"""In which order a pipeline's stages do what: GPipe (all forward, then all backward) and 1F1B.

A schedule is one list for all stages, in an order in which everything comes behind what it needs; what one stage does
in which order is what is left when only its own entries are read. A program that makes its calls in this order has
that schedule, since the devices of a stage work in the order of the calls.
"""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple


class StageTask(NamedTuple):
    kind: Literal["forward", "backward"]
    stage: int
    microbatch: int


def gpipe(stages: int, microbatches: int) -> list[list[StageTask]]:
    """By stage."""
    forward = [[StageTask("forward", s, m) for m in range(microbatches)] for s in range(stages)]
    backward = [[StageTask("backward", s, m) for m in range(microbatches)] for s in range(stages)]
    return [ahead + back for ahead, back in zip(forward, backward, strict=True)]


def one_forward_one_backward(stages: int, microbatches: int) -> list[list[StageTask]]:
    """By stage: as many forward passes as there are stages behind it, then one backward for each forward."""
    lists = []
    for s in range(stages):
        lead = min(stages - 1 - s, microbatches)
        tasks = [StageTask("forward", s, m) for m in range(lead)]
        for m in range(microbatches):
            if lead + m < microbatches:
                tasks.append(StageTask("forward", s, lead + m))
            tasks.append(StageTask("backward", s, m))
        lists.append(tasks)
    return lists


SCHEDULES: dict[str, Callable[[int, int], list[list[StageTask]]]] = {"gpipe": gpipe, "1f1b": one_forward_one_backward}


def merged(lists: list[list[StageTask]]) -> Iterator[StageTask]:
    """One list of all stages' lists: each task as soon as what it needs has been listed, stages in turn."""
    done: set[StageTask] = set()
    at, last = [0] * len(lists), len(lists) - 1
    while any(at[s] < len(tasks) for s, tasks in enumerate(lists)):
        before = len(done)
        ready = [tasks[at[s]] for s, tasks in enumerate(lists) if at[s] < len(tasks)]
        for task in ready:
            if _needs(task, last) <= done:
                yield task
                at[task.stage] += 1
                done.add(task)
        if len(done) == before:
            raise ValueError(f"this schedule cannot go on: each stage waits for another, at {ready}")


def _needs(task: StageTask, last: int) -> set[StageTask]:
    kind, stage, microbatch = task
    if kind == "forward":
        return {StageTask("forward", stage - 1, microbatch)} if stage else set()
    needs = {StageTask("forward", stage, microbatch)}
    return needs | ({StageTask("backward", stage + 1, microbatch)} if stage < last else set())
