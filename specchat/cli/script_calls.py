"""Calls of tools for a program: updates of the Agent Client Protocol, as JSON objects."""

from __future__ import annotations

from pathlib import Path

from specchat.app.agent.agent_loop import AgentEvent, CallFinished, CallStarted, LoopEnded
from specchat.app.agent.call_lines import call_kind
from specchat.host.protocol import JsonObject


def line_of_agent_event(event: AgentEvent) -> JsonObject | None:
    """The line for an event of the agent; None for one that the next answer shows."""
    match event:
        case CallStarted(call=call, summary=summary, path=path):
            start = {"title": summary, "kind": call_kind(call), "status": "in_progress"}
            locations = [{"path": str(Path.cwd() / path)}] if path else []
            return _update("tool_call", call.id, {**start, "locations": locations})
        case CallFinished(call=call, outcome=outcome, change=change):
            content: list[JsonObject] = []
            if change:
                old = {} if change.old is None else {"oldText": change.old}
                content.append({"type": "diff", "path": str(Path.cwd() / change.path), **old, "newText": change.new})
            content.append({"type": "content", "content": {"type": "text", "text": outcome.text}})
            status = "failed" if outcome.is_error else "completed"
            return _update("tool_call_update", call.id, {"status": status, "content": content})
        case LoopEnded(reason=reason):
            return {"type": "event", "event": "ended_early", "reason": reason}
        case _:
            return None


def _update(kind: str, call_id: str, fields: JsonObject) -> JsonObject:
    return {"type": "update", "update": {"sessionUpdate": kind, "toolCallId": call_id, **fields}}
