"""A client that its controller has given up, and that comes back, learns what happened, and hears of no restart where
there was none."""

from __future__ import annotations

import pytest

from core import protocol as p
from core.client.retries import infrastructure
from core.controller import Controller
from core.link.endpoint import ANEW
from core.model import Layout, Sharding
from core.model.place import line
from core.model.topology import small
from tests.core.build import Build
from tests.golden.failing import _steps
from tests.golden.running import _good, _world, _zeros
from tests.world.timing import S

from .rig import CLIENT, HOST, Rig

AGAIN = 2  # its next connection
NOT_RESTARTED = "this client and the controller, which was not restarted, lost each other "
UNHEARD = "(the client heard nothing from the controller for longer than the lease)"
SILENT = "(by the controller's account: nothing heard for 10 s)"


def lost_client(reason: str) -> Rig:
    """A client with a run under way. The controller has not heard from it for a lease."""
    rig = Rig(1)
    build = Build("work", s=1)
    rig.say(CLIENT, p.Open("ann"))
    rig.say(CLIENT, p.Register(1, build.program(build.call("make", "s", [build.arg("s", 4)]))))
    rig.say(CLIENT, p.Submit(1, 1, (bytes(16),), (11,)))
    rig.controller.handle(p.Disconnected(CLIENT, reason, reason == ANEW), 0)
    return rig


def told_on_return(rig: Rig, opening: p.Open) -> list[object]:
    """What the client is told when it comes back."""
    rig.controller.handle(p.Connected(AGAIN), 0)
    said = [
        effect.message
        for effect in rig.controller.handle(p.MessageReceived(AGAIN, opening), 0)
        if isinstance(effect, p.Send) and effect.peers == (AGAIN,)
    ]
    return [note for each in said for note in (each.notes if isinstance(each, p.ClientMessages) else (each,))]


@pytest.mark.parametrize(("reason", "why"), [(ANEW, UNHEARD), ("nothing heard for 10 s", SILENT)])
def test_a_controller_that_was_not_restarted_does_not_say_that_it_was(reason: str, why: str) -> None:
    rig = lost_client(reason)
    opened, freed, ended = told_on_return(rig, p.Open("ann", client=1, held=(11,), open_runs=(1,)))
    assert opened == p.Opened(2, 0, all_hosts=((1, 1),))
    assert freed == p.ContentsReady((11,), p.Blame("client-lost", f"{NOT_RESTARTED}{why}: it was freed"))
    assert ended == p.Ended(1, p.Blame("client-lost", f"{NOT_RESTARTED}{why}: it was cut short"))
    assert isinstance(ended, p.Ended)
    assert ended.blame is not None
    assert infrastructure(ended.blame), "it is submitted again, if its user wants that"


@pytest.mark.parametrize("number", [0, 7])
def test_a_client_of_an_earlier_start_is_told_of_a_restart(number: int) -> None:
    rig = lost_client(ANEW)
    (_, ended) = told_on_return(rig, p.Open("bob", client=number, open_runs=(3,)))
    assert ended == p.Ended(3, p.Blame("restart", "the controller was restarted while this ran"))


def test_runs_that_a_silent_network_cut_short_are_reported_as_that_and_the_client_goes_on() -> None:
    world = _world(hosts=2)
    program = _steps(3, devices=2, cost=2 * S)
    client = world.client("a")
    short = _steps(1, devices=2)
    kept = client.submit(short, *_zeros(short))
    assert world.run_until(lambda: kept.ended)
    run = client.submit(program, *_zeros(program))
    assert world.run_until(lambda: len(world.gangs) > 1)
    world.cut("controller", "client a", silent=True)
    world.run_for(3 * S)  # the lease is 2 s
    assert run.blame is not None
    assert str(run.blame) == "[client-lost] the controller is unreachable: nothing heard for 2 s"
    world.mend("controller", "client a")
    assert world.run(limit=60 * S)
    late = client.submit(short, kept.results[0])
    assert world.run(limit=60 * S)
    assert late.blame is not None
    assert (late.blame.code, late.blame.cause.startswith(NOT_RESTARTED)) == ("client-lost", True)
    _good(world, client.submit(short, *_zeros(short)))


def test_what_it_knows_to_be_spoilt_is_not_given_back_though_a_host_still_has_it() -> None:
    """A run that failed may have made it; a restarted controller knows nothing of that run."""
    rig = Rig(1, joined=0)
    rig.controller = Controller(small(1, 1), incarnation=1)
    layout = Layout((4,), "float32", line(0, 0, 1), (1,), Sharding())
    held = tuple(p.Held(buffer, 3, name, layout, ready=True) for buffer, name in ((7, 11), (8, 12)))
    rig.say(HOST, p.Join(0, 0, held=held))
    told = told_on_return(rig, p.Open("ann", client=3, held=(11, 12), spoilt=(12,)))
    spoilt = p.Blame("lost", "it was lost, or what was to make it had failed, before the controller was restarted")
    assert [note for note in told if isinstance(note, p.ContentsReady)] == [
        p.ContentsReady((11,)), p.ContentsReady((12,), spoilt),
    ]  # fmt: skip
    assert [buffer.name for buffer in rig.controller.buffers] == [11]
