"""What compiled code takes on a simulated device, by a roofline of its HLO.

    kernel_of_code(DescribedCode, chip) -> Kernel

Neighbours: `seaway.costs`, which reads the text; `simulated_cluster`.
"""

from __future__ import annotations

import logging

from msgspec.structs import replace

from backend.door import DescribedCode
from sim.hardware import Chip, Kernel

from ...costs import text_costs
from ...errors import CostError

log = logging.getLogger("seaway.door")
ASSUMED = 1_000_000  # nanoseconds of code whose text cannot be read
LAUNCH = 1_000  # nanoseconds: no kernel is shorter


def kernel_of_code(code: DescribedCode, chip: Chip) -> Kernel:
    try:
        cost = text_costs(
            code.text, code.name, code.devices, chip=chip, partitioned=code.partitioned, memory=code.memory
        )
    except CostError as error:
        log.warning("nothing is known of the cost of %r, which is taken to be 1 ms: %s", code.name, error)
        return Kernel(code.name, ASSUMED, source="assumed")
    for each in cost.warnings:
        log.info("%s: %s", code.name, each)
    return replace(cost.kernel, duration=max(LAUNCH, cost.kernel.duration))
