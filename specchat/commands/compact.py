"""`/compact`: a conversation is summed up by the model, and goes on in a copy that begins with the summary.

Nothing is lost. The summary is asked for in a copy; the copy is then taken back to its beginning, where the summary is
its first question. The conversation itself stays as it was, and is gone back to when no summary comes.
"""

from __future__ import annotations

from functools import partial

from specchat.chat.events import Finished
from specchat.commands.chat_state import ChatState, CommandResult, is_context_overflow
from specchat.errors import UsageError

SUMMARY_PROMPT = (
    "Sum up this conversation for somebody who goes on with it and has not read it: what was asked, what was found or "
    "decided, names, numbers and file names as they were said, and what is still open. Write nothing else."
)
CONTINUE_PROMPT = "This is what was said before, summed up:\n\n{}\n\nWe go on from here. Say only that you are ready."
SUMMARY_WINDOW_DIVISOR = 8  # of the window, which a summary may fill
MAX_READY_TOKENS = 16


def compact(chat: ChatState, _argument: str) -> CommandResult:
    """Ask for a summary, in a copy."""
    conversation = chat.conversation
    if not conversation.turns():
        raise UsageError("nothing was said yet")
    whole = conversation.session_id
    conversation.switch_session(conversation.call("fork"))
    return _request_summary(chat, whole, left_out=0)


def _request_summary(talk: ChatState, whole: str, left_out: int) -> CommandResult:
    talk.start_answer()
    talk.attachment_notice, talk.passage_sources = "", ()
    request = talk.make_bare_request(SUMMARY_PROMPT, max_tokens=talk.context_window // SUMMARY_WINDOW_DIVISOR or None)
    return CommandResult(request=request, after_answer=partial(_continue_with_summary, whole=whole, left_out=left_out))


def _continue_with_summary(talk: ChatState, whole: str, left_out: int) -> CommandResult:
    """With the summary; with a question less where not even that one fitted; else back to the conversation."""
    conversation, summary = talk.conversation, talk.answer.strip()
    turns = len(conversation.turns())
    more = max(1, left_out)
    if is_context_overflow(talk.last_outcome) and turns > 1 + more:
        conversation.rewind(1 + more)  # the question for a summary is one of them
        return _request_summary(talk, whole, left_out + more)
    if not isinstance(talk.last_outcome, Finished) or talk.last_outcome.finish_reason == "cancelled" or not summary:
        copy = conversation.session_id
        conversation.switch_session(conversation.call("open", {"session": whole}))
        conversation.call("delete", {"session": copy})
        return CommandResult("there is no summary; the conversation goes on as it was")
    conversation.rewind(turns)
    talk.start_answer()
    request = talk.make_bare_request(CONTINUE_PROMPT.format(summary), max_tokens=MAX_READY_TOKENS)
    return CommandResult(request=request, after_answer=partial(_report_summary, whole=whole, left_out=left_out))


def _report_summary(_talk: ChatState, whole: str, left_out: int) -> CommandResult:
    missing = f"; the last {left_out} of its questions did not fit into the summary" if left_out else ""
    return CommandResult(f"this copy begins with the summary; /open {whole} is the whole conversation{missing}")
