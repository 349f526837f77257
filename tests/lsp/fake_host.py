"""The fake host, with completions that the last comment before the cursor chooses.

"# fill: x = 1"     that text at once; "\\n" in it is a newline
"# slowly: abc"     one character every few milliseconds, until it is cancelled
"# cut: abc"        that text, ended by the limit
"# continue: abc"   that text, by a model that does not fill gaps
"# crash"           an error
anything else       "filled"
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event as Flag
from typing import Any

from specchat.chat.events import Event, Finished, TextDelta, Totals
from specchat.chat.fim_request import FimRequest
from specchat.host.engine_interface import EngineLoader
from specchat.host.host_process import HostComponents, run_host
from specchat.host.spawn import runtime_folder
from specchat.profile import Profile
from tests.host.fake import LIBRARY, fake_load, name_of

PAUSE_SECONDS = 0.005


class FakeCompleter:
    """Returns the requested completion, and logs each request and how it ended."""

    def complete(self, gap: FimRequest, cancelled: Flag) -> Iterator[Event]:
        told = [line for line in gap.prefix.split("\n") if line.startswith("# ")]
        verb, _, text = (told[-1] if told else "# fill: filled").removeprefix("# ").partition(": ")
        if verb == "crash":
            raise RuntimeError("out of memory")
        note(f"asked {gap.prefix[-12:]!r} {gap.suffix[:12]!r} {gap.max_tokens} {gap.max_lines}")
        for letter in text.replace("\\n", "\n") if verb != "slowly" else text * 1000:
            yield TextDelta(letter)
            if verb == "slowly":
                time.sleep(PAUSE_SECONDS)
            if cancelled.is_set():
                note("cancelled")
                yield Finished("cancelled", Totals())
                return
        explanation = "the model continues" if verb == "continue" else ""
        yield Finished("length" if verb == "cut" else "stop", Totals(), explanation)

    def close(self) -> None:
        pass


def note(text: str) -> None:
    with Path(runtime_folder(), "asked").open("a") as file:
        file.write(text + "\n")


def slow_load(profile: Profile, progress: Any, cancelled: Flag) -> Any:
    """A profile `late` takes a moment."""
    if profile.name == "late":
        time.sleep(0.6)
    return fake_load(profile, progress, cancelled)


if __name__ == "__main__":
    loader = EngineLoader(slow_load, name_of, lambda _engine: FakeCompleter(), describe=name_of)
    sys.exit(run_host(HostComponents(LIBRARY, loader, lambda: "fake"), sys.argv[1:]))
