"""The page's files are for everybody who reaches its server, and numbers for those who have the key."""

from __future__ import annotations

import http.client
import json
import re
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seaway as sw
from core.record import Look
from seaway.dashboard import LiveSource, PageServer, Unavailable
from seaway.dashboard.page_server import MOST
from seaway.errors import SeawayError
from seaway.trace.trace_source import TraceSource
from tests.seaway.small_sessions import small

STATIC = Path(__file__).parents[3] / "seaway" / "dashboard" / "static"
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def page() -> Iterator[PageServer]:
    step = sw.synthetic("step", devices=4, duration="1ms")
    with small(policy="stride") as session:
        for name, weight in (("ann", 2), (HOSTILE, 1)):
            with session.client(name, weight=weight):
                for _ in range(3):
                    step(np.float32(0)).block_until_ready()
    found = PageServer(TraceSource(session.trace, "a trace"), "127.0.0.1:0")
    yield found
    found.close()


def ask(
    page: PageServer, method: str, path: str, body: Any = None, key: str | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(page.address, timeout=20)
    try:
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def head_of(body: bytes) -> Any:
    (size,) = struct.unpack_from("<I", body)
    return json.loads(body[4 : 4 + size])


def columns_of(body: bytes) -> dict[str, dict[str, list[float]]]:
    """The tables of an answer, read as the page reads them."""
    (size,) = struct.unpack_from("<I", body)
    at = 4 + size
    found: dict[str, dict[str, list[float]]] = {}
    assert at % 8 == 0, "doubles must lie where a browser can read them in place"
    for name, table in head_of(body)["tables"].items():
        found[name] = {}
        for column in table["columns"]:
            found[name][column] = list(struct.unpack_from(f"<{table['rows']}d", body, at))
            at += 8 * table["rows"]
    assert at == len(body)
    return found


# --- the key ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/look", "/at"])
@pytest.mark.parametrize("key", [None, "", "wrong", "Bearer", "\x00"])
def test_without_the_key_there_are_no_numbers(page: PageServer, path: str, key: str | None) -> None:
    status, _, body = ask(page, "POST", path, {"time": 0}, key)
    assert status == 401
    assert "open the link" in json.loads(body)["error"]


def test_the_link_has_the_key_where_browsers_do_not_send_it(page: PageServer) -> None:
    before, _, after = page.link.partition("#")
    assert page.key not in before
    assert after == f"key={page.key}"
    assert len(page.key) >= 24


def test_no_file_of_the_page_has_the_key(page: PageServer) -> None:
    for path in ["/", *(f"/static/{each.name}" for each in STATIC.glob("*.js"))]:
        status, _, body = ask(page, "GET", path)
        assert status == 200
        assert page.key.encode() not in body


# --- files --------------------------------------------------------------------------------------------------------


def test_all_that_the_page_loads_is_served_from_here_with_a_strict_policy(page: PageServer) -> None:
    status, headers, body = ask(page, "GET", "/")
    assert status == 200
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    loaded = re.findall(r'(?:src|href)="([^"]+)"', body.decode())
    assert len(loaded) >= 5
    modules = list(loaded)
    for path in modules:
        assert path.startswith("/static/"), "nothing comes from elsewhere"
        status, headers, found = ask(page, "GET", path)
        assert (status, headers["Content-Security-Policy"]) == (200, policy)
        folder = path.rpartition("/")[0]
        modules += [
            f"{folder}/{name}"
            for name in re.findall(r'from "\./([\w.]+)"', found.decode())
            if f"{folder}/{name}" not in modules
        ]
    assert {Path(path).name for path in modules} == {
        each.name
        for each in STATIC.rglob("*")
        if each.is_file() and each.name not in ("page.html", "unpack.js", "LICENSE")
    }


@pytest.mark.parametrize(
    "path",
    [
        "/static/../page_server.py", "/static/..%2fpage_server.py", "/static//etc/passwd", "/page.html", "/static/",
        "/static/uplot", "/static/uplot/LICENSE", "/static/nothing.js", "/look",
    ],
)  # fmt: skip
def test_nothing_else_is_served(page: PageServer, path: str) -> None:
    assert ask(page, "GET", path)[0] == 404


def test_no_script_makes_html_of_a_string() -> None:
    """Names of clients and programs come from users: they may only become text."""
    ways = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\(\"on"
    )
    for script in STATIC.glob("*.js"):
        assert not ways.search(script.read_text(encoding="utf-8")), script.name
    assert ways.search("place.innerHTML = name")


def test_the_library_that_draws_lines_comes_with_its_licence() -> None:
    folder = STATIC / "uplot"
    assert "MIT License" in (folder / "LICENSE").read_text(encoding="utf-8")
    assert (folder / "uPlot.iife.min.js").stat().st_size < 60_000


# --- numbers ------------------------------------------------------------------------------------------------------


def test_the_first_look_has_all_of_the_trace_and_the_next_one_nothing(page: PageServer) -> None:
    status, headers, body = ask(page, "POST", "/look", {}, page.key)
    assert (status, headers["Content-Type"]) == (200, "application/octet-stream")
    head, columns = head_of(body), columns_of(body)
    assert (head["kind"], head["over"], head["title"]) == ("trace", True, "a trace")
    assert [each["name"] for each in head["islands"]] == ["i0"]
    assert HOSTILE in head["words"]
    assert [head["words"][int(each)] for each in columns["clients"]["label"]] == ["ann", HOSTILE]
    assert columns["clients"]["weight"] == [2.0, 1.0]
    assert len(columns["gangs"]["seq"]) == 6
    assert all(0 <= at <= head["now"] for at in columns["gangs"]["ended"])
    assert set(columns["gangs"]["run"]) == set(columns["runs"]["run"])
    again = {
        "identity": head["identity"],
        "cursor": {"after": head["after"], "open": {}, "places": head["known_places"]},
    }
    _, _, body = ask(page, "POST", "/look", again, page.key)
    assert all(table["rows"] == 0 for table in head_of(body)["tables"].values())
    assert head_of(body)["places"] == {}


def test_nobody_knows_what_a_traces_controller_looked_like(page: PageServer) -> None:
    assert ask(page, "POST", "/at", {"time": 5}, page.key)[::2] == (200, b"null")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"cursor": 3}', b'{"cursor": {"after": {"gangs": "x"}}}', b"\xff"]
)
def test_a_request_that_is_none_gets_an_error_that_says_so(page: PageServer, body: bytes) -> None:
    status, _, said = ask(page, "POST", "/look", body, page.key)
    assert status == 400
    assert "no request of the page" in json.loads(said)["error"]


