"""The package `pydantic-ai` against `specchat serve`: agents with typed answers.

Not `PromptedOutput`, whose schema stands in the prompt only.
"""

import asyncio

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from steps import ADDRESS, QUESTION, TOKEN, attempt


class City(BaseModel):
    name: str
    is_capital: bool


LOOP = asyncio.new_event_loop()  # one, as connections belong to a loop
openai_provider = OpenAIProvider(openai_client=AsyncOpenAI(base_url=f"{ADDRESS}/v1", api_key=TOKEN, max_retries=0))
anthropic_provider = AnthropicProvider(anthropic_client=AsyncAnthropic(base_url=ADDRESS, api_key=TOKEN, max_retries=0))
chat = OpenAIChatModel("embedded", provider=openai_provider)
responses = OpenAIResponsesModel("embedded", provider=openai_provider)
messages = AnthropicModel("embedded", provider=anthropic_provider)


def answered(model, output=str):
    """What an agent answers."""
    agent = Agent(model, output_type=output, model_settings={"max_tokens": 200})
    said = LOOP.run_until_complete(agent.run(QUESTION)).output
    assert said
    return f"{len(said)} characters" if isinstance(said, str) else said.model_dump_json()


async def streamed(model):
    async with Agent(model, model_settings={"max_tokens": 200}).run_stream(QUESTION) as running:
        pieces = [piece async for piece in running.stream_text(delta=True)]
    assert pieces
    return f"{len(''.join(pieces))} characters"


for name, model in {"chat": chat, "responses": responses, "messages": messages}.items():
    attempt(f"a text by `{name}`", lambda model=model: answered(model))
    attempt(f"a stream by `{name}`", lambda model=model: LOOP.run_until_complete(streamed(model)))
    attempt(f"`ToolOutput` by `{name}`", lambda model=model: answered(model, ToolOutput(City)))
attempt("`NativeOutput`", lambda: answered(chat, NativeOutput(City)))
