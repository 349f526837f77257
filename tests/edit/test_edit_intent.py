"""Which instructions ask for no change."""

import pytest

from specchat.edit.edit_intent import is_question


@pytest.mark.parametrize(
    "instruction",
    [
        "explain this",
        "Please explain what this function does.",
        "What does this do?",
        "why is this slow",
        "how does it work?",
        "Can you tell me what happens here?",
        "Is this thread-safe?",
        "does this return a list?",
        "I don't understand this",
        "Erkläre diese Funktion",
        "Was macht das?",
        "Warum ist das langsam?",
        "Que fait cette fonction ?",
        "Explique ce code",
        "¿Qué hace esta función?",
    ],
)
def test_a_question_asks_for_no_change(instruction):
    assert is_question(instruction)


@pytest.mark.parametrize(
    "instruction",
    [
        "make it faster",
        "Can you make this faster?",
        "could you return a list?",
        "explain this in a docstring",
        "Explain each step with comments",
        "What is wrong here? Fix it.",
        "why is this slow? speed it up",
        "should return None when the list is empty",
        "when n is negative return 0",
        "integer division in half",
        "How about a list comprehension instead of the loop?",
        "Erkläre das in einem Kommentar",
        "Warum ist das langsam? Mach es schneller.",
        "summarize",
        "comment this code",
        "whatever is empty goes first",
        "",
    ],
)
def test_everything_else_may_be_a_change(instruction):
    assert not is_question(instruction)
