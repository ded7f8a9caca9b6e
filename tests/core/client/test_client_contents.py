"""The part of a client that moves contents, where it meets its session."""

from core.client.client import Client
from core.client.client_limits import Limits
from core.client.retries import FIRST
from core.model.place import line
from core.model.program import Arg, Program, Sharding, SliceSpec, Value
from core.protocol.dataplane import Spoilt
from core.protocol.effects import (
    CallsMade,
    Close,
    Command,
    Connected,
    Disconnected,
    DropTransfer,
    GetAgain,
    GetStarted,
    MessageReceived,
    OpenRecv,
    OpenSend,
    Received,
    Send,
    Sent,
    Wakeup,
)
from core.protocol.messages import (
    Blame,
    ClientMessages,
    ContentsReady,
    Ended,
    Get,
    GetAccepted,
    Opened,
    PutAccepted,
)
from core.protocol.peers import CONTROLLER

from ..hostworld import SAME, Cluster, layout

HERE = layout(line(0, 0, 4), sharding=SAME)
SLICE = SliceSpec("s", 1)
X = Value((4,), "float32")
ROWS = Sharding(((0,),))
LOST = Blame("host-lost", "host 1 was lost", host=1)


def of_contents(effect: Command) -> bool:
    """What a client does with contents, and does not say to its user."""
    if isinstance(effect, Send):
        return effect.peers != (CONTROLLER,)
    return isinstance(effect, DropTransfer | OpenRecv | OpenSend | Received | Sent)


def getting() -> tuple[Client, int]:
    """A client whose get is on its way as transfer 9."""
    client = Client("a", Cluster(), limits=Limits(get_retries=0))
    client.handle(Connected(CONTROLLER), 0)
    client.handle(MessageReceived(CONTROLLER, Opened(3, 0)), 0)
    buffer = client.put(Value((8,), "float32", 0, SAME), SliceSpec("s", 4), 0)
    assert isinstance(buffer, int)
    client.handle(MessageReceived(CONTROLLER, ContentsReady((buffer,))), 0)
    request = client.get(buffer, 0)
    assert isinstance(request, int)
    client.handle(CallsMade(), 0)
    opened = client.handle(MessageReceived(CONTROLLER, GetAccepted(request, 9, HERE)), 0)
    assert OpenRecv(9, 9, request, ((0, 0, 32),), False, (), None, HERE) in opened
    return client, request


def ended(effects: list[Command]) -> list[Command]:
    return [effect for effect in effects if isinstance(effect, Received)]


def test_a_get_under_way_fails_with_the_session() -> None:
    """A host that never heard of it, because the controller died, would never send."""
    client, request = getting()
    lost = Blame("client-lost", "the controller is unreachable: nothing heard for 5 s")
    told = client.handle(Disconnected(CONTROLLER, "nothing heard for 5 s"), 0)
    assert ended(told) == [Received(9, lost, request)]
    assert ended(client.handle(Disconnected(CONTROLLER), 0)) == []
    again = client.handle(Connected(CONTROLLER), 0)
    assert any(isinstance(effect, Send) for effect in again)
    assert ended(again) == []


def test_the_loss_of_another_peer_does_not_end_the_session() -> None:
    client, request = getting()
    assert ended(client.handle(Disconnected(7, "gone"), 0)) == []
    lost = Blame("host-lost", "host 0 and the client of these contents lost each other: gone", host=0)
    assert ended(client.handle(Disconnected(0, "gone"), 0)) == [Received(9, lost, request)]


def putting() -> tuple[Client, int]:
    """A client whose put is on its way as transfer 9."""
    client = Client("a", Cluster())
    client.handle(Connected(CONTROLLER), 0)
    client.handle(MessageReceived(CONTROLLER, Opened(3, 0)), 0)
    buffer = client.put(Value((8,), "float32", 0, SAME), SliceSpec("s", 4), 0)
    assert isinstance(buffer, int)
    opened = client.handle(MessageReceived(CONTROLLER, PutAccepted(buffer, 9, HERE)), 0)
    assert any(isinstance(effect, OpenSend) for effect in opened)
    return client, buffer


def test_a_failed_put_is_not_sent_further() -> None:
    client, buffer = putting()
    lost = Blame("host-lost", "host 1 was lost", host=1)
    said = client.handle(MessageReceived(CONTROLLER, ContentsReady((buffer,), lost)), 0)
    assert Sent(9) in said
    spoilt = [each.message for each in said if isinstance(each, Send) and isinstance(each.message, Spoilt)]
    assert [each.blame for each in spoilt] == [lost] * len(spoilt)
    assert spoilt


