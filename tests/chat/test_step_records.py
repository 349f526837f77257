"""Steps for display: three kinds of tokens, and the result of every draft token."""

from __future__ import annotations

from specchat.chat.events import CommittedToken, StepDone
from specchat.chat.step_records import DraftToken, Inspection, TokenKind


def step(guesses: str, said: str, own: str = "", parents: tuple[int, ...] = ()) -> StepDone:
    """Words separated by spaces: a chain of draft tokens, the accepted ones, and the token of the target."""
    words = [word.encode() for word in guesses.split()]
    held = [word.encode() for word in said.split()]
    committed = [CommittedToken(number_of(word), word, "lookup") for word in held]
    if own:
        committed.append(CommittedToken(number_of(own.encode()), own.encode(), "target"))
    return StepDone(
        tuple(map(number_of, words)), parents or tuple(range(len(words))), tuple(committed), 0.25, 0.5, tuple(words),
        ("lookup",) * len(words),
    )  # fmt: skip


def number_of(word: bytes) -> int:
    return int.from_bytes(word, "big")


def kinds(inspection: Inspection) -> list[tuple[str, str]]:
    return [(span.text, span.kind.value) for span in inspection.spans]


def test_accepted_draft_tokens_and_corrections_have_their_kinds():
    inspection = Inspection([step("a b c", "a b", "x")])

    assert kinds(inspection) == [("a", "+"), ("b", "+"), ("x", "!")]
    assert (inspection.steps[0].target_text, inspection.steps[0].rejected_text) == ("x", "c")


def test_a_token_of_the_target_without_a_draft_is_sampled():
    inspection = Inspection([step("", "", "x"), step("a b", "a b", "y")])

    assert kinds(inspection) == [("x", "="), ("a", "+"), ("b", "+"), ("y", "=")]
    assert [seen.rejected_text for seen in inspection.steps] == [None, None]


def test_a_drafted_end_token_is_no_correction():
    assert kinds(Inspection([step("a end", "a", "end")])) == [("a", "+"), ("end", "=")]


def test_a_step_that_was_cut_inside_its_draft_has_no_target_text():
    [seen] = Inspection([step("a b c", "a b")]).steps

    assert (seen.accepted_count, seen.target_text, seen.rejected_text) == (2, "", None)


def test_in_a_tree_the_first_sibling_is_the_rejected_one():
    [seen] = Inspection([step("a b c d", "b", "x", parents=(0, 0, 2, 2))]).steps

    assert seen.rejected_text == "c"
    assert not seen.is_chain
    assert seen.draft_tokens == (
        DraftToken("a", "lookup", 1, False),
        DraftToken("b", "lookup", 1, True),
        DraftToken("c", "lookup", 2, False),
        DraftToken("d", "lookup", 2, False),
    )


def test_a_partial_character_is_shown_with_the_token_that_completes_it():
    half, rest = CommittedToken(1, b"a\xc3", "lookup"), CommittedToken(2, b"\xa9", "target")
    inspection = Inspection([StepDone((1, 7), (0, 1), (half, rest), 0.0, 0.0)])

    assert kinds(inspection) == [("a", "+"), ("é", "!")]
    assert inspection.committed_count == 2


def test_a_token_without_a_complete_character_has_no_span():
    parts = [CommittedToken(number, bytes([byte]), "lookup") for number, byte in enumerate("…".encode(), start=1)]
    inspection = Inspection([StepDone((1, 2, 3), (0, 1, 2), tuple(parts), 0.0, 0.0)])

    assert kinds(inspection) == [("…", "+")]
    assert inspection.committed_count == 3


def test_sums_are_those_of_the_steps():
    inspection = Inspection([step("a b c", "a b", "x"), step("", "", "y"), step("q", "", "z")])

    assert (inspection.draft_count, inspection.accepted_count, inspection.committed_count) == (4, 2, 5)
    assert inspection.source_shares == {"target": 0.6, "lookup": 0.4}
    assert inspection.sources == ["lookup"]
    assert inspection.decode_seconds == 2.25
    assert inspection.spans[-1].step == 2


def test_an_inspection_that_grows_equals_that_of_all_steps():
    steps = [step("a b", "a", "x"), step("c", "c", "y")]
    grown = Inspection(steps[:1])
    grown.add(steps[1])

    assert grown.spans == Inspection(steps).spans


def test_draft_tokens_without_bytes_show_their_ids():
    [seen] = Inspection([StepDone((41, 42), (0, 1), (CommittedToken(9, b"x", "target"),), 0.0, 0.0)]).steps

    assert seen.rejected_text == "#41"
    assert [TokenKind.CORRECTION] == [
        span.kind for span in Inspection([StepDone((41,), (0,), (CommittedToken(9, b"x", "target"),), 0, 0)]).spans
    ]
