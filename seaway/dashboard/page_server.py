"""The web server of a page: its files are for everybody who reaches it, numbers for those who have the key.

    GET  /, /static/NAME      the page
    POST /look                what the browser has of the trace; the answer is what it lacks (`columns`)
    POST /at                  a moment; the answer is what the controller looked like then, if that is known

The key is in the link behind a `#`, which browsers do not send, and goes with each request as a bearer token. So it
stands in no log and in no other site's referrer. It is needed on loopback too: every account of the machine reaches
that, and a cluster's token may keep some of them out.

Strangers get little: a request's body is read when its key is right, and a connection that has not shown the key ends
after seconds, or sooner if there are many. A request must name this server as links to it do; a site whose name leads
here (DNS rebinding) gets nothing. Neighbours: `looking`, whose numbers these are.
"""

import hmac
import logging
import secrets
import socket
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from ipaddress import ip_address
from typing import Any

import msgspec

from core.record import Look

from ..errors import SeawayError
from .columns import body_of, view_of
from .looking import LiveSource, Unavailable

PORT = 29100  # taken if it is free, so that a tunnel can be kept
REQUEST = 4 << 20  # bytes of a request with the key, at most
IDLE = 60  # seconds for a browser's next request on a connection
STRANGER = 10  # seconds for which a connection may last without showing the key
MOST = 64  # connections, each of which has a thread
ROOM = 1.0  # seconds for the thread of a connection that was ended to end
FILES = {
    ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}  # fmt: skip
# Only files from here are loaded, nothing is sent elsewhere, and notebooks of this machine may frame the page.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self' http://localhost:* http://127.0.0.1:*"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
log = logging.getLogger("seaway.dashboard")


class Moment(msgspec.Struct, frozen=True):
    time: int


class PageServer:
    """`bind`: ADDRESS:PORT, or "" for loopback at a port that is free. Raises SeawayError if it cannot listen there."""

    def __init__(self, source: LiveSource, bind: str = "") -> None:
        self.source, self.key = source, secrets.token_urlsafe(18)
        self._http = _listening(bind, self)
        host, port = str(self._http.server_address[0]), self._http.server_address[1]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.2,), name="seaway-page", daemon=True)
        self._thread.start()

    @property
    def link(self) -> str:
        return f"http://{self.address}/#key={self.key}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        self.source.close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    page: PageServer

    def __init__(self, *about: Any) -> None:
        self._room, self._lock = threading.Semaphore(MOST), threading.Lock()
        self._keyless: dict[socket.socket, float] = {}  # since when, the oldest first
        self.names = {"localhost"}  # under which browsers reach it, besides addresses
        super().__init__(*about)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            with self._lock:
                oldest = next(iter(self._keyless), None)
            if oldest is not None:
                self._end(oldest)
            if not self._room.acquire(timeout=ROOM):
                self.shutdown_request(request)
                return
        with self._lock:
            self._keyless[request] = time.monotonic()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.shown(request)
            self._room.release()

    def shown(self, request: socket.socket) -> None:
        """Who is at this connection has the key, or has gone."""
        with self._lock:
            self._keyless.pop(request, None)

    def service_actions(self) -> None:
        before = time.monotonic() - STRANGER
        with self._lock:
            late = [request for request, since in self._keyless.items() if since < before]
        for request in late:
            self._end(request)

    def _end(self, request: socket.socket) -> None:
        """Its thread reads no more, and so ends."""
        self.shown(request)
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a browser went away: %s", client_address, exc_info=True)


class _Http6(_Http):
    address_family = socket.AF_INET6


