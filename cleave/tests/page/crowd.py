"""A fleet as large as the page is made for: hundreds of replicas that answer at once, in one process, and a router
with as many tenants as it takes. Mock replicas of their own processes would need hundreds of them."""

import asyncio
import contextlib
import json
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

import scene

MODEL = "llama-8b"
ANSWER = {
    "id": "a", "object": "chat.completion", "created": 0, "model": MODEL,
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Yes."}}],
    "usage": {"prompt_tokens": 900, "completion_tokens": 2, "total_tokens": 902},
}
MODELS = {"object": "list", "data": [{"id": MODEL, "object": "model"}]}
METRICS = 'vllm:num_requests_running{model_name="llama-8b"} 3\nvllm:num_requests_waiting{model_name="llama-8b"} 1\nvllm:gpu_cache_usage_perc{model_name="llama-8b"} 0.25\n'


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers what comes over one connection, one after another."""
    with contextlib.suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            length = next((int(it[15:]) for it in head.splitlines() if it.lower().startswith("content-length:")), 0)
            await reader.readexactly(length)
            path = head.split(" ", 2)[1]
            kind, body = "application/json", json.dumps(MODELS if path == "/v1/models" else ANSWER)
            if path == "/metrics":
                kind, body = "text/plain", METRICS
            writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
            await writer.drain()
    writer.close()


@contextlib.contextmanager
def replicas(count: int) -> Iterator[list[str]]:
    """Runs replicas, each at a port of its own, until the block ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> list[asyncio.Server]:
        return [await asyncio.start_server(serve, "127.0.0.1", 0) for _ in range(count)]

    async def stop() -> None:
        # A connection that is cancelled is no fault to tell of.
        loop.set_exception_handler(lambda *_: None)
        rest = [it for it in asyncio.all_tasks() if it is not asyncio.current_task()]
        for it in rest:
            it.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    servers = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield [f"http://127.0.0.1:{it.sockets[0].getsockname()[1]}" for it in servers]
    finally:
        for it in servers:
            loop.call_soon_threadsafe(it.close)
        asyncio.run_coroutine_threadsafe(stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextlib.contextmanager
def crowd(replica_count: int, tenant_count: int) -> Iterator[scene.Scene]:
    """Runs the fleet and its router, and lets every tenant ask once."""
    tenants = {f"tenant-{it:04}": f"key-{it}" for it in range(tenant_count)}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = stack.enter_context(replicas(replica_count))
        config = folder / "cleave.toml"
        # Hundreds of replicas are not asked five times a second how they are.
        text = scene.settings(urls, tenants, MODEL, (0, 0), tokens=False, zone="zone-")
        config.write_text(text.replace('interval = "200ms"', 'interval = "5s"\nreport_interval = "5s"'))
        router = stack.enter_context(contextlib.ExitStack())
        made = router.enter_context(scene.running(config))
        fleet = scene.Scene(made.url, made.admin_url, urls, tenants, config, router)
        with httpx.Client(timeout=60, limits=httpx.Limits(max_connections=8)) as client, ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda it: ask(client, fleet, it), tenants))
        yield fleet


def ask(client: httpx.Client, fleet: scene.Scene, tenant: str) -> None:
    """Sends one request; one that its contract refuses is an answer too."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": f"I am {tenant}. " + "please " * 400}]}
    headers = {"authorization": f"Bearer {fleet.tenants[tenant]}", "x-session-id": tenant}
    client.post(f"{fleet.url}/v1/chat/completions", json=body, headers=headers)


def bytes_of_feed(fleet: scene.Scene, frames: int) -> list[int]:
    """Reads some frames of figures, and says how many bytes each of them has."""
    sizes: list[int] = []
    kind = ""
    with httpx.stream("GET", f"{fleet.admin}/live?after=99999999999", timeout=30) as answer:
        for line in answer.iter_lines():
            kind = line.removeprefix("event: ") if line.startswith("event: ") else kind
            if line.startswith("data: ") and kind == "now":
                sizes.append(len(line))
            if len(sizes) == frames:
                return sizes
    raise AssertionError(f"the feed ended after {len(sizes)} frames")
