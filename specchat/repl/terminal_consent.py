"""How the agent asks at a terminal: on stderr, because stdout is the answer."""

from __future__ import annotations

import sys

from specchat.app.agent.call_consent import ConsentQuestion
from specchat.app.agent.project_agent import AgentUI
from specchat.app.consent import Answer
from specchat.edit.hunks import unified_diff
from specchat.repl.interrupt import keyboard_interrupts
from specchat.repl.terminal_review import colour_hunk, prompt_user, wants_colours
from specchat.terminal import write_line

ANSWERS = {"y": Answer.ONCE, "a": Answer.ALWAYS, "n": Answer.NO, "s": Answer.STOP, "q": Answer.STOP}
KEYS = "y yes, a {always}, n no, s no and stop"


def terminal_ui() -> AgentUI:
    """It asks only where a person types and reads."""
    return AgentUI(ask_consent, confirm) if sys.stdin.isatty() and sys.stderr.isatty() else AgentUI()


def ask_consent(question: ConsentQuestion) -> Answer:
    """Show the diff or the command, and ask; Ctrl-C and the end of input stop the work."""
    write_line(f"\n{question.summary}", sys.stderr)
    if change := question.change:
        diff = unified_diff(change.path, change.old, change.new)
        write_line(colour_hunk(diff) if wants_colours() and sys.stderr.isatty() else diff, sys.stderr)
    with keyboard_interrupts():
        while True:
            try:
                typed = prompt_user(f"allow it? {KEYS.format(always=question.always)} [y,a,n,s] ")
            except KeyboardInterrupt:
                return Answer.STOP
            if not typed:
                return Answer.STOP
            if answer := ANSWERS.get(typed.strip().lower()[:1]):
                return answer


def confirm(question: str) -> bool:
    title, _, text = question.partition("\n")
    write_line(text, sys.stderr)
    with keyboard_interrupts():
        try:
            return prompt_user(f"{title} [y/N] ").strip().lower().startswith("y")
        except KeyboardInterrupt:
            return False
