"""The blocks of code of an answer, and the file that each of them says it is. Strings in, strings out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

CODE = re.compile(r"^ {0,3}(`{3,}|~{3,})(?P<info>[^\n`]*)\n(?P<text>.*?)^ {0,3}\1[`~]*[ ]*$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"""(?:file|filename|path|title)\s*=\s*["']?([^\s"'}]+)""")
PATH = re.compile(r"[\w.@+-]*(?:[\w@+-]/|\.\w|/\w)[\w./@+-]*")


@dataclass(frozen=True)
class Block:
    """What stands between two fences, and the words behind the first one."""

    info: str
    text: str
    line: int = field(default=0, compare=False)  # of the answer, in which the first fence stands

    @property
    def language(self) -> str:
        """What it says that it is written in, "" if it does not."""
        word = self.info.partition(" ")[0].partition(":")[0].strip("{.}")
        return "" if word == self.file or "=" in word else word

    @property
    def file(self) -> str:
        """The file that it says it is, "" if it does not.

        As "python:src/a.py", "python src/a.py", "src/a.py" and 'python title="src/a.py"'.
        """
        if found := NAMED.search(self.info):
            return found[1]
        words = [part for word in self.info.split() for part in word.split(":", 1)]
        return next((word for word in reversed(words) if PATH.fullmatch(word)), "")


def blocks(answer: str) -> list[Block]:
    """Every block that was closed, in order."""
    found, lines, at = list[Block](), 0, 0
    for each in CODE.finditer(answer):
        lines, at = lines + answer.count("\n", at, each.start()), each.start()
        found.append(Block(each["info"].strip(), each["text"], lines))
    return found
