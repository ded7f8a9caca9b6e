"""A machine's wire that is late, loses, or is narrow: `python -m tests.chaos.slow_wire --port P --bridge B ...`.

Runs where the bridge is. It takes the machine's port off the bridge, puts a device of its own (TAP) there, and carries
the frames between them, until it is killed. So it needs nothing of the kernel's traffic control, of which many kernels
have no `netem`.
"""

from __future__ import annotations

import argparse
import fcntl
import heapq
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time

TAP, PLAIN, WITH_HEADER, NAME_IT = 0x0002, 0x1000, 0x4000, 0x400454CA  # <linux/if_tun.h>
ALL, PACKET, HEADER = 0x0003, 263, 15  # <linux/if_ether.h>, <linux/if_packet.h>
LARGEST = 1 << 17
QUEUE = 0.5  # seconds of what a narrow wire carries that wait for it; more is lost
OUT, IN = 0, 1  # from the machine, and to it


class SlowWire:
    """`late`: seconds, of what the machine sends. `loses`: part of all frames. `rate`: bytes a second, each way; 0: any
    rate."""

    def __init__(self, port: str, bridge: str, late: float, loses: float, rate: float) -> None:
        self._late, self._loses, self._rate = late, loses, rate
        self._free = [0.0, 0.0]  # when the wire has carried what waits for it, each way
        self._queue: list[tuple[float, int, int, bytes]] = []
        self._counted = 0
        self._tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(self._tap, NAME_IT, struct.pack("16sH22x", f"slow-{port}".encode(), TAP | PLAIN | WITH_HEADER))
        self._wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
        # both put a header before a frame that says which of its checksums are still to be computed
        self._wire.setsockopt(PACKET, HEADER, 1)
        self._wire.bind((port, ALL))
        self._wire.setblocking(False)
        for words in (
            ("set", f"slow-{port}", "up"),
            ("set", port, "nomaster"),
            ("set", f"slow-{port}", "master", bridge),
        ):
            subprocess.run(["ip", "link", *words], check=True)

    def run(self) -> None:
        both = select.poll()
        both.register(self._tap, select.POLLIN)
        both.register(self._wire, select.POLLIN)
        while True:
            wait = None if not self._queue else max(0.0, self._queue[0][0] - time.monotonic()) * 1000
            for number, _ in both.poll(wait):
                self._take(IN if number == self._tap else OUT)
            while self._queue and self._queue[0][0] <= time.monotonic():
                _, _, way, frame = heapq.heappop(self._queue)
                self._pass(way, frame)

    def _take(self, way: int) -> None:
        for _ in range(64):
            try:
                frame = os.read(self._tap, LARGEST) if way == IN else self._wire.recv(LARGEST)
            except OSError:
                return
            now = time.monotonic()
            due = now + (self._late if way == OUT else 0.0)
            if random.random() < self._loses:
                continue
            if self._rate:
                due = max(due, self._free[way]) + len(frame) / self._rate
                if due > now + self._late + QUEUE:
                    continue
                self._free[way] = due
            self._counted += 1
            heapq.heappush(self._queue, (due, self._counted, way, frame))

    def _pass(self, way: int, frame: bytes) -> None:
        try:
            if way == IN:
                self._wire.send(frame)
            else:
                os.write(self._tap, frame)
        except OSError:
            pass  # no room: lost, as on a wire


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("port", "bridge"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("late", "loses", "rate"):
        parser.add_argument(f"--{name}", type=float, default=0.0)
    chosen = parser.parse_args()
    wire = SlowWire(chosen.port, chosen.bridge, chosen.late, chosen.loses, chosen.rate)
    print("carries", flush=True)
    wire.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
