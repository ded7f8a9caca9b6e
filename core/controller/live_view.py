"""What goes on in the controller now, in a few lines a client, for those who look again and again.

A `Snapshot` has an entry for each gang and each run; this has one for each *kind* of them, so its size does not grow
with what waits. Neighbours: `snapshot`; `core.record.looks`, what it consists of; `stalls` and the schedulers, which
know the reasons.
"""

from ..record import ClientLine, IslandLine, LiveView, QueueLine, RefusalLine, WaitLine
from ..schedule import GangQueue
from .controller import Controller
from .records import ClientRecord, RunRecord
from .stalls import StallGroup
from .state import IslandState

MOST = 200  # lines of a kind that are shown: those that have waited longest


def live_view(controller: Controller) -> LiveView:
    """Look at a controller between two events. It changes nothing."""
    state = controller.state
    queues = [_queue(island, each) for island in state.islands for each in island.scheduler.queues()]
    queues.sort(key=lambda line: line.since)
    return LiveView(
        tuple(map(_island, state.islands)),
        tuple(map(_client, state.sessions.values())),
        tuple(queues[:MOST]),
        tuple(map(_wait, controller.stalls.groups()[:MOST])),
        tuple(RefusalLine(each.name, each.reason, each.at) for each in controller.resources.refusals.all()),
        controller.left(), state.stalls_ever, state.incarnation,
    )  # fmt: skip


def _island(island: IslandState) -> IslandLine:
    scheduler = island.scheduler
    return IslandLine(
        island.island.name, island.phase, island.epoch, island.members, type(scheduler.policy).__name__,
        len(island.in_flight), island.stream.backlog, island.broken.text, island.broken.since,
    )  # fmt: skip


def _client(session: ClientRecord) -> ClientLine:
    return ClientLine(
        session.number, session.name, session.weight, session.priority, len(session.programs), len(session.runs)
    )


def _queue(island: IslandState, queue: GangQueue) -> QueueLine:
    first = queue.first.ticket
    run = first.owner
    assert type(run) is RunRecord
    program, step = run.describe(first.step)
    return QueueLine(
        island.island.name, run.session.name, program, step, queue.devices, queue.first.why, queue.first.text,
        queue.count, first.since,
    )  # fmt: skip


def _wait(group: StallGroup) -> WaitLine:
    found = group.first
    return WaitLine(
        found.island, found.client, found.program, found.node, found.hosts, found.reason, group.number,
        found.since, group.stalled,
    )  # fmt: skip
