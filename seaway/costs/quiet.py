"""Keeps libtpu's messages at its start out of the user's notebook.

JAX looks for devices when it first lowers anything. If libtpu is installed only to compile, it then complains on the
process's stderr that there is no TPU. If there is a TPU, or JAX has started already, this module changes nothing.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

DEVICES = ("/dev/accel0", "/dev/vfio/0")  # where a TPU would be
OURS = ("TPU", "libtpu", "InitGoogle", "Source Location Trace", "common_lib.cc")


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """Let JAX start without libtpu's lines. Other lines printed meanwhile are printed afterwards."""
    if (
        importlib.util.find_spec("libtpu") is None
        or any(Path(path).exists() for path in DEVICES)
        or _started()
    ):
        yield
        return
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    with tempfile.TemporaryFile() as printed:
        sys.stderr.flush()
        own = os.dup(2)
        os.dup2(printed.fileno(), 2)
        try:
            import jax

            jax.devices()
        finally:
            os.dup2(own, 2)
            os.close(own)
            printed.seek(0)
            for line in printed.read().decode(errors="replace").splitlines():
                if not any(word in line for word in OURS):
                    print(line, file=sys.stderr)
    yield


def _started() -> bool:
    """Whether JAX has looked for devices already."""
    try:
        from jax._src.xla_bridge import backends_are_initialized
    except ImportError:  # another version of JAX: a few lines on stderr are better than an error
        return True
    return bool(backends_are_initialized())
