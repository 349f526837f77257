"""The tool calls of a conversation as an editor shows them again: title, kind, files, diff and result.

The history holds calls and their results; what an editor was shown beside them is stored here. A call of another front
end is made from the history alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from acp.schema import ToolCallStart

from specchat.app import updates
from specchat.app.agent.agent_tool import short
from specchat.app.updates import call_kind
from specchat.chat.tools import ToolCall
from specchat.context.workspace_roots import WorkspaceRoots
from specchat.history.history_reader import StoredTurn
from specchat.host.protocol import JsonObject
from specchat_editors.acp.session_log import SessionLog

MAX_CALL_BYTES = 2**20  # a larger call is stored without its diff
CALL_LOG = SessionLog("acp-calls", max_lines=200)


def log_calls(session: str, calls: Iterable[JsonObject]) -> None:
    """Store calls in their last state; one that has not ended counts as failed."""
    if lines := [_to_line(call) for call in calls]:
        CALL_LOG.append(session, *lines)


def shown_calls(session: str, turns: Sequence[StoredTurn], workspace: WorkspaceRoots) -> Mapping[str, JsonObject]:
    """All calls of these turns by their ids."""
    results = {str(each.get("call_id")): each for turn in turns for each in turn.request.get("tool_results") or ()}
    made = (_from_history(call, results.get(call.id), workspace) for turn in turns for call in turn.answer.tool_calls)
    return {call["toolCallId"]: call for call in (*made, *_logged_calls(session))}


def _logged_calls(session: str) -> Iterator[JsonObject]:
    for line in CALL_LOG.lines(session):
        try:
            call = json.loads(line)
            ToolCallStart.model_validate(call)
        except ValueError:  # a line of another version, or half a line
            continue
        yield call


def _to_line(call: JsonObject) -> str:
    call = {**call, "status": updates.COMPLETED if call["status"] == updates.COMPLETED else updates.FAILED}
    line = json.dumps(call)
    if len(line) > MAX_CALL_BYTES:
        line = json.dumps({**call, "content": [each for each in call.get("content", ()) if each["type"] != "diff"]})
    return line


def _from_history(call: ToolCall, result: Mapping[str, Any] | None, workspace: WorkspaceRoots) -> JsonObject:
    status = updates.COMPLETED if result and not result.get("is_error") else updates.FAILED
    shown = updates.tool_call(call.id, short(f"{call.name} {call.arguments}"), call_kind(call), status)
    if result:
        shown["content"] = [updates.text_content(str(result.get("text", "")))]
    path = _path_in(call.arguments)
    shown["locations"] = [{"path": str(workspace.path_of(path))}] if path else []
    return shown


def _path_in(arguments: str) -> str:
    try:
        match json.loads(arguments):
            case {"path": str(path)}:
                return path
            case _:
                return ""
    except (ValueError, RecursionError):
        return ""
