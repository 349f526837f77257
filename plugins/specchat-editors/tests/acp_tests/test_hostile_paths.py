"""Files outside the folder of a session, and permissions that are not given: asked through the official client.

The model asks for what it must not have, the client answers in every way it can, and what lies outside stays unread
and as it was. Lines of other clients are in `test_file_edit.py` and `test_agent_mode.py`.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import acp
import pytest
from acp.schema import AllowedOutcome, ClientCapabilities, DeniedOutcome, FileSystemCapabilities

from acp_tests.test_agent_mode import script
from acp_tests.test_process import COMMAND, ROOT, bare_environment

SECRET = "the secret of another folder\n"
FILES = ClientCapabilities(fs=FileSystemCapabilities(read_text_file=True, write_text_file=True))
WRITE = script(("write", {"path": "new.txt", "content": "new\n"}))
FOR_EDITORS = pytest.mark.parametrize("capabilities", [None, pytest.param(FILES, marks=pytest.mark.full)])
CANCELLED = DeniedOutcome(outcome="cancelled")


def chosen(option: str) -> AllowedOutcome:
    return AllowedOutcome(outcome="selected", option_id=option)


@dataclass
class Client:
    """An editor that reads and writes any file that it is asked for, and remembers what it heard."""

    decide: Callable[[], Any] = lambda: chosen("allow")
    heard: list[Any] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    async def session_update(self, session_id: str, update: Any, **_meta: Any) -> None:
        self.heard.append(update)

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **_meta: Any
    ) -> acp.RequestPermissionResponse:
        self.asked.append(tool_call)
        outcome = self.decide()
        return acp.RequestPermissionResponse(outcome=await outcome if asyncio.iscoroutine(outcome) else outcome)

    async def read_text_file(self, session_id: str, path: str, **_meta: Any) -> acp.ReadTextFileResponse:
        self.files.append(path)
        try:
            return acp.ReadTextFileResponse(content=await asyncio.to_thread(Path(path).read_text))
        except OSError as error:
            raise acp.RequestError(-32002, str(error)) from None

    async def write_text_file(self, session_id: str, path: str, content: str, **_meta: Any) -> None:
        self.files.append(path)
        await asyncio.to_thread(Path(path).write_text, content)


@asynccontextmanager
async def agent_for(client: Client, runtime: Path, capabilities: ClientCapabilities | None) -> AsyncIterator[Any]:
    environment = bare_environment(runtime)
    async with acp.spawn_agent_process(client, *COMMAND, env=environment, cwd=ROOT) as (agent, _process):
        await agent.initialize(protocol_version=acp.PROTOCOL_VERSION, client_capabilities=capabilities)
        yield agent


async def session_in(agent: Any, project: Path, mode: str = "agent") -> str:
    session = await agent.new_session(cwd=str(project), mcp_servers=[])
    await agent.set_session_mode(session_id=session.session_id, mode_id=mode)
    return session.session_id


async def ask(agent: Any, session: str, text: str, *blocks: Any) -> str:
    return (await agent.prompt(session_id=session, prompt=[acp.text_block(text), *blocks])).stop_reason


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with links to another one, in which a secret lies."""
    project, other = tmp_path / "project", tmp_path / "other"
    for folder in (project / "sub", project / ".git", other):
        folder.mkdir(parents=True)
    (other / "secret.txt").write_text(SECRET)
    (project / "file-link.txt").symlink_to(other / "secret.txt")
    (project / "folder-link").symlink_to(other)
    (project / "chain").symlink_to("folder-link/../other")
    (project / ".git" / "config").write_text("[core]\n")
    return project


def outside(project: Path) -> list[str]:
    """Ways to name the secret, or a file beside it."""
    other = project.parent / "other"
    return [
        "../other/secret.txt", f"{other}/secret.txt", "sub/../../other/secret.txt", "file-link.txt",
        "folder-link/secret.txt", "chain/secret.txt", f"file://{other}/secret.txt",
        f"file://{project}/%2e%2e/other/secret.txt", "./folder-link/./new.txt", "../other/new.txt", "~/secret.txt",
    ]  # fmt: skip


