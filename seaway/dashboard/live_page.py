"""The page of one source, for those who hold it in Python: `session.live()`, or a trace in a notebook.

    page = LivePage(source)
    page.link                   # to be opened in a browser
    page                        # the last expression of a notebook's cell: the page in a frame

Neighbours: `page_server`, which it starts; `sessions.session`, which makes one when it is asked for.
"""

from __future__ import annotations

from html import escape

from .looking import LiveSource
from .page_server import PageServer

HEIGHT = 620  # pixels of the frame in a notebook


class LivePage:
    """A page that is served until this process ends, or `close`."""

    def __init__(self, source: LiveSource, bind: str = "", height: int = HEIGHT) -> None:
        self._server = PageServer(source, bind)
        self.height = height

    @property
    def link(self) -> str:
        return self._server.link

    def close(self) -> None:
        self._server.close()

    def __repr__(self) -> str:
        return f"<live page at {self.link}>"

    def _repr_html_(self) -> str:
        link = escape(self.link, quote=True)
        return (
            f'<iframe src="{link}" width="100%" height="{self.height}" style="border:0" title="Seaway"></iframe>'
            f'<div><a href="{link}" target="_blank" rel="noopener">in a window of its own</a></div>'
        )
