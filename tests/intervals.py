"""When gangs occupied their devices, by a trace of core."""

from __future__ import annotations

from collections.abc import Iterator

from core.model import spans
from core.record.trace import Trace


def intervals(trace: Trace) -> Iterator[tuple[int, int, int, int]]:
    """Yield (device, seq, from, to) for each device of each gang that has ended: when the gang occupied it.

    This begins when the device's own host enqueued the gang if that is known, else when the gang started.
    """
    for gang in trace.gangs.rows():
        place = trace.places.get(gang["place"])
        if gang["ended"] < 0 or place is None:
            continue
        after = trace.lists.get(gang["hosts"]) if gang["hosts"] >= 0 else []
        ends = trace.lists.get(gang["ends"]) if gang["ends"] >= 0 else []
        last, since, until = max(ends, default=0), gang["started"], gang["ended"]
        hosts: dict[int, int] = {}  # host, counted in the island -> its position among the gang's hosts
        for device in spans.items(place.devices):
            if after:
                host = hosts.setdefault((device - place.first) // place.devices_per_host, len(hosts))
                since = gang["enqueued"] + after[host]
                until = gang["ended"] - last + ends[host] if ends else until
            yield device, gang["seq"], since, until