def test_a_request_that_is_too_large_is_not_read(page: PageServer) -> None:
    for size in ("5000000", "-1", "many"):
        assert ask(page, "POST", "/look", b"", page.key, **{"Content-Length": size})[0] == 413


def test_a_source_that_does_not_answer_is_an_error_that_passes() -> None:
    class Away(LiveSource):
        kind, title, islands = "cluster", "away", []

        def look(self, request: Look) -> Any:
            raise Unavailable("no controller answers at head:29000")

    page = PageServer(Away(), "127.0.0.1:0")
    try:
        status, _, said = ask(page, "POST", "/look", {}, page.key)
        assert (status, json.loads(said)) == (503, {"error": "no controller answers at head:29000"})
    finally:
        page.close()


# --- strangers ----------------------------------------------------------------------------------------------------


def test_without_the_key_a_body_is_not_waited_for(page: PageServer) -> None:
    size = {"Content-Length": "4000000"}
    assert ask(page, "POST", "/look", b"", "wrong", **size)[0] == 401


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost:8000", "LOCALHOST", "[::1]:29100", "10.1.2.3", ""])
def test_a_request_may_name_any_address_and_this_machine(page: PageServer, name: str) -> None:
    """Tunnels lead here from other ports."""
    assert ask(page, "GET", "/", Host=name)[0] == 200


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.example:29100", "localhost.evil.example", "[evil]"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_request_that_names_another_server_gets_nothing(page: PageServer, name: str, method: str) -> None:
    """DNS rebinding: a site lets its own name lead to this machine."""
    status, _, said = ask(page, method, "/" if method == "GET" else "/look", None, page.key, Host=name)
    assert status == 421
    assert "is not served under the name" in json.loads(said)["error"]


def test_slow_strangers_take_few_threads_and_nobody_is_kept_out(page: PageServer) -> None:
    before, host, port = threading.active_count(), *page.address.split(":")
    strangers = []
    try:
        for number in range(300):
            strangers.append(found := socket.create_connection((host, int(port)), 20))
            found.sendall(b"GET / HTTP/1.1\r\nHost: lo" if number % 2 else b"POST /look HTTP/1.1\r\nHost: a\r\n")
            assert threading.active_count() <= before + MOST + 1
        assert ask(page, "POST", "/look", {}, page.key)[0] == 200
    finally:
        for each in strangers:
            each.close()


def test_a_connection_that_does_not_show_the_key_ends_soon_and_one_that_did_stays(
    page: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = http.client.HTTPConnection(page.address, timeout=20)
    known.request("POST", "/look", b"{}", {"Authorization": f"Bearer {page.key}"})
    assert known.getresponse().read()
    monkeypatch.setattr("seaway.dashboard.page_server.STRANGER", 0)
    host, port = page.address.split(":")
    with socket.create_connection((host, int(port)), 20) as stranger:
        stranger.sendall(b"GET /")
        assert stranger.recv(1) == b""
    sock = known.sock
    known.request("POST", "/look", b"{}", {"Authorization": f"Bearer {page.key}"})
    assert known.getresponse().read()
    assert known.sock is sock
    known.close()


# --- where it listens ---------------------------------------------------------------------------------------------


def test_without_an_address_it_listens_on_loopback_only(page: PageServer) -> None:
    found = PageServer(page.source)
    try:
        assert found.address.startswith("127.0.0.1:")
    finally:
        found._http.shutdown()
        found._http.server_close()


@pytest.mark.parametrize("bind", ["29100", "here", "127.0.0.1:", "127.0.0.1:99999", ":29100"])
def test_an_address_that_is_none_is_refused_with_an_example(page: PageServer, bind: str) -> None:
    with pytest.raises(SeawayError, match=r"an address is like 127\.0\.0\.1:29100"):
        PageServer(page.source, bind)


def test_a_port_that_is_taken_is_named(page: PageServer) -> None:
    with pytest.raises(SeawayError, match=re.escape(page.address)):
        PageServer(page.source, page.address)
