"""Costs of computations: from the TPU compiler, from a roofline, recorded, or stated. See docs/costs.md.

>>> cost = sw.costs.synthetic(duration="330us")
>>> step = sw.jit(lambda x: x * 2, devices=2, cost=cost)
>>> with sw.simulate("B", hosts=2) as s:
...     _ = step(np.float32(0)).block_until_ready()
...     print(cost.duration)
330000
"""

from .. import units
from ..units import duration
from .compiled import costs, roofline_costs, text_costs, tpu_costs
from .cost import Cost, MemoryUse, synthetic
from .estimate import work_of
from .idle_cluster import IdleCluster

__all__ = [
    "Cost",
    "IdleCluster",
    "MemoryUse",
    "costs",
    "duration",
    "roofline_costs",
    "synthetic",
    "text_costs",
    "tpu_costs",
    "units",
    "work_of",
]
