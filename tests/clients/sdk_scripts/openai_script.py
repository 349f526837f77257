"""The package `openai` against `specchat serve`."""

import openai
from steps import ADDRESS, AREA, QUESTION, SCHEMA, TOKEN, checked_json, refused, step

READ = "import json\n\n\ndef read(path):\n    with open(path) as file:\n        return json."

client = openai.OpenAI(base_url=f"{ADDRESS}/v1", api_key=TOKEN, max_retries=0)
asked = {"model": "embedded", "messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
whole = client.chat.completions.create(**asked).choices[0].message.content
parts = [chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**asked, stream=True)]
assert whole and whole == "".join(parts)
step("`chat.completions.create`, whole and as a stream", f"the same answer of {len(whole)} characters")
answered = client.responses.create(model="embedded", input=QUESTION, temperature=0)
with client.responses.stream(model="embedded", input=QUESTION, temperature=0) as stream:
    texts = [event.delta for event in stream if event.type == "response.output_text.delta"]
    final = stream.get_final_response()
assert answered.output_text == final.output_text == "".join(texts) == whole
step("`responses.create` and `responses.stream`", f"the same answer, `{final.status}`")
form = {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True}
formed = client.responses.create(model="embedded", input=QUESTION, text={"format": form})
step("`text` with a schema", checked_json(formed.output_text))
gap = client.completions.create(model="embedded", prompt=READ, suffix="\n", max_tokens=24)
step("`completions.create` with a `suffix`", f"`{gap.choices[0].text.strip()}`, `{gap.choices[0].finish_reason}`")
embed = lambda: client.embeddings.create(model="embedded", input="x")
step("`embeddings.create`", refused(embed, openai.APIStatusError))
tools = [{"type": "function", "function": {"name": "area", "parameters": AREA}}]
(call,) = client.chat.completions.create(**asked, tools=tools, tool_choice="required").choices[0].message.tool_calls
step("`tool_choice` required", f"`{call.function.name}`: {checked_json(call.function.arguments, AREA)}")
wrong = openai.OpenAI(base_url=f"{ADDRESS}/v1", api_key="wrong", max_retries=0)
step("another key", refused(wrong.models.list, openai.APIStatusError))
