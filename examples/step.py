"""A client that keeps all devices busy. It opens no session: the command that runs it says on which cluster.

python -m seaway simulate examples/step.py --cluster A --policy stride:1,2,4,8
"""

from typing import Any

import numpy as np

import seaway as sw

step = sw.synthetic("step", devices=sw.slice(devices=2048, name="all"), duration="10ms", allreduce="4B")

x: Any = np.float32(0)
for _ in range(50):
    x = step(x)
x.block_until_ready()
print(f"done at {sw.now() * 1e3:.1f} ms")
