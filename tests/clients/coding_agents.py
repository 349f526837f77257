"""Agents that use `specchat serve`: each reads a file, edits it, and says that it is done.

The model is a script with the names of their tools; the agents run the tools.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.clients.http_sdks import SCRIPTS, TOKEN, installed_version, sdk_python, serving_script
from tests.clients.world import AREA, RENAME, Step, World

DEFINITION = AREA.splitlines()[0]
CHANGED = DEFINITION.replace("width", "breadth")
DONE = "The edit is done."
CODEX_SETTINGS = """model = "embedded"
model_provider = "specchat"

[model_providers.specchat]
name = "specchat"
base_url = "{address}/v1"
env_key = "SPECCHAT_TOKEN"
wire_api = "responses"
"""
CODEX_FREEDOM = ("--skip-git-repo-check", "--sandbox", "danger-full-access")  # its sandbox needs rights of the system
PATIENCE_SECONDS = 180.0  # their first start takes long on a small machine


def opencode(world: World) -> Iterator[Step]:
    """The agent on a terminal of that name, from npm, by the documented settings."""
    program, path = world.program("opencode"), str(world.fresh_file())
    yield Step("version", world.version(program))
    edit = {"filePath": path, "oldString": DEFINITION, "newString": CHANGED}
    with serving_script(world, _script("read", {"filePath": path}, "edit", edit)) as address:
        options = {"baseURL": f"{address}/v1", "apiKey": TOKEN}
        provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"embedded": {}}}
        settings = {"provider": {"specchat": provider}, "small_model": "specchat/embedded", "autoupdate": False}
        world.note("project/opencode.json", json.dumps(settings))
        said = world.run(program, "run", "-m", "specchat/embedded", RENAME, seconds=PATIENCE_SECONDS)
    yield _edited(world, "`opencode run` with a renaming", said)


def qwen_code(world: World) -> Iterator[Step]:
    """Qwen Code, from npm, which speaks the API of OpenAI."""
    program, path = world.program("qwen"), str(world.fresh_file())
    yield Step("version", world.version(program))
    edit = {"file_path": path, "old_string": DEFINITION, "new_string": CHANGED}
    with serving_script(world, _script("read_file", {"file_path": path}, "edit", edit)) as address:
        settings = {"OPENAI_API_KEY": TOKEN, "OPENAI_BASE_URL": f"{address}/v1", "OPENAI_MODEL": "embedded"}
        there = World(world.folder, world.packages, {**world.environment, **settings})
        said = there.run(program, "--auth-type", "openai", "--yolo", "-p", RENAME, seconds=PATIENCE_SECONDS)
    yield _edited(world, "`qwen --yolo -p` with a renaming", said)


def codex(world: World) -> Iterator[Step]:
    """Codex, from npm, by `/v1/responses` and with its defaults; it reads and edits by commands."""
    program = world.program("codex")
    yield Step("version", world.version(program, "codex-cli"))
    world.fresh_file()
    edit = {"cmd": f"sed -i '1s/.*/{CHANGED}/' area.py"}
    with serving_script(world, _script("exec_command", {"cmd": "cat area.py"}, "exec_command", edit)) as address:
        world.note("codex/config.toml", CODEX_SETTINGS.format(address=address))
        settings = {"CODEX_HOME": str(world.folder / "codex"), "SPECCHAT_TOKEN": TOKEN}
        there = World(world.folder, world.packages, {**world.environment, **settings})
        said = there.run(program, "exec", *CODEX_FREEDOM, RENAME, seconds=PATIENCE_SECONDS)
    yield _edited(world, "`codex exec` with a renaming", said)


def claude_code(world: World) -> Iterator[Step]:
    """Claude Code, from npm, by `/v1/messages`."""
    program, path = world.program("claude"), str(world.fresh_file())
    yield Step("version", world.version(program))
    edit = {"file_path": path, "old_string": DEFINITION, "new_string": CHANGED}
    with serving_script(world, _script("Read", {"file_path": path}, "Edit", edit)) as address:
        settings = {
            "ANTHROPIC_BASE_URL": address, "ANTHROPIC_AUTH_TOKEN": TOKEN, "ANTHROPIC_MODEL": "embedded",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": "embedded", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }  # fmt: skip
        there = World(world.folder, world.packages, {**world.environment, **settings})
        said = there.run(program, "-p", RENAME, "--allowedTools", "Read,Edit", seconds=PATIENCE_SECONDS)
    yield _edited(world, "`claude -p` with a renaming", said)


def openai_agents(world: World) -> Iterator[Step]:
    """The package of OpenAI for agents, in the virtual environment `sdks`; the tools are those of its script."""
    python, path = sdk_python(world), str(world.fresh_file())
    yield Step("version", installed_version(world, "openai-agents"))
    edit = {"path": path, "old": DEFINITION, "new": CHANGED}
    with serving_script(world, _script("read_file", {"path": path}, "edit_file", edit)) as address:
        said = world.run(python, SCRIPTS / "openai_agents_script.py", address, TOKEN, RENAME)
    yield _edited(world, "`Runner.run_streamed` of an agent, by `/v1/responses`", said)


def _script(read: str, read_arguments: object, edit: str, edit_arguments: object) -> list[dict[str, object]]:
    return [
        {"text": "I read it first.", "calls": [{"name": read, "arguments": read_arguments}]},
        {"text": "Now I edit it.", "calls": [{"name": edit, "arguments": edit_arguments}]},
        {"text": DONE, "calls": []},
    ]


def _edited(world: World, command: str, said: str) -> Step:
    text = (world.project / "area.py").read_text()
    assert text == AREA.replace(DEFINITION, CHANGED), said
    assert DONE in said, said
    return Step(command, "it read the file, edited it, and ended with the last answer")
