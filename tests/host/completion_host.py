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
from specchat.host import host_process
from specchat.host.spawn import runtime_folder
from specchat.profile.keys import Profile
from tests.host.fake import FakeLoader

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


class SlowLoader(FakeLoader):
    """A profile `late` takes a moment."""

    def load(self, profile: Profile, progress: Any, cancelled: Flag) -> Any:
        if profile.name == "late":
            time.sleep(0.6)
        return super().load(profile, progress, cancelled)

    def make_completer(self, engine: Any) -> Any:
        return FakeCompleter()


if __name__ == "__main__":
    host_process.configuration_hash = lambda: "fake"
    sys.exit(host_process.run_host(sys.argv[1:], SlowLoader()))
