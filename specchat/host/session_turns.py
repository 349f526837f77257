"""The turns of an open session: what the model reads of each of them, by id, and what it is asked after them.

One list for both threads: the I/O thread changes it while nothing runs, and the engine thread adds the answers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from specchat.chat.events import TOOL_CALLS
from specchat.chat.request import Request
from specchat.chat.transcript import Question, TextOwner, Turn
from specchat.history.history_reader import StoredTurn
from specchat.host.protocol import request_from_json
from specchat.profile.keys import Profile


class SessionTurns:
    """In order. The model reads nothing of a turn that has no answer yet, or that failed.

    `owner` is whose texts they are for the prefix cache.
    """

    def __init__(self, owner: TextOwner, turns: Iterable[tuple[str, Turn | None]] = ()) -> None:
        self.owner = owner
        self._turns: dict[str, Turn | None] = dict(turns)
        self._notified = set[str]()  # what the session had a notice about

    def __contains__(self, turn_id: str) -> bool:
        return turn_id in self._turns

    @property
    def ids(self) -> list[str]:
        return list(self._turns)

    @property
    def last_id(self) -> str | None:
        return next(reversed(self._turns), None)

    def add(self, turn_id: str) -> None:
        """A question without an answer."""
        self._turns[turn_id] = None

    def question(self, turn_id: str, request: Request, profile: Profile) -> Question:
        """What an engine is asked: the request of this turn after what the model reads of the earlier ones."""
        ids = self.ids
        earlier = (self._turns[id] for id in ids[: ids.index(turn_id)])
        turns = tuple(turn for turn in earlier if turn is not None)
        return Question(request, turns, profile, self.owner, self._notified)

    def set_read(self, turn_id: str, turns: Sequence[Turn]) -> None:
        """What the model reads from now on: that of the earlier turns, which may be shorter now, and of this one."""
        ids = self.ids[: self.ids.index(turn_id)]
        read = [id for id in ids if self._turns[id] is not None]
        self._turns |= dict(zip((*read, turn_id), turns, strict=True))

    def remove_last(self, count: int) -> None:
        for id in self.ids[max(0, len(self._turns) - count) :]:
            del self._turns[id]

    def replace(self, turns: Iterable[tuple[str, Turn | None]]) -> None:
        self._turns = dict(turns)


def turn_of_stored(stored: StoredTurn) -> Turn | None:
    """What the model reads of a stored turn; None of one that failed, or that has no answer yet."""
    if stored.state in ("failed", "running"):
        return None
    answer, request = stored.answer, request_from_json(stored.request)
    return replace(
        Turn.of_request(request), prompt_ids=tuple(answer.prompt_ids),
        rendered_prompt=answer.rendered_prompt, answer=answer.text, answer_ids=tuple(answer.token_ids),
        thinking=answer.thinking, tool_calls=answer.tool_calls,
        is_finished=stored.state in ("stop", TOOL_CALLS), seed=answer.seed or 0, model=answer.model,
    )  # fmt: skip
