"""Models the memory of physical devices, each with its own queue, while gangs run and transfers arrive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from .memory_plans import DEVICES

Key = tuple[str, int, int]  # ("slot", run, slot) or ("buffer", id, 0)


@dataclass(eq=False)
class Launch:
    """A gang in the queues of its devices."""

    seq: int
    devices: list[int]
    made: list[tuple[Key, int, int, list[int]]]  # (key, bytes, how many of them are taken over, devices)
    dies: list[Key]
    needs: list[Key]
    temp: int
    done: Callable[[], None]
    started: bool = False


@dataclass(eq=False)
class Arrival:
    """A receive, a put or a restore. It takes memory on each device as soon as `after` allows."""

    nbytes: dict[Key, int]  # of each buffer that comes
    devices: list[int]
    after: int
    sources: set[Key]
    done: Callable[[], None]  # called when it has arrived
    here: set[int] = field(default_factory=set)


class Machine:
    """Physical devices, each with its own queue. It gets only the information that a host gets."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.there: list[dict[Key, int]] = [{} for _ in range(DEVICES)]
        self.scratch = [0] * DEVICES
        self.queues: list[list[Launch]] = [[] for _ in range(DEVICES)]
        self.arrivals: list[Arrival] = []
        self.frees: list[tuple[Key, list[int], int]] = []
        self.landed: set[Key] = set()

    def clear_of(self, device: int, seq: int) -> bool:
        """Whether a device has run all its gangs up to seq."""
        return all(launch.seq > seq for launch in self.queues[device])

    def free_up(self) -> None:
        waiting = []
        for key, devices, seq in self.frees:
            left = [d for d in devices if not self.clear_of(d, seq)]
            for d in devices:
                if d not in left:
                    del self.there[d][key]
            if left:
                waiting.append((key, left, seq))
        self.frees = waiting

    def allocate(self, device: int, key: Key, nbytes: int) -> None:
        assert key not in self.there[device]
        self.there[device][key] = nbytes
        self.check(device)

    def check(self, device: int) -> None:
        used = sum(self.there[device].values()) + self.scratch[device]
        assert used <= self.capacity, f"device {device}: {used} of {self.capacity} allocated"

    def possible(self) -> list[Callable[[], None]]:
        """Return all events that may happen next, each as a function to call."""
        found: list[Callable[[], None]] = []
        for head in {queue[0].seq: queue[0] for queue in self.queues if queue}.values():
            if head.started:
                found.append(partial(self.finish, head))
            elif all(self.queues[d][0] is head for d in head.devices) and self.landed.issuperset(head.needs):
                found.append(partial(self.start, head))
        for arrival in self.arrivals:
            left = [d for d in arrival.devices if d not in arrival.here]
            found += [partial(self.take, arrival, d) for d in left if self.clear_of(d, arrival.after)]
            if not left and arrival.sources <= self.landed:
                found.append(partial(self.land, arrival))
        return found

    def take(self, arrival: Arrival, device: int) -> None:
        arrival.here.add(device)
        for key, nbytes in arrival.nbytes.items():
            self.allocate(device, key, nbytes)

    def land(self, arrival: Arrival) -> None:
        self.arrivals.remove(arrival)
        self.landed.update(arrival.nbytes)
        arrival.done()

    def start(self, launch: Launch) -> None:
        launch.started = True
        for d in launch.devices:
            self.scratch[d] += launch.temp
        for key, nbytes, taken, devices in launch.made:
            for d in devices:
                self.allocate(d, key, nbytes - taken)

    def finish(self, launch: Launch) -> None:
        for d in launch.devices:
            assert self.queues[d].pop(0) is launch
            self.scratch[d] -= launch.temp
            for key in launch.dies:
                self.there[d].pop(key, None)
            for key, nbytes, _, devices in launch.made:
                if d in devices and key not in launch.dies:
                    self.there[d][key] = nbytes
        self.landed.update(key for key, *_ in launch.made)
        self.free_up()
        launch.done()
