"""The page as one file that needs no server: its scripts, its style and the numbers of a trace are inside.

A notebook keeps it in the cell's output, and a browser opens it from disk. Nothing is loaded from anywhere. The scripts
are modules; here they become one script, since a page without an address cannot import. Scripts and numbers are packed
with zlib, which browsers undo (`DecompressionStream`).

Numbers are packed in columns: differences between neighbours, as 8 planes of bytes. Times grow slowly, so most planes
are zeros: a gang takes some 20 bytes. Neighbours: `columns`, the numbers; `static/feed.js`, which unpacks them.
"""

import base64
import re
import zlib
from html import escape

import msgspec
import numpy as np

from core.record import Look

from .columns import ALIGN, body_of
from .looking import LiveSource
from .page_server import file_of

LEVEL = 6  # 9 makes numbers 2 % smaller, and takes 20 times as long
IMPORTS = re.compile(r'^import (?:\* as (\w+)|(\{[^}]*\})) from "\./(\w+)\.js";$', re.MULTILINE)
EXPORTS = re.compile(r"^export (?=(?:async function|function|class|const) (\w+))", re.MULTILINE)
LINKS = re.compile(r'<(?:link rel="stylesheet"|script src)[^>]*>(?:</script>)?\n')


def page_file(source: LiveSource) -> str:
    """The page with all that a source, which is over, has to show now."""
    page = LINKS.sub("", _static("page.html"))
    style = _static("uplot/uPlot.min.css") + _static("page.css")
    scripts = _static("uplot/uPlot.iife.min.js") + "\n" + one_script("main")
    icon = "data:image/svg+xml;base64," + base64.b64encode(_static("icon.svg").encode()).decode()
    inside = (
        _packed("packed-numbers", compact(body_of(source, source.look(Look()))))
        + _packed("packed-scripts", scripts.encode())
        + f"<script>{_static('unpack.js')}</script>\n"
    )
    page = page.replace("<title>Seaway</title>", f"<title>Seaway: {escape(source.title)}</title>")
    page = page.replace("/static/icon.svg", icon).replace("</head>", f"<style>{style}</style>\n</head>")
    return page.replace("</body>", f"{inside}</body>")


def one_script(first: str) -> str:
    """A module and all that it imports, as one script."""
    found: dict[str, str] = {}

    def add(name: str) -> None:
        if name in found:
            return
        text = _static(f"{name}.js")
        for _, _, other in IMPORTS.findall(text):
            add(other)
        names = ", ".join(EXPORTS.findall(text))
        text = EXPORTS.sub("", IMPORTS.sub(r'const \1\2 = modules["\3"];', text))
        found[name] = f'modules["{name}"] = (() => {{\n"use strict";\n{text}\nreturn {{ {names} }};\n}})();\n'

    add(first)
    return "(() => {\nconst modules = {};\n" + "".join(found.values()) + "})();\n"


def compact(body: bytes) -> bytes:
    """An answer of `columns` with its doubles as planes of bytes of differences, which pack well."""
    start = 4 + int.from_bytes(body[:4], "little")
    tables = msgspec.json.decode(body[4:start])["tables"]
    parts = [body[:start]]
    for table in tables.values():
        for _ in table["columns"]:
            end = start + ALIGN * table["rows"]
            numbers = np.frombuffer(body[start:end], np.float64).astype("<i8")
            steps = np.diff(numbers, prepend=0).astype("<i8")
            parts.append(steps.view(np.uint8).reshape(-1, ALIGN).T.tobytes())
            start = end
    return b"".join(parts)


def _packed(name: str, content: bytes) -> str:
    text = base64.b64encode(zlib.compress(content, LEVEL)).decode()
    return f'<script type="text/plain" id="{name}">{text}</script>\n'


def _static(name: str) -> str:
    found = file_of(name)
    assert found is not None, name
    return found[0].decode()
