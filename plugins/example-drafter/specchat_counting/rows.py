"""How a row of numbers goes on. Strings in, strings out; knows no model.

>>> next_in_row("3, 5, 7,", most=2)
' 9, 11, '
>>> next_in_row("1. wash\\n2. dry\\n", most=1)
'3. '
"""

from __future__ import annotations

import re
from itertools import count, islice

ROW = re.compile(r"(?<!\d)(?P<first>\d{1,9})(?P<between>\D{1,3})(?P<second>\d{1,9})(?!\d)")
LINE = re.compile(r"^(?P<indent>[ \t]*)(?P<number>\d{1,9})(?P<mark>[.):] ).*\n\Z", re.MULTILINE)


def next_in_row(text: str, most: int = 8) -> str:
    """What follows when the numbers at the end of a text go on as they began, "" when there are none."""
    if line := LINE.search(text):
        return f"{line['indent']}{int(line['number']) + 1}{line['mark']}"
    for row in ROW.finditer(text):
        if rest := _counted_on(row, text[row.start() :], most):
            return rest
    return ""


def _counted_on(row: re.Match[str], so_far: str, most: int) -> str:
    """The row written out from its first number, past what there is of it; "" when the text says something else."""
    first, second = int(row["first"]), int(row["second"])
    numbers, written = count(first, second - first), ""
    while len(written) < len(so_far):
        written += f"{next(numbers)}{row['between']}"
    if not written.startswith(so_far):
        return ""
    return written[len(so_far) :] + "".join(f"{each}{row['between']}" for each in islice(numbers, most))