def _listening(bind: str, page: PageServer) -> _Http:
    host, _, number = bind.rpartition(":") if bind else ("127.0.0.1", "", "")
    if bind and not (number.isdigit() and int(number) < 1 << 16 and host):
        raise SeawayError(
            f"cannot listen on {bind!r}: an address is like 127.0.0.1:{PORT}; port 0 takes any that is free"
        )
    ports = [int(number)] if bind else [PORT, 0]
    kind = _Http6 if ":" in host.strip("[]") else _Http
    for port in ports:
        try:
            found = kind((host.strip("[]"), port), _Handler)
        except OSError as error:
            if port != ports[-1]:
                continue
            free = "without an address, a free port of this machine is taken"
            raise SeawayError(f"cannot listen on {bind}: {error.strerror}; {free}") from None
        found.page = page
        found.names |= {host.lower(), found.server_name.lower(), socket.gethostname().lower()}
        return found
    raise AssertionError("there is at least one port")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "seaway", ""
    timeout = IDLE
    server: _Http

    def do_GET(self) -> None:
        if not self._meant():
            return
        path = self.path.partition("?")[0]
        name = "page.html" if path == "/" else path.removeprefix("/static/")
        found = None if path != "/" and name == path else file_of(name)
        if found is None:
            self._answer(HTTPStatus.NOT_FOUND, b"there is no such file", "text/plain")
        else:
            self._answer(HTTPStatus.OK, *found)

    def do_POST(self) -> None:
        if not self._meant():
            return
        shown = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if not hmac.compare_digest(shown.encode(), self.server.page.key.encode()):
            why = "the key is wrong or missing: open the link that was printed"
            self._turn_away(HTTPStatus.UNAUTHORIZED, why)
            return
        self.server.shown(self.connection)
        body = self._body()
        if body is None:
            return
        try:
            if self.path == "/look":
                self._look(msgspec.json.decode(body, type=Look))
            elif self.path == "/at":
                self._at(msgspec.json.decode(body, type=Moment))
            else:
                self._fail(HTTPStatus.NOT_FOUND, "POST /look, or /at")
        except Unavailable as why:
            self._fail(HTTPStatus.SERVICE_UNAVAILABLE, str(why))
        except (msgspec.MsgspecError, ValueError) as error:
            self._fail(HTTPStatus.BAD_REQUEST, f"this is no request of the page: {error}")

    def _look(self, request: Look) -> None:
        source = self.server.page.source
        self._answer(HTTPStatus.OK, body_of(source, source.look(request)), "application/octet-stream")

    def _at(self, moment: Moment) -> None:
        source = self.server.page.source
        view = view_of(source.at(source.began + moment.time), source.began)
        self._answer(HTTPStatus.OK, msgspec.json.encode(view), "application/json")

    def _meant(self) -> bool:
        """Whether the request names this server."""
        name = (self.headers.get("Host") or "").rpartition("@")[2]
        name = name.partition("]")[0].removeprefix("[") if name.startswith("[") else name.partition(":")[0]
        if not name or _is_address(name) or name.lower() in self.server.names:
            return True
        why = f"this page is not served under the name {name[:64]!r}: open the link that was printed"
        self._turn_away(HTTPStatus.MISDIRECTED_REQUEST, why)
        return False

    def _turn_away(self, status: HTTPStatus, why: str) -> None:
        """The body is not read, which the browser may go on sending until it has read the answer."""
        self.close_connection = True
        self._fail(status, why)
        self.wfile.flush()
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(ROOM)
            until, left = time.monotonic() + ROOM, REQUEST
            while time.monotonic() < until and left > 0 and (more := self.connection.recv(1 << 16)):
                left -= len(more)

    def _body(self) -> bytes | None:
        """What the browser sent; None if that is too much, which ends the connection."""
        size = self.headers.get("Content-Length") or ""
        if not size.isdigit() or int(size) > REQUEST:
            self.close_connection = True
            self._fail(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {REQUEST} bytes")
            return None
        return self.rfile.read(int(size))

    def _fail(self, status: HTTPStatus, why: str) -> None:
        self._answer(status, msgspec.json.encode({"error": why}), "application/json")

    def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *about: Any) -> None:  # noqa: A002 - its name in the standard library
        log.debug(format, *about)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def file_of(name: str) -> tuple[bytes, str] | None:
    """One of the page's files and what it is; None if it is none of them."""
    folder: Any = resources.files(__package__) / "static"
    for part in name.split("/"):
        if part in ("", ".", "..") or "\\" in part:
            return None
        folder = folder / part
    kind = FILES.get(f".{name.rpartition('.')[2]}")
    return (folder.read_bytes(), kind) if kind is not None and folder.is_file() else None
