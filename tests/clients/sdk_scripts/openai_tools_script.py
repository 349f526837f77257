"""Tools of the package `openai` against `specchat serve` with a scripted model: call, result, answer."""

import json

import openai
from steps import ADDRESS, AREA, QUESTION, TOKEN, area, checked_answer, step

client = openai.OpenAI(base_url=f"{ADDRESS}/v1", api_key=TOKEN, max_retries=0)
function = {"name": "area", "description": "The area of a rectangle.", "parameters": AREA}
asked = {"model": "embedded", "tools": [{"type": "function", "function": function}]}


def answered(messages, message):
    """The answer after the results of the calls of a message."""
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": area(json.loads(call.function.arguments))}
        for call in message.tool_calls
    ]
    history = [*messages, message.model_dump(exclude_none=True), *results]
    return client.chat.completions.create(**asked, messages=history).choices[0].message.content


question = [{"role": "user", "content": QUESTION}]
first = client.chat.completions.create(**asked, messages=question).choices[0]
assert first.finish_reason == "tool_calls"
step("`chat.completions.create` with `tools`", checked_answer(answered(question, first.message)))
again = [{"role": "user", "content": f"{QUESTION} Again."}]
with client.chat.completions.stream(**asked, messages=again) as stream:
    deltas = [event for event in stream if event.type == "tool_calls.function.arguments.delta"]
    streamed = stream.get_final_completion().choices[0].message
assert "".join(event.arguments_delta for event in deltas) == streamed.tool_calls[0].function.arguments
step("`chat.completions.stream` with `tools`", checked_answer(answered(again, streamed)))

tools = [{"type": "function", **function, "strict": False}]
items = [{"role": "user", "content": f"{QUESTION} By responses."}]
with client.responses.stream(model="embedded", input=items, tools=tools) as stream:
    pieces = [event.delta for event in stream if event.type == "response.function_call_arguments.delta"]
    final = stream.get_final_response()
calls = [item for item in final.output if item.type == "function_call"]
assert "".join(pieces) == calls[0].arguments
outputs = [
    {"type": "function_call_output", "call_id": call.call_id, "output": area(json.loads(call.arguments))}
    for call in calls
]
history = [*items, *(item.model_dump(exclude_none=True) for item in final.output), *outputs]
told = client.responses.create(model="embedded", input=history, tools=tools)
step("`responses.stream` with `tools`", checked_answer(told.output_text))
