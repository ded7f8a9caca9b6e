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


def one_forward_one_backward(stages: int, microbatches: int, chunks: int = 1) -> list[list[StageTask]]:
    """By slice: some forward passes ahead, then one backward for each forward.

    `chunks`: stages on each slice, which makes the schedule *interleaved* (Narayanan et al. 2021): slice s has the
    stages s, s + slices, s + 2 slices, ..., and takes as many micro-batches in turn through each as there are slices.
    The bubble is then (slices - 1) / (chunks * microbatches) of the work.
    """
    slices, total = stages // chunks, microbatches * chunks
    if chunks > 1 and (stages % chunks or microbatches % slices):
        raise ValueError(
            f"{chunks} chunks a slice need a multiple of {chunks} stages, and of {slices} micro-batches: "
            f"not {stages} and {microbatches}"
        )
    lists = []
    for s in range(slices):
        turns = [
            (chunk * slices + s, first + m)
            for first in range(0, microbatches, slices) for chunk in range(chunks)
            for m in range(min(slices, microbatches - first))
        ]  # fmt: skip
        ahead = [StageTask("forward", stage, m) for stage, m in turns]
        back = [StageTask("backward", stages - slices + 2 * s - stage, m) for stage, m in turns]
        lead = min(slices - 1 - s if chunks == 1 else 2 * (slices - 1 - s) + (chunks - 1) * slices, total)
        paired = [task for pair in zip(ahead[lead:], back, strict=False) for task in pair]
        lists.append(ahead[:lead] + paired + back[total - lead :])
    return lists


SCHEDULES: dict[str, Callable[..., list[list[StageTask]]]] = {"gpipe": gpipe, "1f1b": one_forward_one_backward}


def merged(lists: list[list[StageTask]]) -> Iterator[StageTask]:
    """One list of all slices' lists: each task as soon as what it needs has been listed, slices in turn."""
    done: set[StageTask] = set()
    at, last = [0] * len(lists), max(task.stage for tasks in lists for task in tasks)
    while any(at[s] < len(tasks) for s, tasks in enumerate(lists)):
        before = len(done)
        ready = [(s, tasks[at[s]]) for s, tasks in enumerate(lists) if at[s] < len(tasks)]
        for s, task in ready:
            if _needs(task, last) <= done:
                yield task
                at[s] += 1
                done.add(task)
        if len(done) == before:
            raise ValueError(
                f"this schedule cannot go on: each stage waits for another, at {[task for _, task in ready]}"
            )


def _needs(task: StageTask, last: int) -> set[StageTask]:
    kind, stage, microbatch = task
    if kind == "forward":
        return {StageTask("forward", stage - 1, microbatch)} if stage else set()
    needs = {StageTask("forward", stage, microbatch)}
    return needs | ({StageTask("backward", stage + 1, microbatch)} if stage < last else set())
