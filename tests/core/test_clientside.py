"""A client's share of the data plane, where it meets its session."""

from core.client import Client
from core.clientside import ClientSide
from core.effects import Called, Came, Connected, Disconnected, Effect, OpenRecv, Received, Send
from core.messages import Blame, Opened, Ready, Sending
from core.peers import CONTROLLER
from core.place import line
from core.program import SliceSpec, Value

from .hostworld import SAME, Cluster, layout

HERE = layout(line(0, 0, 4), sharding=SAME)


def getting() -> tuple[ClientSide, int]:
    """A client whose get is on its way as transfer 9."""
    client = Client("a")
    side = ClientSide(client, Cluster())
    side.handle(Connected(CONTROLLER), 0)
    side.handle(Came(CONTROLLER, Opened(3, 0)), 0)
    buffer = client.put(Value((8,), "float32", 0, SAME), SliceSpec("s", 4), 0)
    assert isinstance(buffer, int)
    side.handle(Came(CONTROLLER, Ready((buffer,))), 0)
    request = client.get(buffer, 0)
    assert isinstance(request, int)
    side.handle(Called(), 0)
    opened = side.handle(Came(CONTROLLER, Sending(request, 9, HERE)), 0)
    assert OpenRecv(9, 9, request, ((0, 0, 32),), False, (), None, HERE) in opened
    return side, request


def ended(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, Received)]


def test_a_get_on_its_way_dies_with_the_session() -> None:
    """A host that never heard of it, because the controller died, would never send."""
    side, _ = getting()
    lost = Blame("client-lost", "the connection to the controller was lost meanwhile")
    assert ended(side.handle(Disconnected(CONTROLLER), 0)) == [Received(9, lost)]
    assert ended(side.handle(Disconnected(CONTROLLER), 0)) == []
    again = side.handle(Connected(CONTROLLER), 0)
    assert any(isinstance(effect, Send) for effect in again)
    assert ended(again) == []


def test_the_loss_of_another_peer_is_no_loss_of_the_session() -> None:
    side, _ = getting()
    assert ended(side.handle(Disconnected(7, "gone"), 0)) == []
    assert ended(side.handle(Disconnected(0, "gone"), 0)) == [Received(9, Blame("host-lost", "gone", host=0))]
