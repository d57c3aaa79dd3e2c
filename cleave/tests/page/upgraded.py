"""A router of another build, as far as a page that is still open sees it: its markup, who asks, and its figures."""

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator

MARKUP = b"<!doctype html><html lang=en><title>New</title><main id=main>This is the page of another build.</main>"


def frames(draws: bool) -> list[tuple[str, object]]:
    """What it tells: an empty fleet, or pools of a form that does not exist yet."""
    fleet = {"version": "99.0.0", "page": "another", "router": None, "explained": 0, "compared": [], "sample_seconds": 5, "causes": [], "pools": []}
    now = {"at_ms": 0, "ready": True, "draining": False, "connections": 0, "pools": []}
    if not draws:
        fleet |= {"page": "yet another", "pools": {"chat": {"replicas": 3}}}
        now |= {"pools": None}
    return [("fleet", fleet), ("now", now)]


def handler(draws: bool) -> type[http.server.BaseHTTPRequestHandler]:
    class Answers(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def log_message(self, *_: object) -> None:
            """Says nothing."""

        def answer(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            path = self.path.split("?")[0]
            if path == "/me":
                self.answer("application/json", json.dumps({"name": "", "may_order": True, "needs_token": False}).encode())
            elif path == "/live":
                told = "".join(f"event: {kind}\ndata: {json.dumps(data)}\n\n" for kind, data in frames(draws))
                self.answer("text/event-stream", told.encode())
            elif path == "/":
                self.answer("text/html", MARKUP)
            else:
                self.answer("application/json", b"[]")

    return Answers


@contextlib.contextmanager
def router(port: int, draws: bool) -> Iterator[None]:
    """Runs one at a port until the block ends."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler(draws))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
