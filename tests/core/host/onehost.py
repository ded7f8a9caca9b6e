"""One executor, a stream that numbers itself, and the few plans that its tests use.

Host 0 has devices 0 and 1, host 1 devices 2 and 3; together they are island 0. Host 2 is elsewhere.
"""

from __future__ import annotations

from typing import Any, TypeVar

from core import protocol as p
from core.host import Executor
from core.model.place import line
from core.model.plan import Gang, Layout, Move, Plan
from tests.core.hostworld import HOSTS, Cluster, gang, layout, plan

T = TypeVar("T")

ME = ((0, 1),)
NEAR, FAR = line(0, 0, 4), line(1, 4, 2)  # all of island 0; host 2
X = layout(NEAR)
BAD = p.Blame("user", "boom")


class Host:
    """An executor that is seated, and a stream that numbers itself."""

    def __init__(self, lane: str = "host") -> None:
        self.executor = Executor(0, Cluster(), lane=lane, incarnation=5)
        self.number = self.settled = self.epoch = 0
        assert self.hear(seat()) == [p.Reform(0, HOSTS, (), (("seat", 0),))]
        assert self.hear(p.Reformed(0)) == [p.ToController(p.Seated(0, 0, 0, 0), (("reformed", 0),))]

    def hear(self, event: Any) -> list[p.Command]:
        return self.executor.handle(event, 0)

    def read(self, *steps: p.Step, plans: tuple[Plan, ...] = (), runs: tuple[p.RunHeader, ...] = ()) -> list[p.Command]:
        self.number += 1
        return self.hear(p.Ordered(0, self.epoch, 0, self.number, HOSTS, self.settled, plans, runs, tuple(steps)))

    def run(self, made: Plan, run: int = 1, base: int = 100, args: tuple[int, ...] = (), **more: Any) -> Any:
        return self.read(plans=(made,), runs=(p.RunHeader(run, made.id, base, args, **more),))

    def put(self, buffer: int, where: Layout = X, name: int = 0) -> None:
        """Put a client's buffer, here and settled."""
        self.read(p.RecvStep(-9, -1, buffer, HOSTS, 9000 + buffer, -1, 7, name, where))
        self.hear(p.Received(9000 + buffer))
        self.read()


def seat(epoch: int = 0, tree: int = 0, host: int = 0, **more: Any) -> p.Seat:
    return p.Seat(0, epoch, tree, host, -1, (), HOSTS, 0, **more)


def enter(seq: int, step: int = 0, run: int = 1, **more: Any) -> p.GangStep:
    return p.GangStep(seq, run, step, HOSTS, **more)


def send(seq: int, step: int = 0, run: int = 1) -> p.SendStep:
    return p.SendStep(seq, run, step, HOSTS, seq)


def recv(seq: int, transfer: int, step: int = 0, after: int = -1) -> p.RecvStep:
    return p.RecvStep(seq, 1, step, HOSTS, transfer, after)


def launch(
    seq: int, step: int, inputs: tuple[int, ...], outputs: tuple[int, ...], *causes: Any, **more: Any
) -> p.Launch:
    facts: dict[str, Any] = {"sizes": (), "placeholders": False} | more
    given = facts.pop("donated", ())
    return p.Launch(seq=seq, run=1, step=step, reads=inputs, makes=outputs, gives=given, causes=causes, **facts)


def done(seq: int, cause: Any, blame: p.Blame | None = None, sizes: tuple[int, ...] = ()) -> p.ToController:
    return p.ToController(p.Done(seq, ME, blame, sizes), (cause,))


def chain(length: int, keep: bool = True) -> Plan:
    """x -> g0 -> g1 -> ..., slot 0 is argument 0."""
    steps: list[Any] = [gang(f"g{i}", NEAR, (i,), (i + 1,)) for i in range(length)]
    return plan(1, [X] * (length + 1), steps, args={0: 0}, keep=(length,) if keep else ())


def inbound(sparse: bool = False) -> Plan:
    """(elsewhere) -> move -> gang"""
    steps: list[Gang | Move] = [
        Move("in", (0,), (1,), sparse, 0),
        gang("reader", NEAR, (1,), (2,)),
        gang("other", NEAR, (), (3,)),
    ]
    return plan(1, [layout(FAR), X, X, X], steps, keep=(2, 3))


def outbound(sparse: bool = False) -> Plan:
    """gang -> move -> (elsewhere), and a gang that reads the same"""
    steps: list[Gang | Move] = [
        gang("maker", NEAR, (), (0,)),
        Move("out", (0,), (1,), sparse, 0),
        gang("reader", NEAR, (0,), (2,)),
    ]
    return plan(1, [X, layout(FAR), X], steps, keep=(2,))


def report(kind: type[T], *said: p.Command) -> T:
    """What the host reports to its controller, and all that it says."""
    (effect,) = said
    assert isinstance(effect, p.ToController)
    assert isinstance(effect.report, kind)
    return effect.report
