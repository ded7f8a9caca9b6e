"""Blames of a cluster as the protocol's status codes, with texts that say what happened."""

from __future__ import annotations

from core.protocol import Blame

from .ifrt_messages import StatusCode
from .session_devices import StatusError

__all__ = ["fault_of_blame"]

# Codes of blames that say that something of the cluster was lost, and with it what this session had there.
LOST = ("host-lost", "host-left", "device-lost", "restart", "world", "lost", "peer")
CODES = {
    "refused": StatusCode.INVALID_ARGUMENT,
    "no-memory": StatusCode.RESOURCE_EXHAUSTED,
    "timeout": StatusCode.DEADLINE_EXCEEDED,
    "cancelled": StatusCode.CANCELLED,
    "client-lost": StatusCode.UNAVAILABLE,
    "protocol": StatusCode.INTERNAL,
    "user": StatusCode.INTERNAL,
} | dict.fromkeys(LOST, StatusCode.DATA_LOSS)


def fault_of_blame(blame: Blame) -> StatusError:
    """What was lost is called DATA_LOSS in the text, too: elastic training looks for that word there."""
    code = CODES.get(blame.code, StatusCode.INTERNAL)
    text = str(blame)
    if code == StatusCode.DATA_LOSS:
        text = f"DATA_LOSS: {text}"
    return StatusError(code, text)
