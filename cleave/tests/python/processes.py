"""Real processes for the tests: mock replicas and the router, on ports the kernel picks.

Every process belongs to a `with` block and ends with it. Nothing sleeps for luck: a start is over
when the program prints its address, and everything else is polled under a deadline.
"""

import contextlib
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx

BINARY = os.environ.get("CLEAVE_BIN", "target/debug/cleave")
START_SECONDS_MAX = 30
POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Router:
    """A running router: where clients and where operators reach it."""

    url: str
    admin_url: str


@contextlib.contextmanager
def mock_replica(model: str = "mock", *options: str) -> Iterator[str]:
    """Runs one mock replica and yields its address."""
    command = [BINARY, "mock-replica", "--port", "0", "--model", model, *options]
    with running(command, r"(http://[0-9.]+:[0-9]+)") as found:
        yield found.group(1)


@contextlib.contextmanager
def router(replicas: list[str], *options: str) -> Iterator[Router]:
    """Runs the router in front of `replicas`."""
    command = [BINARY, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", *options]
    for replica in replicas:
        command += ["--replica", replica]
    announced = r"cleave listening on (http://\S+), admin on (http://\S+)"
    with running(command, announced) as found:
        started = Router(found.group(1), found.group(2))
        eventually(lambda: is_ready(started))
        yield started


def is_ready(started: Router) -> bool:
    """Says whether the router would serve a request now."""
    return httpx.get(f"{started.admin_url}/readyz").status_code == 200


@contextlib.contextmanager
def running(command: list[str], announced: str) -> Iterator[re.Match[str]]:
    """Runs `command` until the block ends; yields the line that says where it listens."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    lines: list[str] = []
    found: list[re.Match[str]] = []
    spoke = threading.Event()

    def listen() -> None:
        for line in process.stdout:
            lines.append(line)
            match = re.search(announced, line)
            if match and not found:
                found.append(match)
                spoke.set()
        spoke.set()

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        spoke.wait(START_SECONDS_MAX)
        assert found, f"{' '.join(command)} did not come up:\n{''.join(lines)}"
        yield found[0]
    finally:
        process.kill()
        process.wait()
        listener.join()


def eventually(holds: Callable[[], bool], seconds_max: float = 20.0) -> None:
    """Waits until `holds`, and fails when it does not in time."""
    until = time.monotonic() + seconds_max
    while not holds():
        assert time.monotonic() < until, f"did not hold within {seconds_max} s"
        time.sleep(POLL_SECONDS)


def gauge(url: str, name: str) -> float:
    """Reads one metric of a replica, added up over its labels."""
    text = httpx.get(f"{url}/metrics").text
    pattern = rf"^{re.escape(name)}(?:\{{[^}}]*\}})? ([0-9.eE+-]+)$"
    return sum(float(it) for it in re.findall(pattern, text, re.MULTILINE))
