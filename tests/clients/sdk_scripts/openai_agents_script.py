"""An agent of the package `openai-agents`, by `/v1/responses` of `specchat serve`: it reads a file and edits it."""

import asyncio
import sys
from pathlib import Path

from agents import Agent, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

ADDRESS, TOKEN, QUESTION = sys.argv[1:]


@function_tool
def read_file(path: str) -> str:
    """The text of a file."""
    return Path(path).read_text()


@function_tool
def edit_file(path: str, old: str, new: str) -> str:
    """Replace a text in a file."""
    Path(path).write_text(Path(path).read_text().replace(old, new))
    return "edited"


async def main() -> None:
    set_tracing_disabled(disabled=True)
    model = OpenAIResponsesModel("embedded", AsyncOpenAI(base_url=f"{ADDRESS}/v1", api_key=TOKEN))
    agent = Agent("coder", instructions="You edit files.", tools=[read_file, edit_file], model=model)
    running = Runner.run_streamed(agent, QUESTION)
    async for _event in running.stream_events():
        pass
    print(running.final_output)


asyncio.run(main())
