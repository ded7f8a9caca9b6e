"""The other half of the small core: what runs on each host."""

from __future__ import annotations

from . import vocabulary as v
from .minicore import CONTROLLER, chain


class Executor:
    """One host: launches what it is told in the order it is told, and says when it is done."""

    def __init__(self, name: str) -> None:
        self.name, self.order_hash = name, ""
        self._members: tuple[str, ...] = ()
        self._epoch = self._order = 0
        self._outputs: dict[int, v.Key] = {}
        self._present: set[v.Key] = set()
        self._fetches: dict[v.Key, list[str]] = {}

    def next_wakeup(self) -> int | None:
        return None

    def handle(self, event: v.Event, now: int) -> list[v.Command]:
        match event:
            case v.Received(message=v.Form(epoch, members)):
                self._epoch, self._members = epoch, members
                return [v.JoinWorld(epoch, members.index(self.name), members)]
            case v.WorldJoined(epoch):
                return [v.Send((CONTROLLER,), v.Joined(epoch))]
            case v.Received(message=v.Compile(key, blob, cost_ns)):
                return [v.Build(key, blob, cost_ns)]
            case v.Built(key, error):
                return [v.Send((CONTROLLER,), v.Ready(key, error))]
            case v.Received(message=v.Gang(epoch, order, key, argument, output)):
                if (epoch, order) != (self._epoch, self._order + 1):
                    raise ValueError(f"gang {epoch}.{order} after {self._epoch}.{self._order}")
                self._order, self._outputs[order] = order, output
                self.order_hash = chain(self.order_hash, order, key, output)
                return [v.Launch(order, key, argument, output, self._members)]
            case v.Launched(order):
                return [v.Send((CONTROLLER,), v.Enqueued(order))]
            case v.Ended(order, error):
                output = self._outputs.pop(order)
                self._present.add(output)
                waiting = [v.Deliver(peer, output) for peer in self._fetches.pop(output, [])]
                return [v.Send((CONTROLLER,), v.Finished(order, error)), *waiting]
            case v.Received(peer, v.Fetch(buffer)):
                if buffer in self._present:
                    return [v.Deliver(peer, buffer)]
                self._fetches.setdefault(buffer, []).append(peer)
            case v.Received(message=v.Free(buffer)):
                self._present.discard(buffer)
                return [v.Drop(buffer)]
            case _:
                pass
        return []
