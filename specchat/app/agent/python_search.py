"""The search of the tool `search`: a program in the folder of the project, with a JSON object as argument.

A process of its own, because a regular expression may take for ever and a thread cannot be ended. It prints
path:line:text.
"""

import json
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from specchat.context.file_listing import is_folder, list_folder
from specchat.errors import InputError
from specchat.python_child import python_command
from specchat.regular_file import read_regular_file

MAX_LINE_CHARACTERS = 300
MAX_FILE_BYTES = 32 * 2**20  # of a file that is named; folders are listed without large ones
LONG_LINE = re.compile(r"^(.{5000}).+", re.MULTILINE)  # the rest is data, and can take an expression quadratic time
MATCH_CODE, NO_MATCH_CODE, ERROR_CODE = 0, 3, 4  # 1 and 2 are those of Python


def command(pattern: str, glob: str, place: str, ignores_case: bool) -> tuple[str, ...]:
    search = json.dumps({"pattern": pattern, "glob": glob, "place": place, "ignores_case": ignores_case})
    return python_command("specchat.app.agent.python_search", search)


def matches(pattern: re.Pattern[str], glob: str, place: Path) -> Iterator[str]:
    files = list_folder(place).files if is_folder(place) else [place]
    for path in files:
        if glob and not fnmatchcase(path.as_posix() if "/" in glob else path.name, glob):
            continue
        try:
            raw = read_regular_file(path, MAX_FILE_BYTES)
        except InputError:
            if path == place:
                raise
            continue
        if b"\0" not in raw:
            for number, line in matching_lines(pattern, raw.decode(errors="replace").replace("\r\n", "\n")):
                yield f"{path.as_posix()}:{number}:{line.rstrip()[:MAX_LINE_CHARACTERS]}"


def matching_lines(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, str]]:
    """Number and text of each line in which a match begins."""
    text = LONG_LINE.sub(r"\1", text)
    number, counted, shown = 1, 0, 0
    for match in pattern.finditer(text):
        number, counted = number + text.count("\n", counted, match.start()), match.start()
        if number != shown:
            first, end = text.rfind("\n", 0, counted) + 1, text.find("\n", counted)
            yield number, text[first : end if end >= 0 else None]
            shown = number


def main(text: str) -> int:
    """Print the matches."""
    search = json.loads(text)
    try:
        pattern = re.compile(search["pattern"], re.MULTILINE | (re.IGNORECASE if search["ignores_case"] else 0))
    except (re.error, RecursionError, OverflowError) as error:
        print(f"not a regular expression: {error}")
        return ERROR_CODE
    found = False
    try:
        for line in matches(pattern, search["glob"], Path(search["place"])):
            found = True
            print(line)
    except InputError as error:
        print(error)
        return ERROR_CODE
    return MATCH_CODE if found else NO_MATCH_CODE


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
    sys.exit(main(sys.argv[1]))
