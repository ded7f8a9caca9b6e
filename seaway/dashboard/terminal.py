"""What goes on, as tables for a terminal: `seaway top`. The tables are drawn by rich (MIT), an extra.

Neighbours: `recent`, the numbers of the last seconds; `cli.top`, which shows this again and again.
"""

from typing import Literal

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from core.model import spans
from core.record import LiveLook, LiveView, QueueLine, WaitLine

from .. import machines
from ..wording import duration, plural
from .recent import RecentUse

COLORS = ("blue", "yellow", "green", "magenta", "cyan", "red", "bright_yellow")  # as the figures' first ones
BAR = 16  # characters of a share's bar
WAITS, FAILURES = 8, 5  # lines


def screen(title: str, islands: list[machines.TraceIsland], look: LiveLook, recent: RecentUse) -> RenderableType:
    """All of it, as of one look."""
    view = look.view
    if view is None:
        return Text("nothing is known of this moment")
    devices = sum(each.devices for each in islands)
    used = recent.used()
    busy = sum(used.values()) / max(1.0, devices * recent.seconds * 1e9)
    head = Text.assemble(
        (title, "bold"), f"   {busy:.0%} of device time used in {recent.seconds:.0f} s",
        f"   {len(recent.gangs) / recent.seconds:,.0f} gangs/s   {len(recent.runs) / recent.seconds:,.1f} runs/s",
    )  # fmt: skip
    parts: list[RenderableType] = [head, "", _islands(islands, look, view), "", _clients(view, recent, used)]
    if view.queues or view.waits:
        parts += ["", _waits(view, look.now)]
    broken = (line for line in view.islands if line.broken)
    parts += [Text(f"island {each.name!r} breaks again and again: {each.broken}", "red") for each in broken]
    failed = recent.failures()[:FAILURES]
    parts += [""] * bool(failed)
    parts += [Text(f"failed: {each.program}: {each.blame}: {each.cause}", "red") for each in failed]
    return Group(*parts)


def _table(*columns: str) -> Table:
    """Columns that begin with ">" are numbers."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for column in columns:
        side: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        table.add_column(column.lstrip(">"), justify=side, overflow="fold")
    return table


def _islands(islands: list[machines.TraceIsland], look: LiveLook, view: LiveView) -> Table:
    table = _table("island", "state", ">hosts", ">devices", ">under way", "policy")
    for island, line in zip(islands, view.islands, strict=True):
        here = spans.meet(look.connected, ((island.base_host, island.base_host + island.hosts),))
        color = "green" if line.phase == "running" else "yellow"
        table.add_row(
            escape(line.name), f"[{color}]{line.phase}[/]", f"{spans.count(here)}/{island.hosts}",
            f"{island.devices:,}", f"{line.under_way}", escape(line.policy),
        )  # fmt: skip
    return table


def _clients(view: LiveView, recent: RecentUse, used: dict[int, int]) -> Table:
    table = _table("client", ">weight", "share of used time", ">asked", ">under way", ">runs/s", ">p50", ">p99")
    total = max(1, sum(used.values()))
    weights = max(1, sum(each.weight for each in view.clients if used.get(each.number)))
    for at, each in enumerate(view.clients):
        share = used.get(each.number, 0) / total
        latencies = recent.latencies(each.number)
        bar = f"[{COLORS[at % len(COLORS)]}]{'█' * round(BAR * share):{BAR}}[/] {share:4.0%}"
        asked = f"{each.weight / weights:.0%}" if used.get(each.number) else ""
        table.add_row(
            escape(each.name), f"{each.weight}", bar, asked, f"{each.runs}",
            f"{len(latencies) / recent.seconds:.1f}", _quantile(latencies, 0.5), _quantile(latencies, 0.99),
        )  # fmt: skip
    return table


def _waits(view: LiveView, now: int) -> Table:
    table = _table("what waits", "of", "why", ">", ">for")
    lines: list[QueueLine | WaitLine] = sorted((*view.queues, *view.waits), key=lambda line: line.since)
    for each in lines[:WAITS]:
        why = escape(each.text if isinstance(each, QueueLine) else each.reason)
        reason = f"[yellow]{why}[/]" if isinstance(each, WaitLine) and each.stalled else why
        count = f"x{each.count}" if each.count > 1 else ""
        table.add_row(escape(each.program), escape(each.client), reason, count, duration(now - each.since))
    if len(lines) > WAITS:
        table.add_row(f"and {plural(len(lines) - WAITS, 'more line')}", "", "", "", "")
    return table


def _quantile(numbers: list[int], part: float) -> str:
    return duration(numbers[min(len(numbers) - 1, int(part * len(numbers)))]) if numbers else ""