def state_of(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@FOR_EDITORS
def test_nothing_outside_is_read_or_written_and_nobody_is_asked_for_it(runtime, project, capabilities):
    client, names = Client(), outside(project)
    calls = [
        *(("read", {"path": name}) for name in names),
        *(("write", {"path": name, "content": "x\n"}) for name in [*names, ".git/config", "sub/../.git/hooks"]),
        *(("edit", {"path": name, "old_text": SECRET, "new_text": "x\n"}) for name in [*names, ".git/config"]),
    ]

    async def attack() -> list[str]:
        async with agent_for(client, runtime, capabilities) as agent:
            session = await session_in(agent, project)
            ends = [await ask(agent, session, script(call)) for call in calls]
            session = await session_in(agent, project, "edit")
            ends += [await ask(agent, session, f"/edit {name} replace secret x") for name in names]
            link = acp.resource_link_block("secret.txt", (project.parent / "other" / "secret.txt").as_uri())
            return [*ends, await ask(agent, session, "replace nothing nothing", link)]

    ends = asyncio.run(attack())

    assert {"end_turn"} == {*ends}
    assert {"secret.txt": SECRET} == state_of(project.parent / "other")
    assert ["config"] == [path.name for path in (project / ".git").iterdir()]
    assert "[core]\n" == (project / ".git" / "config").read_text()
    assert [] == client.asked
    inside = {str(project / "~" / "secret.txt"), str(project / ".git" / "config")}  # may be read, and are not written
    assert inside >= {*client.files}
    assert "secret of another" not in repr([each for each in client.heard if "call" not in each.session_update])
    results = [each.content for each in client.heard if each.session_update == "tool_call_update"]
    assert "secret of another" not in repr(results)


def refuse() -> AllowedOutcome:
    raise acp.RequestError(-32000, "no questions here")


@FOR_EDITORS
def test_without_a_permission_nothing_is_written(runtime, project, capabilities):
    answers = [chosen("reject"), chosen("stop"), chosen("no such option"), chosen(""), CANCELLED, refuse]
    client = Client()

    async def attack() -> list[bool]:
        written = list[bool]()
        async with agent_for(client, runtime, capabilities) as agent:
            for answer in answers:
                client.decide = answer if callable(answer) else lambda answer=answer: answer
                for mode, text in (("agent", WRITE), ("edit", "/edit new.txt write x = 2")):
                    await ask(agent, await session_in(agent, project, mode), text)
                    written.append((project / "new.txt").exists())
            client.decide = lambda: chosen("allow-always")
            await ask(agent, await session_in(agent, project), WRITE)
            written.append((project / "new.txt").exists())
            (project / "new.txt").unlink()
            client.decide = lambda: chosen("reject")  # what one session may always do, another one may not
            await ask(agent, await session_in(agent, project), WRITE)
            return [*written, (project / "new.txt").exists()]

    written = asyncio.run(attack())

    assert [False] * 2 * len(answers) + [True, False] == written
    assert len(written) == len(client.asked)


def test_a_permission_that_comes_after_a_cancellation_writes_nothing(runtime, project):
    client = Client()

    async def attack() -> str:
        async with agent_for(client, runtime, None) as agent:
            session, is_asked, may_answer = await session_in(agent, project), asyncio.Event(), asyncio.Event()

            async def decide() -> AllowedOutcome:
                is_asked.set()
                await may_answer.wait()
                return chosen("allow")

            client.decide = decide
            prompt = asyncio.ensure_future(ask(agent, session, WRITE))
            await asyncio.wait_for(is_asked.wait(), 60)
            await agent.cancel(session_id=session)
            end = await asyncio.wait_for(prompt, 60)
            may_answer.set()
            await ask(agent, session, "count 2")
            return end

    assert "cancelled" == asyncio.run(attack())
    assert not (project / "new.txt").exists()


@pytest.mark.parametrize("mode", ["agent", "edit"])
def test_a_folder_that_becomes_a_link_while_the_question_is_open_is_not_followed(runtime, project, mode):
    def replaced() -> AllowedOutcome:
        shutil.rmtree(project / "sub")
        (project / "sub").symlink_to(project.parent / "other")
        return chosen("allow")

    texts = {
        "agent": script(("write", {"path": "sub/new.txt", "content": "new\n"})),
        "edit": "/edit sub/new.txt write x = 2",
    }

    async def attack() -> None:
        client = Client(replaced)
        async with agent_for(client, runtime, None) as agent:
            await ask(agent, await session_in(agent, project, mode), texts[mode])
        assert 1 == len(client.asked)

    asyncio.run(attack())

    assert {"secret.txt": SECRET} == state_of(project.parent / "other")
