"""`/compact`: the model summarizes the conversation, which then continues in a copy that begins with the summary.

Nothing is lost. The request for a summary is sent in a fork of the conversation. The fork is then rewound to its
beginning, and the summary becomes its first request. If no summary comes, the original conversation is opened again.
"""

from functools import partial

from specchat.app.chat_state import ChatState, CommandResult, is_context_overflow
from specchat.chat.events import Finished
from specchat.chat.request import Request
from specchat.errors import UsageError

SUMMARY_PROMPT = (
    "Summarize this conversation for a reader who continues it and has not read it: the requests, what was found or "
    "decided, the exact names, numbers and file names, and what is still open. Write nothing else."
)
CONTINUE_PROMPT = (
    "This is a summary of the conversation so far:\n\n{}\n\nContinue from here. Answer only that you are ready."
)
SUMMARY_WINDOW_DIVISOR = 8  # a summary may fill an eighth of the context window
MAX_READY_TOKENS = 16


def compact(chat: ChatState, _argument: str) -> CommandResult:
    conversation = chat.conversation
    if not conversation.turns():
        raise UsageError("this conversation is empty")
    original_session = conversation.session_id
    conversation.switch_session(conversation.call("fork"))
    return _request_summary(chat, original_session, dropped_turns=0)


def _request_summary(chat: ChatState, original_session: str, dropped_turns: int) -> CommandResult:
    chat.start_answer()
    limit = chat.conversation.window_tokens // SUMMARY_WINDOW_DIVISOR
    request = Request(SUMMARY_PROMPT, max_tokens=limit)
    proceed = partial(_continue_with_summary, original_session=original_session, dropped_turns=dropped_turns)
    return CommandResult(request=request, after_answer=proceed)


def _continue_with_summary(chat: ChatState, original_session: str, dropped_turns: int) -> CommandResult:
    """Begin the copy with the summary; if the request did not fit, drop turns and retry; else restore the original."""
    conversation, summary = chat.conversation, chat.answer.strip()
    turns = len(conversation.turns())
    drop_count = max(1, dropped_turns)
    if is_context_overflow(chat.last_outcome) and turns > 1 + drop_count:
        conversation.rewind(1 + drop_count)  # the request for a summary is one of these turns
        return _request_summary(chat, original_session, dropped_turns + drop_count)
    if not isinstance(chat.last_outcome, Finished) or chat.last_outcome.finish_reason == "cancelled" or not summary:
        fork = conversation.session_id
        conversation.switch_session(conversation.call("open_session", {"session": original_session}))
        conversation.call("delete", {"session": fork})
        return CommandResult("there is no summary; the conversation goes on as it was")
    conversation.rewind(turns)
    chat.start_answer()
    request = Request(CONTINUE_PROMPT.format(summary), max_tokens=MAX_READY_TOKENS)
    report = partial(_report_summary, original_session=original_session, dropped_turns=dropped_turns)
    return CommandResult(request=request, after_answer=report)


def _report_summary(_chat: ChatState, original_session: str, dropped_turns: int) -> CommandResult:
    missing = f"; the last {dropped_turns} of its questions did not fit into the summary" if dropped_turns else ""
    whole = f"/open {original_session} is the whole conversation"
    return CommandResult(f"this copy begins with the summary; {whole}{missing}")
