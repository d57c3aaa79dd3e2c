"""The router in front of real vLLM replicas. Run by `cargo xtask e2e-vllm`, which starts them.

The model has random weights, so texts mean nothing; what counts is that they arrive whole, that
turns find their cache, and that an abandoned request stops.
"""

import os
import uuid
from collections.abc import Iterator

import anthropic
import httpx
import openai
import pytest

import processes

MODEL = "tiny"
RUNNING = "vllm:num_requests_running"
PROMPT_TOKENS = "vllm:prompt_tokens_total"
CACHE_HITS = "vllm:prefix_cache_hits_total"
CACHE_QUERIES = "vllm:prefix_cache_queries_total"
QUESTION = [{"role": "user", "content": "Tell me about sessions."}]
# In the body, because one of the SDKs has no argument for it.
GREEDY = {"model": MODEL, "messages": QUESTION, "max_tokens": 16, "extra_body": {"temperature": 0}}
LONG = {"model": MODEL, "messages": QUESTION, "max_tokens": 3000}


@pytest.fixture(scope="session")
def replicas() -> list[str]:
    return os.environ["CLEAVE_E2E_REPLICAS"].split(",")


@pytest.fixture(scope="session")
def router(replicas: list[str]) -> Iterator[processes.Router]:
    with processes.router(replicas, "--policy", "session") as started:
        yield started


def total(replicas: list[str], name: str) -> float:
    return sum(processes.gauge(it, name) for it in replicas)


def test_the_model_is_listed(client: openai.OpenAI) -> None:
    assert [it.id for it in client.models.list()] == [MODEL]


def test_the_engines_ask_for_a_key_that_clients_do_not_have(
    client: openai.OpenAI, replicas: list[str]
) -> None:
    for replica in replicas:
        with openai.OpenAI(base_url=f"{replica}/v1", api_key="key-a", max_retries=0) as direct:
            with pytest.raises(openai.AuthenticationError):
                direct.models.list()
    assert client.chat.completions.create(**GREEDY).choices


def test_a_streamed_chat_says_what_the_whole_one_says(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**GREEDY)
    chunks = list(client.chat.completions.create(**GREEDY, stream=True))
    text = "".join(it.choices[0].delta.content or "" for it in chunks if it.choices)
    assert whole.choices[0].message.content
    assert text == whole.choices[0].message.content


async def test_an_async_chat_streams(router: processes.Router) -> None:
    async with openai.AsyncOpenAI(base_url=f"{router.url}/v1", api_key="key-a", max_retries=0) as client:
        stream = await client.chat.completions.create(**GREEDY, stream=True)
        assert "".join([it.choices[0].delta.content or "" async for it in stream if it.choices])


def test_a_streamed_message_says_what_the_whole_one_says(claude: anthropic.Anthropic) -> None:
    whole = claude.messages.create(**GREEDY)
    with claude.messages.stream(**GREEDY) as stream:
        text = "".join(stream.text_stream)
    assert whole.content[0].text
    assert text == whole.content[0].text


def test_a_completion_is_answered(client: openai.OpenAI) -> None:
    assert client.completions.create(model=MODEL, prompt="Once upon", max_tokens=4).choices[0].text


