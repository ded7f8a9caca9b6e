"""`seaway log` and `seaway replay`: show the events that a real controller received, and run them again here."""

import argparse
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from backend.server import eventlogs, policy_from
from core.controller import Controller
from core.model import Impossible, spans
from core.record import Diverged, Log, LogError, Replayable, Trace, replayed

from .. import __version__
from ..wording import duration, plural

HISTORY = 8  # events shown before the one that differs
WIDTH = 160


def add(commands: Any) -> None:
    reader = commands.add_parser(
        "log",
        help="show an event log",
        description="Shows the events that a controller received, as recorded by `record=` or "
        "`seaway controller --record`.",
    )
    reader.add_argument(
        "--kind", action="append", default=[], help="only events of this kind, such as Came; may be repeated"
    )
    reader.add_argument("--full", action="store_true", help="whole lines, however long")
    reader.set_defaults(run=show)
    again = commands.add_parser(
        "replay",
        help="run an event log again",
        description="Feeds the log's events to a fresh controller, and compares its commands with the recorded "
        "ones. The exit status is 0 if all are equal, to the byte.",
    )
    again.add_argument("--stop", type=int, metavar="N", help="stop after event N, and show the controller's state")
    again.add_argument("--policy", default="", metavar="POLICY",
                       help="the policy, if it is none of Seaway's or of an installed package: FILE.py:NAME or "
                       "module:NAME. Its code runs: a log itself can name none")  # fmt: skip
    again.add_argument("--save", type=Path, metavar="FOLDER", help="save the trace of the replay, as Parquet")
    again.set_defaults(run=replay)
    for parser in (reader, again):
        add_log(parser)
        parser.add_argument(
            "--partial", action="store_true", help="accept a log that was cut short, and read it as far as it goes"
        )
    reader.add_argument("--first", type=int, default=0, metavar="N", help="from event N on")
    reader.add_argument("--last", type=int, metavar="N", help="up to event N")


