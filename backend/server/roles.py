"""Which calls an account may make, by its role. What comes on a stream is core's to decide.

Neighbours: `server`, which asks before it answers; `core.model.account`, which says what the roles are.
"""

from collections.abc import Iterable

import grpc
import msgspec

from core.controller import ClientView
from core.model import Account, Role
from core.record import Look

from ..node import CallError
from ..wire import call_messages as calls

LOOKS: frozenset[Role] = frozenset(("viewer", "user", "operator", "cluster"))
RUNS: frozenset[Role] = frozenset(("user", "operator", "cluster"))
HOSTS: frozenset[Role] = frozenset(("cluster",))
OPERATES: frozenset[Role] = frozenset(("operator", "cluster"))
MAY: dict[type[msgspec.Struct], frozenset[Role]] = {
    calls.GrowCall: OPERATES,
    **dict.fromkeys((calls.Enrol, calls.Find, calls.Tick), HOSTS),
    **dict.fromkeys((calls.Keep, calls.Lacks, calls.Permit, calls.CancelCall, calls.OperateCall), RUNS),
    **dict.fromkeys((calls.AboutReply, calls.SeenReply, calls.Status, calls.UsageCall, calls.Recorded, Look), LOOKS),
}


def why_not(account: Account, request: msgspec.Struct, clients: Iterable[ClientView]) -> str:
    """Why this account may not make this call; "" if it may. `clients`: those that are there."""
    who, kind = f"account {account.name!r} is a {account.role}'s", type(request)
    if account.role not in MAY[kind]:
        need = " or ".join(sorted(MAY[kind] - {"cluster"}))
        called = kind.__name__.removesuffix("Call").removesuffix("Reply")
        return f"{who}, and {called} needs {f'the role {need}' if need else 'the token of the cluster'}"
    if isinstance(request, calls.CancelCall | calls.OperateCall) and account.role == "user":
        what = "cancels" if isinstance(request, calls.CancelCall) else "moves and suspends"
        if not request.client:
            return f"{who}, and hosts are for the role operator"
        for each in named(clients, request.client):
            if each.account != account.name:
                return f"{who}, and {what} only its own; client {each.number} is of account {each.account!r}"
    return ""


def named(clients: Iterable[ClientView], name: str) -> list[ClientView]:
    """The clients that somebody calls by a number, a name, or their account."""
    return [each for each in clients if name and name in (str(each.number), each.name, each.account)]


def only(clients: Iterable[ClientView], name: str) -> ClientView:
    """The one that is called so. Raises CallError."""
    found = named(clients, name)
    if len(found) != 1:
        several = f"{len(found)} clients are" if found else "no client is"
        raise CallError(f"{several} called {name!r}", grpc.StatusCode.NOT_FOUND)
    return found[0]
