"""Calls of a session's programs into its client's process, on a stream beside the session that the client has opened.

    devices --ask(body, came)--> SessionCallbacks --number, body--> jax_plugins.seaway.callbacks
    devices <--came(body)------- SessionCallbacks <--number, answer--

Whoever asks may be a thread of this process, or a host of a cluster; it bounds its wait. If the client goes, or never
was there, every call is answered with the reason. All of this is on the loop's thread. Neighbours: `ifrt_service`,
which has the stream; `local_devices` and `cluster_callbacks`, which ask.
"""

from collections.abc import Callable

from backend.contents import callbacks

GONE = "the program's process has gone, so its functions cannot be called"


class SessionCallbacks:
    def __init__(self) -> None:
        self._send: Callable[[bytes], None] | None = None
        self._waiting: dict[int, Callable[[bytes], None]] = {}
        self._number = 0

    @property
    def open(self) -> bool:
        """Whether the client answers calls."""
        return self._send is not None

    def begin(self, send: Callable[[bytes], None]) -> None:
        self._send = send

    def ask(self, body: bytes, came: Callable[[bytes], None]) -> None:
        if self._send is None:
            came(callbacks.failed(GONE))
            return
        self._number += 1
        self._waiting[self._number] = came
        self._send(callbacks.NUMBER.pack(self._number) + body)

    def answer(self, message: bytes) -> None:
        """Raises CallbackFault if it is none."""
        number, body = callbacks.split(message)
        came = self._waiting.pop(number, None)
        if came is not None:  # or it was answered before
            came(body)

    def end(self) -> None:
        self._send = None
        waiting, self._waiting = self._waiting, {}
        for came in waiting.values():
            came(callbacks.failed(GONE))