def add_log(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", type=Path, metavar="LOG", help="an event log, or a folder of `--record`")
    parser.add_argument("--start", type=int, metavar="N", help="start N in the folder; default: the latest one")


def opened(path: Path, partial: bool) -> Log:
    log = eventlogs.read(path, partial=partial)
    if log.about.core != __version__:
        print(f"recorded by seaway {log.about.core}, read by {__version__}", file=sys.stderr)
    return log


# --- seaway log -----------------------------------------------------------------------------------------------------


def show(given: argparse.Namespace) -> int:
    path = eventlogs.chosen_log(given.log, given.start)
    log = opened(path, given.partial)
    print(heading(log, path))
    known = sorted({kind_of(entry) for entry in log.entries})
    for kind in given.kind:
        if kind not in known:
            raise Impossible(f"--kind {kind}: this log has {', '.join(known)}")
    for index, entry in enumerate(log.entries):
        if index < given.first or (given.last is not None and index > given.last):
            continue
        if not given.kind or kind_of(entry) in given.kind:
            print(line_of(log, index, WIDTH if not given.full else 0))
    return 0


def heading(log: Log, path: Path) -> str:
    entries = log.entries
    lasts = entries[-1].now - entries[0].now if entries else 0
    cluster = eventlogs.cluster_of(log.about)
    size = path.stat().st_size
    each = size / max(1, len(entries))
    islands, hosts = plural(len(cluster.islands), "island"), plural(cluster.hosts, "host")
    return (
        f"{path}: {plural(len(entries), 'event')} in {duration(lasts)}, {size:,} bytes ({each:.0f} an event)\n"
        f"seaway {log.about.core}, policy {log.about.policy}; {islands}, {hosts}, {plural(cluster.devices, 'device')}"
    ) + ("" if log.whole else "\ncut short: its writer was killed, or still writes")


def kind_of(entry: Replayable) -> str:
    return type(entry.event).__name__


def line_of(log: Log, index: int, width: int = WIDTH) -> str:
    entry = log.entries[index]
    line = f"{index:8} {(entry.now - log.entries[0].now) / 1e6:12.3f} ms  {entry.event}"
    return line if not width or len(line) <= width else f"{line[: width - 3]}..."


# --- seaway replay --------------------------------------------------------------------------------------------------


def replay(given: argparse.Namespace) -> int:
    path = eventlogs.chosen_log(given.log, given.start)
    log = opened(path, given.partial)
    if given.stop is not None and not 0 <= given.stop < len(log.entries):
        raise Impossible(f"--stop {given.stop}: the log has events 0 to {len(log.entries) - 1}")
    trace = Trace()
    try:
        controller = eventlogs.machine_of(
            log.about, policy=policy_from(given.policy) if given.policy else None, trace=trace
        )
    except LogError as error:
        raise Impossible(f"{path}: {error}") from None
    print(heading(log, path))
    begun = time.process_time()
    recent: deque[Sequence[Any]] = deque(maxlen=HISTORY)
    try:
        for index, commands in enumerate(replayed(log, controller)):
            recent.append(commands)
            if index == given.stop:
                break
    except Diverged as diverged:
        print("\n".join(difference(log, diverged, recent)))
        return 1
    told = len(log.entries) if given.stop is None else given.stop + 1
    took = time.process_time() - begun
    print(f"{plural(told, 'event')} replayed in {took:.2f} s: the same commands, to the byte")
    for island in controller.snapshot().islands:
        print(f"order of island {island.name!r}: {island.order}")
    if given.stop is not None:
        print("\n".join(state_of(controller, log.entries[given.stop].now)))
    if given.save:
        from ..trace import Trace as UserTrace

        UserTrace(trace, controller.cluster).save(given.save)
        print(f"trace in {given.save}")
    return 0


def difference(log: Log, diverged: Diverged, recent: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Lines that show the first event after which commands differ, and the events before it."""
    yield f"the first difference is at event {diverged.index}"
    for back, commands in zip(range(len(recent), 0, -1), recent, strict=True):
        yield line_of(log, diverged.index - back)
        yield from (f"{'':25}-> {str(command)[:WIDTH]}" for command in commands)
    yield line_of(log, diverged.index, 0)
    yield f"{'':25}recorded: other commands, of which the log has a hash"
    yield f"{'':25}replayed: {diverged.replayed}"


def state_of(controller: Controller, now: int) -> Iterator[str]:
    """Lines that show what each island and client has under way, and what it waits for."""
    found = controller.snapshot()
    for island in found.islands:
        hosts = spans.text(island.members) or "none"
        yield (
            f"island {island.name!r}: {island.phase}, epoch {island.epoch}, hosts {hosts}; "
            f"{plural(len(island.in_flight), 'step')} under way"
        )
        for step in island.in_flight[:HISTORY]:
            yield f"    seq {step.seq}: {step.program}, {step.node}; not ended on hosts {spans.text(step.left)}"
        for kept in island.reserved[:HISTORY]:
            whose = f" for {kept.program}, {kept.node} of client {kept.client_name!r}" if kept.program else ""
            yield f"    reserved for {duration(now - kept.since)}: devices {spans.text(kept.devices)}{whose}"
        for wait in island.waiting[:HISTORY]:
            yield (
                f"    waits for {duration(now - wait.ticket.since)}: run {wait.ticket.run}, step {wait.ticket.step}: "
                f"{wait.text}"
            )
    for client in found.clients:
        yield (
            f"client {client.number} {client.name!r}: {plural(client.programs, 'program')}, "
            f"{plural(client.buffers, 'buffer')}, {plural(len(client.runs), 'run')}"
        )
        for run in client.runs[:HISTORY]:
            yield f"    run {run.number}, {run.program!r}: {run.state}"
    yield f"{plural(found.left['buffers'], 'buffer')} on devices"
