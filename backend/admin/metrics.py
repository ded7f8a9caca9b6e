"""Figures for Prometheus, in its text form, over the smallest HTTP there is: `GET /metrics`; and `GET /healthz`.

Neighbours: `cluster_status`, whose figures these are; `controller_cli`, which opens the port where it is asked to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import Any

from core.controller import BOUNDS

from ..auth import AccessRefused, is_loopback

REQUEST = 8192  # bytes of a request, at most
PATIENCE = 5.0  # seconds for a request to come
Sample = tuple[dict[str, Any], float]
Times = tuple[dict[str, Any], dict[str, Any]]  # labels and a `Histogram`
UPPER = (*(f"{bound / 1e9:g}" for bound in BOUNDS), "+Inf")
ACCOUNTS = {
    "account_device_seconds_total": "Time that devices had gangs of an account, of all devices together.",
    "account_bytes_in_total": "Contents that its clients put.",
    "account_bytes_out_total": "Contents that they got.",
    "account_runs_total": "Runs that they submitted.",
}


class _Text:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, name: str, words: str, samples: Iterable[Sample]) -> None:
        self._head(name, words, "counter" if name.endswith("_total") else "gauge")
        self.lines += [f"seaway_{name}{_labels(labels)} {value:.15g}" for labels, value in samples]

    def times(self, name: str, words: str, samples: Iterable[Times]) -> None:
        self._head(name, words, "histogram")
        for labels, each in samples:
            counts = list(accumulate(each["counts"]))
            for upper, count in zip(UPPER, counts, strict=True):
                self.lines.append(f"seaway_{name}_bucket{_labels(labels | {'le': upper})} {count}")
            self.lines.append(f"seaway_{name}_sum{_labels(labels)} {each['total'] / 1e9:.15g}")
            self.lines.append(f"seaway_{name}_count{_labels(labels)} {counts[-1]}")

    def _head(self, name: str, words: str, kind: str) -> None:
        self.lines += (f"# HELP seaway_{name} {words}", f"# TYPE seaway_{name} {kind}")


def text_of(found: dict[str, Any]) -> str:
    """`found`: as `cluster_status.figures_of` says it."""
    text, islands = _Text(), found["islands"]
    say, each = text.say, partial(_of, "island", islands)
    say("up", "1: the controller answers.", [({}, 1)])
    say("starts", "Earlier starts with the same --state.", [({}, found["incarnation"])])
    say("island_running", "1: takes work.", each(lambda island: island["phase"] == "running"))
    say("island_epoch", "How often it has formed.", each("epoch"))
    say("island_hosts", "Hosts that it should have.", each(lambda island: len(island["hosts"])))
    connected = each(lambda island: sum(host["connected"] for host in island["hosts"]))
    say("island_hosts_connected", "Hosts that are connected.", connected)
    say("island_devices", "Devices that it should have.", each("devices"))
    say("island_memory_bytes", "Memory of its devices.", each("memory"))
    say("island_memory_used_bytes", "Used behind the last gang of its order.", each("memory_used"))
    words = "Used, or kept for what admitted runs may still add."
    say("island_memory_reserved_bytes", words, each("memory_reserved"))
    words = "Time for which a gang had its devices, until the controller heard that it was over."
    text.times("gang_seconds", words, each("gang_time"))
    say("gangs_under_way", "In the island's order, not over.", each("under_way"))
    words = 'Waits that have outlasted their soft bound; island "": of no island alone.'
    say("stalled", words, [*each("stalled"), ({"island": ""}, found["stalled_elsewhere"])])
    say("hosts_refused", "Agents that were not taken, by name.", [({}, len(found["refused"]))])
    say("stalls_total", "Waits that outlasted their soft bound.", [({}, found["stalls"])])
    words = "How far a host's clock is ahead of the controller's."
    say("clock_offset_seconds", words, _of_clocks(islands, "offset"))
    say("clock_bound_seconds", "How far that may be off.", _of_clocks(islands, "bound"))
    _of_clients(text, found)
    say("buffers", "Buffers that somebody holds.", [({}, found["buffers"])])
    if found["record"] is not None:
        words = "1: the event log cannot be written any more."
        say("record_lost", words, [({}, bool(found["record"]["lost"]))])
    say("code_bytes", "Code that is kept for hosts.", [({}, found["code"]["bytes"])])
    words = "Bytes of contents; 0, or something is wrong."
    say("contents_through_controller_bytes_total", words, [({}, found["contents_through_controller"])])
    words = "Calls and streams that were refused, by what was wrong with them."
    say("refused_total", words, [({"kind": kind}, count) for kind, count in found["refusals"].items()])
    return "\n".join([*text.lines, ""])


def _of_clients(text: _Text, found: dict[str, Any]) -> None:
    """By their names, of which core bounds the number."""
    say, clients = text.say, found["meters"]
    here, ever = partial(_of, "client", [each for each in clients if each["sessions"]]), partial(_of, "client", clients)
    say("clients", "Open sessions.", [({}, len(found["clients"]))])
    say("client_runs", "Runs that have not ended.", here("runs"))
    say("client_programs", "Programs that are registered.", here("programs"))
    say("client_memory_bytes", "Arrays that it has names for, on all devices.", here("memory"))
    words = "Time of a run that did not fail, from the call to its end."
    text.times("run_seconds", words, ever("run_time"))
    words = "Time of such a run from the call until its first gang had its devices."
    text.times("run_wait_seconds", words, ever("wait_time"))
    say("runs_failed_total", "Runs that failed or were cancelled.", ever("failed"))
    words = "Time for which devices had gangs of a client, of all devices together."
    times = [
        ({"client": each["name"], "island": found["islands"][island]["name"]}, taken / 1e9)
        for each in clients for island, taken in each["shown_time"].items()
    ]  # fmt: skip
    say("device_seconds_total", words, times)
    for name, words in ACCOUNTS.items():
        key = name.removeprefix("account_").removesuffix("_total")
        say(name, words, [({"account": each["account"]}, each["used"][key]) for each in found["accounts"]])


def _of(kind: str, rows: list[dict[str, Any]], value: str | Callable[[dict[str, Any]], float]) -> list[Any]:
    """Samples of all rows: with what they have by this key, or that."""
    found = itemgetter(value) if isinstance(value, str) else value
    return [({kind: row["name"]}, found(row)) for row in rows]


def _of_clocks(islands: list[dict[str, Any]], name: str) -> list[Sample]:
    """A figure of each host whose clock is known, in seconds."""
    hosts = [host for island in islands for host in island["hosts"] if host["clock"] is not None]
    return [({"host": host["host"]}, host["clock"][name] / 1e9) for host in hosts]


def _labels(labels: dict[str, Any]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# --- the port -----------------------------------------------------------------------------------------------------


def place_of(text: str) -> tuple[str, int]:
    """From `PORT`, which is loopback's, or `ADDRESS:PORT`, which is what somebody has decided."""
    host, colon, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535 or (colon and not host):
        raise AccessRefused(f"--metrics-port {text}: a port, or ADDRESS:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


async def serve(
    text: str, figures: Callable[[], dict[str, Any]], healthy: Callable[[], bool] = lambda: True
) -> asyncio.Server:
    """`healthy`: what `/healthz` says, for probes that cannot speak gRPC, or have no certificate."""
    host, port = place_of(text)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                status, body = _answer(await reader.readuntil(b"\r\n\r\n"), figures, healthy)
                kind = "text/plain; version=0.0.4; charset=utf-8"
                data = body.encode()
                head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n"
                writer.write(f"{head}Connection: close\r\n\r\n".encode() + data)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the caller has gone, or never asked
        finally:
            writer.close()

    try:
        return await asyncio.start_server(answer, host, port, limit=REQUEST)
    except OSError as error:
        raise AccessRefused(f"--metrics-port {text}: {error.strerror or error}") from None


def address_of(server: asyncio.Server) -> str:
    host, port = server.sockets[0].getsockname()[:2]
    return f"{host}:{port}"


def protected(text: str) -> bool:
    """Whether only this machine reaches it."""
    host, port = place_of(text)
    return is_loopback(f"{host}:{port}")


def _answer(request: bytes, figures: Callable[[], dict[str, Any]], healthy: Callable[[], bool]) -> tuple[str, str]:
    words = request.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3 or words[0] != b"GET":
        return "405 Method Not Allowed", "GET /metrics\n"
    path = words[1].partition(b"?")[0]
    if path == b"/healthz":
        return ("200 OK", "ok\n") if healthy() else ("503 Service Unavailable", "the controller has failed\n")
    if path not in (b"/metrics", b"/"):
        return "404 Not Found", "GET /metrics, or /healthz\n"
    return "200 OK", text_of(figures())
