"""What a person asks: a text and the files that it names, and the one way in which these are read.

Every front end makes a `Question` of what its user typed; the verb (`ask.py`) reads it. Knows no model and no screen.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from specchat.chat.request import AnswerFormat, Attachment, Request
from specchat.context.at_names import THIS_FOLDER, FileAccess, Loader, check_name, find_mentions


@dataclass(frozen=True)
class Question:
    """`names` are files, folders, globs, `@repo` and names with a loader, beside those after an @ in the text.

    `files` are texts at hand: a pipe, a buffer of an editor. `has_mentions`: False for a text that the user
    did not type, such as the contents of a pipe, in which an @ names nothing.
    """

    text: str
    names: tuple[str, ...] = ()
    files: tuple[Attachment, ...] = ()
    answer_format: AnswerFormat | None = None
    has_mentions: bool = True

    def __post_init__(self) -> None:
        Request(self.text)  # UsageError for an empty text

    def check(self, access: FileAccess = THIS_FOLDER) -> None:
        """InputError for a name that leads to nothing, found before an engine is needed."""
        for name in self.names:
            check_name(name, access)
        self.mentions(access)

    def mentions(self, access: FileAccess) -> list[str]:
        return find_mentions(self.text, access) if self.has_mentions else []


def reading_once(loader: Callable[[str], Loader | None]) -> FileAccess:
    """Access to the files of this folder, of which each is read once, and to what has a loader."""
    return FileAccess(read=cache(THIS_FOLDER.read), loader=loader)


@dataclass(frozen=True)
class ReadQuestion:
    """The request with its files, the line that says what is attached, and the citations of passages."""

    request: Request
    notice: str = ""
    sources: tuple[str, ...] = ()


def read_question(question: Question, window_tokens: int, access: FileAccess = THIS_FOLDER) -> ReadQuestion:
    """Read the files, or the passages of them that answer the question.

    InputError for a name that cannot be read, and ContextError for a text that fits no window of this size.
    """
    request = Request(question.text, question.files, answer_format=question.answer_format)
    Request(question.text).check_size(window_tokens)
    names = [*question.names, *question.mentions(access)]
    if not (names or question.files):
        return ReadQuestion(request)
    from specchat.context.retrieve import ContextBudget, RetrievedContext, describe_texts, gather_context

    budget = ContextBudget.of_window(window_tokens)
    found = gather_context(names, question.text, budget, access) if names else RetrievedContext()
    notices = filter(None, (found.notice, describe_texts(question.files, budget)))
    request = Request(question.text, (*found.files, *question.files), answer_format=question.answer_format)
    return ReadQuestion(request, "\n".join(notices), found.sources)
