"""Makes the pictures of docs/dashboard.md: `python -m tests.seaway.dashboard.pictures [FOLDER]`.

Four clients share 4, 64 and 2048 simulated TPUs; the page is at a moment in the middle, in light and dark. What they
show depends on no clock, but fonts differ from machine to machine, so no test compares them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

import seaway as sw
from seaway.dashboard import PageServer
from seaway.trace.trace_source import TraceSource

from .browser import Browser, Page

WIDE, TALL = 1360, 900
SETTLED = "new Promise(done => setTimeout(done, 400))"


def shared(cluster: Any, devices: int, duration: int, weights: dict[str, int], **options: Any) -> sw.Session:
    """Clients that train on all devices, and one that evaluates on a quarter of them, now and then."""
    every = sw.slice(devices=devices, name="all")
    part = sw.slice(devices=max(1, devices // 4), name="part")
    step = sw.synthetic("step", devices=every, duration=f"{duration}ns")
    update = sw.synthetic("update", devices=every, duration=f"{duration // 3}ns")
    evaluate = sw.synthetic("evaluate", devices=part, duration=f"{2 * duration}ns")

    @sw.program
    def train(x: Any) -> Any:
        return update(step(step(x)))

    def client(call: Any, pause: int) -> None:
        ahead: list[Any] = []
        while sw.now() < 150e-9 * duration:
            ahead.append(call(np.float32(0)))
            if len(ahead) > 3:
                ahead.pop(0).block_until_ready()
            if pause:
                sw.sleep(f"{pause}ns")

    with sw.simulate(cluster, policy="stride", progress=False, **options) as session:
        for name, weight in weights.items():
            session.spawn(client, train, 0, name=name, weight=weight)
        session.spawn(client, evaluate, 5 * duration, name="eve", weight=1)
    return session


def take(page: Page, path: Path, at: float, span: float) -> None:
    page.until("document.querySelector('.tile')")
    page.value(f"seaway.view.set(({at} - {span}) * seaway.view.high, {at} * seaway.view.high)")
    page.value(SETTLED)
    page.size(WIDE, max(TALL, int(page.value("document.documentElement.scrollHeight"))))
    page.value(SETTLED)
    page.screenshot(path)


def main(folder: Path) -> None:
    small = {"name": "tiny", "island": [{"name": "i", "kind": "tpu-v3", "hosts": 2, "devices_per_host": 2}]}
    shapes = (
        (4, shared(small, 4, 2_000_000, {"ann": 1, "bob": 2}), True),
        (64, shared("B", 64, 2_000_000, {"ann": 1, "bob": 2, "cat": 4}, hosts=8), True),
        (2048, shared("A", 2048, 40_000_000, {"ann": 1, "bob": 2, "cat": 4, "dan": 8}), False),
    )
    with Browser() as browser:
        for devices, session, dark in shapes:
            title = session.driver.title
            server = PageServer(TraceSource(session.trace, title), "127.0.0.1:0")
            for each in (False, True):
                page = browser.page(server.link, WIDE, TALL, dark=each)
                name = f"dashboard-{devices}{'' if each == dark else '-light' if dark else '-dark'}.png"
                take(page, folder / name, 0.55, 0.3)
                page.close()
            server.close()
        assert not browser.errors, browser.errors


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures"))
