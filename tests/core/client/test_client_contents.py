"""The part of a client that moves contents, where it meets its session."""

import pytest

from core import protocol as p
from core.client.client import Client
from core.client.client_limits import Limits
from core.client.retries import FIRST
from core.model.place import line
from core.model.program import Arg, Program, Sharding, SliceSpec, Value

from ..hostworld import SAME, Cluster, layout

HERE = layout(line(0, 0, 4), sharding=SAME)
SLICE = SliceSpec("s", 1)
X = Value((4,), "float32")
EVERYWHERE = Value((8,), "float32", 0, SAME)
ROWS = Sharding(((0,),))
LOST = p.Blame("host-lost", "host 1 was lost", host=1)


def of_contents(effect: p.Command) -> bool:
    """What a client does with contents, and does not say to its user."""
    if isinstance(effect, p.Send):
        return effect.peers != (p.CONTROLLER,)
    return isinstance(effect, p.DropTransfer | p.OpenRecv | p.OpenSend | p.Received | p.Sent)


def opened(value: Value = EVERYWHERE, ready: bool = True, **limits: int) -> tuple[Client, int]:
    """A client whose connection is open, and an array that it has put."""
    client = Client("a", Cluster(), limits=Limits(**limits))
    client.handle(p.Connected(p.CONTROLLER), 0)
    client.handle(p.MessageReceived(p.CONTROLLER, p.Opened(3, 0)), 0)
    buffer = client.put(value, SliceSpec("s", 4), 0)
    assert isinstance(buffer, int)
    if ready:
        client.handle(p.MessageReceived(p.CONTROLLER, p.ContentsReady((buffer,))), 0)
    return client, buffer


def asked(client: Client, buffer: int, **more: int) -> int:
    request = client.get(buffer, 0, **more)
    assert isinstance(request, int)
    return request


def getting(early: bool = False) -> tuple[Client, int]:
    """A client whose get is on its way as transfer 9."""
    client, buffer = opened(ready=not early, get_retries=0)
    request = asked(client, buffer)
    client.handle(p.CallsMade(), 0)
    said = client.handle(p.MessageReceived(p.CONTROLLER, p.GetAccepted(request, 9, HERE, early=early)), 0)
    assert p.OpenRecv(9, 9, (request,), ((0, 0, 32),), False, (), (), (HERE,)) in said
    return client, request


def settled(client: Client, blame: p.Blame | None = None) -> list[p.Command]:
    return ended(client.handle(p.MessageReceived(p.CONTROLLER, p.GetSettled(9, blame)), 0))


CONTENTS = p.MessageReceived(0, p.Chunk(9, 0, -3, 0, 0, 32))
SPOILT = p.MessageReceived(0, p.Spoilt(9, 0, -3, p.Blame("peer", "the connection to another host was lost", host=0)))


def ended(effects: list[p.Command]) -> list[p.Command]:
    return [effect for effect in effects if isinstance(effect, p.Received)]


def test_a_get_under_way_fails_with_the_session() -> None:
    """A host that never heard of it, because the controller died, would never send."""
    client, request = getting()
    lost = p.Blame("client-lost", "the controller is unreachable: nothing heard for 5 s")
    told = client.handle(p.Disconnected(p.CONTROLLER, "nothing heard for 5 s"), 0)
    assert ended(told) == [p.Received(9, lost, request)]
    assert ended(client.handle(p.Disconnected(p.CONTROLLER), 0)) == []
    again = client.handle(p.Connected(p.CONTROLLER), 0)
    assert any(isinstance(effect, p.Send) for effect in again)
    assert ended(again) == []


def test_the_loss_of_another_peer_does_not_end_the_session() -> None:
    client, request = getting()
    assert ended(client.handle(p.Disconnected(7, "gone"), 0)) == []
    lost = p.Blame("host-lost", "host 0 and the client of these contents lost each other: gone", host=0)
    assert ended(client.handle(p.Disconnected(0, "gone"), 0)) == [p.Received(9, lost, request)]


def putting() -> tuple[Client, int]:
    """A client whose put is on its way as transfer 9."""
    client, buffer = opened(ready=False)
    said = client.handle(p.MessageReceived(p.CONTROLLER, p.PutAccepted(buffer, 9, HERE)), 0)
    assert any(isinstance(effect, p.OpenSend) for effect in said)
    return client, buffer


def test_a_failed_put_is_not_sent_further() -> None:
    client, buffer = putting()
    lost = p.Blame("host-lost", "host 1 was lost", host=1)
    said = client.handle(p.MessageReceived(p.CONTROLLER, p.ContentsReady((buffer,), lost)), 0)
    assert p.Sent(9) in said
    spoilt = [each.message for each in said if isinstance(each, p.Send) and isinstance(each.message, p.Spoilt)]
    assert [each.blame for each in spoilt] == [lost] * len(spoilt)
    assert spoilt


