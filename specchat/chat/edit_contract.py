"""The contract of an edit: the form of an answer that is a whole file, or its changes. Knows no model and no disk.

A whole file stands in a code fence, the one in which it is attached to the prompt; no line of the file contains it.
`prompt.edit_answer` of the profile says how the model is held to it.

    prefill   the opening fence is the given beginning of the answer, which ends at the closing fence
    grammar   only "fence, text, fence" can be generated
    free      the model begins and ends by itself, and may talk

Changes are search/replace blocks: except for a free model, a grammar lets the searched lines be lines of the file only.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from specchat.chat.attachments import fenced_file
from specchat.chat.request import BLOCKS_TASK, EDIT_TASK, LARK, REGEX, AnswerFormat, Attachment, Request
from specchat.chat.transcript import Turn
from specchat.profile.keys import FREE_ANSWER, GRAMMAR_ANSWER, Prompt

SEARCH_MARKER, DIVIDER, REPLACE_MARKER = "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE"


@dataclass(frozen=True)
class Fence:
    """The lines around a text: "```python" and "```"."""

    opening: str
    closing: str


def with_edit_contract(request: Request, turns: Sequence[Turn], prompt: Prompt) -> Request:
    """The request with the form of its answer; unchanged when it rewrites no file, or sets a form itself."""
    file = file_to_rewrite(request, turns)
    if file is None or prompt.edit_answer == FREE_ANSWER or request.answer_prefix or request.answer_format:
        return request
    if request.task == BLOCKS_TASK:
        return replace(request, answer_format=AnswerFormat(LARK, search_blocks_grammar(file.text)))
    if request.task != EDIT_TASK:
        return request
    fence = fence_of(file)
    if prompt.edit_answer == GRAMMAR_ANSWER:
        return replace(request, answer_format=AnswerFormat(REGEX, fenced_text_pattern(fence)))
    # without its line end: most tokenizers join it with the first spaces of the text
    return replace(request, answer_prefix=fence.opening, stop=(*request.stop, f"\n{fence.closing}"))


def file_to_rewrite(request: Request, turns: Sequence[Turn]) -> Attachment | None:
    """The file of which the answer is a new version: attached to the request, or earlier in the conversation."""
    earlier = (file for turn in reversed(turns) for file in turn.files)
    name = request.file_to_rewrite
    return next((file for file in chain(request.files, earlier) if name and file.name == name), None)


def fence_of(file: Attachment) -> Fence:
    """The fence in which a file is attached."""
    _name, opening, *_lines, closing = fenced_file(file).split("\n")
    return Fence(opening, closing)


def fenced_text_pattern(fence: Fence) -> str:
    """A regular expression of the answers in this fence: no line between begins with it.

    Of "```" it is "```\\n(`{0,2}([^`\\n][^\\n]*)?\\n)*```".
    """
    line = rf"`{{0,{len(fence.closing) - 1}}}([^`\n][^\n]*)?\n"
    return rf"{re.escape(fence.opening)}\n({line})*{fence.closing}"


def search_blocks_grammar(text: str) -> str:
    """A Lark grammar of search/replace blocks whose searched lines stand in this text, one after the other."""
    chunks = json.dumps({"substring_chunks": [f"{line}\n" for line in text.removesuffix("\n").split("\n")]})
    return f"""
start: block ("\\n" block)*
block: "{SEARCH_MARKER}\\n" SEARCHED "{DIVIDER}\\n" LINE* "{REPLACE_MARKER}"
SEARCHED: LINES & /(.|\\n)+/
LINES: %regex {chunks}
LINE: /([^>=\\n][^\\n]*)?\\n/ | />{{1,6}}([^>\\n][^\\n]*)?\\n/ | /={{1,6}}([^=\\n][^\\n]*)?\\n/
"""
