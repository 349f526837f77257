"""The verb `edit` without a front end: its events, its consent, and what is written."""

from __future__ import annotations

from threading import Event as Flag

import pytest

from specchat.app.consent import Answer, Decision, EditConsent
from specchat.app.edit import drive, edit
from specchat.app.edit_events import AcceptedEdit, EditOrder, Proposed, Rejected, Rewriting, Unchanged, Writing, Written
from specchat.app.edit_session import EditSession, edit_request
from specchat.app.edited_files import DiskFile, HeldText
from specchat.edit.source_text import make_source
from specchat.edit.undo_store import user_undo_store
from specchat.errors import DeclinedError, SpecchatError, UsageError
from specchat.host.client import SessionRequest
from specchat.profile.settings import read_settings
from tests.edit.scripted import answers
from tests.scripted_session import ScriptedSession

pytestmark = pytest.mark.usefixtures("runtime")

OLD, NEW, LOSSY = "a = 1\nrun(a)\nstop = 2\n", "a = 3\nrun(a)\nstop = 2\n", "a = 3\nstop = 2\n"
YES, ALWAYS, NO = Decision(), Decision(Answer.ALWAYS), Decision(Answer.NO)
NEXT = "next: try it another way"


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / "a.py", tmp_path / "b.py"]
    for path in paths:
        path.write_text(OLD)
    return paths


def run(order, script, consent, *decisions):
    """The kinds of the events of ours, the error, and how many decisions were asked for."""
    seen, left, model = [], list(decisions), ScriptedSession(script)
    ours = (AcceptedEdit, Rejected, Rewriting, Unchanged, Writing, Written)

    def on_event(event):
        if isinstance(event, ours):
            seen.append(event)

    def decide(proposed: Proposed) -> Decision:
        return left.pop(0)

    with EditSession(
        SessionRequest(settings=read_settings("edit")), Flag(), open_conversation=lambda: model
    ) as session:
        try:
            drive(edit(order, session, consent), on_event, decide)
        except SpecchatError as error:
            return seen, error, len(decisions) - len(left)
    return seen, None, len(decisions) - len(left)


def order(*paths, **how):
    return EditOrder("begin with 3", tuple(map(DiskFile, paths)), next_steps=NEXT, **how)


def kinds(seen):
    return [type(each).__name__ for each in seen]


def test_each_file_is_rewritten_and_decided_and_then_all_are_written_at_once(files):
    seen, error, _ = run(order(*files), answers(NEW, NEW), EditConsent(), YES, YES)

    each = ["Rewriting", "AcceptedEdit"]
    assert ([*each, *each, "Writing", "Written"], None) == (kinds(seen), error)
    assert ([NEW, NEW], 1) == ([path.read_text() for path in files], len(user_undo_store().edits()))
    assert "2/2" == seen[-1].hunks


@pytest.mark.parametrize("last", [NO, Decision(Answer.STOP), Decision(text=OLD, total_hunks=1)])
def test_a_file_that_is_declined_leaves_all_or_is_left_out(files, last):
    seen, error, _ = run(order(*files), answers(NEW, NEW), EditConsent(), YES, last)

    is_left_out = last.text is not None
    assert is_left_out == (error is None)
    assert [NEW if is_left_out else OLD, OLD] == [path.read_text() for path in files]
    assert is_left_out or isinstance(error, DeclinedError)
    assert is_left_out == ("Written" in kinds(seen))


def test_a_text_that_cannot_be_taken_is_an_event_before_the_error_that_names_the_next_step(files):
    seen, error, _ = run(order(files[0]), answers(*["a = ("] * 4), EditConsent(can_ask=False))

    assert ["Rewriting", "Rejected"] == kinds(seen)
    assert "-a = 1\n" in seen[1].diff and "+a = (" in seen[1].diff
    assert str(error).endswith(NEXT) and "the text is saved in " in str(error)
    assert OLD == files[0].read_text()


def test_a_file_without_a_change_is_left_out_and_named(files):
    seen, error, _ = run(order(*files), answers(OLD, NEW), EditConsent(can_ask=False))

    assert error is None
    assert ["Rewriting", "Unchanged", "Rewriting", "AcceptedEdit", "Writing", "Written"] == kinds(seen)
    assert [OLD, NEW] == [path.read_text() for path in files]


def test_the_consent_asks_refuses_or_lets_pass_as_its_table_says(files):
    table = [  # the consent, the answer of the model, the decisions; how many were asked for, and whether it is written
        (EditConsent(), NEW, [YES], 1, True),
        (EditConsent(asks=False), NEW, [], 0, True),
        (EditConsent(asks=False), LOSSY, [YES], 1, True),
        (EditConsent(asks=False), LOSSY, [NO], 1, False),
        (EditConsent(asks=False, can_ask=False), NEW, [], 0, True),
        (EditConsent(asks=False, can_ask=False), LOSSY, [], 0, False),
        (EditConsent(asks=False, can_ask=False, allows_loss=True), LOSSY, [], 0, True),
    ]
    wrong = list[str]()
    for consent, answer, decisions, asked, is_written in table:
        files[0].write_text(OLD)
        _seen, error, count = run(order(files[0]), answers(answer), consent, *decisions)
        if (asked, is_written) != (count, files[0].read_text() == answer):
            wrong.append(f"{consent}, {answer!r}: asked {count} times, {error}")
    assert not wrong, "\n".join(wrong)


def test_always_ends_the_questions_and_not_those_about_a_loss(files):
    consent = EditConsent()

    assert 1 == run(order(*files), answers(NEW, NEW), consent, ALWAYS)[2]
    files[0].write_text(OLD)
    assert 1 == run(order(files[0]), answers(LOSSY), consent, NO)[2]


def test_a_text_without_a_file_is_given_back_and_nothing_is_written():
    text = HeldText(make_source(OLD.encode(), "stdin.py"))
    seen, error, _ = run(EditOrder("begin with 3", (text,), writes=False), answers(NEW), EditConsent(can_ask=False))

    assert (["Rewriting", "AcceptedEdit"], None, NEW) == (kinds(seen), error, seen[-1].text)
    assert [] == user_undo_store().edits()


def test_one_file_under_two_names_is_no_order(files, tmp_path):
    (tmp_path / "c.py").symlink_to(files[0])

    with pytest.raises(UsageError, match="the same file"):
        order(files[0], tmp_path / "c.py")


def test_an_edit_has_its_profile_unless_another_one_was_chosen():
    chosen = {"": None, "chat": read_settings("chat"), "creative": read_settings("creative")}

    requests = {name: edit_request(SessionRequest("1", settings)) for name, settings in chosen.items()}

    profiles = {name: each.settings and each.settings.name for name, each in requests.items()}
    assert {"": "edit", "chat": "edit", "creative": "creative"} == profiles
    assert {("edit", "")} == {(each.kind, each.session_id) for each in requests.values()}
