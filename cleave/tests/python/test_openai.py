"""The `openai` SDK against the router: every call people make, with and without streaming."""

import json

import openai
import pytest

import processes
from conftest import MODEL

QUESTION = [{"role": "user", "content": "Tell me about sessions."}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Look up the weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]


def test_a_chat_is_answered_with_text_and_usage(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=12)
    assert answer.object == "chat.completion"
    assert answer.model == MODEL
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12


def test_a_streamed_chat_says_what_the_whole_one_says(client: openai.OpenAI) -> None:
    asked = {"model": MODEL, "messages": QUESTION, "max_tokens": 12}
    whole = client.chat.completions.create(**asked).choices[0].message.content
    stream = client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    text = "".join(it.choices[0].delta.content or "" for it in chunks if it.choices)
    reasons = [it.choices[0].finish_reason for it in chunks if it.choices]
    assert text == whole
    assert reasons[-1] == "length"
    assert not any(reasons[:-1])
    assert chunks[-1].usage.completion_tokens == 12
    assert 3 < len(chunks)


async def test_an_async_chat_streams(router: processes.Router) -> None:
    async with openai.AsyncOpenAI(base_url=f"{router.url}/v1", api_key="key-a", max_retries=0) as client:
        answer = await client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=8)
        stream = await client.chat.completions.create(
            model=MODEL, messages=QUESTION, max_tokens=8, stream=True
        )
        text = "".join([it.choices[0].delta.content or "" async for it in stream if it.choices])
    assert text == answer.choices[0].message.content


def test_a_tool_is_called(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=QUESTION, tools=TOOLS, tool_choice="required"
    )
    assert answer.choices[0].finish_reason == "tool_calls"
    call = answer.choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather"
    assert isinstance(json.loads(call.function.arguments), dict)


def test_a_tool_is_called_in_a_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=QUESTION, tools=TOOLS, tool_choice="required"
    ) as stream:
        answer = stream.get_final_completion()
    assert answer.choices[0].finish_reason == "tool_calls"
    call = answer.choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather"
    assert isinstance(json.loads(call.function.arguments), dict)


def test_a_tools_result_is_taken(client: openai.OpenAI) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    messages = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    answer = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS, max_tokens=5)
    assert answer.choices[0].message.content


def test_a_completion_is_answered_whole_and_streamed(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=6)
    stream = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=6, stream=True)
    assert answer.choices[0].text
    assert "".join(it.choices[0].text for it in stream if it.choices) == answer.choices[0].text


def test_a_response_is_answered_whole_and_streamed(client: openai.OpenAI) -> None:
    answer = client.responses.create(model=MODEL, input="Hello there", max_output_tokens=8)
    assert answer.output_text
    stream = client.responses.create(
        model=MODEL, input="Hello there", max_output_tokens=8, stream=True
    )
    events = list(stream)
    deltas = [it.delta for it in events if it.type == "response.output_text.delta"]
    assert 1 < len(deltas)
    # The token limit ends it, which is not what the API calls completed.
    assert events[-1].type == "response.incomplete"
    assert "".join(deltas) == events[-1].response.output_text == answer.output_text


def test_embeddings_are_returned_for_each_input(client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model=MODEL, input=["one", "two"], encoding_format="float")
    assert [it.index for it in answer.data] == [0, 1]
    assert answer.data[0].embedding != answer.data[1].embedding


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [it.id for it in client.models.list()] == [MODEL]


def test_an_unknown_model_is_not_found_and_the_known_ones_are_named(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match=MODEL) as raised:
        client.chat.completions.create(model="no-such-model", messages=QUESTION)
    assert raised.value.code == "model_not_found"
    assert raised.value.body["type"]


def test_a_model_that_is_no_string_is_a_bad_request(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="model"):
        client.post("/chat/completions", body={"messages": QUESTION, "model": 7}, cast_to=object)


def test_a_body_that_is_not_json_is_a_bad_request(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        client.post("/chat/completions", content=b'{"model": "mo', cast_to=object)
    assert raised.value.body["message"]
