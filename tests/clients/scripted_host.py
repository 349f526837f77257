"""A host process with a scripted model: `python -m tests.clients.scripted_host SCRIPT`.

The script is a JSON list of answers `{"text", "calls": [{"name", "arguments"}]}`. The number of earlier turns with
results of tools decides which one is given. A request without tools, such as one for a title, gets the last one without
its calls.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event as Flag
from typing import Any

from specchat.chat.events import Event, PrefillProgress
from specchat.chat.request import Request
from specchat.chat.transcript import Question
from specchat.host.host_process import run_host
from specchat.profile.keys import Profile
from tests.host.fake import FakeAnswer, FakeEngine, FakeLoader


class ScriptedAnswer(FakeAnswer):
    engine: ScriptedEngine

    def _events(self, request: Request, seed: int, cancelled: Flag) -> Iterator[Event]:
        done = sum(bool(each.tool_results) for each in (*self.turns, request))
        script = self.engine.script
        answer = script[min(done, len(script) - 1)] if request.tools else script[-1]
        yield PrefillProgress(3, 3)
        yield from self._step(answer["text"])
        if request.tools:
            yield from self._call([f"{call['name']} {json.dumps(call['arguments'])}" for call in answer["calls"]])


class ScriptedEngine(FakeEngine):
    def __init__(self, script: Sequence[Any]) -> None:
        super().__init__()
        self.script = script

    def answer(self, question: Question, cancelled: Flag) -> FakeAnswer:
        return ScriptedAnswer(self, question, cancelled)


class ScriptedLoader(FakeLoader):
    def __init__(self, script: Sequence[Any]) -> None:
        self.script = script

    def load(self, profile: Profile, progress: Callable[[Event], None], cancelled: Flag) -> FakeEngine:
        return ScriptedEngine(self.script)


if __name__ == "__main__":
    script = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.exit(run_host(sys.argv[2:], ScriptedLoader(script)))
