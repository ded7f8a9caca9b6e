"""What a host says about itself: mistakes in the stream, blames of its own devices, reports that it repeats."""

from __future__ import annotations

from msgspec.structs import replace

from ..protocol import Blame, HostFault, Lost, Report, ToController
from .host_state import HostState


def fault(state: HostState, text: str, seq: int = -1) -> Blame:
    """The controller said something that makes no sense here. It is told so, and nothing is raised."""
    blame = Blame("protocol", text)
    state.out.append(ToController(HostFault(state.host, seq, blame), state.order))
    return blame


def own_blame(state: HostState, blame: Blame | None, program: str = "", node: str = "") -> Blame | None:
    """A blame from this host's own devices, with the names that the devices do not know."""
    if blame is None or blame.host >= 0:
        return blame
    return replace(blame, host=state.host, program=blame.program or program, node=blame.node or node)


def repeat(state: HostState, report: Report) -> None:
    """Say it again, for the hosts for which this executor stands now."""
    if not isinstance(report, (HostFault, Lost)) and report.hosts != state.members:
        report = replace(report, hosts=state.members)
    state.out.append(ToController(report, state.order))