def test_hosts_that_know_a_client_by_an_old_number_are_told_the_new_one_over_a_new_link() -> None:
    """A message of the new session on a link of the old one would count for the old session."""
    client, _ = putting()
    client.handle(Disconnected(CONTROLLER, "it began anew", anew=True), 0)
    client.handle(Connected(CONTROLLER), 0)
    said = client.handle(MessageReceived(CONTROLLER, Opened(4, 0)), 0)
    assert [(each.peer, each.breach) for each in said if isinstance(each, Close)] == [(0, ""), (1, "")]
    assert Sent(9) in said
    again = client.handle(MessageReceived(CONTROLLER, Opened(4, 0)), 0)
    assert not any(isinstance(each, Close) for each in again)


# --- again -----------------------------------------------------------------------------------------------------


def test_contents_that_broke_off_are_sent_again_as_another_transfer() -> None:
    client = Client("a", Cluster())
    where = layout(line(0, 0, 4), sharding=SAME)
    client.handle(Connected(CONTROLLER), 0)
    client.handle(MessageReceived(CONTROLLER, Opened(3, 0)), 0)
    buffer = client.put(Value((8,), "float32", 0, SAME), SliceSpec("s", 4), 0)
    assert isinstance(buffer, int)
    client.handle(MessageReceived(CONTROLLER, ContentsReady((buffer,))), 0)
    request = client.get(buffer, 0)
    assert isinstance(request, int)
    client.handle(MessageReceived(CONTROLLER, GetAccepted(request, 9, where)), 0)
    told = client.handle(Disconnected(CONTROLLER, anew=True), 0)
    lost = Blame("client-lost", "the connection to the controller was lost meanwhile")
    assert GetAgain(request, 9, lost) in told
    assert not any(isinstance(each, Received) for each in told)
    again = client.handle(Connected(CONTROLLER), 0)
    assert Send((CONTROLLER,), Get(2, buffer)) in again
    opened = client.handle(MessageReceived(CONTROLLER, GetAccepted(2, 12, where)), 0)
    assert OpenRecv(12, 12, request, ((0, 0, 32),), False, (), None, where) in opened


def test_a_get_of_one_shard_is_one_also_when_it_is_asked_again() -> None:
    client = Client("a", Cluster())
    where = layout(line(0, 0, 4), sharding=ROWS)
    client.handle(Connected(CONTROLLER), 0)
    client.handle(MessageReceived(CONTROLLER, Opened(3, 0)), 0)
    buffer = client.put(X, SLICE, 0)
    assert isinstance(buffer, int)
    client.handle(MessageReceived(CONTROLLER, ContentsReady((buffer,))), 0)
    request = client.get(buffer, 0, shard=3)
    assert isinstance(request, int)
    assert Send((CONTROLLER,), Get(request, buffer, 3)) in client.handle(CallsMade(), 0)
    opened = client.handle(MessageReceived(CONTROLLER, GetAccepted(request, 9, where, -1, 3)), 0)
    assert GetStarted(request, 9, where, -1, 3) in opened
    assert OpenRecv(9, 9, request, ((1, 3, 8),), False, (), None, where) in opened
    client.handle(Disconnected(CONTROLLER, anew=True), 0)
    assert Send((CONTROLLER,), Get(2, buffer, 3)) in client.handle(Connected(CONTROLLER), 0)


def test_a_put_is_sent_again_from_the_buffer_that_the_user_named() -> None:
    client = Client("a", Cluster())
    where = layout(line(0, 0, 4), sharding=SAME)
    client.handle(Connected(CONTROLLER), 0)
    client.handle(MessageReceived(CONTROLLER, Opened(3, 0)), 0)
    client.register(Program("f", (SLICE,), (), (X,), (), (Arg(0),)), 0)
    buffer = client.put(X, SLICE, 0, again=True)
    assert isinstance(buffer, int)
    client.submit(1, (buffer,), 0, retries=1)
    client.handle(
        MessageReceived(CONTROLLER, ClientMessages((ContentsReady((buffer,), LOST), Ended(1, LOST)))), 0
    )
    client.handle(Wakeup(), FIRST)
    opened = client.handle(MessageReceived(CONTROLLER, PutAccepted(3, 9, where)), FIRST)
    assert [each.buffer for each in opened if isinstance(each, OpenSend)] == [buffer]
