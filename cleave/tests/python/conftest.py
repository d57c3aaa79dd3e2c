"""One fleet for all tests: three mock replicas behind one router, and clients of both SDKs."""

import contextlib
import uuid
from collections.abc import Iterator

import anthropic
import openai
import pytest

import processes

MODEL = "mock"


@pytest.fixture(scope="session")
def replicas() -> Iterator[list[str]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(processes.mock_replica(MODEL, "--speed", "100")) for _ in range(3)]


@pytest.fixture(scope="session")
def router(replicas: list[str]) -> Iterator[processes.Router]:
    with processes.router(replicas, "--policy", "session") as started:
        yield started


@pytest.fixture
def client(router: processes.Router) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{router.url}/v1", api_key="key-a", max_retries=0) as made:
        yield made


@pytest.fixture
def claude(router: processes.Router) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=router.url, api_key="key-a", max_retries=0) as made:
        yield made


@pytest.fixture
def session_id() -> str:
    return f"test-{uuid.uuid4()}"
