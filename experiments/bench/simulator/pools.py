"""Pools of devices that are all alike, simulated on their own: forty lines that know nothing of Seaway.

A queue discipline is given the waiting jobs, in the order of arrival, how many devices are free, and what runs, as
(end, devices); it returns which of them start. Times are whole nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple


class PoolJob(NamedTuple):
    at: int
    devices: int
    lasts: int


LATE = 1 << 62
Running = Sequence[tuple[int, int]]
Discipline = Callable[[Sequence[PoolJob], int, Running, int], Sequence[PoolJob]]


def pool(jobs: Sequence[PoolJob], devices: int, starts: Discipline) -> dict[PoolJob, tuple[int, int]]:
    """When each begins and ends."""
    events = [(job.at, 1, number) for number, job in enumerate(jobs)]
    events.sort()
    waiting: list[PoolJob] = []
    running: list[tuple[int, int]] = []
    found: dict[PoolJob, tuple[int, int]] = {}
    free = devices
    while events or running:
        now = min(queue[0][0] for queue in (events, running) if queue)
        while running and running[0][0] == now:
            free += heappop(running)[1]
        while events and events[0][0] == now:
            waiting.append(jobs[events.pop(0)[2]])
        for job in starts(list(waiting), free, sorted(running), now):
            waiting.remove(job)
            free -= job.devices
            found[job] = now, now + job.lasts
            heappush(running, (now + job.lasts, job.devices))
        assert free >= 0
    return found


def in_turn(waiting: Sequence[PoolJob], free: int, running: Running, now: int) -> list[PoolJob]:
    found = []
    for job in waiting:
        if job.devices > free:
            break
        free -= job.devices
        found.append(job)
    return found


def first_fit(waiting: Sequence[PoolJob], free: int, running: Running, now: int) -> list[PoolJob]:
    found = []
    for job in waiting:
        if job.devices <= free:
            free -= job.devices
            found.append(job)
    return found


def shortest(waiting: Sequence[PoolJob], free: int, running: Running, now: int) -> list[PoolJob]:
    """Those that fit, the shortest first."""
    return first_fit(sorted(waiting, key=lambda job: job.lasts), free, running, now)


def easy(waiting: Sequence[PoolJob], free: int, running: Running, now: int) -> list[PoolJob]:
    """Lifka 1995: the first that does not fit has a reservation; others go before it if they do not delay it."""
    found = in_turn(waiting, free, running, now)
    free -= sum(job.devices for job in found)
    rest = list(waiting[len(found) :])
    if not rest:
        return found
    head, then = rest[0], free
    ends = sorted([*running, *[(now + job.lasts, job.devices) for job in found]])
    shadow = now
    while then < head.devices:
        shadow, devices = ends.pop(0)
        then += devices
    spare = then - head.devices
    for job in rest[1:]:
        fits_beside = job.devices <= spare and now + job.lasts > shadow
        if job.devices <= free and (now + job.lasts <= shadow or fits_beside):
            free -= job.devices
            spare -= job.devices if fits_beside else 0
            found.append(job)
    return found


def conservative(waiting: Sequence[PoolJob], free: int, running: Running, now: int) -> list[PoolJob]:
    """Each has a reservation, in the order of arrival; none is delayed by a later one."""
    profile = {now: free}  # time -> free from then on
    for end, devices in running:
        profile[end] = profile.get(end, 0) + devices
    steps, level = [], 0
    for time in sorted(profile):
        level += profile[time]
        steps.append([time, level])
    found = []
    for job in waiting:
        begin = next(at for at, _ in steps if all(
            free >= job.devices for (time, free), after in zip(steps, [*[s[0] for s in steps[1:]], LATE], strict=True)
            if after > at and time < at + job.lasts))  # fmt: skip
        end = begin + job.lasts
        for edge in (begin, end):
            if edge not in [time for time, _ in steps]:
                steps.append([edge, next(free for time, free in sorted(steps, reverse=True) if time <= edge)])
                steps.sort()
        for step in steps:
            if begin <= step[0] < end:
                step[1] -= job.devices
        if begin == now:
            found.append(job)
    return found


def least_attained(
    jobs: Sequence[PoolJob], devices: int, quantum: int, factor: int, step: int
) -> dict[PoolJob, int]:  # fmt: skip
    """2D-LAS in levels, with devices taken away at no cost, at the end of a step. When each ends."""
    left, had = {job: job.lasts for job in jobs}, dict.fromkeys(jobs, 0)
    found: dict[PoolJob, int] = {}
    running: dict[PoolJob, int] = {}  # since when, in this stint
    leaving: dict[PoolJob, int] = {}  # when it has left
    now = 0

    def level(job: PoolJob) -> tuple[int, int]:
        served, at, edge = (had[job] + (now - running[job] if job in running else 0)) * job.devices, 0, quantum
        while served >= edge:
            at, edge = at + 1, edge * factor
        return at, -(-(edge - served) // job.devices)

    while len(found) < len(jobs):
        for job in [job for job, at in leaving.items() if at == now]:
            had[job] += now - running[job]
            left[job] -= now - running.pop(job)
            del leaving[job]
        for job in [job for job in running if job not in leaving and running[job] + left[job] == now]:
            del running[job]
            found[job] = now
        there = [job for job in jobs if job.at <= now and job not in found]
        there.sort(key=lambda job: (level(job)[0], job.at))
        room = devices
        chosen = [job for job in there if job.devices <= room and (room := room - job.devices) >= 0]
        for job in there:
            if job in running and job not in chosen and job not in leaving:
                leaving[job] = running[job] + -(-(now - running[job]) // step) * step
        used = sum(job.devices for job in running)
        for job in chosen:
            if job not in running and used + job.devices <= devices:
                running[job], used = now, used + job.devices
        comes = [job.at for job in jobs if job.at > now]
        ends = [running[job] + left[job] for job in running if job not in leaving]
        edges = [now + level(job)[1] for job in running]
        now = min([*comes, *ends, *edges, *leaving.values()], default=now)
    return found
