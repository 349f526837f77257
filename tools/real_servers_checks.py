"""What specchat does beside a real server: one list of checks, which all servers get. Starts no server.

A check returns what it saw ("" for nothing to add, None where the server cannot have it), and raises for a fault.
"""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from specchat.chat.request import Request
from specchat.profile.keys import Profile
from specchat.profile.profile_files import load_profile
from specchat.refactoring.splices import count_of
from specchat_fleet.server_session import chat_completion_body
from tests.clients.world import World
from tools.real_servers_starts import RunningServer

PROFILE = "real"
QUESTION = "List the days of the week again and again, one per line, and do not stop."  # it repeats itself
LONG_TOKENS = 700
GREEDY = ("--temperature", "0")
ANSWER_SECONDS = 900.0
MODEL_EXIT_CODE = 7


class Failure(Exception):  # noqa: N818 (a finding)
    """specchat did something else than it should."""


def expect(is_so: object, words: str) -> None:
    if not is_so:
        raise Failure(words)


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        return (self.err.strip().splitlines() or [""])[-1]


@dataclass
class Trial:
    world: World
    server: RunningServer
    python: Path  # of specchat
    tokens: int  # of most answers

    @cached_property
    def profile(self) -> Profile:
        """What `join` has saved, for greedy answers."""
        [file] = self.world.folder.rglob(f"profiles/{PROFILE}.toml")
        return load_profile(str(file)).override({"sampling.temperature": 0.0, "limits.answer": self.tokens})

    @cached_property
    def own_text(self) -> str:
        """The greedy text of the server, without specchat."""
        body = chat_completion_body(self.profile, (), Request(QUESTION), 0)
        sent = {**body, **body.pop("extra_body", {})}
        return str(self.post("/v1/chat/completions", sent)["choices"][0]["message"]["content"])

    @property
    def greedy(self) -> tuple[str, ...]:
        return (*GREEDY, "--max-tokens", str(self.tokens))

    def post(self, path: str, body: object, root: str = "", **headers: str) -> Any:
        return self._send(path, root, {"Content-Type": "application/json", **headers}, json.dumps(body).encode())

    def get(self, path: str, root: str = "", **headers: str) -> Any:
        return self._send(path, root, headers)

    def _send(self, path: str, root: str, headers: Mapping[str, str], body: bytes | None = None) -> Any:
        request = urllib.request.Request((root or self.server.root) + path, body, dict(headers))  # noqa: S310
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as page:  # noqa: S310 (our own)
            return json.load(page)

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [self.world.program("specchat"), *words]
        return subprocess.Popen(
            command, cwd=self.world.project, env=self.world.environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *words: str) -> Ran:
        with self.start(*words) as process:
            out, err = process.communicate(timeout=ANSWER_SECONDS)
        return Ran(process.returncode, out, err)

    def ask(self, *words: str) -> Ran:
        return self.run("ask", "-P", PROFILE, *words)

    def result(self, question: str, *words: str) -> Mapping[str, Any]:
        """The last line of `specchat -p … --json`."""
        ran = self.run("-p", question, "--json", "-P", PROFILE, *words)
        lines = [json.loads(line) for line in ran.out.splitlines()]
        expect(lines and lines[-1]["type"] == "result", f"no result: {ran.err}")
        return lines[-1]

    def last_conversation(self) -> str:
        """The stored one, as Markdown."""
        ids = [line.split()[0] for line in self.run("sessions", "list").out.splitlines()]
        expect(ids, "no conversation is stored")
        return self.run("sessions", "export", max(ids)).out  # an id begins with its time


def join(trial: Trial) -> str:
    ran = trial.run("fleet", "join", trial.server.url, "--save", PROFILE)
    expect(ran.code == 0 and "saved:" in ran.out, ran.out + ran.err)
    return ran.err.partition(": ")[2].splitlines()[0].partition(",")[0]


def same_text(trial: Trial) -> str:
    ran = trial.ask(*trial.greedy, QUESTION)
    expect(ran.code in (0, 1), ran.err)
    expect(ran.out.strip() == trial.own_text.strip() != "", f"{ran.out!r}, and the server alone {trial.own_text!r}")
    return ""


def acceptance(trial: Trial) -> str | None:
    """Of an answer, in JSON and in the line below it."""
    spec = trial.result(QUESTION, *trial.greedy)["spec"]
    drafted, accepted = spec["draft_tokens"], spec["accepted_tokens"]
    if not trial.server.server.is_drafting:
        expect(drafted == 0, f"{drafted} draft tokens of a server that has none")
        return None
    expect(0 < accepted <= drafted, f"{accepted} of {drafted} draft tokens")
    footer = trial.ask(*trial.greedy, QUESTION).last_line
    expect("accepted" in footer, footer)
    return f"{accepted} of {drafted}"


