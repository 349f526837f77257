"""The tasks from the question to the files, through every front end: the screen, lines, `-p` and `ask`."""

from __future__ import annotations

import pytest

from tests.app.agent.front_ends import DONE, FRONT_ENDS, Run, Task, World, results_of
from tests.app.agent.test_front_ends import shared_host, world  # noqa: F401 (fixtures)
from tests.app.agent.test_tasks import TASKS
from tests.tui.conftest import brief_idle_waits  # noqa: F401 (a fixture)

USUAL = {  # the rest of the matrix is `full`
    "screen": ("create only the second file",),
    "lines": ("create only the second file", "edit twice", "stop at the first file"),
    "script": ("create only the second file", "edit twice", "stop at the first file"),
    "ask": ("create only the second file", "edit twice", "stop at the first file"),
}
MATRIX = [
    pytest.param(name, task, id=f"{name}-{task['name']}", marks=() if task["name"] in USUAL[name] else pytest.mark.full)
    for name in FRONT_ENDS
    for task in TASKS
]


READS = [{"tool": "read", "arguments": {"path": path}} for path in ("README.md", "shop/cart.py")]


def check_notice(run: Run, place: World) -> None:
    notice = "the context window was full"
    task = {"calls": READS, "answers": "", "notice": notice}

    ran = run(task, place)

    shown = ran.talk.replace(f"notice {notice} |", "")  # the question, which scripts it
    assert 1 == shown.count(notice)


def check_task(run: Run, task: Task, place: World, *, has_rules: bool = False) -> None:
    """The task ends as it should; `has_rules`: rules decide, and nobody is asked."""
    ran = run(task, place)

    is_stopped = "s" in task["answers"] and not has_rules  # rules stop nothing: the model is told, and goes on
    assert ("" if is_stopped else DONE) == ran.said
    for file, text in task["files"].items():
        path = place.project / file
        assert text == (path.read_text(encoding="utf-8") if path.exists() else None)
    wanted = "needs the consent" if has_rules and task["result"] == "declined" else task["result"]
    assert wanted in results_of(place.project)
    assert "secret\n" == (place.project.parent / "outside.txt").read_text()
    assert ran.question_count == (0 if has_rules else len(task["answers"]))


@pytest.mark.usefixtures("brief_idle_waits")
@pytest.mark.parametrize("name", FRONT_ENDS)
def test_a_notice_in_the_middle_of_the_work_is_shown_once(world, tmp_path, monkeypatch, name):  # noqa: F811 (the fixture)
    check_notice(FRONT_ENDS[name], World(world, tmp_path, monkeypatch))


@pytest.mark.usefixtures("brief_idle_waits")
@pytest.mark.parametrize(("name", "task"), MATRIX)
def test_a_task_ends_as_it_should_in_every_front_end(world, tmp_path, monkeypatch, name, task):  # noqa: F811 (the fixture)
    check_task(FRONT_ENDS[name], task, World(world, tmp_path, monkeypatch), has_rules=name == "script")
