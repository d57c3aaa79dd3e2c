"""A client that leaves midway: the replica must stop working for it at once."""

import asyncio
import contextlib
from collections.abc import Iterator

import anthropic
import openai
import pytest

import processes
from conftest import MODEL

LONG = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Write until I stop you."}],
    "max_tokens": 4000,
}
RUNNING = "vllm:num_requests_running"


@pytest.fixture(scope="module")
def slow() -> Iterator[tuple[str, processes.Router]]:
    """One replica at its real speed, so that an answer takes far longer than leaving it."""
    with contextlib.ExitStack() as stack:
        replica = stack.enter_context(processes.mock_replica(MODEL, "--speed", "1"))
        yield replica, stack.enter_context(processes.router([replica]))


def test_a_stream_closed_midway_ends_at_the_replica(slow: tuple[str, processes.Router]) -> None:
    replica, router = slow
    with openai.OpenAI(base_url=f"{router.url}/v1", api_key="key-a", max_retries=0) as client:
        with client.chat.completions.create(**LONG, stream=True) as stream:
            next(iter(stream))
            assert processes.gauge(replica, RUNNING) == 1
        processes.eventually(lambda: processes.gauge(replica, RUNNING) == 0)


def test_a_message_stream_closed_midway_ends_at_the_replica(slow: tuple[str, processes.Router]) -> None:
    replica, router = slow
    with anthropic.Anthropic(base_url=router.url, api_key="key-a", max_retries=0) as claude:
        with claude.messages.stream(**LONG) as stream:
            next(iter(stream.text_stream))
            assert processes.gauge(replica, RUNNING) == 1
        processes.eventually(lambda: processes.gauge(replica, RUNNING) == 0)


async def test_a_cancelled_task_ends_at_the_replica(slow: tuple[str, processes.Router]) -> None:
    """Nothing has been answered yet when the client leaves: the request is not a stream."""
    replica, router = slow
    async with openai.AsyncOpenAI(base_url=f"{router.url}/v1", api_key="key-a", max_retries=0) as client:
        asking = asyncio.create_task(client.chat.completions.create(**LONG))
        running = lambda count: lambda: processes.gauge(replica, RUNNING) == count
        await asyncio.to_thread(processes.eventually, running(1))
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
        await asyncio.to_thread(processes.eventually, running(0))


def test_a_request_that_timed_out_ends_at_the_replica(slow: tuple[str, processes.Router]) -> None:
    replica, router = slow
    with openai.OpenAI(base_url=f"{router.url}/v1", api_key="key-a", max_retries=0) as client:
        with pytest.raises(openai.APITimeoutError):
            client.chat.completions.create(**LONG, timeout=0.5)
        processes.eventually(lambda: processes.gauge(replica, RUNNING) == 0)
