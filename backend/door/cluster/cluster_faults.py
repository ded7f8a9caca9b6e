"""Blames of a cluster as the protocol's status codes, with texts that say what happened."""

from __future__ import annotations

from core.client import infrastructure
from core.protocol import Blame

from ..protocol import StatusCode
from ..session import StatusError

CODES = {
    "refused": StatusCode.INVALID_ARGUMENT,
    "no-memory": StatusCode.RESOURCE_EXHAUSTED,
    "timeout": StatusCode.DEADLINE_EXCEEDED,
    "cancelled": StatusCode.CANCELLED,
    "protocol": StatusCode.INTERNAL,
    "user": StatusCode.INTERNAL,
}


def fault_of_blame(blame: Blame) -> StatusError:
    """What the cluster lost is DATA_LOSS, as for JAX on Google's own servers: elastic training looks for that word, and
    begins again from a checkpoint. The session goes on; when it does not, all of its calls are UNAVAILABLE."""
    if infrastructure(blame):
        return StatusError(StatusCode.DATA_LOSS, str(blame))
    return StatusError(CODES.get(blame.code, StatusCode.INTERNAL), str(blame))
