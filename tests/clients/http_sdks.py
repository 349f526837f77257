"""Clients of `specchat serve`: the official SDKs of its APIs, and `llm`, in their own virtual environment `sdks`.

Calls of tools are those of a scripted model, because no answer of a small model is sure to have one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.clients.world import NotAvailable, Step, World, import_path

SCRIPTS = Path(__file__).with_name("sdk_scripts")
SDKS = "sdks"
CASES_SECONDS = 600.0  # of all steps of a package, on a busy machine
TOKEN = "right"
QUESTION = "What is a generator in Python?"
TOOL_QUESTION = "What is the area of 3 by 4?"
TOOL_ANSWERS = (
    {"text": "I compute it.", "calls": [{"name": "area", "arguments": {"width": 3, "height": 4}}]},
    {"text": "It is 12.", "calls": []},
)
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


def instructor(world: World) -> Iterator[Step]:
    yield from _run_cases(world, "instructor")


def pydantic_ai(world: World) -> Iterator[Step]:
    yield from _run_cases(world, "pydantic-ai", "pydantic-ai-slim")


def langchain(world: World) -> Iterator[Step]:
    yield from _run_cases(world, "langchain")


def litellm(world: World) -> Iterator[Step]:
    yield from _run_cases(world, "litellm")


def llm(world: World) -> Iterator[Step]:
    """The command line program of that name, with a model of its file extra-openai-models.yaml."""
    program = sdk_python(world).with_name("llm")
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
def serving(world: World, *program: str) -> Iterator[str]:
    """The address of a server with a token; `program` is what stands for `specchat`."""
    command = [*(program or (world.program("specchat"),)), "serve", "--port", "0", "--token", TOKEN]
    with subprocess.Popen(
        [*command, "--max-tokens", "200"], cwd=world.project, env=world.environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        try:
            yield line.split()[2].rstrip(",").removesuffix("/v1")
        finally:
            process.terminate()
            process.stderr.read()


@contextmanager
def serving_script(world: World, answers: Sequence[Mapping[str, object]]) -> Iterator[str]:
    """The address of a server with an engine process of its own, whose model gives these answers."""
    script = world.note("script.json", json.dumps(answers))
    environment = {**world.environment, "PYTHONPATH": import_path(), "SPECCHAT_RUNTIME": str(world.folder / "scripted")}
    own = World(world.folder, world.packages, environment)
    own.note("scripted/.keep", "").parent.chmod(0o700)
    program = (sys.executable, "-m", "tests.clients.scripted_specchat", str(script))
    try:
        with serving(own, *program) as address:
            yield address
    finally:
        own.run(*program, "host", "stop")


def _run_script(world: World, package: str) -> Iterator[Step]:
    python = sdk_python(world)
    yield Step("version", installed_version(world, package))
    with serving(world) as address:
        script = SCRIPTS / f"{package}_script.py"
        yield from _steps(world.run(python, script, address, TOKEN, QUESTION, seconds=CASES_SECONDS))
    with serving_script(world, TOOL_ANSWERS) as address:
        yield from _steps(
            world.run(
                python, SCRIPTS / f"{package}_tools_script.py", address, TOKEN, TOOL_QUESTION, seconds=CASES_SECONDS
            )
        )


def _run_cases(world: World, name: str, package: str = "") -> Iterator[Step]:
    """The steps of a package in a virtual environment of its own, of which one may fail and the next still runs."""
    yield Step("version", installed_version(world, package or name, name))
    script = SCRIPTS / f"{name.replace('-', '_')}_script.py"
    with serving(world) as address:
        yield from _steps(world.run(sdk_python(world, name), script, address, TOKEN, QUESTION, seconds=CASES_SECONDS))


def _steps(printed: str) -> Iterator[Step]:
    for line in printed.splitlines():
        if line.startswith("["):
            yield Step(*json.loads(line))


def installed_version(world: World, package: str, environment: str = SDKS) -> str:
    """The version of a package in a virtual environment; NotAvailable for none."""
    program = f"from importlib.metadata import version; print(version('{package}'))"
    version = world.run(sdk_python(world, environment), "-c", program, code=None)
    if "Error" in version:
        raise NotAvailable(f"no package `{package}` in the virtual environment `{environment}`")
    return version.strip()


def sdk_python(world: World, environment: str = SDKS) -> Path:
    path = world.packages / environment / "bin" / "python"
    if not path.exists():
        raise NotAvailable(f"no virtual environment `{environment}` in the folder --packages")
    return path
