"""Clients of `specchat serve`: the official SDKs of its APIs, and `llm`, in their own virtual environment `sdks`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.clients.world import NotAvailable, Step, World

SCRIPTS = Path(__file__).with_name("sdk_scripts")
TOKEN = "right"
QUESTION = "What is a generator in Python?"
LLM_MODELS = """- model_id: ours
  model_name: embedded
  api_base: {address}/v1
  api_key_name: ours
"""


def openai(world: World) -> Iterator[Step]:
    yield from _run_script(world, "openai")


def anthropic(world: World) -> Iterator[Step]:
    yield from _run_script(world, "anthropic")


def ollama(world: World) -> Iterator[Step]:
    yield from _run_script(world, "ollama")


def llm(world: World) -> Iterator[Step]:
    """The command line program of that name, with a model of its file extra-openai-models.yaml."""
    program = _python(world).with_name("llm")
    if not program.exists():
        raise NotAvailable("no program `llm` in the virtual environment `sdks`")
    yield Step("version", world.version(str(program)))
    with serving(world) as address:
        world.note("home/llm/extra-openai-models.yaml", LLM_MODELS.format(address=address))
        environment = {**world.environment, "LLM_USER_PATH": str(world.folder / "home" / "llm")}
        there = World(world.folder, world.packages, environment)
        there.run(program, "keys", "set", "ours", "--value", TOKEN)
        streamed = there.run(program, "-m", "ours", "-o", "temperature", 0, QUESTION)
        whole = there.run(program, "-m", "ours", "--no-stream", "-o", "temperature", 0, QUESTION)
        assert streamed.strip() and streamed.strip() == whole.strip(), (streamed, whole)
        yield Step(f"`llm -m ours '{QUESTION}'`, whole and as a stream", "the same answer")
        there.run(program, "-m", "ours", "-c", "And in one word?")
        yield Step("`llm -c`", "an answer in the same conversation")


@contextmanager
def serving(world: World) -> Iterator[str]:
    """The address of a server with a token."""
    command = [world.program("specchat"), "serve", "--port", "0", "--token", TOKEN, "--max-tokens", "200"]
    with subprocess.Popen(
        command, cwd=world.project, env=world.environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        try:
            yield line.split()[2].rstrip(",").removesuffix("/v1")
        finally:
            process.terminate()
            process.stderr.read()


def _run_script(world: World, package: str) -> Iterator[Step]:
    python = _python(world)
    version = world.run(python, "-c", f"from importlib.metadata import version; print(version('{package}'))", code=None)
    if "Error" in version:
        raise NotAvailable(f"no package `{package}` in the virtual environment `sdks`")
    yield Step("version", version.strip())
    with serving(world) as address:
        printed = world.run(python, SCRIPTS / f"{package}_script.py", address, TOKEN, QUESTION)
    for line in printed.splitlines():
        if line.startswith("["):
            yield Step(*json.loads(line))


def _python(world: World) -> Path:
    path = world.packages / "sdks" / "bin" / "python"
    if not path.exists():
        raise NotAvailable("no virtual environment `sdks` in the folder --packages")
    return path
