"""What `ps` and `top` show of our programs: `seaway agent host-0 --controller ...`, not how Python was started.

A process that calls `sw.local` keeps its own title. Neighbours: `server`, `agent`, `coordination`, `sandbox`.
"""

import os
from collections.abc import Iterable

from setproctitle import setproctitle


def show_as(program: str, options: Iterable[str] = ()) -> None:
    """Show this process as `seaway PROGRAM OPTIONS` from now on; again, when more is known of it."""
    # the title leaves /proc/PID/environ as it is; read at the first call
    os.environ.setdefault("SPT_NOENV", "1")
    setproctitle(" ".join(("seaway", program, *options)))
