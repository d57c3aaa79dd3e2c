"""Sessions as clients see them: the id comes back, turns stay together, tenants stay apart."""

import anthropic
import openai

import processes
from conftest import MODEL

REPLICA = "x-mock-replica"
SESSION = "x-session-id"


def ask(client: openai.OpenAI, messages: list[dict], session: str | None = None, **more):
    """Asks once and returns the raw answer, headers included."""
    headers = {SESSION: session} if session else {}
    return client.chat.completions.with_raw_response.create(
        model=MODEL, messages=messages, max_tokens=4, extra_headers=headers, **more
    )


def opening(words: str) -> list[dict]:
    return [{"role": "user", "content": words}]


def test_the_clients_session_id_comes_back(client: openai.OpenAI, session_id: str) -> None:
    assert ask(client, opening("Hello"), session_id).headers[SESSION] == session_id


def test_the_clients_session_id_comes_back_on_a_stream(client: openai.OpenAI, session_id: str) -> None:
    answer = ask(client, opening("Hello"), session_id, stream=True)
    assert answer.headers[SESSION] == session_id
    assert list(answer.parse())


def test_a_conversation_without_an_id_gets_one_that_stays(client: openai.OpenAI, session_id: str) -> None:
    messages = opening(f"I am {session_id}")
    first = ask(client, messages)
    messages += [{"role": "assistant", "content": first.parse().choices[0].message.content}]
    messages += opening("And then?")
    second = ask(client, messages, stream=True)
    assert first.headers[SESSION]
    assert second.headers[SESSION] == first.headers[SESSION]
    assert second.headers[REPLICA] == first.headers[REPLICA]


def test_a_message_gets_a_session_id_too(claude: anthropic.Anthropic, session_id: str) -> None:
    answer = claude.messages.with_raw_response.create(
        model=MODEL, messages=opening(f"I am {session_id}"), max_tokens=4
    )
    assert answer.headers[SESSION]


def test_turns_stay_on_one_replica_and_find_their_cache(client: openai.OpenAI, session_id: str) -> None:
    messages = opening(f"{session_id}: " + "a long story about a small house " * 60)
    replicas, cached = set(), []
    for turn in range(5):
        answer = ask(client, messages, session_id)
        replicas.add(answer.headers[REPLICA])
        body = answer.parse()
        cached.append(body.usage.prompt_tokens_details.cached_tokens)
        messages += [{"role": "assistant", "content": body.choices[0].message.content}]
        messages += opening(f"Turn {turn}: go on, " + "and tell me more of it " * 20)
    assert len(replicas) == 1
    assert cached[0] < cached[1]
    assert cached == sorted(cached)


def test_sessions_spread_over_all_replicas(client: openai.OpenAI, replicas: list[str]) -> None:
    used = {ask(client, opening("Hello"), f"spread-{it}").headers[REPLICA] for it in range(64)}
    assert len(used) == len(replicas)


def test_two_tenants_with_one_session_id_are_two_sessions(router: processes.Router) -> None:
    """Over many ids, two tenants must part ways somewhere; one tenant never does."""

    def homes(key: str) -> list[str]:
        with openai.OpenAI(base_url=f"{router.url}/v1", api_key=key, max_retries=0) as client:
            return [ask(client, opening("Hello"), f"shared-{it}").headers[REPLICA] for it in range(32)]

    assert homes("key-a") == homes("key-a")
    assert homes("key-a") != homes("key-b")
