"""JAX's errors as the protocol has them: XLA's begin with the name of their code. Neighbours: `local_devices`,
`program_checker`."""

from __future__ import annotations

import re
from typing import Any

from ..protocol import StatusCode
from ..session import StatusError

CODE = re.compile(r"([A-Z][A-Z_]+): ?")


def fault_of(error: BaseException) -> StatusError:
    """XLA's errors begin with the name of their code."""
    if isinstance(error, StatusError):
        return error
    text = str(error).strip() or type(error).__name__
    found = CODE.match(text)
    if found is not None and found[1] in StatusCode.keys():  # noqa: SIM118 (an enumeration's names)
        return StatusError(StatusCode.Value(found[1]), text[found.end() :])
    code = StatusCode.INVALID_ARGUMENT if isinstance(error, (ValueError, TypeError)) else StatusCode.INTERNAL
    return StatusError(code, text)


class translated:  # noqa: N801 (used as a function; a class costs a third of a contextmanager)
    """Turns errors of JAX within its block into faults."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None and isinstance(error, Exception) and not isinstance(error, StatusError):
            raise fault_of(error) from error
