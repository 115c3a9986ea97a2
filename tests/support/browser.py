"""A headless Chromium, controlled over its DevTools pipe, to test what a page logs, requests and shows."""

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--remote-debugging-pipe",
)
# Chromium reads from descriptor 3 and writes to 4. The pipes are moved to 10 and above first, so as not to collide.
LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(text), fcntl.F_DUPFD, 10) for text in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""
PATIENCE = 120  # seconds without a message after which the browser counts as dead


def find_chromium():
    """The path of a Chromium, or None; the one in the environment variable CHROMIUM is preferred."""
    names = (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "chrome")
    return next((path for name in names if name and (path := shutil.which(name))), None)


class Browser:
    """Use as a context manager. `visit` opens a page; `errors` and `requests` are those of the latest page."""

    def __init__(self, folder: Path):
        self.folder, self.errors, self.requests, self.buffer, self.number = folder, [], [], b"", 0

    def __enter__(self):
        theirs_in, self.out = os.pipe()
        self.inward, theirs_out = os.pipe()
        command = [find_chromium(), *FLAGS, f"--user-data-dir={self.folder / 'profile'}", "about:blank"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(theirs_in), str(theirs_out), *command],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        target = self.call("Target.createTarget", {"url": "about:blank"}, session=None)["targetId"]
        attached = self.call("Target.attachToTarget", {"targetId": target, "flatten": True}, session=None)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        os.close(self.out)
        os.close(self.inward)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def visit(self, path: Path, width: int = 1280, height: int = 900) -> None:
        """Open a file in a window of this size, and wait until it is loaded and painted."""
        self.errors.clear()
        self.requests.clear()
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", metrics)
        self.loaded = False
        self.call("Page.navigate", {"url": path.resolve().as_uri()})
        while not self.loaded:
            self._note(self._receive())
        self.run("Promise.resolve(window.drawn).then(() => 0)")  # what a page draws after it has loaded
        self.paint()

    def paint(self) -> None:
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    def run(self, code: str):
        """The value of an expression in the page, awaited if it is a promise."""
        answer = self.call("Runtime.evaluate", {"expression": code, "returnByValue": True, "awaitPromise": True})
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self) -> bytes:
        """The whole page as a PNG file."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
        return base64.b64decode(shot["data"])

    def pdf(self) -> bytes:
        """The page as it would be printed."""
        paper = {"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": True, "printBackground": True}
        return base64.b64decode(self.call("Page.printToPDF", paper)["data"])

    def call(self, method: str, parameters: dict | None = None, session: str | None = "own") -> dict:
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters or {}}
        if session is not None:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._note(answer)

    def _receive(self) -> dict:
        while b"\0" not in self.buffer:
            if not select.select([self.inward], [], [], PATIENCE)[0]:
                raise TimeoutError(f"no word from {find_chromium()} in {PATIENCE} seconds")
            chunk = os.read(self.inward, 1 << 20)
            if not chunk:
                raise ConnectionError(f"{find_chromium()} ended early, with exit code {self.process.poll()}")
            self.buffer += chunk
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict) -> None:
        method, facts = event.get("method"), event.get("params", {})
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            details = facts["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and facts["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(part.get("value", part.get("description"))) for part in facts["args"]))
        elif method == "Log.entryAdded" and facts["entry"]["level"] in ("error", "warning"):
            self.errors.append(facts["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(facts["request"]["url"])
