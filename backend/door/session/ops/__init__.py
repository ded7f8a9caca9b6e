"""What requests do, a module for each family; `OPERATIONS` has them by their names in IfrtRequest.

array_requests   arrays made, moved, deleted
array_shards     put together, taken apart (array_arguments: what requests say of arrays, checked)
executables      programs compiled, described, run (plugin_programs: those that the session carries out itself;
                 mpmd: those of several stages)
reading          arrays waited for, and copied back to the client
starting         the first request, and questions about devices
"""

from collections.abc import Mapping

from ..reply import Operation
from . import array_requests, array_shards, executables, mpmd, reading, starting
from .executables import BESIDE

OPERATIONS: Mapping[str, Operation] = {
    each.name: each
    for each in (
        *starting.OPERATIONS,
        *array_requests.OPERATIONS,
        *array_shards.OPERATIONS,
        *reading.OPERATIONS,
        *executables.OPERATIONS,
        *mpmd.OPERATIONS,
    )
}
