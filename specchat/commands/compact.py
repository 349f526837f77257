"""`/compact`: a conversation is summed up by the model, and goes on in a copy that begins with the summary.

Nothing is lost. The summary is asked for in a copy; the copy is then taken back to its beginning, where the summary is
its first question. The conversation itself stays as it was, and is gone back to when no summary comes.
"""

from __future__ import annotations

from functools import partial

from specchat.chat.events import Finished
from specchat.commands.talk import Reply, Talk, is_too_long
from specchat.errors import UsageError

QUESTION = (
    "Sum up this conversation for somebody who goes on with it and has not read it: what was asked, what was found or "
    "decided, names, numbers and file names as they were said, and what is still open. Write nothing else."
)
BEGINNING = "This is what was said before, summed up:\n\n{}\n\nWe go on from here. Say only that you are ready."
SHARE = 8  # of the window, which a summary may fill
READY_TOKENS = 16


def compact(talk: Talk, _argument: str) -> Reply:
    """Ask for a summary, in a copy."""
    conversation = talk.conversation
    if not conversation.turns():
        raise UsageError("nothing was said yet")
    whole = conversation.session
    conversation.switch(conversation.call("fork"))
    return _ask(talk, whole, left_out=0)


def _ask(talk: Talk, whole: str, left_out: int) -> Reply:
    talk.expect()
    talk.notice, talk.sources = "", ()
    request = talk.bare_request(QUESTION, max_tokens=talk.window // SHARE or None)
    return Reply(ask=request, then=partial(_begin_again, whole=whole, left_out=left_out))


def _begin_again(talk: Talk, whole: str, left_out: int) -> Reply:
    """With the summary; with a question less where not even that one fitted; else back to the conversation."""
    conversation, summary = talk.conversation, talk.answer.strip()
    turns = len(conversation.turns())
    more = max(1, left_out)
    if is_too_long(talk.ended) and turns > 1 + more:
        conversation.rewind(1 + more)  # the question for a summary is one of them
        return _ask(talk, whole, left_out + more)
    if not isinstance(talk.ended, Finished) or talk.ended.reason == "cancelled" or not summary:
        copy = conversation.session
        conversation.switch(conversation.call("open", {"session": whole}))
        conversation.call("delete", {"session": copy})
        return Reply("there is no summary; the conversation goes on as it was")
    conversation.rewind(turns)
    talk.expect()
    request = talk.bare_request(BEGINNING.format(summary), max_tokens=READY_TOKENS)
    return Reply(ask=request, then=partial(_tell, whole=whole, left_out=left_out))


def _tell(_talk: Talk, whole: str, left_out: int) -> Reply:
    missing = f"; the last {left_out} of its questions did not fit into the summary" if left_out else ""
    return Reply(f"this copy begins with the summary; /open {whole} is the whole conversation{missing}")
