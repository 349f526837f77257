"""What an answer is a new version of: found by its name, and told to who copies it."""

from __future__ import annotations

from specchat.chat.events import Text
from specchat.chat.request import Attachment, Request
from specchat.chat.rewrite_source import as_answered, original_of
from specchat.chat.transcript import Turn
from specchat.drafters.combined import Copying
from tests.chat.test_session import session

FILE, OTHER = Attachment("a.py", "abc abc abc\n"), Attachment("b.md", "```\ncode\n```")


def test_a_file_is_found_among_those_of_the_request_and_then_of_the_latest_turn():
    turns = [Turn("first", (Attachment("a.py", "old"),)), Turn("then", (FILE,))]

    assert as_answered(FILE) == original_of(Request("go on", rewrites="a.py"), turns)
    assert as_answered(OTHER) == original_of(Request("go on", (FILE, OTHER), rewrites="b.md"), turns)


def test_nothing_is_rewritten_unless_a_known_file_is_named():
    assert "" == original_of(Request("go on", (FILE,)), ())
    assert "" == original_of(Request("go on", (FILE,), rewrites="c.py"), ())


def test_an_answer_shows_a_file_in_its_fence_and_without_its_name():
    assert "```python\nabc abc abc\n```" == as_answered(FILE)
    assert "````markdown\n```\ncode\n```\n````" == as_answered(OTHER)


def test_who_copies_is_told_and_says_the_same_text():
    told, untold = session(), session()
    asked = Request("abc abc", (FILE,), seed=5, variant="suffix", rewrites="a.py")

    said = [event.text for event in told.ask(asked) if isinstance(event, Text)]
    same = [
        event.text
        for event in untold.ask(Request("abc abc", (FILE,), seed=5, variant="plain"))
        if isinstance(event, Text)
    ]

    drafter = told.drafters["suffix"]
    assert isinstance(drafter, Copying)
    assert drafter.rewritten is not None
    assert as_answered(FILE) == told.voice.tokenizer.stream(()).push(drafter.rewritten.original).text
    assert len(told.turns[0].prompt_ids) == drafter.rewritten.begins
    assert "".join(same) == "".join(said)


def test_the_next_question_rewrites_nothing():
    talk = session()
    list(talk.ask(Request("abc", (FILE,), seed=5, variant="suffix", rewrites="a.py")))

    list(talk.ask(Request("and now?", seed=5, variant="suffix")))

    drafter = talk.drafters["suffix"]
    assert isinstance(drafter, Copying)
    assert drafter.rewritten is None
