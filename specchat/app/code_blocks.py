"""The fenced code blocks of an answer, and the file name that a fence may carry. Strings in, strings out."""

import re
from dataclasses import dataclass, field

FENCED_BLOCK = re.compile(
    r"^ {0,3}(`{3,}|~{3,})(?P<info>[^\n`]*)\n(?P<text>.*?)^ {0,3}\1[`~]*[ ]*$", re.MULTILINE | re.DOTALL
)
FILE_ATTRIBUTE = re.compile(r"""(?:file|filename|path|title)\s*=\s*["']?([^\s"'}]+)""")
PATH_PATTERN = re.compile(r"[\w.@+-]*(?:[\w@+-]/|\.\w|/\w)[\w./@+-]*")


@dataclass(frozen=True)
class CodeBlock:
    info: str
    text: str
    first_line: int = field(default=0, compare=False)  # line of the answer with the opening fence

    @property
    def language(self) -> str:
        word = self.info.partition(" ")[0].partition(":")[0].strip("{.}")
        return "" if word == self.file or "=" in word else word

    @property
    def file(self) -> str:
        """The file that the info string names, or "".

        Accepted forms: "python:src/a.py", "python src/a.py", "src/a.py" and 'python title="src/a.py"'.
        """
        if match := FILE_ATTRIBUTE.search(self.info):
            return match[1]
        words = [part for word in self.info.split() for part in word.split(":", 1)]
        return next((word for word in reversed(words) if PATH_PATTERN.fullmatch(word)), "")


def find_code_blocks(answer: str) -> list[CodeBlock]:
    """All closed code blocks, in order."""
    blocks, line_number, offset = list[CodeBlock](), 0, 0
    for match in FENCED_BLOCK.finditer(answer):
        line_number, offset = line_number + answer.count("\n", offset, match.start()), match.start()
        blocks.append(CodeBlock(match["info"].strip(), match["text"], line_number))
    return blocks
