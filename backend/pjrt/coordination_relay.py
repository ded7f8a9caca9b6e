"""A relay between JAX and its coordination service, so that the service's death does not end this process.

JAX ends a process whose coordination service does not answer, and no setting prevents that. So JAX connects to this
relay, which only this machine can reach. The relay passes on all data. When the service is gone, the relay stays open
and silent, and JAX keeps waiting: a world that has formed does not need the service. Heartbeats are practically off,
here and in the service (`FOREVER_S`): core's leases tell which members are alive. Neighbour: `world`.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

FOREVER_S = 10**8  # three years
DIAL_S = 10.0
PORTION = 1 << 16


class CoordinationRelay:
    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._service = (host.strip("[]"), int(port))
        self._lock = threading.Lock()
        self._ended = False
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, name="shield", daemon=True).start()

    def close(self) -> None:
        """Closes all connections; call it after JAX has disconnected."""
        with self._lock:
            self._ended = True
            ends, self._open = [self._listener, *self._open], []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                from_jax, _ = self._listener.accept()
            except OSError:
                return
            if not self._keep(from_jax):
                return
            try:
                to_service = socket.create_connection(self._service, DIAL_S)
            except OSError:
                continue  # stay open and silent
            to_service.settimeout(None)
            if self._keep(to_service):
                for ends in ((from_jax, to_service), (to_service, from_jax)):
                    threading.Thread(target=_pass_on, args=ends, name="shield", daemon=True).start()

    def _keep(self, end: socket.socket) -> bool:
        with self._lock:
            if not self._ended:
                self._open.append(end)
                return True
        end.close()
        return False


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while portion := source.recv(PORTION):
            target.sendall(portion)
