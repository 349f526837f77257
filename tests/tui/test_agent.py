"""Tools on the screen: calls as lines that unfold, questions in the place of the prompt."""

from __future__ import annotations

import json

import pytest

from specchat.tui.approval import Approval
from specchat.tui.folded_text import CallView

WRITE = json.dumps({"path": "new.txt", "content": "new\n"})
SCRIPT = f'agent\ncall read {{"path": "a.txt"}}\ncall write {WRITE}\nall done'


@pytest.fixture
def project(tmp_path, monkeypatch):
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.txt").write_text("one\ntwo\n")
    monkeypatch.chdir(root)
    return root


def lines(driver) -> list[str]:
    return [view.line[2:] for view in driver.chat.query(CallView)]


async def answer(driver, key: str) -> None:
    await driver.wait_until(lambda: any(each.is_deciding for each in driver.chat.query(Approval)))
    approval = driver.chat.query_one(Approval)
    approval._ignore_keys_until = 0.0
    approval.answer_with_key(key)


@pytest.mark.dear
@pytest.mark.parametrize(("key", "is_written"), [("y", True), ("a", True), ("n", False)])
def test_a_write_asks_with_its_diff_and_the_calls_are_lines(run_on_screen, project, key, is_written):
    async def scenario(driver):
        await driver.run_command("/agent on")
        await driver.submit(SCRIPT)
        await driver.wait_for_text("+new")
        await answer(driver, key)
        await driver.wait_until(lambda: driver.turns[-1].answer == "all done" and driver.turns[-1].is_finished)
        assert "read a.txt: 2 lines" == lines(driver)[0]
        assert "hunk by hunk" not in driver.shown
        assert is_written == ("created" in lines(driver)[1])
        await driver.wait_until(lambda: not driver.chat.query(Approval))

    run_on_screen(scenario)
    assert is_written == (project / "new.txt").exists()


def test_stop_ends_the_work_and_the_prompt_is_back(run_on_screen, project):
    async def scenario(driver):
        await driver.run_command("/agent on")
        await driver.submit(SCRIPT)
        await answer(driver, "s")
        await driver.wait_for_text("the work ended early: stopped by the user")
        await driver.wait_until(lambda: driver.chat.presenter.is_idle and not driver.chat.query(Approval))

    run_on_screen(scenario)
    assert not (project / "new.txt").exists()


@pytest.mark.full
def test_an_outcome_unfolds_and_stored_calls_are_shown_again(run_on_screen, project):
    async def scenario(driver):
        await driver.run_command("/agent plan")
        await driver.submit('agent\ncall read {"path": "a.txt"}\nall done')
        await driver.wait_until(lambda: driver.turns[-1].answer == "all done" and driver.turns[-1].is_finished)
        id = driver.chat.presenter.session_id
        await driver.run_command("/new")
        await driver.wait_until(lambda: driver.chat.presenter.session_id != id)
        await driver.run_command(f"/open {id}")
        await driver.wait_until(lambda: driver.chat.presenter.session_id == id and driver.chat.query(CallView))
        assert ['read {"path": "a.txt"}: 2 lines'] == lines(driver)
        driver.chat.query_one(CallView).toggle()
        await driver.wait_for_text("two")
        assert [] == list(driver.chat.query(".note"))  # the screen shows the conversation itself

    run_on_screen(scenario)
