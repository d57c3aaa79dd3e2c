"""A real browser for the tests: Chromium over WebDriver, by plain HTTP requests.

WebDriver is a small protocol, and the tests need a dozen of its commands. A library for it would bring its own
waiting and its own downloads of browsers; here nothing is downloaded, and every wait has an end.
"""

import base64
import contextlib
import json
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx

WAIT_SECONDS_MAX = 20
POLL_SECONDS = 0.05
# No calls home, no first run, no sandbox that containers do not allow.
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]


class Browser:
    """One window."""

    def __init__(self, client: httpx.Client, session: str) -> None:
        self.client = client
        self.session = session

    def command(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Sends one command of WebDriver and returns its value."""
        answer = self.client.request(method, f"/session/{self.session}{path}", json=body if method == "POST" else None)
        value = answer.json()["value"]
        assert answer.status_code == 200, value
        return value

    def cdp(self, name: str, **params: Any) -> Any:
        """Sends one command of Chromium's own protocol."""
        return self.command("POST", "/goog/cdp/execute", {"cmd": name, "params": params})

    def open(self, url: str) -> None:
        self.command("POST", "/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """Runs a script in the page; arguments come as `arguments`."""
        return self.command("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def run_async(self, script: str, *arguments: Any) -> Any:
        """The same for a script that calls back."""
        return self.command("POST", "/execute/async", {"script": script, "args": list(arguments)})

    def text(self, selector: str = "body") -> str:
        """The text that a reader sees, or nothing."""
        return self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def count(self, selector: str) -> int:
        return self.run("return document.querySelectorAll(arguments[0]).length", selector)

    def click(self, selector: str, text: str = "") -> None:
        """Clicks the first element that fits and holds the text, once there is one."""
        script = """
            const all = [...document.querySelectorAll(arguments[0])];
            const one = all.find((it) => it.innerText.includes(arguments[1]) && it.checkVisibility());
            one?.scrollIntoView({ block: "center" });
            one?.click();
            return Boolean(one);
        """
        self.until(lambda: self.run(script, selector, text), f"{selector} with {text!r}")

    def type(self, selector: str, text: str) -> None:
        """Types into a field, key by key."""
        self.run("document.querySelector(arguments[0]).focus()", selector)
        actions = [{"type": it, "value": key} for key in text for it in ("keyDown", "keyUp")]
        self.command("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def until(self, holds: Callable[[], Any], what: str, seconds_max: float = WAIT_SECONDS_MAX) -> None:
        end = time.monotonic() + seconds_max
        while not holds():
            assert time.monotonic() < end, f"not within {seconds_max} s: {what}\n{self.text('main')[:2000]}"
            time.sleep(POLL_SECONDS)

    def until_text(self, text: str, selector: str = "main", seconds_max: float = WAIT_SECONDS_MAX) -> None:
        self.until(lambda: text in self.text(selector), f"{text!r} in {selector}", seconds_max)

    def size(self, width: int, height: int) -> None:
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def theme(self, theme: str) -> None:
        """Sets what the system prefers, as the page sees it."""
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def shot(self, whole: bool = False) -> bytes:
        """A picture of the window, or of the whole page."""
        made = self.cdp("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(made["data"])

    def complaints(self) -> list[str]:
        """What the console said since it was asked last, but for requests that failed because a router was down."""
        entries = self.command("POST", "/se/log", {"type": "browser"})
        # There are many ways to lose a connection. What the page may not ask for is "blocked".
        return [it["message"] for it in entries if "net::ERR_" not in it["message"] or "BLOCKED" in it["message"]]

    def asked(self) -> list[str]:
        """The addresses that were asked since it was asked last."""
        entries = self.command("POST", "/se/log", {"type": "performance"})
        messages = [json.loads(it["message"])["message"] for it in entries]
        return [it["params"]["request"]["url"] for it in messages if it["method"] == "Network.requestWillBeSent"]


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Runs a browser of its own, without a past, until the block ends."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            port = next(it.group(1) for line in process.stdout if (it := re.search(r"successfully on port (\d+)", line)))
            threading.Thread(target=process.stdout.read, daemon=True).start()
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                options = {"args": [*FLAGS, f"--user-data-dir={folder}"], "perfLoggingPrefs": {"enableNetwork": True}}
                logs = {"browser": "ALL", "performance": "ALL"}
                wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": logs}
                made = client.post("/session", json={"capabilities": {"alwaysMatch": wanted}}).json()["value"]
                assert "sessionId" in made, made
                started = Browser(client, made["sessionId"])
                started.size(1280, 900)
                yield started
                client.delete(f"/session/{started.session}")
        finally:
            process.kill()
            process.wait()
