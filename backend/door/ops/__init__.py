"""What requests do, a module for each family; `OPERATIONS` has them by their names in IfrtRequest.

array_requests  made, taken apart, put together, moved, deleted
executables     compiled, described, run
reading         waited for, and copied back to the client
starting        the first request, and questions about devices
"""

from __future__ import annotations

from collections.abc import Mapping

from . import array_requests, executables, reading, starting
from .operation import Operation

__all__ = ["OPERATIONS", "Operation"]

OPERATIONS: Mapping[str, Operation] = {
    each.name: each
    for each in (
        *starting.OPERATIONS,
        *array_requests.OPERATIONS,
        *reading.OPERATIONS,
        *executables.OPERATIONS,
    )
}
