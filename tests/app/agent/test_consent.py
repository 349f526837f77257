"""Nothing is written and no command runs without the consent of the user."""

from __future__ import annotations

import pytest

from specchat.app.agent.agent_tool import Effect, ToolOutcome
from specchat.app.agent.call_consent import Rules
from specchat.app.consent import Answer
from specchat.chat.tools import Tool
from tests.app.agent.scripted import REPOSITORY, agent_tools, call, work

WRITE = call("write", path="new.txt", content="new\n")
EDIT = call("edit", path="shop/prices.py", instruction="TAX VAT")
TOUCH = call("run", command="touch ran")


class External:
    """A tool of another program."""

    tool, effect = Tool("weather.now"), Effect.EXTERNAL
    count = 0

    def describe(self, arguments):
        return "weather.now"

    def run(self, arguments, cancelled):
        self.count += 1
        return ToolOutcome("sunny")


def acted(project) -> bool:
    """Whether a file of the project was written."""
    is_changed = any((project / name).read_text() != text for name, text in REPOSITORY.items())
    return is_changed or (project / "new.txt").exists() or (project / "ran").exists()


def test_reading_needs_no_consent(files):
    done = work(files, [call("read", path="README.md"), call("list"), call("search", pattern="x")], "so")

    assert [False] * 3 == [is_error for _text, is_error in done.outcomes]


@pytest.mark.parametrize("made", [WRITE, EDIT, TOUCH])
def test_where_no_person_can_be_asked_nothing_acts_and_the_model_is_told(files, project, made):
    done = work(files, [made], "so")

    assert not acted(project)
    assert f"--allow {made[0]} gives it" in done.model.results[0]


@pytest.mark.parametrize("made", [WRITE, EDIT, TOUCH])
@pytest.mark.parametrize("answer", [Answer.NO, Answer.STOP])
def test_what_the_user_declines_does_not_happen(files, project, made, answer):
    done = work(files, [made], "so", answers=[answer])

    assert not acted(project)
    assert "declined" in done.outcomes[0][0]
    assert ("" if answer is Answer.NO else "stopped by the user") == done.end_reason


@pytest.mark.parametrize("made", [WRITE, EDIT, TOUCH])
def test_what_the_user_allows_happens(files, project, made):
    done = work(files, [made], "so", answers=[Answer.ONCE])

    assert acted(project)
    assert not done.outcomes[0][1]


def test_the_question_shows_the_change_before_it_is_written(files, project):
    done = work(files, [EDIT], "so", answers=[Answer.NO])

    change = done.questions[0].change
    assert (REPOSITORY["shop/prices.py"], REPOSITORY["shop/prices.py"].replace("TAX", "VAT")) == (
        change.old, change.new,
    )  # fmt: skip


def test_the_question_shows_the_whole_command(files):
    command = "echo " + "x" * 5000 + "; rm -r ."
    done = work(files, [call("run", command=command)], "so", answers=[Answer.NO])

    assert f"run {command}" == done.questions[0].summary


def test_once_is_once(files):
    done = work(files, [TOUCH], [TOUCH], "so", answers=[Answer.ONCE, Answer.NO])

    assert 2 == len(done.questions)


def test_always_covers_a_tool_that_writes(files):
    done = work(
        files, [WRITE], [call("write", path="b.txt", content="b")], [EDIT], "so", answers=[Answer.ALWAYS, Answer.NO]
    )

    assert ["write new.txt", "edit shop/prices.py: TAX VAT"] == [each.summary for each in done.questions]


def test_always_covers_this_command_and_no_other(files):
    done = work(files, [TOUCH], [TOUCH], [call("run", command="touch ran2")], "so", answers=[Answer.ALWAYS, Answer.NO])

    assert ["run touch ran", "run touch ran2"] == [each.summary for each in done.questions]


@pytest.mark.parametrize(
    ("rule", "made", "is_allowed"),
    [
        ("run", TOUCH, True),
        ("run:touch ran", TOUCH, True),
        ("run:touch*", TOUCH, True),
        ("run:touch", TOUCH, False),
        ("write", TOUCH, False),
        ("run:echo*", call("run", command="echo; touch ran"), False),
        ("run:echo*", call("run", command="echo $(touch ran)"), False),
        ("run:echo*", call("run", command="echo `touch ran`"), False),
        ("run:echo*", call("run", command="echo x > new.txt"), False),
        ("run:echo*", call("run", command="echo\ntouch ran"), False),
        ("run:echo*", call("run", command="echo & touch ran"), False),
        ("run:echo; touch ran", call("run", command="echo; touch ran"), True),
        ("write:*.txt", WRITE, True),
        ("write:notes/*", WRITE, False),
        ("write:notes/*", call("write", path="notes/../new.txt", content="x"), False),
        ("edit:shop/*", EDIT, True),
        ("edit:shop/*", call("edit", path="shop/../README.md", instruction="Shop Bank"), False),
    ],
)
def test_a_rule_allows_what_it_says(files, project, rule, made, is_allowed):
    work(files, [made], "so", rules=Rules.parse([rule]))

    assert is_allowed == acted(project)


@pytest.mark.parametrize(
    ("rule", "made"),
    [
        ("run", TOUCH),
        ("run:touch*", TOUCH),
        ("run:*touch*", call("run", command="echo; touch ran")),
        ("write:*.txt", WRITE),
        ("edit", EDIT),
    ],
)
def test_a_rule_that_denies_comes_before_all_others(files, project, rule, made):
    done = work(files, [made], "so", rules=Rules.parse([made[0]], [rule]), answers=[])

    assert not acted(project)
    assert "a rule of the user denies this call" in done.model.results[0]


def test_a_rule_can_deny_reading(files):
    done = work(files, [call("read", path="shop/../notes/todo.txt")], "so", rules=Rules.parse([], ["read:notes/*"]))

    assert "denies" in done.model.results[0]


def test_plan_mode_offers_only_reading_and_refuses_the_rest(files, project):
    done = work(
        files, [WRITE, EDIT, TOUCH], "so", rules=Rules.parse(["run", "write", "edit"], is_read_only=True), answers=[]
    )

    assert ["read", "list", "search"] == [tool.name for tool in done.model.requests[0].tools]
    assert all("there is no tool" in text for text in done.model.results)
    assert not acted(project)


@pytest.mark.parametrize(
    ("rule", "is_allowed"), [("weather.now", True), ("weather.*", True), ("sun.*", False), ("run", False)]
)
def test_tools_of_other_programs_can_be_allowed_singly(files, rule, is_allowed):
    tool = External()
    work(files, [call("weather.now")], "so", tools=[*agent_tools(files), tool], rules=Rules.parse([rule]))

    assert is_allowed == tool.count


def test_tools_of_other_programs_ask(files):
    tool = External()
    done = work(files, [call("weather.now")], [call("weather.now")], "so", tools=[tool], answers=[Answer.ALWAYS])

    assert (1, 2) == (len(done.questions), tool.count)