def test_the_engines_own_error_reaches_the_client(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(**{**GREEDY, "extra_body": {"temperature": -7}})


def test_a_stream_closed_midway_ends_at_the_replica(client: openai.OpenAI, replicas: list[str]) -> None:
    long = {**LONG, "extra_body": {"ignore_eos": True}}
    with client.chat.completions.create(**long, stream=True) as stream:
        for _ in zip(range(3), stream, strict=False):
            pass
        processes.eventually(lambda: total(replicas, RUNNING) == 1)
    processes.eventually(lambda: total(replicas, RUNNING) == 0)


def test_turns_stay_on_one_replica_and_find_their_cache(
    client: openai.OpenAI, replicas: list[str], session_id: str
) -> None:
    before = [processes.gauge(it, PROMPT_TOKENS) for it in replicas]
    hits = total(replicas, CACHE_HITS)
    messages = [{"role": "user", "content": f"{session_id} " + "a long story " * 100}]
    for _ in range(4):
        answer = client.chat.completions.with_raw_response.create(
            **{**GREEDY, "messages": messages}, extra_headers={"x-session-id": session_id}
        )
        assert answer.headers["x-session-id"] == session_id
        messages += [{"role": "assistant", "content": answer.parse().choices[0].message.content or "-"}]
        messages += [{"role": "user", "content": "Go on."}]
    grown = [processes.gauge(it, PROMPT_TOKENS) - was for it, was in zip(replicas, before, strict=True)]
    assert sum(0 < it for it in grown) == 1
    assert hits < total(replicas, CACHE_HITS)


def hit_rate(replicas: list[str], policy: str) -> float:
    """Plays 31 sessions of 4 turns, a long system prompt each, and reads the engines' own figures.

    The number is odd, so that turns in order do not fall on the same of two replicas by chance.
    """
    sessions = [f"{policy}-{uuid.uuid4()}" for _ in range(31)]
    hits, queries = total(replicas, CACHE_HITS), total(replicas, CACHE_QUERIES)
    with processes.router(replicas, "--policy", policy) as started:
        with openai.OpenAI(base_url=f"{started.url}/v1", api_key="key-a", max_retries=0) as client:
            for turn in range(4):
                for session in sessions:
                    client.chat.completions.create(
                        model=MODEL,
                        messages=[
                            {"role": "system", "content": f"{session} " + "rules of the house " * 125},
                            {"role": "user", "content": f"Question {turn}"},
                        ],
                        max_tokens=2,
                        extra_headers={"x-session-id": session},
                    )
    return (total(replicas, CACHE_HITS) - hits) / (total(replicas, CACHE_QUERIES) - queries)


def test_sessions_that_stick_hit_more_than_sessions_that_wander(replicas: list[str]) -> None:
    wandering = hit_rate(replicas, "round_robin")
    sticking = hit_rate(replicas, "session")
    weighing = hit_rate(replicas, "priced")
    print(
        f"\nprefix hit rate: round_robin {wandering:.3f}, session {sticking:.3f}, "
        f"priced (the default) {weighing:.3f}"
    )
    # A session that sticks misses its first turn of four; one that wanders misses one per replica.
    assert 0.65 < sticking
    assert wandering + 0.1 < sticking


def ask_streamed(client: openai.OpenAI, number: int) -> None:
    """Asks for a short answer to a prompt that no other request shares, of 20 to 2,500 tokens."""
    words = 20 + (number * 389) % 1_200
    prompt = f"{uuid.uuid4()} " + "tell me more " * (words // 3)
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": prompt}],
        max_tokens=24,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    for _ in stream:
        pass


def test_first_tokens_are_predicted_without_a_calibration(
    replicas: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEAVE__EXPLAIN__SAMPLE", "1")
    with processes.router(replicas) as started:
        with openai.OpenAI(base_url=f"{started.url}/v1", api_key="key-a", max_retries=0) as client:
            # One at a time: two engines on a few cores hold each other up, which no router can see.
            for number in range(250):
                ask_streamed(client, number)
        kept = httpx.get(f"{started.admin_url}/explain").json()
        costs = httpx.get(f"{started.admin_url}/load").json()["pools"][0]["costs"][0]
    came = [(it["tries"][-1]["ttft_ms"], it["outcome"]["ttft_ms"]) for it in kept if it["outcome"]]
    errors = sorted(abs(predicted / seen - 1) for predicted, seen in came if seen)
    assert 30 <= len(errors)
    median = errors[len(errors) // 2]
    print(f"\nfirst tokens after 200 requests, uncalibrated: off by {median:.3f} at the median; {costs}")
    assert costs["used"] == "learned"
    assert median < 0.2
