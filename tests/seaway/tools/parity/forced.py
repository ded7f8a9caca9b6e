"""Forced parity: compares what hosts did to their devices with what the controller's commands required.

Three laws, host by host. Each device gets its gangs in the sequence of its island's order. Each buffer that comes to a
host and is not donated is freed there once, after all gangs that read it. Each transfer sends all of its bytes once. If
an island has lost hosts, abandoned gangs and the remaining work of a dead host are not required.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from seaway.tools.parity.compare import SHOWN, ComparedRow, Comparison, apart, history
from seaway.wording import plural

from .edge import Commanded, EnqueuedGang, HostActions, SentChunk


def compare(commanded: Commanded, seen: dict[int, HostActions]) -> Comparison:
    """All work had ended before the hosts did, so a buffer not freed by then never was."""
    found = Comparison("commanded", "by devices")
    _enqueued(found, commanded, seen)
    _freed(found, commanded, seen)
    _sent(found, commanded, seen)
    return found


# --- launches -------------------------------------------------------------------------------------------------------


def _enqueued(found: Comparison, commanded: Commanded, seen: dict[int, HostActions]) -> None:
    texts = {gang.seq: gang.text for gangs in commanded.gangs.values() for gang in gangs}
    unlike, counts = False, [0, 0]
    for host, gangs in commanded.gangs.items():
        known = {gang.seq: gang for gang in gangs}
        for device in commanded.cluster.devices_of(host):
            wanted = [gang.seq for gang in gangs if device in gang.devices]
            given = [seq for seq in seen[host].launched if seq not in known or device in known[seq].devices]
            wanted = _expected(commanded, host, wanted, given)
            counts[0] += len(wanted)
            counts[1] += len(given)
            if wanted != given and not unlike:
                unlike = True
                found.differences.append("\n".join(_first(device, host, wanted, given, texts)))
    found.rows.append(ComparedRow("gangs enqueued, device by device", str(counts[0]), str(counts[1]), not unlike))


def _expected(commanded: Commanded, host: int, wanted: Sequence[int], given: Sequence[int]) -> list[int]:
    """The required gangs, without abandoned ones that were not launched, and without a dead host's remaining work."""
    there = set(given)
    island = commanded.cluster.island_of_host(host).index
    if not commanded.troubled(island):
        return list(wanted)
    kept = [seq for seq in wanted if seq in there or seq not in commanded.abandoned]
    if host in commanded.lost:
        last = max((at for at, seq in enumerate(kept) if seq in there), default=-1)
        kept = kept[: last + 1]
    return kept


def _first(device: int, host: int, wanted: Sequence[int], given: Sequence[int], texts: dict[int, str]) -> Iterator[str]:
    at = apart(wanted, given)
    yield f"device {device} of host {host} was given another gang than commanded: number {at} in its sequence"
    sides = {"commanded": wanted, "by devices": given}
    named = {side: [texts.get(seq, f"gang {seq}") for seq in order] for side, order in sides.items()}
    yield from history(at, named, "(nothing more)")


# --- frees ----------------------------------------------------------------------------------------------------------


def _freed(found: Comparison, commanded: Commanded, seen: dict[int, HostActions]) -> None:
    wrong: list[str] = []
    counts = [0, 0]
    for host, buffers in commanded.buffers.items():
        island = commanded.cluster.island_of_host(host).index
        whole = not commanded.troubled(island)
        due = [buffer for buffer in buffers if buffer not in commanded.donated[host]]
        freed = seen[host].freed
        counts[0] += len(due) if whole else len([buffer for buffer in due if freed[buffer]])
        counts[1] += freed.total()
        wrong += _of_host(host, buffers, commanded, seen[host], whole)
    found.rows.append(ComparedRow("buffers freed, host by host", str(counts[0]), str(counts[1]), not wrong))
    found.differences += wrong[:SHOWN]


