"""A walk through the full-screen interface: a table of steps, each with what is done and what must be seen then.

The tests walk it at three sizes with a fake engine; `draw_screens.py` walks it with a real model and keeps pictures.
What a model can answer differs, so the requests are values (`Requests`); what the screen does with them is the same.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.widgets import Static
from textual.widgets._toast import Toast

from specchat.tui.approval import Approval
from specchat.tui.picker import Picker
from specchat.tui.turn_widget import TurnView, VersionSwitch
from tools.screen_driver import ScreenDriver

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from specchat.tui.app import SpecchatApp

BAR_COLUMNS = 80  # from this width on, the status bar surely has the bar of acceptance
LIKELY_TOKEN = re.compile(r'" +\d+%')  # a token in quotes with its probability
SCROLL_BAR = re.compile(r"[▁-█]$", re.MULTILINE)
FILE = "my notes.txt"
FILE_TEXT = "old text\n"


@dataclass(frozen=True)
class Requests:
    """What the model of a walk is asked."""

    question: str  # answered with draft tokens
    inspected: str  # asked while the inspector is open
    long: str  # still being answered while the next steps are taken
    queued: str
    about_file: str
    change: str  # what an edit does to the text of the file
    other_model: str


@dataclass(frozen=True)
class Walker:
    """Who walks: the screen, and the requests for its model."""

    driver: ScreenDriver
    requests: Requests

    def filled(self, text: str) -> str:
        """The text with the requests in place of their names in braces."""
        return text.format(**asdict(self.requests))


Action = Callable[[Walker], Awaitable[Any]]
Fact = Callable[[Walker], object]


def press(*keys: str) -> Action:
    """Press these keys, each a name of Textual or a character."""
    return lambda walker: walker.driver.press(*keys)


def type_keys(text: str) -> Action:
    """Press a key for each character."""
    return lambda walker: walker.driver.press(*walker.filled(text))


def ask(text: str) -> Action:
    """Send a request and wait for its final answer."""
    return lambda walker: walker.driver.ask(walker.filled(text))


def begin(text: str) -> Action:
    """Send a request and wait until its answer has begun."""
    return lambda walker: walker.driver.start_answer(walker.filled(text))


def send(text: str) -> Action:
    """Type a command or a request, and send it."""
    return lambda walker: walker.driver.run_command(walker.filled(text))


def wait_until(fact: Fact) -> Action:
    return lambda walker: walker.driver.wait_until(lambda: fact(walker))


def is_in_prompt(walker: Walker) -> bool:
    """Nothing replaces or covers the prompt, and it has the focus."""
    driver = walker.driver
    return driver.app.screen is driver.chat and not driver.chat.query(Picker) and driver.prompt.has_focus


def has_list(walker: Walker) -> bool:
    return bool(walker.driver.chat.query(Picker))


def can_be_reviewed(walker: Walker) -> bool:
    return any(approval.is_deciding for approval in walker.driver.chat.query(Approval))


def has_toast(text: str) -> Fact:
    """A toast with this text is shown; its lines stand between those of the conversation."""
    return lambda walker: any(
        toast.region.height and text in str(toast.render()) for toast in walker.driver.app.screen.query(Toast)
    )


def has_coloured_bar(walker: Walker) -> bool:
    """The bar of acceptance, from 80 columns on, in a colour of its own unless the terminal has none."""
    driver = walker.driver
    if driver.app.size.width < BAR_COLUMNS and "█" not in driver.status:
        return True
    bar = [segment for segment in driver.strips[-1] if "█" in segment.text]
    text = next(segment for segment in driver.strips[-1] if segment.text.strip())
    has_own_colour = bool(bar and bar[0].style and text.style and bar[0].style.color != text.style.color)
    return bool(bar) and (has_own_colour or driver.app.no_color)


def has_probabilities(walker: Walker) -> bool:
    return bool(LIKELY_TOKEN.search(walker.driver.shown))


def _last_turn(walker: Walker) -> list[TurnView]:
    """The last turn; none while the transcript is built again."""
    return walker.driver.turns[-1:]


def is_answered(walker: Walker) -> bool:
    return any(turn.is_finished for turn in _last_turn(walker)) and walker.driver.chat.presenter.is_idle


def footer_has(*texts: str) -> Fact:
    """The line under the last answer has these texts; on a low screen a diff below it can push it out of sight."""

    def fact(walker: Walker) -> bool:
        footer = "".join(str(turn.query_one(".footer", Static).render()) for turn in _last_turn(walker))
        return all(text in footer for text in texts)

    return fact


def shows_version(text: str) -> Fact:
    """The last answer is this version; a long answer has the switch below the screen while its beginning is shown."""

    def fact(walker: Walker) -> bool:
        switches = [switch for turn in _last_turn(walker) for switch in turn.query(VersionSwitch)]
        return any(text in str(each.render()) for each in switches)

    return fact


def theme_is(name: str) -> Fact:
    return lambda walker: walker.driver.app.theme == name


def is_connected(walker: Walker) -> bool:
    return bool(walker.driver.chat.presenter.session_id)


def has_ended(walker: Walker) -> bool:
    return not walker.driver.app.is_running


def always(_walker: Walker) -> bool:
    return True


@dataclass(frozen=True)
class Step:
    """What is done, and what must be seen then: texts, whatever the width breaks, and a fact."""

    name: str
    actions: Sequence[Action]
    seen: Sequence[str] = ()
    fact: Fact = always
    picture: str = ""  # the name of a picture of this step in docs

    async def take(self, walker: Walker) -> None:
        """Do what this step does, and wait until everything is seen."""
        for action in self.actions:
            await action(walker)
        for text in map(walker.filled, self.seen):
            await walker.driver.wait_until(lambda text=text: text in without_breaks(walker.driver.shown))
        await walker.driver.wait_until(lambda: self.fact(walker))


def without_breaks(shown: str) -> str:
    """The text of the screen without its line breaks, which depend on the width, and without its scroll bar."""
    return " ".join(SCROLL_BAR.sub("", shown).split())


@dataclass(frozen=True)
class Visit:
    """A command of the shell, the answers to its questions, what it prints, and the steps on the screen it opens."""

    name: str
    arguments: Sequence[str]
    answers: str = ""
    printed: str = ""
    exit_code: int = 0
    has_terminal: bool = True
    steps: Sequence[Step] = ()


BACK = Step("back to the prompt", [press("escape")], fact=is_in_prompt)
LEAVE = Step("leaving", [wait_until(is_connected), press("ctrl+q")], fact=has_ended)

CHAT = (
    Step(
        "an empty chat", [wait_until(is_connected)],
        ["model ", "folder ", "Ask something below, such as: ", "Enter sends"], picture="welcome",
    ),
    Step("the keys", [press("f1")], ["The keys you need", "Enter send"]),
    BACK,
    Step("an answer", [ask("{question}")], [" tokens ·", "{question}"], has_coloured_bar, picture="screen"),
    Step("the light theme", [send("/theme specchat-day")], fact=theme_is("specchat-day"), picture="screen-light"),
    Step("the dark theme", [send("/theme specchat-night")], fact=theme_is("specchat-night")),
    Step("the other numbers", [press("f7")], [" draft tokens"]),
    Step("the short line", [press("f7")], ["tokens/s · "]),
    Step(
        "a selected answer", [press("shift+tab")],
        ["answer 1 of 1 is selected", "y copy", "r answer again", "Esc back"],
    ),
    Step("another answer", [press("r"), wait_until(is_answered)], ["<2/2>"]),
    Step("the earlier answer", [press("shift+tab", "left")], fact=shows_version("<1/2>")),
    BACK,
    Step(
        "the drafters", [press("f4")], ["drafter, from the next request on", "one token per step"], picture="variants",
    ),
    Step("a drafter that cannot run", [type_keys("mtp")], ["mtp cannot run: needs"]),
    BACK,
    Step(
        "the inspector, without probabilities", [press("f3")],
        ["accepted draft", "no probabilities; ask while this is open"],
    ),
    Step(
        "probabilities of an answer that is asked there", [press("tab"), ask("{inspected}")],
        ["inspect turn 2", "by source: "], has_probabilities, picture="inspector",
    ),
    Step("the inspector closed", [press("f3")], fact=is_in_prompt),
    Step("sampling", [send("/temperature 0.7")], ["temperature: 0.7"]),
    Step("a system prompt", [send("/system Be brief.")], ["system: Be brief."]),
    Step("an attached file", [ask('{about_file} @"' + FILE + '"')], [f"attached: {FILE} (about 3 tokens)"]),
    Step("a file that is not there", [send("{about_file} @gone.txt")], ["@gone.txt: there is no such file or"]),
    Step(
        "a change as a question", [send(f'/edit "{FILE}" {{change}}'), wait_until(can_be_reviewed)],
        ["Take this change? y yes n no"],
    ),
    Step("a change taken", [press("y"), wait_until(is_in_prompt)], ["applied 1/1 hunks", "/undo"]),
    Step(
        "a change refused", [send(f'/edit --check false "{FILE}" write other words'), wait_until(is_answered)],
        fact=footer_has("--check 'false' ended with 1", "next: fewer lines"),
    ),
    Step("a theme by name", [send("/theme nord")], fact=theme_is("nord")),
    Step("the themes", [press("f8")], ["type to filter"]),
    Step("the theme of the terminal", [type_keys("auto"), press("enter")], fact=theme_is("specchat-night")),
    Step("a toast", [press("f9")], fact=has_toast("select text with it")),
    Step("the mouse again", [press("f9")], fact=has_toast("works here again")),
    Step("the conversations", [press("ctrl+r")], ["conversations", "(open)"]),
    BACK,
    Step("another model", [send("/model")], ["model, from the next request on", "{other_model}"]),
    Step("its choice", [type_keys("{other_model}"), press("enter")], ["reads the conversation again"], is_in_prompt),
    Step("a queued question", [begin("{long}"), send("{queued}")], ["next: {queued}"]),
    Step("leaving asks", [press("ctrl+q")], ["a question waits to be answered", "stay and wait"]),
    Step("staying", [press("enter"), wait_until(is_in_prompt)], ["next: {queued}"]),
    Step("leaving all the same", [press("ctrl+q"), wait_until(has_list), press("ctrl+q")], fact=has_ended),
)  # fmt: skip

WALK = (
    Visit(
        "the first minute", ["chat"],
        steps=[Step("one hint", [], ["'specchat setup' finds a better one for this machine"]), LEAVE],
    ),
    Visit(
        "set-up ends in a chat", ["setup", "--memory", "12"], answers=5 * "\n", printed="Use it when no profile",
        steps=CHAT,
    ),
    Visit(
        "the conversation again", ["-c"],
        steps=[Step("the answer that was stopped", [], ["the partial answer is kept"]), LEAVE],
    ),
    Visit("an unknown conversation", ["-r", "unknown"], printed="no conversation 'unknown'", exit_code=2),
    Visit("nothing to read", ["chat"], printed="standard input is empty", exit_code=2, has_terminal=False),
)  # fmt: skip


def steps_until_last_picture(steps: Sequence[Step]) -> Sequence[Step]:
    """The steps that pictures need."""
    last = max(number for number, step in enumerate(steps) if step.picture)
    return steps[: last + 1]


class Walk:
    """Takes steps on a screen that is drawn nowhere; the fault of a step ends the app and is raised by `check`."""

    def __init__(
        self, steps: Sequence[Step], requests: Requests, after_step: Callable[[ScreenDriver, Step], None]
    ) -> None:
        self._steps, self._requests, self._after_step = steps, requests, after_step
        self._taken: list[Step] = []
        self._fault: BaseException | None = None

    def run(self, app: SpecchatApp, size: tuple[int, int]) -> None:
        """Run the app until the last step is taken."""

        async def take_steps(pilot: Pilot[object]) -> None:
            try:
                await self._take_steps(ScreenDriver(app, pilot))
            except BaseException as fault:  # noqa: BLE001 (Textual would drop it)
                self._fault = fault
            app.exit()

        App[None].run(app, headless=True, size=size, auto_pilot=take_steps)

    def check(self) -> None:
        """Raise the fault of the step that was not taken to its end."""
        if len(self._taken) < len(self._steps):
            raise AssertionError(f"the step {self._steps[len(self._taken)].name!r}") from self._fault

    async def _take_steps(self, driver: ScreenDriver) -> None:
        for step in self._steps:
            await step.take(Walker(driver, self._requests))
            if driver.app.is_running:
                self._after_step(driver, step)
            self._taken.append(step)
