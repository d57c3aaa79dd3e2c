"""A fleet with traffic, for the tests of the page and for its pictures: mock replicas, a router with tenants and
tokens, and people that chat."""

import contextlib
import hashlib
import itertools
import json
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

import processes

READER, WRITER = "token-that-reads", "token-that-orders"
WORDS = ["again", "before", "cache", "deploy", "error", "figure", "later", "message", "number", "please", "report", "story", "table", "think"]


@dataclass
class Scene:
    """A running router, its replicas and its tenants."""

    url: str
    admin: str
    replicas: list[str]
    tenants: dict[str, str]
    config: Path
    router: contextlib.ExitStack
    stop: threading.Event = field(default_factory=threading.Event)

    def faults(self, at: int, **faults: float) -> None:
        """Replaces the faults of one replica."""
        httpx.post(f"{self.replicas[at]}/mock/faults", json=faults).raise_for_status()

    def order(self, path: str, body: object = None) -> None:
        """Gives an order as an operator would by hand."""
        headers = {"authorization": f"Bearer {WRITER}", "content-type": "application/json"}
        content = "" if body is None else json.dumps(body)
        httpx.post(f"{self.admin}/{path}", content=content, headers=headers).raise_for_status()


def quoted(text: str) -> str:
    return json.dumps(text)


def settings(replicas: list[str], tenants: dict[str, str], model: str, ports: tuple[int, int], tokens: bool, zone: str) -> str:
    """Writes the configuration."""
    lines = [
        f'listen = "127.0.0.1:{ports[0]}"',
        "[explain]\nsample = 1.0\nkept_max = 20000",
        '[health]\ninterval = "200ms"',
        "[subsets]\nfloor = 2",
        f'[admin]\nlisten = "127.0.0.1:{ports[1]}"',
    ]
    if tokens:
        lines += [f'[[admin.tokens]]\nname = "board"\ntoken = "{READER}"']
        lines += [f'[[admin.tokens]]\nname = "alice"\ntoken = "{WRITER}"\nrights = "order"']
    for number, (name, key) in enumerate(tenants.items()):
        digest = hashlib.sha256(key.encode()).hexdigest()
        lines += [f'[[tenants]]\nname = {quoted(name)}\nkey_sha256 = ["{digest}"]']
        if number == 0:
            lines += ["contract = { mu_per_min = 400.0, tokens_per_min = 6000000 }"]
        if number == 1:
            lines += ['classes = ["batch"]\ncontract = { requests_per_min = 40, hard = true }']
    lines += [f'[[pools]]\nname = "chat"\nmodels = [{quoted(model)}]\nclass = "h200"\nreplicas = [']
    lines += [f'  {{ url = "{it}", zone = {quoted(zone + "ab"[at % 2])} }},' for at, it in enumerate(replicas)]
    return "\n".join([*lines, "]", ""])


@contextlib.contextmanager
def scene(
    count: int = 8,
    tenants: dict[str, str] | None = None,
    model: str = "llama-8b",
    ports: tuple[int, int] = (0, 0),
    tokens: bool = True,
    zone: str = "zone-",
    speed: str = "1",
) -> Iterator[Scene]:
    """Runs a fleet and a router until the block ends."""
    tenants = tenants or {"search": "key-search", "nightly": "key-nightly", "agents": "key-agents", "support": "key-support"}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        mocks = [stack.enter_context(processes.mock_replica(model, "--speed", speed, "--kv-tokens", "90000")) for _ in range(count)]
        config = folder / "cleave.toml"
        recorded = f"[record]\ndir = {quoted(str(folder / 'recordings'))}\n"
        config.write_text(settings(mocks, tenants, model, ports, tokens, zone) + recorded)
        router = stack.enter_context(contextlib.ExitStack())
        made = router.enter_context(running(config))
        yield Scene(made.url, made.admin_url, mocks, tenants, config, router)


@contextlib.contextmanager
def running(config: Path) -> Iterator[processes.Router]:
    """Runs the router of a configuration until the block ends."""
    announced = r"cleave listening on (http://\S+), admin on (http://\S+)"
    with processes.running([processes.BINARY, "serve", "--config", str(config)], announced) as found:
        started = processes.Router(found.group(1), found.group(2))
        processes.eventually(lambda: processes.is_ready(started))
        yield started


def say(client: httpx.Client, scene: Scene, tenant: str, session: str, messages: list[dict], model: str) -> str:
    """Sends one turn and reads its answer."""
    body = {"model": model, "messages": messages, "stream": True, "stream_options": {"include_usage": True}}
    headers = {"authorization": f"Bearer {scene.tenants[tenant]}", "x-session-id": session}
    text = ""
    with client.stream("POST", f"{scene.url}/v1/chat/completions", json=body, headers=headers) as answer:
        for line in answer.iter_lines():
            if answer.status_code == 200 and line.startswith("data: {"):
                for one in json.loads(line[6:]).get("choices", []):
                    text += one.get("delta", {}).get("content") or ""
    return text


def chat(scene: Scene, number: int, model: str, tokens: int, pause: float, names: str) -> None:
    """One person: one conversation after another, until it is over."""
    chance = random.Random(number)
    tenant = list(scene.tenants)[min(int(chance.expovariate(0.9)), len(scene.tenants) - 1)]
    words = lambda count: " ".join(chance.choice(WORDS) for _ in range(count))
    with httpx.Client(timeout=60) as client:
        for conversation in itertools.count():
            messages = [{"role": "system", "content": f"You help {tenant}. " + "Be brief and polite. " * 120}]
            for _ in range(chance.randint(3, 8)):
                messages.append({"role": "user", "content": words(chance.randint(tokens // 4, tokens))})
                if scene.stop.wait(chance.uniform(0, pause)):
                    return
                with contextlib.suppress(httpx.HTTPError):
                    text = say(client, scene, tenant, f"{names}{number}-{conversation}", messages, model)
                    messages.append({"role": "assistant", "content": text or "Nothing."})


@contextlib.contextmanager
def traffic(scene: Scene, people: int = 24, model: str = "llama-8b", tokens: int = 3000, pause: float = 1.5, names: str = "chat-") -> Iterator[None]:
    """Lets people chat until the block ends."""
    threads = [threading.Thread(target=chat, args=(scene, it, model, tokens, pause, names), daemon=True) for it in range(people)]
    for it in threads:
        it.start()
    try:
        yield
    finally:
        scene.stop.set()
        for it in threads:
            it.join(timeout=30)


def settle(seconds: float) -> None:
    """Lets traffic make a picture worth looking at; no test waits like this."""
    time.sleep(seconds)
