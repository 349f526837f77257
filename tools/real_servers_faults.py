"""What specchat does with a server that breaks what it is told to break (llmock): tries again, or one line.

Starts no server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from specchat.refactoring.splices import count_of
from specchat_fleet.retry import MAX_RETRIES
from tools.real_servers_checks import MODEL_EXIT_CODE, PROFILE, Ran, Trial, calls_of_agent, expect, join

CHAT = "/v1/chat/completions"
RETRY_AFTER_SECONDS = 2.0


def request_with_faults(
    trial: Trial, question: str, *behaviours: Mapping[str, Any]
) -> tuple[Ran, Sequence[Mapping[str, Any]]]:
    """A question to a server that is told this before, and the requests that it got for it."""
    trial.post("/_llmock/reset", {})
    if behaviours:
        trial.post("/_llmock/scenario", {"behaviors": [{"match": {"path": CHAT}, **each} for each in behaviours]})
    ran = trial.ask("--temperature", "0", "--max-tokens", "200", question)
    return ran, [each for each in all_requests(trial) if each["path"] == CHAT]


def joined(trial: Trial) -> str:
    """With the one model that is named: it lists many."""
    ran = trial.run("fleet", "join", trial.server.url, "--save", PROFILE)
    if "--model" in ran.err:
        named = trial.get("/v1/models")["data"][0]["id"]
        ran = trial.run("fleet", "join", trial.server.url, "--save", PROFILE, "--model", named)
        expect(ran.code == 0, ran.err)
        return ""
    return join(trial)


def refused_twice(status: int) -> Callable[[Trial], str]:
    def check(trial: Trial) -> str:
        fault = {"type": "fail", "status": status, "retry_after": RETRY_AFTER_SECONDS, "times": 2}
        ran, requests = request_with_faults(trial, f"twice {status}", fault)
        expect(ran.code == 0 and ran.out.strip(), ran.err)
        expect(len(requests) == 3, f"{len(requests)} requests")
        report = trial.get("/_llmock/verdict")
        expect(not report.get("findings"), json.dumps(report))
        return f"{len(requests)} requests, nothing to blame"

    return check


def always(status: int, attempts: int) -> Callable[[Trial], str]:
    def check(trial: Trial) -> str:
        ran, requests = request_with_faults(
            trial, f"always {status}", {"type": "fail", "status": status, "times": None}
        )
        expect(ran.code == MODEL_EXIT_CODE and len(error_lines(ran)) == 1, f"{ran.code}: {ran.err}")
        expect(len(requests) == attempts, f"{len(requests)} requests")
        return count_of(attempts, "request")

    return check


def broken_stream(kind: str, line: str) -> Callable[[Trial], str]:
    def check(trial: Trial) -> str:
        fault = {"type": "stream_fault", "kind": kind, "after_chunks": 3, "times": 1}
        ran, requests = request_with_faults(trial, f"a stream, {kind}", fault)
        expect(ran.code == MODEL_EXIT_CODE, f"{ran.code}: {ran.err}")
        expect(len(error_lines(ran)) == 1 and line in ran.err, ran.err)
        expect(ran.out.strip() and ran.out.strip() in trial.last_conversation(), f"not kept: {ran.out!r}")
        expect(len(requests) == 1, f"{len(requests)} requests")
        return "1 request"

    return check


def error_lines(ran: Ran) -> list[str]:
    return [line for line in ran.err.splitlines() if line.startswith("specchat: ")]


def no_second_page(trial: Trial) -> str:
    """Two questions to one engine process ask for the missing metrics page at most once."""
    trial.run("host", "stop")
    ran, _requests = request_with_faults(trial, "one")
    expect(ran.code == 0, ran.err)
    trial.ask("two")
    pages = [each for each in all_requests(trial) if each["path"] == "/metrics"]
    expect(len(pages) <= 1, f"{len(pages)} requests")
    return ""


def all_requests(trial: Trial) -> Sequence[Mapping[str, Any]]:
    requests = trial.get("/_llmock/requests")
    return requests["requests"] if isinstance(requests, dict) else requests


def agent_calls(trial: Trial) -> str:
    """It calls an offered tool, and answers when its result has come."""
    trial.post("/_llmock/reset", {})
    calls = calls_of_agent(trial, "list the files of this folder")
    expect(calls, "no call")
    return count_of(calls, "call")


FAULT_CHECKS: Mapping[str, Callable[[Trial], str | None]] = {
    "`fleet join`, and the model is named": joined,
    "no second question to a metrics page that is missing": no_second_page,
    "429 twice, with `Retry-After`: the answer comes": refused_twice(429),
    "503 twice, with `Retry-After`: the answer comes": refused_twice(503),
    "503 always: one line, code 7": always(503, MAX_RETRIES + 1),
    "400: one line, code 7": always(400, 1),
    "the stream breaks after three pieces: one line, the text is kept": broken_stream("disconnect", "disconnected"),
    "the stream ends early: the same": broken_stream("truncate", "disconnected"),
    "a piece that is no JSON: the same": broken_stream("malformed", "does not follow OpenAI's API"),
    "a loop of the agent": agent_calls,
}
