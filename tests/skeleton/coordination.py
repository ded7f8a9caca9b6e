"""JAX's coordination service in a process of its own, so that no host's death takes the others with it.

`python -m tests.skeleton.coordination MEMBERS` prints its port; it ends when its standard input closes,
or after a minute.
"""

from __future__ import annotations

import os
import socket
import sys
import threading

from jaxlib import _jax

LIFETIME_S = 60


def main(members: int) -> None:
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    # The service cannot say what port it was given: hold one, and let both bind it.
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        service = _jax.get_distributed_runtime_service(
            f"127.0.0.1:{port}", members, heartbeat_timeout=10, shutdown_timeout=1, recoverable=True
        )
        print(port, flush=True)
        threading.Event().wait(LIFETIME_S)
        del service
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
