"""The package `ollama` against `specchat serve`."""

import ollama
from steps import ADDRESS, QUESTION, SCHEMA, TOKEN, checked_json, refused, step

client = ollama.Client(ADDRESS, headers={"Authorization": f"Bearer {TOKEN}"})
asked = {"model": "embedded", "messages": [{"role": "user", "content": QUESTION}], "options": {"temperature": 0}}
whole = client.chat(**asked)
text = "".join(part.message.content for part in client.chat(**asked, stream=True))
assert text and text == whole.message.content
step("`chat`, whole and as a stream", f"the same answer of {len(text)} characters")
assert whole.eval_count > 0 and whole.prompt_eval_count > 0 and whole.total_duration >= whole.eval_duration > 0
step("its counts and durations", f"{whole.prompt_eval_count} and {whole.eval_count} tokens")
generated = client.generate("embedded", QUESTION, options={"temperature": 0})
assert generated.response == text
step("`generate`", f"the same answer, `{generated.done_reason}`")
step("`format` with a schema", checked_json(client.chat(**asked, format=SCHEMA).message.content))
step("`list` and `show`", f"`{client.list().models[0].model}`, {client.show('embedded').details.parameter_size}")
step("`embed`", refused(lambda: client.embed("embedded", "x"), ollama.ResponseError))
step("another model", refused(lambda: client.generate("other", "x"), ollama.ResponseError))
