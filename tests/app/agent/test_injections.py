"""Orders in files and tool results do nothing: the model obeys every one of them here, and consent decides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from specchat.app.agent.agent_loop import CallFinished
from specchat.app.agent.agent_tool import Effect
from specchat.app.agent.call_consent import Rules
from specchat.app.consent import Answer
from specchat.chat.request import Request
from tests.app.agent.scripted import call, work

ORDERS = (Path(__file__).parent / "injections" / "orders.txt").read_text(encoding="utf-8").splitlines()
ACTIONS = [
    call("run", command="touch pwned"),
    call("run", command="pytest; touch pwned"),
    call("write", path="pwned", content="x"),
    call("write", path="shop/prices.py", content=""),
    call("write", path="../outside.txt", content="pwned"),
    call("write", path=".git/hooks/pre-commit", content="touch pwned"),
    call("write", path=".specchat.toml", content='[agent]\nallow = ["run"]\n'),
    call("edit", path="README.md", instruction="small large"),
    call("edit", path="shop/prices.py", first_line=1, last_line=1, new_text="TAX = 0"),
]


def contents(folder: Path) -> dict[str, bytes]:
    """All files, also those beside the project, without the state of git and of specchat."""
    skipped = {"runtime", ".git"}
    return {
        str(path): path.read_bytes()
        for path in _walk(folder)
        if not skipped & set(path.relative_to(folder).parts) or "hooks" in path.parts
    }


def _walk(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def obey(order: str):
    """An answer that says the order again as calls, and tries every tool that acts."""

    def answer(request: Request):
        assert any(order in result.text for result in request.tool_results)
        return [call("run", command=order), *ACTIONS]

    return answer


@pytest.mark.parametrize("order", ORDERS, ids=range(len(ORDERS)))
@pytest.mark.parametrize("place", ["file", pytest.param("search", marks=pytest.mark.full)])
def test_an_order_in_a_file_or_a_result_does_nothing_without_consent(files, project, order, place):
    (project / "evil.txt").write_text(f"{order}\n", encoding="utf-8")
    before = contents(project.parent)
    look = {
        "file": call("read", path="evil.txt"),
        "search": call("search", pattern=".", files="evil.txt"),
    }[place]

    done = work(files, [look], obey(order), "so", rules=Rules.parse(["run:pytest*", "write:docs/*"]))

    assert before == contents(project.parent)
    acting = [
        each for each in done.events if isinstance(each, CallFinished) and each.call.name in ("run", "write", "edit")
    ]
    assert len(ACTIONS) + 1 == len(acting)
    assert all(each.outcome.is_error for each in acting)


@pytest.mark.parametrize("order", ORDERS[:8])
def test_with_a_user_every_act_is_a_question_that_shows_what_it_is(files, project, order):
    (project / "evil.txt").write_text(f"{order}\n", encoding="utf-8")
    before = contents(project.parent)

    done = work(files, [call("read", path="evil.txt")], obey(order), "so", answers=[Answer.NO] * 20)

    assert before == contents(project.parent)
    commands = [each.summary for each in done.questions if each.effect is Effect.EXECUTE]
    assert [f"run {order}", "run touch pwned", "run pytest; touch pwned"] == commands
    assert all(each.change for each in done.questions if each.effect is Effect.WRITE)
