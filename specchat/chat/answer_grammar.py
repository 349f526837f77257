"""The grammar of an answer: the format that a request asks for, the limit of a thought, the calls that follow it."""

from specchat.chat.drafted_text import LoadedModels
from specchat.chat.request import EDIT_TASKS, AnswerFormat, Request
from specchat.engine.grammar import Grammar
from specchat.profile import Prompt
from specchat.text.llguidance_grammar import json_schema_grammar, lark_grammar, regex_grammar
from specchat.text.thinking_budget import make_thinking_budget
from specchat.text.tool_grammar import forced_call_grammar, free_call_grammar

THINKING_SHARE = 0.75  # of the tokens of an answer: a thought without a limit of its own leaves the rest for the text


def thinking_of(request: Request, prompt: Prompt) -> str:
    """Whether the model thinks before this answer; not where its beginning or its form is given, as that of an edit."""
    if request.answer_prefix or request.answer_format or request.forced_schemas or request.task in EDIT_TASKS:
        return "off"
    return request.thinking or prompt.thinking


def format_grammar(answer_format: AnswerFormat | None, models: LoadedModels) -> Grammar | None:
    """That of the required format. UsageError for a schema or a regular expression that cannot be one."""
    if answer_format is None:
        return None
    tokenizer = models.tokenizer
    match answer_format.kind:
        case "schema":
            make_grammar, text = json_schema_grammar, answer_format.text
        case "lark":
            make_grammar, text = lark_grammar, answer_format.text
        case _:
            make_grammar, text = regex_grammar, answer_format.regex
    return make_grammar(text, tokenizer.folder, _columns(models), tokenizer.stop_token_ids)


def thought_and_call_grammar(
    request: Request, models: LoadedModels, limit: int, *, opens_thought: bool
) -> Grammar | None:
    """The call that the request forces, or the limit of the thought and the calls behind it; None without any."""
    tokenizer, schemas, columns = models.tokenizer, request.forced_schemas, _columns(models)
    if schemas:
        return forced_call_grammar(tokenizer, schemas, columns, limit, is_lenient=bool(request.answer_tool))
    limit_of_thought = models.profile.prompt.thinking_tokens or int(limit * THINKING_SHARE)
    thought = make_thinking_budget(tokenizer, limit_of_thought, columns, is_open=opens_thought)
    offered = {tool.name: tool.schema for tool in request.offered_tools}
    return (free_call_grammar(tokenizer, offered, columns, thought) if offered else None) or thought


def _columns(models: LoadedModels) -> int:
    """Of the logits, which may be more than the tokens of the vocabulary."""
    return max(models.tokenizer.vocab_size, models.target.vocab_size)
