"""States of the screen at two widths: rows and styles, compared with stored frames.

No host, no clock: messages are queued by hand, so every number on the screen is defined here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import pytest
from textual.widgets import Input, TextArea

from specchat.acceptance_counts import Acceptance
from specchat.app.ask import Asked
from specchat.chat.events import (
    REPETITION,
    CommittedToken,
    Finished,
    LoadingProgress,
    PrefillProgress,
    Routed,
    StepDone,
    TextDelta,
    Totals,
)
from specchat.chat.repetition import EXPLANATION
from specchat.chat.request import Attachment, Request
from specchat.drawing.glyphs import ASCII, UNICODE, Glyphs
from specchat.history.history_reader import StoredAnswer, StoredTurn
from specchat.tui.app import ScreenFiles, SpecchatApp
from specchat.tui.conversation_presenter import EngineCrashed, ForScreen
from specchat.tui.session_list import SessionPreview, SessionsScreen
from specchat.tui.worker_messages import (
    AnswerEnded,
    ConversationOpened,
    EditFinished,
    EditProgress,
    EngineState,
    InputKind,
    InputRequest,
    TranscriptNote,
    WorkerMessage,
)
from tests.each_row import each_row
from tests.tui.conftest import CHAT, ScreenDriver
from tests.tui.frames import FOLDER, check, frame_of, text_of

SIZES = {"narrow": (60, 18), "wide": (124, 24)}
ANSWER = """Two steps:

1. read the *file*
2. `push` what it holds [not markup]

```python
def push(chunk: bytes) -> None:
    print("pushed", chunk)
```
"""
TOTALS = Totals(
    prompt_tokens=300, completion_tokens=412, steps=64, draft_tokens=448, acceptance=Acceptance((64, 58), (58, 42)),
    accepted_by_drafter={"lookup": 300, "draft": 67}, draft_seconds=0.4, verify_seconds=2.5, prefill_seconds=0.2,
    seconds=3.1, ttft_seconds=0.25, plain_decode_seconds=7.828,
)  # fmt: skip
STORED = StoredTurn(
    "1", None, {"text": "rename feed to push"}, StoredAnswer(ANSWER), "stop", {"completion_tokens": 40}, 0.0, 0.0
)
OPENED = ConversationOpened("aaaa", "refactor parser", "code", (), context_window=8192, model="Small-1B")
OLD = replace(OPENED, turns=(STORED,))


def step(accepted_count: int) -> StepDone:
    committed = (
        *(CommittedToken(id, b"x", "lookup") for id in range(accepted_count)),
        CommittedToken(9, b"x", "target"),
    )
    plain_seconds = 0.019 * (accepted_count + 1)
    return StepDone(tuple(range(8)), tuple(range(8)), committed, 0.004, 0.036, plain_seconds=plain_seconds)


def request_messages(text: str, *files: str) -> list[WorkerMessage]:
    request = Request(text, tuple(Attachment(name, "x") for name in files))
    return [
        OPENED,
        EngineState(None, 3 * 2**30),
        Asked(request),
        PrefillProgress(300, 300),
        Routed("lookup", 8, "why", 7),
    ]


WRITING = [
    *request_messages("rename feed to push", "src/parser.py"),
    TextDelta(ANSWER[:90]),
    *(step(kept) for kept in (8, 2, 7, 8, 0)),
]
REPEATS = "And so on.\nAnd so on.\n"
LOOPED = [
    *WRITING, TextDelta(ANSWER[90:] + REPEATS),
    Finished(REPETITION, replace(TOTALS, repeated_tokens=30), EXPLANATION, len(REPEATS)), AnswerEnded(is_stored=True),
    TranscriptNote(EXPLANATION),
]  # fmt: skip
ANSWERED = [*WRITING, TextDelta(ANSWER[90:]), Finished("stop", TOTALS), AnswerEnded(is_stored=True)]


def drafted_step(accepted: str, target_text: str, rejected: str = "", source: str = "lookup") -> StepDone:
    """A step: accepted draft tokens, the token of the target, and the rejected draft token there."""
    words = [word.encode() for word in [*accepted.split("|"), rejected] if word]
    ids, accepted_count = tuple(range(1, len(words) + 1)), len(words) - bool(rejected)
    committed = [
        CommittedToken(id, word, source) for id, word in zip(ids[:accepted_count], words[:accepted_count], strict=True)
    ]
    target_token = CommittedToken(99, target_text.encode(), "target")
    parents, sources = tuple(range(len(ids))), (source,) * len(ids)
    return StepDone(ids, parents, (*committed, target_token), 0.0003, 0.0098, tuple(words), sources)


INSPECTED = [
    *request_messages("rename feed to push"),
    drafted_step("", "class"),
    drafted_step(" Parser|:|\n|    def", " push", " feed"),
    drafted_step("(self|, chunk", ":", "):"),
    drafted_step(" bytes|) -> None:|\n", "        ", source="draft"),
    drafted_step("self|.text| +=| chunk", "\n"),
    Finished("stop", TOTALS),
    AnswerEnded(is_stored=True),
]


@dataclass(frozen=True)
class State:
    """The messages that arrive, and an action after them."""

    name: str
    messages: list[WorkerMessage]
    action: Callable[[ScreenDriver], object] = lambda _seat: None
    glyphs: Glyphs = UNICODE


def list_sessions(driver: ScreenDriver) -> None:
    same = {"updated": 1e9, "kind": "chat", "model": "starter", "folder": "/home/ada/parser", "snippet": ""}
    names = (("aaaa", "refactor parser", 12), ("bbbb", "poems", 1))
    rows = [{"id": id, "name": name, "turn_count": turns, **same} for id, name, turns in names]
    screen = driver.app.screen
    screen.call_later(screen.receive_rows, "", {"sessions": rows})
    screen.call_later(screen.query_one(SessionPreview).show_session, "aaaa")
    screen.call_later(screen.query_one(SessionPreview).show_turn, "aaaa", STORED)


HUNK = """src/parser.py · hunk 2/3 · lines 18-22
     def __init__(self) -> None:
