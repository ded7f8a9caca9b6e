"""Four clients share the same 512 devices in proportion 1:2:4:8.

python examples/clients.py
"""

from collections import deque
from typing import Any

import numpy as np

import seaway as sw

step = sw.synthetic("step", devices=sw.slice(devices=512, name="all"), duration="10ms", allreduce="4B")


def client(seconds: float) -> None:
    x: Any = np.float32(0)
    ahead: deque[sw.Array] = deque()
    while sw.now() < seconds:
        x = step(x)
        ahead.append(x)
        if len(ahead) > 20:  # it stays some calls ahead, so that the devices never wait for it
            ahead.popleft().block_until_ready()


if __name__ == "__main__":
    with sw.simulate("B", policy="stride", profile="seaway") as s:
        for weight in (1, 2, 4, 8):
            s.spawn(client, 2.0, name=f"weight {weight}", weight=weight)
    print(s.trace.summary())
