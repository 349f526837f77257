"""Tools of the package `ollama` against `specchat serve` with a scripted model: call, result, answer."""

import ollama
from steps import ADDRESS, AREA, QUESTION, TOKEN, area, checked_answer, step

client = ollama.Client(ADDRESS, headers={"Authorization": f"Bearer {TOKEN}"})
function = {"name": "area", "description": "The area of a rectangle.", "parameters": AREA}
tools = [{"type": "function", "function": function}]


def answered(messages, text, calls):
    """The answer after the results of these calls."""
    results = [
        {"role": "tool", "tool_name": call.function.name, "content": area(call.function.arguments)} for call in calls
    ]
    history = [*messages, {"role": "assistant", "content": text, "tool_calls": calls}, *results]
    return client.chat("embedded", history, tools=tools).message.content


question = [{"role": "user", "content": QUESTION}]
whole = client.chat("embedded", question, tools=tools).message
step("`chat` with `tools`", checked_answer(answered(question, whole.content, whole.tool_calls)))
again = [{"role": "user", "content": f"{QUESTION} Again."}]
parts = list(client.chat("embedded", again, tools=tools, stream=True))
text = "".join(part.message.content for part in parts)
(calls,) = (part.message.tool_calls for part in parts if part.message.tool_calls)
step("`chat` with `tools` as a stream", checked_answer(answered(again, text, calls)))
