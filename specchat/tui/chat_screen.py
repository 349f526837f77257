"""The screen of a conversation: what was said, the prompt, one line of numbers.

What a person does goes to the partner and comes back as news, which `hearing.py` shows. Nothing waits for an engine.
"""

from __future__ import annotations

from pathlib import Path
from threading import Event as Flag
from time import monotonic
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.css.query import NoMatches
from textual.message import Message
from textual.screen import Screen
from textual.widgets import OptionList, Static

from specchat.commands.registry import COMMAND, FILE_COMMANDS
from specchat.tui import choice_lists
from specchat.tui.approval import Approval
from specchat.tui.background_requests import Errands
from specchat.tui.bottom_area import Slot
from specchat.tui.clipboard import copy
from specchat.tui.code_block_header import CodeHead
from specchat.tui.completion_list import CompletionList
from specchat.tui.glyphs import Glyphs, visible
from specchat.tui.inspector import WIDEST_BESIDE, Inspector
from specchat.tui.inspector_source import Inspecting
from specchat.tui.message_handlers import Asks, Broken, Goes, Hearing, NoEngine, Over
from specchat.tui.messages import Mailbox
from specchat.tui.picker import Picker
from specchat.tui.prompt_history import read_questions, remember_question
from specchat.tui.prompt_input import PromptBox
from specchat.tui.screen_commands import action_of, help_text
from specchat.tui.session_list import SessionsScreen
from specchat.tui.session_worker import Partner
from specchat.tui.smooth_stream import TICK_SECONDS
from specchat.tui.status_widget import StatusBar
from specchat.tui.token_view import TokenView
from specchat.tui.transcript_view import Transcript
from specchat.tui.turn_widget import Asked, TurnView, code_blocks

TWICE_SECONDS = 2.0  # within which a key counts as pressed twice
SHORT_LINES = 12
BUSY = "an answer is being written; Esc stops it"
DECIDE = "something is to be decided on first"
HINT = "Enter sends, Ctrl+J new line, @ file, / command"


