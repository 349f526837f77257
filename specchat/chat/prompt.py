"""The prompt of the next turn, as tokens.

The tokens of a conversation are stored and only extended, because a text has several tokenizations and the KV cache
contains the one that the model generated. While the chat template renders the past unchanged, the next prompt is the
stored tokens and those of the new end. When a template changes the past (trims answers, drops thinking), the whole
prompt is encoded again, and the KV cache still serves the common prefix.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from specchat.chat.attachments import with_attachments
from specchat.chat.reference_corpus import ReferenceCorpus, with_passages
from specchat.chat.request import Request
from specchat.chat.tool_prompt import answered_calls, call_fields, describe_tools, result_messages, spell_out
from specchat.chat.tools import ToolCall
from specchat.chat.transcript import Turn
from specchat.errors import InputError
from specchat.text.chat_format import AUTO_THINKING, Message
from specchat.text.tokenizer import Tokenizer
from specchat.text.tool_formats import ToolFormat


@dataclass(frozen=True)
class NextPrompt:
    """The tokens of the next prompt, with the given beginning of the answer at their end."""

    token_ids: list[int]
    rendered_prompt: str  # without the beginning of the answer
    opens_thought: bool = False  # the answer continues a thought that the prompt has opened


def build_next_prompt(
    tokenizer: Tokenizer,
    system: str,
    turns: Sequence[Turn],
    request: Request,
    reference_corpus: ReferenceCorpus | None = None,
    thinking: str = AUTO_THINKING,
) -> NextPrompt:
    """The prompt of the next turn. A question without files gets passages of the reference corpus.

    A given beginning of the answer follows the generation prompt, as the first part of the answer. With `thinking`
    "off", the prompt has the end of the thought, so that the model begins with the answer.
    """
    messages = _messages(turns, request, reference_corpus, tokenizer.chat.tool_format)
    rendered = _render(tokenizer, system, messages, thinking, request)
    if thinking == "off" and (marks := tokenizer.chat.thinking):
        rendered += marks.without_thought(rendered, is_call=bool(request.forced_schemas))
    last = turns[-1] if turns else Turn("")
    ids = _append_to_last_turn(tokenizer, last, rendered) or tokenizer.encode(rendered, parse_special=True)
    prefix_ids = tokenizer.encode_continuation(tokenizer.control_tokens.escape(request.answer_prefix))
    opens_thought = tokenizer.chat.thinking is not None and tokenizer.chat.thinking.is_open(rendered)
    return NextPrompt([*ids, *prefix_ids], rendered, opens_thought)


def as_read_by(model: str, turns: Sequence[Turn]) -> Sequence[Turn]:
    """The turns without the tokens of another model, which may have another vocabulary; the text is encoded again."""
    if not turns or turns[-1].model in ("", model):
        return turns
    return [*turns[:-1], replace(turns[-1], prompt_ids=(), answer_ids=())]


def _append_to_last_turn(tokenizer: Tokenizer, last: Turn, rendered: str) -> list[int] | None:
    """The tokens so far and those of the new end; None when the template changed the past.

    The new end starts with the end token of the answer, so the end token that the model generated is dropped.
    """
    end = _end_of_calls(tokenizer, last, rendered) if last.tool_calls else _end_of_answer(tokenizer, last, rendered)
    if end is None or not last.prompt_ids:
        return None
    ids = last.token_ids[:-1] if last.answer_ids and last.answer_ids[-1] in tokenizer.stop_token_ids else last.token_ids
    return [*ids, *tokenizer.encode_continuation(rendered[end:])]


def _end_of_answer(tokenizer: Tokenizer, last: Turn, rendered: str) -> int | None:
    """Where the last answer ends in the new prompt; None if the prompt does not have it as the model wrote it."""
    answer = _rendered_answer(tokenizer, last)
    spaces = ("", " ") if tokenizer.strips_first_space else ("",)
    pasts = [last.rendered_prompt + space + answer for space in spaces]
    return next((len(text) for text in pasts if rendered.startswith(text)), None)


def _end_of_calls(tokenizer: Tokenizer, last: Turn, rendered: str) -> int | None:
    """As `_end_of_answer`, of an answer with tool calls.

    A template writes the calls anew, with other spaces and perhaps in another order, so they are not compared: they
    were parsed from the tokens that are kept. The end token is the first one, because no text contains any.
    """
    start = len(last.rendered_prompt)
    end = tokenizer.find_stop_token(rendered, start)
    if end is None or not rendered.startswith(last.rendered_prompt):
        return None
    answer, at = rendered[start:end], 0
    for text in (last.thinking, last.answer):
        escaped = tokenizer.control_tokens.escape(text.strip())
        if (at := answer.find(escaped, at)) < 0:
            return None
        at += len(escaped)
    if marks := tokenizer.chat.thinking:
        is_thought = marks.closing in tokenizer.generated_text(last.answer_ids)
        if is_thought != (marks.closing in answer):
            return None
    return end


def _rendered_answer(tokenizer: Tokenizer, turn: Turn) -> str:
    """The answer as a rendered prompt contains it, if the template keeps it whole: with its thought."""
    generated = tokenizer.generated_text(turn.answer_ids) if tokenizer.chat.thinking else ""
    if turn.answer.endswith(generated):
        return tokenizer.control_tokens.escape(turn.answer)
    return tokenizer.chat.escape_answer(generated)


def _messages(
    turns: Sequence[Turn], request: Request, reference_corpus: ReferenceCorpus | None, tool_format: ToolFormat
) -> list[Message]:
    messages: list[Message] = []
    calls: Sequence[ToolCall] = ()
    asked = Turn.of_request(request)
    for turn in (*turns, asked):
        results = answered_calls(calls, turn.tool_results)
        messages += result_messages(results, tool_format)
        if turn.user.strip() or not results:
            messages.append({"role": "user", "content": _user_content(turn, reference_corpus)})
        if turn is not asked:
            messages.append(_answer_message(turn, tool_format))
        calls = turn.tool_calls
    return messages


def _answer_message(turn: Turn, tool_format: ToolFormat) -> Message:
    """The answer, and what the model thought: the template decides whether the model reads that again."""
    thought = {"thinking": turn.thinking} if turn.thinking else {}
    calls = {"tool_calls": call_fields(turn.tool_calls, tool_format)} if turn.tool_calls else {}
    return {"role": "assistant", "content": turn.answer, **thought, **calls}


def _user_content(turn: Turn, reference_corpus: ReferenceCorpus | None) -> str:
    if reference_corpus is None or turn.files:
        return with_attachments(turn.user, turn.files, turn.task)
    return with_passages(turn.user, reference_corpus.search(turn.user))


def _render(tokenizer: Tokenizer, system: str, messages: list[Message], thinking: str, request: Request) -> str:
    """The conversation as text; a template without tools gets them as text.

    If the template has no system role, the system prompt precedes the first question.
    """
    tools = [tool.to_template() for tool in request.offered_tools]
    if not tokenizer.chat.reads_tools:
        described = describe_tools(request.offered_tools, request.answer_tool) if tools else ""
        tools, messages = [], spell_out(messages)
        system = "\n\n".join(filter(None, [system.strip(), described]))
    render = partial(tokenizer.chat.render, thinking=thinking, tools=tools)
    if not system.strip():
        return render(messages)
    try:
        rendered = render([{"role": "system", "content": system}, *messages])
    except InputError:
        rendered = ""
    if tokenizer.control_tokens.escape(system.strip()) in rendered:
        return rendered
    if messages[0]["role"] != "user":  # a conversation that begins with the results of tools
        messages = [{"role": "user", "content": system}, *messages]
    else:
        messages = [{"role": "user", "content": f"{system}\n\n{messages[0]['content']}"}, *messages[1:]]
    return render(messages)
