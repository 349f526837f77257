"""The blocks of code of an answer, and the file that each of them says it is. Strings in, strings out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

FENCED_BLOCK = re.compile(
    r"^ {0,3}(`{3,}|~{3,})(?P<info>[^\n`]*)\n(?P<text>.*?)^ {0,3}\1[`~]*[ ]*$", re.MULTILINE | re.DOTALL
)
FILE_ATTRIBUTE = re.compile(r"""(?:file|filename|path|title)\s*=\s*["']?([^\s"'}]+)""")
PATH_PATTERN = re.compile(r"[\w.@+-]*(?:[\w@+-]/|\.\w|/\w)[\w./@+-]*")


@dataclass(frozen=True)
class CodeBlock:
    """What stands between two fences, and the words behind the first one."""

    info: str
    text: str
    first_line: int = field(default=0, compare=False)  # of the answer, in which the first fence stands

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
        if found := FILE_ATTRIBUTE.search(self.info):
            return found[1]
        words = [part for word in self.info.split() for part in word.split(":", 1)]
        return next((word for word in reversed(words) if PATH_PATTERN.fullmatch(word)), "")


def find_code_blocks(answer: str) -> list[CodeBlock]:
    """Every block that was closed, in order."""
    found, lines, at = list[CodeBlock](), 0, 0
    for each in FENCED_BLOCK.finditer(answer):
        lines, at = lines + answer.count("\n", at, each.start()), each.start()
        found.append(CodeBlock(each["info"].strip(), each["text"], lines))
    return found
