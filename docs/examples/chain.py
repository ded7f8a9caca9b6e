"""Thirty steps, each on the result of the one before. It opens no session: the command that runs it says where it runs.

python -m seaway parity docs/examples/chain.py --hosts 2 --devices-per-host 2 --policy stride
"""

from typing import Any

import numpy as np

import seaway as sw

step = sw.synthetic("step", devices=sw.slice(devices=4), duration="1ms")

x: Any = np.float32(0)
for _ in range(30):
    x = step(x)
x.block_until_ready()
