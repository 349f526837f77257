"""The file that an answer rewrites: found by its name, and passed to copying drafters."""

from __future__ import annotations

from specchat.chat.events import TextDelta
from specchat.chat.prompt import as_answer_text, rewrite_original
from specchat.chat.request import Attachment, Request
from specchat.chat.transcript import Turn
from specchat.drafters.combined import SuffixAndRealign
from tests.chat.test_session import session

FILE, OTHER = Attachment("a.py", "abc abc abc\n"), Attachment("b.md", "```\ncode\n```")


def test_a_file_is_found_among_those_of_the_request_and_then_of_the_latest_turn():
    turns = [Turn("first", (Attachment("a.py", "old"),)), Turn("then", (FILE,))]

    assert as_answer_text(FILE) == rewrite_original(Request("go on", file_to_rewrite="a.py"), turns)
    assert as_answer_text(OTHER) == rewrite_original(Request("go on", (FILE, OTHER), file_to_rewrite="b.md"), turns)


def test_nothing_is_rewritten_unless_a_known_file_is_named():
    assert "" == rewrite_original(Request("go on", (FILE,)), ())
    assert "" == rewrite_original(Request("go on", (FILE,), file_to_rewrite="c.py"), ())


def test_an_answer_shows_a_file_in_its_fence_and_without_its_name():
    assert "```python\nabc abc abc\n```" == as_answer_text(FILE)
    assert "````markdown\n```\ncode\n```\n````" == as_answer_text(OTHER)


def test_copying_drafters_get_the_original_and_the_text_is_the_same():
    told, untold = session(), session()
    asked = Request("abc abc", (FILE,), seed=5, variant="suffix", file_to_rewrite="a.py")

    said = [event.text for event in told.ask(asked) if isinstance(event, TextDelta)]
    same = [
        event.text
        for event in untold.ask(Request("abc abc", (FILE,), seed=5, variant="plain"))
        if isinstance(event, TextDelta)
    ]

    drafter = told.drafters["suffix"]
    assert isinstance(drafter, SuffixAndRealign)
    assert drafter.realign is not None
    assert as_answer_text(FILE) == told.models.tokenizer.detokenizer(()).push(drafter.realign.original_tokens).text
    assert len(told.turns[0].prompt_ids) == drafter.realign.answer_start
    assert "".join(same) == "".join(said)


def test_the_next_question_rewrites_nothing():
    talk = session()
    list(talk.ask(Request("abc", (FILE,), seed=5, variant="suffix", file_to_rewrite="a.py")))

    list(talk.ask(Request("and now?", seed=5, variant="suffix")))

    drafter = talk.drafters["suffix"]
    assert isinstance(drafter, SuffixAndRealign)
    assert drafter.realign is None
