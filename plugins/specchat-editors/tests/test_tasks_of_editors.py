"""The tasks of the agent in an editor: from the question to the files, as in every other front end."""

from __future__ import annotations

import pytest

from acp_tests.conftest import Served
from tests.app.agent.conftest import empty_repository, project  # noqa: F401 (fixtures)
from tests.app.agent.front_ends import Ran, Task, World, script_of
from tests.app.agent.test_every_front_end import check_notice, check_task
from tests.app.agent.test_front_ends import shared_host, world  # noqa: F401 (fixtures)
from tests.app.agent.test_tasks import TASKS

PERMISSION = "session/request_permission"
OPTIONS = {"y": "allow", "a": "allow-always", "n": "reject", "s": "stop"}  # of an editor
USUAL = ("create only the second file", "edit twice", "stop at the first file")  # the others are `full`


def run_in_editor(task: Task, place: World) -> Ran:
    """The Agent Client Protocol, with requests for permission."""
    served, answers = Served(), list(task["answers"])
    try:
        editor = served.editor
        editor.initialize()
        editor.answers[PERMISSION] = lambda _params: {
            "outcome": {"outcome": "selected", "optionId": OPTIONS[answers.pop(0)]}
        }
        session = editor.new(place.project)
        editor.request("session/set_mode", {"sessionId": session, "modeId": "agent"})
        editor.ask(session, script_of(task))
        asked = [each for each in editor.asked if each["method"] == PERMISSION]
        return Ran(editor.said(), len(asked), editor.said("agent_thought_chunk"))
    finally:
        served.end()


def test_a_notice_in_the_middle_of_the_work_is_shown_once(world, tmp_path, monkeypatch):  # noqa: F811 (the fixture)
    check_notice(run_in_editor, World(world, tmp_path, monkeypatch))


@pytest.mark.parametrize(
    "task",
    [pytest.param(each, id=each["name"], marks=() if each["name"] in USUAL else pytest.mark.full) for each in TASKS],
)
def test_a_task_ends_as_it_should_in_an_editor(world, tmp_path, monkeypatch, task):  # noqa: F811 (the fixture)
    check_task(run_in_editor, task, World(world, tmp_path, monkeypatch))