-    def feed(self, chunk):
+    def push(self, chunk: bytes) -> None:
         self.text += chunk
"""
OVER = AnswerEnded(is_stored=False)
EDIT = "/edit src/parser.py rename feed to push"


def edit_messages(*messages: WorkerMessage) -> Callable[[ScreenDriver], Awaitable[None]]:
    """An edit was started, and these messages followed."""

    async def begin(driver: ScreenDriver) -> None:
        await driver.chat.presenter.start_turn(EDIT)
        for each in messages:
            driver.app.worker_messages.put(each)
        await driver.wait_until(lambda: driver.app.worker_messages.is_empty)

    return begin


def show_question(question: str) -> Callable[[ScreenDriver], Awaitable[None]]:
    """A yes-no question is shown."""

    async def ask(driver: ScreenDriver) -> None:
        driver.app.worker_messages.put(InputRequest(InputKind.YES_NO, "", question))
        await driver.wait_until(lambda: driver.app.worker_messages.is_empty)

    return ask


LOADS = "this loads other models; go on?\n  org/name (15.3 GiB, on this disk)\n  org/small (1.1 GiB, not on this disk)"
STATES = [
    State("empty", [OPENED, EngineState(None, 0)]),
    State("loading", [OPENED, EngineState(LoadingProgress("target", 0, 0), 0), LoadingProgress("target", 3, 8)]),
    State("reading", [*request_messages("rename feed to push")[:3], PrefillProgress(2100, 5400)]),
    State("writing", WRITING),
    State("answered", ANSWERED),
    State("ascii", ANSWERED, glyphs=ASCII),
    State("slow", [*WRITING, *(StepDone((), (), (CommittedToken(1, b"x", "target"),), 0.0, 0.05) for _ in range(64))]),
    State("stopped", [*WRITING, Finished("cancelled", TOTALS), AnswerEnded(is_stored=True)]),
    State(
        "noting", [OLD, TranscriptNote("variant: plain"), TranscriptNote("the history cannot be read", is_error=True)]
    ),
    State("rewinding", [OLD], lambda driver: driver.press("escape", "escape")),
    State(
        "broken",
        [OLD],
        lambda driver: driver.chat.post_message(
            ForScreen(EngineCrashed("the engine process died", driver.turns[0].question_ref))
        ),
    ),
    State("editing", [OLD], lambda driver: driver.press("shift+tab", "e")),
    State("completing", [OPENED], lambda driver: driver.press("slash", "e", "x")),
    State("looped", LOOPED),
    State("rewriting", [OLD], edit_messages(EditProgress("74 % · 281/380 lines · 3 hunks · 5 s left"))),
    State(
        "reviewing", [OLD], edit_messages(InputRequest(InputKind.KEY, "[y,n] ", HUNK, "look closely: comments lost: 1"))
    ),
    State(
        "commenting",
        [OLD],
        edit_messages(InputRequest(InputKind.LINE, "what should be different? ", HUNK)),
        glyphs=ASCII,
    ),
    State("correcting", [OLD], edit_messages(InputRequest(InputKind.TEXT, "    def push(self):\n", HUNK))),
    State(
        "changed",
        [OLD],
        edit_messages(
            EditFinished("applied 2/3 hunks to src/parser.py · /undo 7 undoes it"), AnswerEnded(is_stored=False)
        ),
    ),
    State("inspecting", INSPECTED, lambda driver: driver.press("f3", "right", "d")),
    State("marking", INSPECTED, lambda driver: driver.press("f3", "right", "right", "s"), glyphs=ASCII),
    State("consenting", [OLD], show_question(LOADS)),
    State("sessions", [OPENED], lambda driver: driver.press("ctrl+r")),
]


@pytest.fixture(autouse=True)
def frozen_environment(monkeypatch):
    """No clock, no host, no profile of this machine, no colours of this terminal."""
    for name in ("NO_COLOR", "TEXTUAL_THEME", "TEXTUAL_ANIMATIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("specchat.tui.session_list.time.localtime", lambda _seconds: (2026, 1, 2, 3, 4, 5, 4, 2, 0))
    shown = {"__version__": "1.2.3", "short_folder": "~/shop", "git_branch": "main", "example_question": "Why?"}
    for name, value in shown.items():
        stub = value if name == "__version__" else lambda _folder, value=value: value
        monkeypatch.setattr(f"specchat.app.welcome.{name}", stub)
    for module in ("conversation_presenter", "chat_screen"):
        monkeypatch.setattr(f"specchat.tui.{module}.monotonic", lambda: 100.0)
    monkeypatch.setattr("specchat.tui.conversation_presenter.thread_time", lambda: 0.0)
    monkeypatch.setattr(TextArea, "_toggle_cursor_blink_visible", lambda _self: None)
    monkeypatch.setattr(Input, "_toggle_cursor", lambda _self: None)
    for part in ("session_worker.SessionWorker", "background_requests.BackgroundRequests"):
        monkeypatch.setattr(f"specchat.tui.{part}.start", lambda _self: None)


async def frame(state: State, size: tuple[int, int], folder) -> str:
    """The frame when all messages are shown."""
    app = SpecchatApp(CHAT, ScreenFiles.next_to(folder / "history.db"), state.glyphs)
    async with app.run_test(size=size) as pilot:
        driver = ScreenDriver(app, pilot)
        for message in state.messages:
            app.worker_messages.put(message)
        await all_shown(driver)
        done = state.action(driver)
        if asyncio.iscoroutine(done):
            await done
        if isinstance(app.screen, SessionsScreen):
            list_sessions(driver)
        await all_shown(driver)
        driver.chat.presenter.update_status_bar()
        await pilot.pause()
        return frame_of(app.screen)


BLOCKS = "- a\n- b\n\n> quoted\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n---\n\n# Title\n\n"


@each_row("answer, size", [(BLOCKS, (80, 40)), (ANSWER * 3, SIZES["narrow"])])
def test_in_ascii_nothing_is_drawn_with_other_characters(answer, size, tmp_path):
    state = State(
        "",
        [*request_messages("?"), TextDelta(answer), Finished("stop", TOTALS), AnswerEnded(is_stored=True)],
        glyphs=ASCII,
    )

    assert text_of(asyncio.run(frame(state, size, tmp_path))).isascii()


async def all_shown(driver: ScreenDriver) -> None:
    await driver.wait_until(lambda: driver.app.worker_messages.is_empty and not driver.chat.presenter.unshown_text)
    await driver.wait_until(lambda: all(turn.is_final for turn in driver.turns if turn.is_finished))
    for _ in range(4):
        await driver.pilot.pause(0)
    await driver.pilot.pause()


@pytest.mark.dear
@pytest.mark.parametrize(
    "width", [pytest.param(width, marks=pytest.mark.full if width == "wide" else ()) for width in SIZES]
)
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_the_screen_looks_as_it_did(state, width, tmp_path):
    drawn = asyncio.run(frame(state, SIZES[width], tmp_path))

    check(f"{state.name}-{width}", drawn)


def test_every_stored_frame_is_of_a_state():
    assert {f"{state.name}-{width}.txt" for state in STATES for width in SIZES} == {
        path.name for path in FOLDER.iterdir()
    }


def test_a_frame_that_changed_is_shown_with_what_changed(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.tui.frames.FOLDER", tmp_path)
    monkeypatch.delenv("REFRESH_SNAPSHOTS", raising=False)
    (tmp_path / "x.txt").write_text("| a\n~ a\n\na #ffffff\ndrawn by textual 1.0\n")

    check("x", "| a\n~ b\n\nb #000000\ndrawn by textual 2.0\n")
    with pytest.raises(AssertionError, match=r"-\| a\n\+\| b(.|\n)*REFRESH_SNAPSHOTS=1"):
        check("x", "| b\n~ a\n\na #ffffff\ndrawn by textual 1.0\n")
