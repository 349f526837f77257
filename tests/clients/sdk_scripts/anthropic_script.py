"""The package `anthropic` against `specchat serve`."""

import json

import anthropic
from steps import ADDRESS, AREA, QUESTION, SCHEMA, TOKEN, checked_json, refused, step

client = anthropic.Anthropic(base_url=ADDRESS, api_key=TOKEN, max_retries=0)
asked = {"model": "embedded", "max_tokens": 200, "messages": [{"role": "user", "content": QUESTION}]}
whole = client.messages.create(**asked)
with client.messages.stream(**asked) as stream:
    text = "".join(stream.text_stream)
    final = stream.get_final_message()
assert text and text == final.content[0].text
step("`messages.create`", f"{len(whole.content[0].text)} characters, `{whole.stop_reason}`")
step("`messages.stream`", f"{len(text)} characters, `{final.stop_reason}`")
word = text.split()[2]
stopped = client.messages.create(**asked, stop_sequences=["no such text", word])
assert stopped.stop_sequence in (word, None) and word not in stopped.content[0].text
step("`stop_sequences`", f"`{stopped.stop_reason}`")
counted = client.messages.count_tokens(model="embedded", messages=asked["messages"]).input_tokens
assert counted == whole.usage.input_tokens + whole.usage.cache_read_input_tokens
step("`messages.count_tokens`", f"{counted}, as in the usage of the answer")
form = {"format": {"type": "json_schema", "schema": SCHEMA}}
step("`output_config` with a schema", checked_json(client.messages.create(**asked, output_config=form).content[0].text))
step("`models.list`", ", ".join(f"`{model.id}`" for model in client.models.list()))
tools = [{"name": "area", "input_schema": AREA}]
(called,) = client.messages.create(**asked, tools=tools, tool_choice={"type": "any"}).content
step("`tool_choice` any", f"`{called.name}`: {checked_json(json.dumps(called.input), AREA)}")
wrong = anthropic.Anthropic(base_url=ADDRESS, api_key="wrong", max_retries=0)
step("another key", refused(wrong.models.list, anthropic.APIStatusError))
