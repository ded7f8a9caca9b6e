"""The page of one source, for those who hold it in Python: `session.live()` and `trace.live()`.

    page.link                   # to be opened in a browser
    page                        # the last expression of a notebook's cell: the page in a frame
    page.save("run.html")       # of a trace: the page as one file

What still runs needs a server. What is over is put into the notebook whole, and stays when the process is gone. If it
is too large for that, it is served, too. The frame of a page that is served looks whether its server answers, and says
what to do if it does not.

Neighbours: `page_server`, `page_file`; `sessions.session` and `trace.trace`, which make pages when asked.
"""

import json
from html import escape
from pathlib import Path

from .looking import LiveSource
from .page_file import page_file
from .page_server import PageServer

HEIGHT = 620  # pixels of the frame in a notebook
MOST_KEPT = 5_000_000  # characters of a page that a notebook keeps: some 150,000 gangs
SERVED = """<!doctype html><meta charset="utf-8"><style>
body { margin: 0; font: 14px/1.5 system-ui, sans-serif; color: #68707a }
p { max-width: 46em; margin: 0; padding: 24px } iframe { display: block; border: 0; width: 100%; height: 100vh }
</style><p hidden></p><script>
const link = LINK, note = document.querySelector("p");
fetch(new URL(link).origin, { mode: "no-cors" }).then(() => {
  const frame = document.createElement("iframe");
  frame.src = link;
  document.body.append(frame);
}, () => {
  note.textContent = NOTE;
  note.hidden = false;
});
</script>"""
GONE = (
    "The live page was here. It was served by the Python process of this notebook, which has ended or is on another "
    "machine, so this browser gets no answer. "
)


class LivePage:
    """The page of what still runs, served until this process ends, or `close`."""

    def __init__(self, source: LiveSource, bind: str = "") -> None:
        self._source = source
        self._server: PageServer | None = None
        if bind or not source.over:
            self._server = PageServer(source, bind)

    @property
    def link(self) -> str:
        if self._server is None:
            self._server = PageServer(self._source)
        return self._server.link

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def __repr__(self) -> str:
        return f"<live page at {self.link}>"

    def _repr_html_(self) -> str:
        return self._served(
            "Run the cell again to see it; `session.trace.live()` makes a page that the notebook keeps."
        )

    def _served(self, note: str) -> str:
        page = SERVED.replace("LINK", json.dumps(self.link)).replace("NOTE", json.dumps(GONE + note))
        shown = escape(self.link, quote=True)
        window = f'<div><a href="{shown}" target="_blank" rel="noopener">in a window of its own</a></div>'
        return self._framed(page, "") + window

    def _framed(self, page: str, more: str) -> str:
        return (
            f'<iframe srcdoc="{escape(page, quote=True)}" width="100%" height="{HEIGHT}" style="border:0" '
            f'title="Seaway" {more}></iframe>'
        )


class TracePage(LivePage):
    """The page of what is over. A notebook keeps it, and `save` writes it as one file. Its link, once it was asked for,
    is served until this process ends, or `close`."""

    def __init__(self, source: LiveSource, bind: str = "", most: int = MOST_KEPT) -> None:
        """`most`: how many characters a notebook may keep; the frame of a larger page is served."""
        super().__init__(source, bind)
        self._most = most

    def save(self, path: str | Path) -> Path:
        """Write the page as one HTML file, which any browser shows, without a server or a network."""
        path = Path(path)
        path.write_text(page_file(self._source), encoding="utf-8")
        return path

    def __repr__(self) -> str:
        return f"<page of {self._source.title}, at {self.link}>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """What a notebook keeps. Its text has no link, which differs each time and would soon lead nowhere."""
        return {"text/html": self._repr_html_(), "text/plain": f"<page of {self._source.title}>"}

    def _repr_html_(self) -> str:
        page = page_file(self._source)
        if len(page) <= self._most:
            return self._framed(page, 'sandbox="allow-scripts" allow="fullscreen"')
        size = f"{len(page) / 1e6:.1f} MB, more than the {self._most / 1e6:.1f} MB that a notebook keeps"
        keep = "`trace.live().save('run.html')` keeps it as a file"
        return self._served(f"It is large ({size}). Run the cell again to see it; {keep}.")
