"""A headless Chromium for tests, driven by its DevTools protocol over two pipes: nothing but Chromium is needed.

with Browser() as browser:
    page = browser.page("http://127.0.0.1:29100/#key=...", width=1280, height=900)
    page.until("document.querySelector('.tile') !== null")
    page.wheel(600, 300, -500)
    page.screenshot(path)
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
MISSING = "there is no Chromium on this machine: apt-get install chromium"
PATIENCE = 120.0  # seconds for anything to come true
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--font-render-hinting=none", "--remote-debugging-pipe",
)  # fmt: skip


def chromium() -> str | None:
    """The program, if this machine has it."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class BrowserError(Exception):
    pass


class Browser:
    def __enter__(self) -> Browser:
        program = chromium()
        assert program is not None, MISSING
        self._folder = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        # Chromium reads commands from file descriptor 3, and writes answers to 4.
        shell = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        words = [program, *FLAGS, f"--user-data-dir={self._folder.name}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", shell, *words], pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._out, self._in, self._rest, self._count = ours_out, ours_in, b"", 0
        self.errors: list[str] = []  # what scripts of the pages complained of
        return self

    def __exit__(self, *about: type[BaseException] | BaseException | TracebackType | None) -> None:
        try:
            self.call("Browser.close")
        except (BrowserError, OSError):
            pass
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        os.close(self._in)
        self._folder.cleanup()

    def page(self, link: str, width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, target, session, link, width, height, dark)

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        self._count += 1
        asked = {"id": self._count, "method": method, "params": parameters}
        if session:
            asked["sessionId"] = session
        os.write(self._out, json.dumps(asked).encode() + b"\0")
        while True:
            said = self._read()
            if said.get("id") == self._count:
                if "error" in said:
                    raise BrowserError(f"{method}: {said['error']['message']}")
                found: dict[str, Any] = said["result"]
                return found
            self._heed(said)

    def _heed(self, said: dict[str, Any]) -> None:
        about = said.get("params", {})
        if said.get("method") == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif said.get("method") == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.errors.append(f"{about['entry']['text']} {about['entry'].get('url', '')}")

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._in, 1 << 16)
            if not more:
                raise BrowserError("Chromium has ended")
            self._rest += more
        one, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(one)
        return found


class Page:
    def __init__(
        self, browser: Browser, target: str, session: str, link: str, width: int, height: int, dark: bool
    ) -> None:
        self._browser, self._target, self._session = browser, target, session
        self.call("Page.enable")
        self.call("Runtime.enable")
        self.call("Log.enable")
        self.size(width, height)
        media = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=media)
        self.call("Page.navigate", url=link)

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def size(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is; promises are awaited."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise BrowserError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def until(self, expression: str, patience: float = PATIENCE) -> None:
        """Wait until an expression is true. One that raises, on a page that is still loading, is not."""
        end = time.monotonic() + patience
        tried = f"(() => {{ try {{ return !!({expression}); }} catch {{ return false; }} }})()"
        while not self.value(tried):
            if time.monotonic() > end:
                raise BrowserError(f"after {patience:g} s it is still not true that {expression}")
            self.value("new Promise(done => setTimeout(done, 50))")

    def text(self, selector: str) -> str:
        found: str = self.value(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return found

    def click(self, selector: str) -> None:
        self.value(f"document.querySelector({json.dumps(selector)}).click()")

    def move(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def wheel(self, x: float, y: float, by: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=by)

    def drag(self, x: float, y: float, to: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, button="left", clickCount=1)
        for step in range(1, 6):
            at = x + (to - x) * step / 5
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=at, y=y, button="left", buttons=1)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=to, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path) -> None:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))
