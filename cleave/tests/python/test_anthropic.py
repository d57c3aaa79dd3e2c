"""The `anthropic` SDK against the router: messages whole, streamed, async, with tools, and errors."""

import anthropic
import pytest

import processes
from conftest import MODEL

QUESTION = [{"role": "user", "content": "Tell me about sessions."}]
TOOLS = [
    {
        "name": "get_weather",
        "description": "Look up the weather",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
]


def test_a_message_is_answered_with_text_and_usage(claude: anthropic.Anthropic) -> None:
    answer = claude.messages.create(model=MODEL, messages=QUESTION, max_tokens=12)
    assert answer.type == "message"
    assert answer.role == "assistant"
    assert answer.content[0].type == "text"
    assert answer.content[0].text
    assert answer.stop_reason == "max_tokens"
    assert answer.usage.output_tokens == 12


def test_a_streamed_message_says_what_the_whole_one_says(claude: anthropic.Anthropic) -> None:
    whole = claude.messages.create(model=MODEL, messages=QUESTION, max_tokens=12)
    with claude.messages.stream(model=MODEL, messages=QUESTION, max_tokens=12) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    assert 1 < len(pieces)
    assert "".join(pieces) == final.content[0].text == whole.content[0].text
    assert final.stop_reason == "max_tokens"
    assert final.usage.output_tokens == 12


async def test_an_async_message_streams(router: processes.Router) -> None:
    async with anthropic.AsyncAnthropic(base_url=router.url, api_key="key-a", max_retries=0) as claude:
        answer = await claude.messages.create(model=MODEL, messages=QUESTION, max_tokens=8)
        async with claude.messages.stream(model=MODEL, messages=QUESTION, max_tokens=8) as stream:
            text = "".join([it async for it in stream.text_stream])
    assert text == answer.content[0].text


def test_a_tool_is_used(claude: anthropic.Anthropic) -> None:
    answer = claude.messages.create(
        model=MODEL, messages=QUESTION, max_tokens=64, tools=TOOLS, tool_choice={"type": "any"}
    )
    assert answer.stop_reason == "tool_use"
    used = [it for it in answer.content if it.type == "tool_use"]
    assert used[0].name == "get_weather"
    assert isinstance(used[0].input, dict)


def test_a_tool_is_used_in_a_stream(claude: anthropic.Anthropic) -> None:
    with claude.messages.stream(
        model=MODEL, messages=QUESTION, max_tokens=64, tools=TOOLS, tool_choice={"type": "any"}
    ) as stream:
        final = stream.get_final_message()
    assert final.stop_reason == "tool_use"
    used = [it for it in final.content if it.type == "tool_use"]
    assert used[0].name == "get_weather"
    assert isinstance(used[0].input, dict)


def test_an_unknown_model_is_not_found_and_the_known_ones_are_named(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match=MODEL):
        claude.messages.create(model="no-such-model", messages=QUESTION, max_tokens=8)


def test_a_body_that_is_not_json_is_a_bad_request(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError):
        claude.post("/v1/messages", content=b'{"model": "mo', cast_to=object)
