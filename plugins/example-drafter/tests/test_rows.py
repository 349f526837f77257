"""How rows go on."""

import pytest

from specchat.errors import InputError, UsageError
from specchat_counting.rows import next_in_row
from specchat_counting.talking import count, numbers

ROWS = {
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


@pytest.mark.parametrize(("text", "rest"), ROWS.items())
def test_a_row_goes_on_as_it_began(text, rest):
    assert rest == next_in_row(text, most=2)


def test_numbers_are_attached_one_a_line():
    assert "8\n9\n10\n" == numbers("8-10")
    for wrong in ("", "5", "5-1", "1-100000", "a-b"):
        with pytest.raises(InputError):
            numbers(wrong)


def test_the_command_wants_a_number():
    with pytest.raises(UsageError, match="/count needs a number"):
        count(None, "many")
