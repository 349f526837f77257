"""Tools of the package `anthropic` against `specchat serve` with a scripted model: call, result, answer."""

import json

import anthropic
from steps import ADDRESS, AREA, QUESTION, TOKEN, area, checked_answer, step

client = anthropic.Anthropic(base_url=ADDRESS, api_key=TOKEN, max_retries=0)
tool = {"name": "area", "description": "The area of a rectangle.", "input_schema": AREA}
asked = {"model": "embedded", "max_tokens": 200, "tools": [tool]}


def answered(messages, message):
    """The answer after the results of the calls of a message."""
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": area(block.input)}
        for block in message.content
        if block.type == "tool_use"
    ]
    assistant = {"role": "assistant", "content": message.content}
    told = client.messages.create(**asked, messages=[*messages, assistant, {"role": "user", "content": results}])
    return told.content[0].text


question = [{"role": "user", "content": QUESTION}]
first = client.messages.create(**asked, messages=question)
assert first.stop_reason == "tool_use"
step("`messages.create` with `tools`", checked_answer(answered(question, first)))
again = [{"role": "user", "content": f"{QUESTION} Again."}]
with client.messages.stream(**asked, messages=again) as stream:
    pieces = [event.partial_json for event in stream if event.type == "input_json"]
    streamed = stream.get_final_message()
assert json.loads("".join(pieces)) == streamed.content[-1].input and streamed.stop_reason == "tool_use"
step("`messages.stream` with `tools`", checked_answer(answered(again, streamed)))


@anthropic.beta_tool(name="area", input_schema=AREA)
def area_tool(**arguments: int) -> str:
    """The area of a rectangle."""
    return area(arguments)


loop = client.beta.messages.tool_runner(
    model="embedded",
    max_tokens=200,
    tools=[area_tool],
    messages=[{"role": "user", "content": f"{QUESTION} Once more."}],
)
step("`beta.messages.tool_runner`", checked_answer(loop.until_done().content[0].text))
