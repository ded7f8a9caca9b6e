"""Functions of this process that compiled programs call: `jax.debug.print`, `pure_callback`, `io_callback`, ... in jit.

    JAX lowers a callback --emit--> numbered here; the program goes to the door with the number in it
    the door --number, operands--> a thread here calls the function --results--> the door

IFRT's proxy client refuses programs that have functions beside them, so JAX is not told of these: its own lowering is
used, and only its list of functions is exchanged for `_Numbered`. Where JAX has no such lowering, nothing is changed.
Functions run one after the other, in the order in which their calls come. Neighbours: `backend.contents.callbacks`, the
bytes; `backend.door.session.session_callbacks`, the other end.
"""

from __future__ import annotations

import importlib
import itertools
import queue
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import jax

from .replaced import replace

METHOD = "/xla.ifrt.proxy.GrpcIfrtService/Callbacks"
SESSION, METADATA = "seaway_session", "seaway-session-bin"  # a device's attribute; of the call
PATIENCE_S = 30.0  # seconds for the door to take the stream
LINGER = 1024  # functions of executables that are gone: what was launched before may call them still


def install() -> None:
    replace("jax._src.callback", "emit_python_callback", _emit)


def _emit(lower: Any, ctx: Any, callback: Any, *args: Any, **kwargs: Any) -> Any:
    context = ctx.module_context
    session = _session_of(context.backend)
    if session is None:
        return lower(ctx, callback, *args, **kwargs)
    theirs, ours = context.host_callbacks, _Numbered(_line(session))
    context.host_callbacks = ours
    try:
        results, *others = lower(ctx, callback, *args, **kwargs)
    finally:
        context.host_callbacks = theirs
        context.add_keepalive(ours)
    if results and kwargs.get("sharding") is not None:
        # Without an operation behind it, a result that a program returns would be on the device that calls, only.
        hlo: Any = importlib.import_module("jax._src.lib.mlir.dialects").hlo
        results = hlo.OptimizationBarrierOp(results).results
    return results, *others


def _session_of(backend: Any) -> str | None:
    """The session of a backend that is a door of ours."""
    if backend is None or not str(backend.runtime_type).startswith("proxy/"):
        return None
    return getattr(backend.devices()[0], SESSION, None)


class _Numbered(list[Any]):
    """Takes the function that JAX adds to a program's list; JAX then reads its number from the list's length. It lives
    as long as the executable."""

    def __init__(self, line: _Line) -> None:
        self._line, self._number = line, 0

    def append(self, function: Any) -> None:
        self._number = self._line.keep(function)
        weakref.finalize(self, self._line.leave, self._number).atexit = False

    def __len__(self) -> int:
        return self._number + 1

    __hash__ = object.__hash__  # type: ignore[assignment]


# --- the stream to the door ----------------------------------------------------------------------------------------

_numbers = itertools.count(1)
_lines: dict[str, _Line] = {}
_lock = threading.Lock()


def _line(session: str) -> _Line:
    with _lock:
        found = _lines.get(session)
        if found is None:
            found = _lines[session] = _Line(session)
        return found


class _Line:
    """Of one session. Raises RuntimeError if the door does not take it."""

    def __init__(self, session: str) -> None:
        import grpc  # for programs that have callbacks, only

        from backend.contents import callbacks

        self._session, self._bytes = session, callbacks
        target = str(jax.config.read("jax_backend_target")).removeprefix("grpc://")  # type: ignore[no-untyped-call]
        self._functions: dict[int, Callable[..., Any]] = {}
        self._lingering: deque[int] = deque()
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        options = [(f"grpc.max_{way}_message_length", -1) for way in ("send", "receive")]
        channel = grpc.insecure_channel(target, options=[*options, ("grpc.enable_http_proxy", 0)])
        try:
            grpc.channel_ready_future(channel).result(PATIENCE_S)
            metadata = ((METADATA, session.encode()),)
            self._calls = channel.stream_stream(METHOD)(iter(self._answers.get, None), metadata=metadata)
            self._calls.initial_metadata()
            if self._calls.done():
                raise RuntimeError(self._calls.details())
        except (grpc.RpcError, grpc.FutureTimeoutError) as error:
            raise RuntimeError(f"the door at {target} takes no callbacks of this program: {error}") from None
        self._channel = channel  # it is closed when nobody has it
        threading.Thread(target=self._run, args=(grpc.RpcError,), name="callbacks", daemon=True).start()

    def keep(self, function: Callable[..., Any]) -> int:
        number = next(_numbers)
        self._functions[number] = function
        return number

    def leave(self, number: int) -> None:
        """The executable of this function is gone."""
        self._lingering.append(number)
        if len(self._lingering) > LINGER:
            self._functions.pop(self._lingering.popleft(), None)

    def _run(self, ended: type[Exception]) -> None:
        try:
            for message in self._calls:
                number, body = self._bytes.split(message)
                self._answers.put(self._bytes.NUMBER.pack(number) + self._answer(body))
        except ended:
            pass  # the session is over: whoever waits for it hears so from JAX
        with _lock:
            _lines.pop(self._session, None)
        self._functions.clear()
        self._answers.put(None)

    def _answer(self, body: bytes) -> bytes:
        try:
            number, operands = self._bytes.call_of(body)
            results = self._functions[number](*operands)
            return bytes(self._bytes.answered(results))
        except BaseException:  # SystemExit, too, would only end this thread
            # so that the error is read as JAX's own is
            return bytes(self._bytes.failed(f"CpuCallback error calling callback: {traceback.format_exc()}"))
