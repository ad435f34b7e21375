"""A headless Chromium, driven through a pipe (DevTools protocol), for tests of pages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import contextmanager


def program():
    """Path of a Chromium; None where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


class Browser:
    """One page in a browser; what it asked for and what it complained about is kept."""

    def __init__(self, to, back):
        self._to, self._back, self._number, self._rest = to, back, 0, b""
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        answer = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session: str | None = answer["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    _session: str | None = None

    def call(self, method, **parameters):
        """Return the answer to a command; what happens meanwhile is noted."""
        self._number += 1
        message = {
            "id": self._number,
            "method": method,
            "params": parameters,
        }
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            got = self._next()
            if got.get("id") == self._number:
                assert "error" not in got, got["error"]
                result = got["result"]
                return result
            self._note(got)

    def _next(self):
        while b"\0" not in self._rest:
            part = os.read(self._back, 1 << 20)
            assert part, "the browser has ended"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(line)
        return message

    def _note(self, event):
        values = event.get("params", {})
        if event["method"] == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        if event["method"] == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(values["exceptionDetails"]))
        if event["method"] == "Log.entryAdded" and values["entry"]["level"] == "error":
            self.complaints.append(values["entry"]["text"])

    def open(self, file):
        """Load a file and wait until it is there."""
        self.call("Page.navigate", url=file.as_uri())
        while self.ask("document.readyState") != "complete":
            pass

    def ask(self, script):
        """Return the value of a script, which may be a promise."""
        values = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in values, values["exceptionDetails"]
        return values["result"].get("value")

    def wide(self, width):
        """Make the window so many points wide, as a phone's."""
        self.call(
            *("Emulation.setDeviceMetricsOverride",),
            **{
                "width": width,
                "height": 800,
                "deviceScaleFactor": 1,
                "mobile": width < 600,
            },
        )

    def look(self, at):
        """Show the page on ``light`` or ``dark`` screens, or as ``print`` does."""
        scheme = {
            "name": "prefers-color-scheme",
            "value": "dark" if at == "dark" else "light",
        }
        media = "print" if at == "print" else ""
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])


@contextmanager
def browser(folder):
    """Start a Chromium with a profile of its own, and end it."""
    chromium = program()
    assert chromium
    to_read, to = os.pipe()
    back, back_write = os.pipe()
    words = [
        chromium,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--remote-debugging-pipe",
    ]
    words += [
        f"--user-data-dir={folder}",
        "--no-first-run",
        "--disable-background-networking",
    ]
    process = subprocess.Popen(
        ["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{back_write}', "bash", *words],
        pass_fds=(to_read, back_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(back_write)
    try:
        yield Browser(to, back)
    finally:
        os.close(to)
        process.terminate()
        process.wait(600)
        os.close(back)
