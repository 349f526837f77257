"""The continuation of sequences, the slash command and the loader."""

import pytest
from specchat_counting.chat_extensions import count, numbers
from specchat_counting.sequences import continue_sequence

from specchat.errors import InputError, UsageError

CONTINUATIONS = {
    "1, 2, 3": ", 4, 5, ",
    "from 3, 5, 7,": " 9, 11, ",
    "10\n20\n30\n": "40\n50\n",
    "9 8 7 ": "6 5 ",
    "5 1, 2, 3,": " 4, 5, ",
    "1. wash\n2. dry\n": "3. ",
    "  7) a\n": "  8) ",
    "1, 2, 4,": "",
    "in 1998 and in 2003 people": "",
    "no numbers": "",
    "": "",
}


@pytest.mark.parametrize(("text", "continuation"), CONTINUATIONS.items())
def test_a_sequence_continues_with_its_step(text, continuation):
    assert continuation == continue_sequence(text, max_numbers=2)


def test_numbers_are_attached_one_per_line():
    assert "8\n9\n10\n" == numbers("8-10")
    for wrong in ("", "5", "5-1", "1-100000", "a-b"):
        with pytest.raises(InputError):
            numbers(wrong)


def test_the_command_needs_a_number():
    with pytest.raises(UsageError, match="/count needs a number"):
        count(None, "many")