def _of_host(host: int, buffers: dict[int, str], commanded: Commanded, seen: HostActions, whole: bool) -> Iterator[str]:
    readers = last_readers(commanded.gangs[host], seen.launched)
    for buffer, text in buffers.items():
        times = seen.freed[buffer]
        if buffer in commanded.donated[host]:
            if times and whole:
                yield f"host {host} freed {text}, which a gang had taken over"
        elif times > 1 and whole:
            yield f"host {host} freed {text} {times} times"
        elif not times and whole:
            yield f"host {host} never freed {text}"
        elif times and seen.freed_after[buffer] <= readers.get(buffer, -1):
            yield f"host {host} freed {text} before the last gang that reads it was enqueued"
    for buffer in seen.freed:
        if buffer not in buffers:
            yield f"host {host} freed buffer {buffer}, which never came to it"


def last_readers(gangs: Sequence[EnqueuedGang], launched: Sequence[int]) -> dict[int, int]:
    """Buffer -> the position in the host's launches of the last gang that reads it."""
    at = {seq: number for number, seq in enumerate(launched)}
    found: dict[int, int] = {}
    for gang in gangs:
        for buffer in gang.reads:
            found[buffer] = max(found.get(buffer, -1), at.get(gang.seq, -1))
    return found


# --- bytes ----------------------------------------------------------------------------------------------------------


def _sent(found: Comparison, commanded: Commanded, seen: dict[int, HostActions]) -> None:
    """Compare bytes by pair of hosts (or host and client); for a sparse exchange, pieces by receiving host."""
    wrong: list[str] = []
    nbytes: dict[int, Counter[tuple[int, int]]] = {}
    pieces: dict[int, Counter[int]] = {}
    for host, each in seen.items():
        for chunk, times in each.chunks.items():
            nbytes.setdefault(chunk.transfer, Counter())[host, chunk.receiver] += chunk.nbytes * times
            pieces.setdefault(chunk.transfer, Counter())[chunk.receiver] += not chunk.offset
            if times > 1:
                wrong.append(_again(host, chunk, times, commanded))
    counts = [0, 0]
    for transfer, sent in commanded.transfers.items():
        excused = transfer in commanded.excused or bool(commanded.lost)
        there = nbytes.get(transfer, Counter())
        if sent.known:
            wrong += _unlike(sent.text, sent.nbytes, there, excused)
            counts[0] += sent.nbytes.total()
            counts[1] += there.total()
        elif not excused and pieces.get(transfer, Counter()) != Counter(sent.pieces):
            wrong.append(
                f"{sent.text}: pieces by host {dict(sorted(pieces.get(transfer, {}).items()))} were sent, and "
                f"{dict(sorted(sent.pieces.items()))} counted"
            )
    wrong += [f"transfer {each} was sent, but never ordered" for each in nbytes if each not in commanded.transfers]
    found.rows.append(ComparedRow("bytes sent, by pairs of hosts", str(counts[0]), str(counts[1]), not wrong))
    found.differences += wrong[:SHOWN]


def _again(host: int, chunk: SentChunk, times: int, commanded: Commanded) -> str:
    sent = commanded.transfers.get(chunk.transfer)
    return (
        f"host {host} sent the same {plural(chunk.nbytes, 'byte')} {times} times to {_end(chunk.receiver)}: piece "
        f"{chunk.piece} from {chunk.offset} on, {sent.text if sent else f'transfer {chunk.transfer}'}"
    )


def _unlike(
    text: str, wanted: Counter[tuple[int, int]], given: Counter[tuple[int, int]], excused: bool
) -> Iterator[str]:
    for pair in sorted({*wanted, *given}):
        less = given[pair] < wanted[pair]
        if given[pair] != wanted[pair] and not (less and excused):
            host, receiver = pair
            yield (f"host {host} sent {given[pair]:,} of {wanted[pair]:,} bytes to {_end(receiver)}: {text}")


def _end(receiver: int) -> str:
    return f"host {receiver}" if receiver >= 0 else f"client {-receiver}"
