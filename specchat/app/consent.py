"""What a person decides about a change before it is written, and when one has to be asked.

A front end shows the change and translates keys, options or buttons into a `Decision`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from specchat.edit.contract import EditWarnings
    from specchat.edit.source_text import Source


class Answer(Enum):
    """What the user says to a change or a call."""

    ONCE = "once"
    ALWAYS = "always"  # in this session: this tool, and of `run` this command
    NO = "no"  # the model is told and goes on
    STOP = "stop"  # no, and the model does not go on


# the options that protocols offer, by their ids
ALLOW, ALLOW_ALWAYS, REJECT = "allow", "allow-always", "reject"
ANSWER_BY_OPTION: Mapping[str, Answer] = {ALLOW: Answer.ONCE, ALLOW_ALWAYS: Answer.ALWAYS, REJECT: Answer.NO}


class PlannedChange(Protocol):
    """A change of a file that is worked out and not yet made. `old` is None for a new file."""

    @property
    def path(self) -> str: ...

    @property
    def old(self) -> str | None: ...

    @property
    def new(self) -> str: ...

    @property
    def warning(self) -> str:
        """What a person should see before it is written, "" for nothing; no rule allows such a change."""
        ...


@dataclass(frozen=True)
class Decision:
    """The answer to a proposed text. Who reviews hunks says which text is left, and how many hunks it has."""

    answer: Answer = Answer.ONCE
    text: str | None = None  # None: as it was proposed
    accepted_hunks: int = 0
    total_hunks: int = 0


@dataclass
class EditConsent:
    """When a person is asked about a new text: about each (`asks`), or about one that loses something.

    Where none can be asked, such a text is refused; `way_out` says what lets it pass, as `allows_loss` does.
    """

    asks: bool = True
    can_ask: bool = True
    allows_loss: bool = False
    way_out: str = "--allow-shrink accepts it"

    def must_ask(self, source: Source, warnings: EditWarnings) -> bool:
        from specchat.edit.contract import check_unreviewed  # imports the grammars; not every consent is about an edit

        if not self.can_ask:
            check_unreviewed(source, warnings, self.way_out, allows_shrink=self.allows_loss)
            return False
        return self.asks or warnings.worst_problem is not None

    def note(self, answer: Answer) -> None:
        self.asks = self.asks and answer is not Answer.ALWAYS
