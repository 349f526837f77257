"""The package `litellm` against `specchat serve`, by three APIs."""

import litellm
from pydantic import BaseModel
from steps import ADDRESS, AREA, QUESTION, SCHEMA, TOKEN, attempt, checked_json


class City(BaseModel):
    name: str
    is_capital: bool


headers = {"Authorization": f"Bearer {TOKEN}"}
asked = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 200, "num_retries": 0}
servers = {
    "openai": {"api_base": f"{ADDRESS}/v1", "api_key": TOKEN},
    "anthropic": {"api_base": ADDRESS, "api_key": TOKEN},
    "ollama_chat": {"api_base": ADDRESS, "extra_headers": headers},
    "ollama": {"api_base": ADDRESS, "extra_headers": headers},
}
tools = [{"type": "function", "function": {"name": "area", "parameters": AREA}}]


def whole(name, **fields):
    return litellm.completion(model=f"{name}/embedded", **asked, **servers[name], **fields).choices[0].message


def said(text) -> str:
    assert text
    return f"{len(text)} characters"


def streamed(name):
    chunks = litellm.completion(model=f"{name}/embedded", **asked, **servers[name], stream=True)
    return said("".join(chunk.choices[0].delta.content or "" for chunk in chunks))


for name in servers:
    attempt(f"`{name}/`: `completion`", lambda name=name: said(whole(name).content))
    attempt(f"`{name}/`: as a stream", lambda name=name: streamed(name))
form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
for name in ("openai", "anthropic", "ollama_chat"):
    attempt(f"`{name}/`: a schema", lambda name=name: checked_json(whole(name, response_format=form).content))
attempt("`openai/`: a class", lambda: City.model_validate_json(whole("openai", response_format=City).content))
forced = {"tools": tools, "tool_choice": "required"}
for name in ("openai", "anthropic"):
    attempt(
        f"`{name}/`: `tool_choice` required",
        lambda name=name: checked_json(whole(name, **forced).tool_calls[0].function.arguments, AREA),
    )
attempt(
    "`text_completion`",
    lambda: (
        litellm.text_completion(model="openai/embedded", prompt="import json", max_tokens=9, **servers["openai"])
        .choices[0]
        .finish_reason
    ),
)
attempt(
    "`responses`",
    lambda: litellm.responses(model="openai/embedded", input=QUESTION, **servers["openai"]).status,
)
