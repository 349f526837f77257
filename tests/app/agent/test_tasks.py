"""Small tasks over a repository from the first call to the last word, by a scripted model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specchat.app.consent import Answer
from tests.app.agent.scripted import call, work

TASKS = json.loads((Path(__file__).parent / "tasks" / "tasks.json").read_text(encoding="utf-8"))
ANSWERS = {"y": Answer.ONCE, "a": Answer.ALWAYS, "n": Answer.NO, "s": Answer.STOP}


@pytest.mark.parametrize("task", TASKS, ids=[task["name"] for task in TASKS])
def test_a_task_ends_as_it_should(files, project, task):
    calls = [[call(each["tool"], **each["arguments"])] for each in task["calls"]]

    done = work(files, *calls, "done", answers=[ANSWERS[key] for key in task["answers"]])

    stopped = "s" in task["answers"]
    assert ("" if stopped else "done") == done.text
    for name, text in task["files"].items():
        path = project / name
        assert text == (path.read_text(encoding="utf-8") if path.exists() else None)
    assert task["result"] in "".join(text for text, _is_error in done.outcomes)
    assert "secret\n" == (project.parent / "outside.txt").read_text()
    assert len(done.questions) == len(task["answers"])
