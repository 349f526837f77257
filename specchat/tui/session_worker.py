"""The thread behind the screen: it holds the conversation with the host, does one thing after another, and tells news.

The screen gives it something to do and returns at once; whatever comes of it lies in the mailbox in order. A daemon: a
host that does not answer can keep nobody from leaving.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue
from threading import Event as Flag
from threading import Thread
from typing import TYPE_CHECKING

from specchat.chat.events import Failed
from specchat.chat.history import StoredTurn
from specchat.chat.request import Request
from specchat.commands.registry import COMMAND, run_line
from specchat.commands.talk import Reply, Talk
from specchat.errors import CancelledError, HostError, NotTakenError, SpecchatError, UsageError
from specchat.host.client import Conversation, Wish
from specchat.profile import Models
from specchat.tui.messages import Asking, Changed, Ended, Leaving, Lost, Mailbox, Named, Opened, Told

if TYPE_CHECKING:
    from specchat.tui.edit_dialogue import Dialogue

CHANGING = frozenset({"new", "open", "fork", "undo", "back", "delete", "retry", "rename", "profile", "compact"})
GOODBYE_SECONDS = 0.5
LOADS = "this loads other models; go on?"
NEEDS_ENGINE = "no engine process; it must be started first"

Job = Callable[[], None]


class Partner:
    """Everything that is asked of a conversation. Public methods may be called from any thread."""

    def __init__(self, wish: Wish, mailbox: Mailbox, client: str = "specchat") -> None:
        self._wish, self._mailbox, self._client = wish, mailbox, client
        self._talk: Talk | None = None
        self._dialogue: Dialogue | None = None
        self._overrides = dict(wish.overrides)
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="partner", daemon=True)

    def begin(self) -> None:
        """Connect, and start the host if it does not run."""
        self._jobs.put(self._connect)
        self._thread.start()

    def connect_again(self) -> None:
        """After the host was lost."""
        self._jobs.put(self._connect)

    def say(self, line: str, cancelled: Flag) -> None:
        """A question or a command."""
        self._jobs.put(lambda: self._say(line, cancelled))

    def ask_again(self, position: int, text: str, cancelled: Flag) -> None:
        """The question at this place of the conversation in other words; what was said since is left behind.

        The last question is replaced. An earlier one is asked in a copy, so that nothing is lost.
        """
        self._jobs.put(lambda: self._ask_again(position, text, cancelled))

    def change(self, line: str, cancelled: Flag) -> None:
        """A command about files; what it asks is answered with `answer`."""
        self._jobs.put(lambda: self._change(line, cancelled))

    def answer(self, text: str | None) -> None:
        """What the person says to a question about an edit."""
        if self._dialogue:
            self._dialogue.answer(text)

    def fork(self, position: int) -> None:
        """Go on in a copy of the conversation up to this question and its answer."""
        self._jobs.put(lambda: self._fork(position))

    def open(self, session: str) -> None:
        """Go on with another conversation."""
        self._jobs.put(lambda: self._open(session))

    def fork_of(self, session: str) -> None:
        """Go on in a copy of another conversation."""
        self._jobs.put(lambda: self._switch(session, "fork"))

    def close(self) -> None:
        """Hang up; a thread that still waits for the host ends with the process."""
        self._jobs.put(None)
        self.answer(None)
        if self._thread.is_alive():  # nobody began who leaves before the first frame
            self._thread.join(GOODBYE_SECONDS)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except SpecchatError as error:
                self._mailbox.put(Told(str(error), is_error=True))
            except ConnectionError:
                self._mailbox.put(Lost("the engine process hung up"))
            except Exception as error:  # noqa: BLE001 (the edge: the screen lives on)
                self._mailbox.put(Told(f"unexpected {type(error).__name__}: {error}", is_error=True))
        if self._talk:
            self._talk.conversation.close()

    def _connect(self) -> None:
        try:
            if self._talk:
                self._wish = replace(self._wish, session=self._talk.conversation.session, profile="", overrides={})
                self._talk.conversation.close()
            options = self._talk.options if self._talk else None
            self._talk = Talk(Conversation(self._wish, self._client), overrides=self._overrides)
            self._talk.options, self._talk.may_load = options or self._talk.options, self._may_load
        except (SpecchatError, ConnectionError) as error:
            self._mailbox.put(Lost(str(error)))
            return
        self._tell_opened()

    @property
    def _known(self) -> Talk:
        if self._talk is None:
            raise HostError(NEEDS_ENGINE)
        return self._talk

    def _tell_opened(self) -> None:
        """Which conversation this is; a history that cannot be read is complained of, and the talk goes on."""
        conversation = self._known.conversation
        turns, troubles = list[StoredTurn](), [conversation.trouble]
        try:
            turns = conversation.turns()
        except HostError as error:
            troubles.append(str(error))
        trouble = "; ".join(filter(None, troubles))
        opened = Opened(conversation.session, conversation.name, conversation.profile, tuple(turns), trouble)
        self._mailbox.put(opened)

    def _say(self, line: str, cancelled: Flag) -> None:
        command = COMMAND.match(line.strip())
        if not command:
            self._ask(lambda talk: talk.request(line), cancelled)
            return
        talk = self._known
        reply = run_line(talk, line)
        if command["name"] in CHANGING:
            self._after_change(command["name"], (command["argument"] or "").strip())
        self._follow(talk, reply, cancelled)

    def _follow(self, talk: Talk, reply: Reply, cancelled: Flag) -> None:
        """Tell, leave, ask; and then what follows from the answer, perhaps in another conversation."""
        while True:
            if reply.text:
                self._mailbox.put(Told(reply.text))
            if reply.leaves:
                self._mailbox.put(Leaving())
            if request := reply.ask:
                self._ask(lambda _talk, request=request: request, cancelled)
            if reply.then is None:
                return
            reply = reply.then(talk)
            self._tell_opened()

    def _change(self, line: str, cancelled: Flag) -> None:
        """Whatever comes of it is one line, and the talk goes on."""
        from specchat.commands.file_edits import run_file_command
        from specchat.tui.edit_dialogue import Dialogue  # files can wait until somebody edits one

        self._dialogue = Dialogue(self._mailbox, cancelled)
        try:
            self._mailbox.put(Changed(run_file_command(self._known, line, self._dialogue.desk)))
        except (CancelledError, NotTakenError) as nothing:
            self._mailbox.put(Changed(str(nothing)))
        except SpecchatError as error:
            self._mailbox.put(Changed(str(error), is_error=True))
        except ConnectionError:
            self._mailbox.put(Changed("the engine process hung up; nothing is written", is_error=True))
        except Exception as error:  # noqa: BLE001 (the edge: an edit that breaks leaves the screen as it was)
            self._mailbox.put(Changed(f"unexpected {type(error).__name__}: {error}", is_error=True))
        finally:
            self._dialogue = None
            self._mailbox.put(Ended(is_stored=False))

    def _may_load(self, models: Models) -> bool:
        """Ask, where edits are decided; whoever leaves has not agreed."""
        from specchat.commands.model_loading import loads
        from specchat.tui.edit_dialogue import Dialogue

        self._dialogue = Dialogue(self._mailbox, Flag())
        try:
            return self._dialogue.agrees("\n".join([LOADS, *(f"  {load.words}" for load in loads(models))]))
        finally:
            self._dialogue = None

    def _after_change(self, command: str, argument: str) -> None:
        if command == "rename":
            self._known.conversation.name = argument
            self._mailbox.put(Named(argument))
        else:
            self._tell_opened()

    def _ask(self, make: Callable[[Talk], Request], cancelled: Flag) -> None:
        is_stored = False
        try:
            talk = self._known
            request = make(talk)
            self._mailbox.put(Asking(request))
            if talk.notice:
                self._mailbox.put(Told(talk.notice))
            is_stored = True
            for event in talk.conversation.ask(request, cancelled):
                talk.hear(event)
                self._mailbox.put(event)
                is_stored = is_stored and not _was_refused(event)
            for remark in talk.remarks:
                self._mailbox.put(Told(remark))
            self._name_if_new(talk)
        except SpecchatError as error:
            is_stored = False
            self._mailbox.put(Failed.of(error))
        except ConnectionError:
            self._mailbox.put(Failed("the engine process hung up", HostError.exit_code))
        except Exception as error:  # noqa: BLE001 (the edge: a turn that breaks leaves the screen as it was)
            self._mailbox.put(Failed(f"unexpected {type(error).__name__}: {error}"))
        finally:
            self._mailbox.put(Ended(is_stored))

    def _name_if_new(self, talk: Talk) -> None:
        """The host names a conversation after its first question."""
        if not talk.conversation.name:
            name = str(talk.conversation.call("subscribe")["name"])
            talk.conversation.name = name
            self._mailbox.put(Named(name))

    def _ask_again(self, position: int, text: str, cancelled: Flag) -> None:
        conversation = self._known.conversation
        count = len(conversation.turns()) - position
        if count > 1:
            conversation.switch(conversation.call("fork"))
        conversation.rewind(count)
        self._tell_opened()
        self._ask(lambda talk: talk.request(text), cancelled)

    def _fork(self, position: int) -> None:
        conversation = self._known.conversation
        turns = conversation.turns()
        if not 0 <= position < len(turns):
            raise UsageError("this question is not part of the conversation")
        conversation.switch(conversation.call("fork", {"turn": turns[position].id}))
        self._tell_opened()
        self._mailbox.put(Told("a copy of this conversation up to here; the old one stays as it is"))

    def _open(self, session: str) -> None:
        if self._talk is None:
            self._wish = replace(self._wish, session=session, profile="", overrides={}, is_last=False)
            self._connect()
            return
        self._switch(session, "open")

    def _switch(self, session: str, method: str) -> None:
        conversation = self._known.conversation
        conversation.switch(conversation.call(method, {"session": session}))
        self._tell_opened()


def _was_refused(event: object) -> bool:
    """Did the host never take the question?"""
    return isinstance(event, Failed) and event.message.startswith("this is too much at once")