def depths(trial: Trial) -> str | None:
    """Acceptance by depth, in the inspector."""
    if not trial.server.server.has_depths:
        return None
    ran = trial.run("inspect")
    expect("acceptance by depth " in ran.err, ran.out + ran.err)
    return ran.err.partition("by depth ")[2].strip()


def screen(trial: Trial) -> str:
    """The answer on the screen, by keys."""
    command = [str(trial.python), "-m", "tools.real_servers_screen", PROFILE, QUESTION, str(trial.tokens)]
    ran = subprocess.run(
        command, cwd=trial.world.project, env=trial.world.environment, capture_output=True, text=True,
        timeout=ANSWER_SECONDS, check=False,
    )  # fmt: skip
    expect(ran.returncode == 0, ran.stderr)
    shown = json.loads(ran.stdout)
    expect(shown["answer"].strip() == trial.own_text.strip(), f"{shown['answer']!r}")
    expect("accepted" in shown["footer"] or not trial.server.server.has_depths, shown["footer"])
    return ""


@contextmanager
def serving(trial: Trial) -> Generator[str]:
    with trial.start("serve", "--port", "0", "--token", "secret", "-P", PROFILE) as process:
        assert process.stderr is not None
        try:
            yield process.stderr.readline().split()[2].rstrip(",").removesuffix("/v1")
        finally:
            process.terminate()
            process.stderr.read()


def through_serve(trial: Trial) -> str:
    system = trial.profile.system_prompt("")
    messages = [{"role": "system", "content": system}] if system.strip() else []
    messages += [{"role": "user", "content": QUESTION}]
    with serving(trial) as root:
        bearer = {"Authorization": "Bearer secret"}
        [model] = trial.get("/v1/models", root, **bearer)["data"]
        body = {"model": model["id"], "messages": messages, "temperature": 0, "max_tokens": trial.tokens}
        reply = trial.post("/v1/chat/completions", body, root, **bearer)
    text = reply["choices"][0]["message"]["content"]
    expect(text.strip() == trial.own_text.strip(), f"{text!r}")
    return ""


def calls_of_agent(trial: Trial, question: str, *words: str) -> int:
    """The calls of a loop of the agent that came to its end."""
    ran = trial.run("-p", question, "--json", "-P", PROFILE, "--agent", *words)
    lines = [json.loads(line) for line in ran.out.splitlines()]
    expect(lines and not lines[-1].get("is_error"), f"{lines[-1:]} {ran.err}")
    return sum(line.get("update", {}).get("sessionUpdate") == "tool_call" for line in lines)


def agent(trial: Trial) -> str:
    """A small model may call nothing."""
    return count_of(calls_of_agent(trial, "Which files are here?", *trial.greedy), "call")


def two_at_once(trial: Trial) -> str:
    asked = [trial.start("ask", "-P", PROFILE, *trial.greedy, QUESTION) for _ in range(2)]
    texts = [process.communicate(timeout=ANSWER_SECONDS)[0] for process in asked]
    expect([trial.own_text.strip()] * 2 == [text.strip() for text in texts], f"{texts}")
    return ""


def killed(trial: Trial) -> str:
    """The server ends in the middle of an answer: one line, its exit code, and the text so far is kept."""
    words = ("ask", "-P", PROFILE, *GREEDY, "--max-tokens", str(LONG_TOKENS), QUESTION)
    with trial.start(*words) as process:
        assert process.stdout is not None
        first = process.stdout.read(4)
        trial.server.kill()
        rest, err = process.communicate(timeout=ANSWER_SECONDS)
    expect(process.returncode == MODEL_EXIT_CODE, f"exit code {process.returncode}: {err}")
    [line] = [each for each in err.splitlines() if each.startswith("specchat: ")] or [err]
    expect("disconnected during the answer; the partial answer is stored" in line, err)
    stored = trial.last_conversation()
    expect((first + rest).strip() in stored, f"{first + rest!r} is not in {stored!r}")
    return ""


def while_down(trial: Trial) -> str:
    ran = trial.ask(*trial.greedy, QUESTION)
    expect(ran.code == MODEL_EXIT_CODE and "no server answers at" in ran.last_line, f"{ran.code}: {ran.err}")
    return ""


def started_again(trial: Trial) -> str:
    trial.server.start()
    return same_text(trial)


CHECKS: Mapping[str, Callable[[Trial], str | None]] = {
    "`fleet join` says what it is": join,
    "greedy text of `ask` equal to its own": same_text,
    "its acceptance, in JSON and below the answer": acceptance,
    "acceptance by depth in `inspect`": depths,
    "the same text on the screen": screen,
    "the same text through `specchat serve`": through_serve,
    "two clients at once, each with the same text": two_at_once,
    "a loop of the agent": agent,
    "killed in the middle of an answer: one line, code 7, the text is kept": killed,
    "a question while it is down: one line, code 7": while_down,
    "started again: the same text": started_again,
}