def test_hosts_that_know_a_client_by_an_old_number_are_told_the_new_one_over_a_new_link() -> None:
    """A message of the new session on a link of the old one would count for the old session."""
    client, _ = putting()
    client.handle(p.Disconnected(p.CONTROLLER, "it began anew", anew=True), 0)
    client.handle(p.Connected(p.CONTROLLER), 0)
    said = client.handle(p.MessageReceived(p.CONTROLLER, p.Opened(4, 0)), 0)
    assert [(each.peer, each.breach) for each in said if isinstance(each, p.Close)] == [(0, ""), (1, "")]
    assert p.Sent(9) in said
    again = client.handle(p.MessageReceived(p.CONTROLLER, p.Opened(4, 0)), 0)
    assert not any(isinstance(each, p.Close) for each in again)


# --- early ------------------------------------------------------------------------------------------------------


def test_early_contents_are_kept_until_they_are_known_to_be_final() -> None:
    client, request = getting(early=True)
    assert ended(client.handle(CONTENTS, 0)) == []
    assert settled(client) == [p.Received(9, None, request)]
    assert settled(client) == []  # what makes no difference any more


def test_contents_may_come_after_they_are_known_to_be_final() -> None:
    client, request = getting(early=True)
    assert settled(client) == []
    assert ended(client.handle(CONTENTS, 0)) == [p.Received(9, None, request)]


@pytest.mark.parametrize("came", [CONTENTS, SPOILT, None])
def test_early_contents_of_what_fails_are_nothing_and_the_reason_is_the_controllers(
    came: p.MessageReceived | None,
) -> None:
    client, request = getting(early=True)
    assert came is None or ended(client.handle(came, 0)) == []
    assert settled(client, LOST) == [p.Received(9, LOST, request)]


@pytest.mark.parametrize("came", [CONTENTS, None])
def test_early_contents_end_with_their_session(came: p.MessageReceived | None) -> None:
    client, request = getting(early=True)
    assert came is None or ended(client.handle(came, 0)) == []
    lost = p.Blame("client-lost", "the controller is unreachable: nothing heard for 5 s")
    assert ended(client.handle(p.Disconnected(p.CONTROLLER, "nothing heard for 5 s"), 0)) == [
        p.Received(9, lost, request)
    ]
    assert ended(client.handle(p.Connected(p.CONTROLLER), 0)) == []


# --- again -----------------------------------------------------------------------------------------------------


def test_contents_that_broke_off_are_sent_again_as_another_transfer() -> None:
    client, buffer = opened()
    request = asked(client, buffer)
    client.handle(p.MessageReceived(p.CONTROLLER, p.GetAccepted(request, 9, HERE)), 0)
    told = client.handle(p.Disconnected(p.CONTROLLER, anew=True), 0)
    lost = p.Blame("client-lost", "the connection to the controller was lost meanwhile")
    assert p.GetAgain(request, 9, lost) in told
    assert not any(isinstance(each, p.Received) for each in told)
    again = client.handle(p.Connected(p.CONTROLLER), 0)
    assert p.Send((p.CONTROLLER,), p.Get(2, buffer)) in again
    said = client.handle(p.MessageReceived(p.CONTROLLER, p.GetAccepted(2, 12, HERE)), 0)
    assert p.OpenRecv(12, 12, (request,), ((0, 0, 32),), False, (), (), (HERE,)) in said


def test_a_get_of_one_shard_is_one_also_when_it_is_asked_again() -> None:
    client, buffer = opened(X)
    where = layout(line(0, 0, 4), sharding=ROWS)
    request = asked(client, buffer, shard=3)
    assert p.Send((p.CONTROLLER,), p.Get(request, buffer, 3)) in client.handle(p.CallsMade(), 0)
    said = client.handle(p.MessageReceived(p.CONTROLLER, p.GetAccepted(request, 9, where, -1, 3)), 0)
    assert p.GetStarted(request, 9, where, -1, 3) in said
    assert p.OpenRecv(9, 9, (request,), ((1, 3, 8),), False, (), (), (where,)) in said
    client.handle(p.Disconnected(p.CONTROLLER, anew=True), 0)
    assert p.Send((p.CONTROLLER,), p.Get(2, buffer, 3)) in client.handle(p.Connected(p.CONTROLLER), 0)


def test_a_put_is_sent_again_from_the_buffer_that_the_user_named() -> None:
    client = Client("a", Cluster())
    where = layout(line(0, 0, 4), sharding=SAME)
    client.handle(p.Connected(p.CONTROLLER), 0)
    client.handle(p.MessageReceived(p.CONTROLLER, p.Opened(3, 0)), 0)
    client.register(Program("f", (SLICE,), (), (X,), (), (Arg(0),)), 0)
    buffer = client.put(X, SLICE, 0, again=True)
    assert isinstance(buffer, int)
    client.submit(1, (buffer,), 0, retries=1)
    client.handle(
        p.MessageReceived(p.CONTROLLER, p.ClientMessages((p.ContentsReady((buffer,), LOST), p.Ended(1, LOST)))), 0
    )
    client.handle(p.Wakeup(), FIRST)
    said = client.handle(p.MessageReceived(p.CONTROLLER, p.PutAccepted(3, 9, where)), FIRST)
    assert [each.buffers for each in said if isinstance(each, p.OpenSend)] == [(buffer,)]