class ChatScreen(Screen[None]):
    """One conversation."""

    HELP = "Esc stops an answer and keeps what was said. Ctrl+C stops, clears, and leaves when pressed twice."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "stop, back", id="stop"),
        Binding("ctrl+c", "interrupt", "stop, clear, leave", priority=True, id="interrupt"),
        Binding("f1", "toggle_help", "keys", id="help"),
        Binding("ctrl+r,f2", "open_sessions", "conversations", id="sessions"),
        Binding("f3", "inspect", "who guessed it", id="inspect"),
        Binding("f4", "choose('variant')", "who guesses", id="variant"),
        Binding("f5", "choose('profile')", "profile", id="profile"),
        Binding("f8", "choose('theme')", "colours", id="theme"),
        Binding("ctrl+o", "choose('question')", "earlier questions", id="history"),
        Binding("pageup", "scroll(-1)", "scroll", show=False, priority=True),
        Binding("pagedown", "scroll(1)", "scroll", show=False, priority=True),
        Binding("ctrl+home", "show_older", "older", show=False, priority=True),
        Binding("ctrl+end", "follow", "newest", show=False, priority=True),
    ]

    class Arrived(Message):
        """There is news."""

    class Tick(Message):
        """Time to look. A message, for a call by the timer would be cut off when the screen closes."""

    def __init__(self, partner: Partner, errands: Errands, mailbox: Mailbox, glyphs: Glyphs, remembered: Path) -> None:
        super().__init__()
        self._partner, self._errands, self._mailbox, self._glyphs = partner, errands, mailbox, glyphs
        self._remembered, self._past, self.hearing = remembered, list[str](), Hearing(self, glyphs)
        self._inspecting = Inspecting(self, self.hearing, errands, glyphs)
        self._cancelled = Flag()
        self._waiting: list[str] = []
        self._editing: Asked | None = None
        self._leaving = self._escaped = float("-inf")
        self._is_reminded = False

    def compose(self) -> ComposeResult:
        """Title, transcript, prompt, numbers."""
        completion_list = CompletionList()
        with Horizontal(id="head"):
            yield Static("specchat", id="title", markup=False)
            yield Static("", id="about", markup=False)
        yield Transcript(self._glyphs)
        yield Static("", id="waiting", markup=False)
        yield Slot(self._glyphs, completion_list)
        yield StatusBar(self._glyphs)
        yield completion_list

    def on_mount(self) -> None:
        """The first frame comes before the host is looked for."""
        self.set_class(self._glyphs.ascii, "-ascii")
        self._past = read_questions(self._remembered)
        self.prompt.placeholder = HINT
        self.prompt.remember(self._past)
        self.prompt.focus()
        self.hearing.gauge.wait("starting the engine", monotonic())
        self._timer = self.set_interval(TICK_SECONDS, self._remind)
        self._partner.begin()
        self._errands.begin()

    def on_resize(self) -> None:
        """Title and rules give way on a small screen; on a wide one there is room beside the conversation."""
        self.set_class(self.size.height < SHORT_LINES, "-short")
        self.set_class(self.size.width >= WIDEST_BESIDE, "-beside")

    @property
    def prompt(self) -> PromptBox:
        """Where questions are written."""
        return self._slot.prompt

    @property
    def _slot(self) -> Slot:
        return self.query_one(Slot)

    @property
    def transcript(self) -> Transcript:
        """What was said."""
        return self.query_one(Transcript)

    def _remind(self) -> None:
        if not self._is_reminded:
            self._is_reminded = True
            self.post_message(self.Tick())

    async def on_chat_screen_tick(self) -> None:
        """Take what arrived; sleep when there is nothing to wait for."""
        self._is_reminded = False
        await self.hearing.tick(self._mailbox.take())
        self._inspecting.follow()
        if self.hearing.is_quiet and self._mailbox.is_empty:
            self._timer.pause()

    def on_chat_screen_arrived(self) -> None:
        """Look into the mailbox with the next ticks."""
        self._timer.resume()

    def submit(self, text: str) -> None:
        """A question or a command, as soon as nothing else is being drawn."""
        self.call_later(self._submit, text)

    async def _submit(self, text: str) -> None:
        """Carry it out, ask it, or let it wait."""
        found = COMMAND.match(text.strip())
        action = action_of(found["name"], (found["argument"] or "").strip()) if found else None
        if found and found["name"] == "help":
            await self.transcript.tell(help_text())
        elif action:
            await self.run_action(action)
        elif self.hearing.turn is not None:
            self._waiting.append(text)
        elif found and found["name"] in FILE_COMMANDS:
            await self._change(text)
        elif self._editing is not None and not found:
            await self._ask_again(self._editing, text)
        else:
            await self._ask(text, is_question=not found)
        self._show_waiting()

    async def _ask(self, text: str, *, is_question: bool) -> None:
        self._cancelled = Flag()
        if is_question:
            await self.hearing.begin(text)
        self._partner.say(text, self._cancelled)
        self._timer.resume()

    async def _change(self, line: str) -> None:
        """A command about files; it stands in the transcript like a question, and is no part of the conversation."""
        self._editing, self._cancelled = None, Flag()
        await self.hearing.begin(line)
        self._partner.change(line, self._cancelled)
        self._timer.resume()

    @on(Asks)
    async def show_query(self, event: Asks) -> None:
        """Something is to be decided on, where the prompt was; what is written there stays."""
        if approval := self._slot.approval:
            approval.ask(event.query)
        else:
            await self._slot.swap(Approval(event.query, self._glyphs, choice_lists.GRACE_SECONDS))

    @on(Goes)
    def show_progress(self, event: Goes) -> None:
        """Also where a hunk is being written again."""
        if approval := self._slot.approval:
            approval.tell(event.line)

    @on(Approval.Said)
    def answer(self, event: Approval.Said) -> None:
        """Whoever edits hears it."""
        self._partner.answer(event.text)

    async def _ask_again(self, asked: Asked, text: str) -> None:
        """In the place of that question, or after all when it is no part of the conversation."""
        self._editing, self._cancelled = None, Flag()
        if COMMAND.match(text.strip()):
            await self._submit(text)
            return
        if asked.position is None:
            await self._ask(text, is_question=True)
            return
        self._partner.ask_again(asked.position, text, self._cancelled)
        self._timer.resume()

    @on(Over)
    async def ask_next(self) -> None:
        """What waited is asked now."""
        self._errands.watch()
        await self._inspecting.look_again()
        if self._slot.approval and self.hearing.turn is None:
            await self._slot.swap_back()
        if self._waiting and self.hearing.turn is None:
            await self._submit(self._waiting.pop(0))
        self._show_waiting()

    @on(Broken)
    async def offer_again(self, event: Broken) -> None:
        """The engine broke: ask once more?"""
        self._editing = event.turn.asked
        await self._slot.swap(choice_lists.again_picker(event.reason))

    @on(NoEngine)
    async def offer_engine(self, event: NoEngine) -> None:
        """Start it once more?"""
        await self._slot.swap(choice_lists.lost_picker(event.reason))

    def _show_waiting(self) -> None:
        waiting = self.query_one("#waiting", Static)
        waiting.display = bool(self._waiting) or self._editing is not None
        edited = "this replaces an earlier question; Esc leaves it as it is"
        waiting.update(f"next: {visible(' / '.join(self._waiting))}" if self._waiting else edited)

    @on(PromptBox.Sent)
    async def send(self, event: PromptBox.Sent) -> None:
        """Ask it, and remember it."""
        self.prompt.clear_all()
        remember_question(self._remembered, event.text)
        self._past.append(event.text)
        self.prompt.remember(self._past)
        await self._submit(event.text)

    @on(OptionList.OptionSelected, "#completions")
    def take_clicked(self) -> None:
        """A click takes one."""
        self._slot.take(is_last=False)
        self.prompt.focus()

    @on(Picker.Left)
    async def picked_nothing(self) -> None:
        """Back to the prompt."""
        self._editing = None
        await self._slot.swap_back()
        self._show_waiting()

    @on(Picker.Picked)
    async def picked(self, event: Picker.Picked) -> None:
        """Do what was chosen."""
        broken, self._editing = self._editing, None
        await self._slot.swap_back()
        self._show_waiting()
        match event.purpose, event.value:
            case ("variant" | "profile") as command, value:
                await self._submit(f"/{command} {value}")
            case "theme", name:
                self.app.theme = name
            case "question", text:
                self.prompt.write(text)
            case "rewind", place if int(place) < len(self.transcript.asked):
                self._edit(self.transcript.asked[int(place)])
            case "again", "again" if broken is not None:
                await self._ask_again(broken, broken.question)
            case "lost", "connect":
                self.hearing.gauge.wait("starting the engine", monotonic())
                self._partner.connect_again()
                self._timer.resume()
            case "lost", "quit":
                self.app.exit()
            case _:
                pass

    @on(TurnView.Act)
    async def act(self, event: TurnView.Act) -> None:
        """Do something with a turn."""
        turn = event.turn
        match event.what:
            case "inspect" if turn.position is not None:
                await self._inspecting.open(turn.position)
            case "copy":
                self._copy(turn.answer)
            case "code":
                self._copy((code_blocks(turn.answer) or [""])[-1])
            case "edit" | "again" | "fork" if self.hearing.turn is not None:
                self.notify(BUSY, markup=False)
            case "edit":
                self._edit(turn.asked)
            case "again":
                await self._ask_again(turn.asked, turn.question)
            case "fork" if turn.position is not None:
                self._partner.fork(turn.position)
            case _:
                self.notify("this question is not part of the conversation", markup=False)

    @on(CodeHead.Clicked)
    def copy_block(self, event: CodeHead.Clicked) -> None:
        """One block of code among others."""
        self._copy(event.code)

    def _edit(self, asked: Asked) -> None:
        self._editing = asked
        self.prompt.write(asked.question)
        self.prompt.focus()
        self._show_waiting()

    def _copy(self, text: str) -> None:
        if not text:
            self.notify("there is nothing to copy", markup=False)
            return
        ways = copy(self.app, text)
        self.notify(f"{len(text):,} characters copied ({ways})", markup=False)

    @on(Transcript.ReachedEnd)
    async def look(self) -> None:
        """The end is in sight again."""
        await self.hearing.look()

    @on(Approval.Stopped)
    def stop(self) -> None:
        """End the answer that is being written."""
        self._cancelled.set()

    def action_stop(self) -> None:
        """Close a list; else stop the answer; else leave an edit; else go back to the prompt; twice: to a question."""
        self.call_later(self._stop_or_go_back)

    async def _stop_or_go_back(self) -> None:
        if approval := self._slot.approval:
            approval.action_leave()
            return
        if self._slot.is_swapped:
            await self.picked_nothing()
            return
        is_idle = self.prompt.has_focus and not self.prompt.text
        if self.hearing.turn is not None:
            self.stop()
            if self._waiting:
                self.prompt.write("\n".join(self._waiting))
                self._waiting.clear()
        elif self._editing is not None:
            self._editing = None
            self.prompt.clear_all()
        elif is_idle and monotonic() - self._escaped < TWICE_SECONDS:
            await self._choose("rewind")
            return
        elif is_idle:
            self._escaped = monotonic()
        self._show_waiting()
        self.prompt.focus()

    def action_interrupt(self) -> None:
        """Copy what is selected, stop the answer, clear the prompt; and twice: leave."""
        selected = self.prompt.selected_text or self.get_selected_text()
        if selected:
            self._copy(selected)
        elif self.hearing.turn is not None:
            self.action_stop()
        elif self.prompt.text:
            self.prompt.clear_all()
        elif monotonic() - self._leaving < TWICE_SECONDS:
            self.app.exit()
        else:
            self._leaving = monotonic()
            self.notify("Ctrl+C once more leaves; everything is kept", timeout=TWICE_SECONDS, markup=False)

    def action_scroll(self, direction: int) -> None:
        """A page up or down, of the conversation or of what is inspected."""
        paged = self.focused if isinstance(self.focused, TokenView) else self.transcript
        if direction < 0:
            paged.scroll_page_up(animate=False)
        else:
            paged.scroll_page_down(animate=False)

    @on(Transcript.OlderWanted)
    def action_show_older(self) -> None:
        """More of a long conversation."""
        self.call_later(self.transcript.show_older)

    def action_follow(self) -> None:
        """To the newest line."""
        self.transcript.follow()

    def action_toggle_help(self) -> None:
        """Every key of what has the focus."""
        try:
            self.query_one("HelpPanel")
        except NoMatches:
            self.app.action_show_help_panel()
        else:
            self.app.action_hide_help_panel()

    def action_open_sessions(self) -> None:
        """The list of conversations."""

        def go_on(chosen: tuple[str, str] | None) -> None:
            if chosen is None:
                return
            way, session = chosen
            (self._partner.fork_of if way == "fork" else self._partner.open)(session)
            self._timer.resume()

        self.app.push_screen(SessionsScreen(self._errands, self.hearing.session, self._glyphs), go_on)

    def action_inspect(self) -> None:
        """Look into the newest answer, or no longer."""
        self.call_later(self._inspecting.toggle)

    @on(Inspector.Closed)
    async def end_inspecting(self) -> None:
        """Back to the prompt."""
        await self._inspecting.close()

    @on(Inspecting.Fetched)
    def show_fetched(self, event: Inspecting.Fetched) -> None:
        """The host knows the steps of a turn."""
        self._inspecting.show_fetched(event)

    def action_choose(self, what: str) -> None:
        """Open a list in the place of the prompt."""
        self.call_later(self._choose, what)

    async def _choose(self, what: str) -> None:
        self._escaped = float("-inf")
        if what == "rewind" and self.hearing.turn is not None:
            self.notify(BUSY, markup=False)
            return
        if self._slot.approval:
            self.notify(DECIDE, markup=False)
            return
        picker = choice_lists.picker(what, self._past, self.transcript.asked, sorted(self.app.available_themes))
        if picker:
            await self._slot.swap(picker)

    def action_act_on_last(self, what: str) -> None:
        """Copy or edit the last turn."""
        turns = self.transcript.turns
        if turns:
            self.post_message(TurnView.Act(turns[-1], what))
