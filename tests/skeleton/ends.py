"""The three machines as a process has them: core's, recorded, behind an endpoint with its connections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from core.controller import Bounds, Config, Controller
from core.endpoint import Endpoint, for_client, for_controller, for_host
from core.eventlog import About, Recorder
from core.host import Host

from .work import CLUSTER, User

LEASE = 3_000_000_000
BOUND = 20_000_000_000  # after which a wait is reported
CONFIG = Config(bounds=Bounds(floor=BOUND))
NAMELESS = -(1 << 40)  # what a client calls itself: nobody else does
ONE_CLIENT = CLUSTER.hosts  # what the controller calls its connection


@dataclass
class Result:
    """What is left of a run, whoever drove it."""

    controller: Controller
    user: User
    logs: dict[str, bytes]  # by machine: all that it was told
    told: list[str]


def new_controller() -> Controller:
    return Controller(CLUSTER, config=CONFIG)


def new_host(host: int) -> Host:
    return Host(host, CLUSTER)


def idle(controller: Controller) -> bool:
    """The island runs, and its hosts have said of all that was ordered that it is over."""
    return controller.books.islands[0].phase == "running" and not controller.books.flights.any_on(0)


def controller_end(controller: Controller) -> tuple[Endpoint, Recorder]:
    recorder = Recorder(controller, About(machine="controller"))
    return for_controller(recorder, 1, LEASE), recorder


def host_end(host: Host, sink: Callable[[bytes], object]) -> Endpoint:
    recorder = Recorder(host, About(machine=host_name(host.host)), sink=sink)
    return for_host(recorder, host.host, 1, LEASE)


def user_end(user: User) -> Endpoint:
    return for_client(user.machine, NAMELESS, 1, LEASE)


def host_name(host: int) -> str:
    return f"host/{host}"
