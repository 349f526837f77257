"""`specchat bench peers --server`, beside servers that answer what a test says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from specchat.cli.main import run
from specchat.errors import UsageError
from specchat_bench.server_race import ChatServer, RacedPrompt, ServerAnswer
from specchat_bench.server_race_table import as_table
from tests.each_row import each_row

QUICK = ["--count", "1", "--limit", "4"]


class FakeServer(ThreadingHTTPServer):
    """An OpenAI-compatible server; each text of an answer is a token."""

    def __init__(self, *, texts=("a", "b", "c"), end="[DONE]", usage=None, status=200) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.texts, self.end, self.status = texts, end, status
        self.usage = {"completion_tokens": len(texts)} if usage is None else usage
        self.bodies: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: FakeServer

    def do_GET(self) -> None:
        self._start("application/json")
        self.wfile.write(json.dumps({"data": [{"id": "tiny.gguf"}]}).encode())

    def do_POST(self) -> None:
        assert self.path == "/v1/chat/completions"
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._start("text/event-stream")
        if self.server.status != 200:
            return
        self.wfile.write(b": reading the prompt\n\n")
        self._send({"choices": [{"delta": {"role": "assistant", "content": None}}]})
        for text in self.server.texts:
            self._send({"choices": [{"delta": {"content": text}}]})
        self._send({"choices": [], "usage": self.server.usage})
        self.wfile.write(f"data: {self.server.end}\n\n".encode())

    def _start(self, kind: str) -> None:
        self.send_response(self.server.status)
        self.send_header("Content-Type", kind)
        self.end_headers()

    def _send(self, event: Mapping[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

    def log_message(self, format: str, *_arguments: object) -> None: ...


@contextmanager
def running(**settings: Any) -> Iterator[FakeServer]:
    with FakeServer(**settings) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def race(*servers: str, ours: str) -> int:
    words = [word for server in servers for word in ("--server", server)]
    return run(["bench", "peers", *words, "--ours", ours, *QUICK])


def rows_of(out: str) -> list[list[str]]:
    """The cells of the table, without its header."""
    return [line.strip("| ").split(" | ") for line in out.splitlines() if line.startswith("|")][2:]


def test_servers_are_compared_with_ours_by_the_clock_of_a_client(capsys):
    with running() as ours, running() as plain, running(texts=("a", "b", "d")) as drafting:
        assert 0 == race(f"plain={plain.url}", f"ngram={drafting.url}/v1", ours=f"auto={ours.url}")

        out, err = capsys.readouterr()
        rows = rows_of(out)
        names = [("auto", "plain"), ("auto", "ngram"), ("auto", "**fastest for each**")]
        expected = [(kind, *each) for kind in ("chat", "code", "edit") for each in names]
        assert expected == [(*row[:2], row[2].partition(": ")[0]) for row in rows]
        assert ["1 of 1", "0 of 1"] == [row[-1] for row in rows[:2]]
        assert "chat 1: fastest " in err
        assert 6 == len(ours.bodies) == len(plain.bodies) == len(drafting.bodies)  # three kinds, each with a warm-up


def test_all_servers_get_the_same_greedy_chats_and_none_has_their_beginning(capsys):
    with running() as ours, running() as theirs:
        assert 0 == race(theirs.url, ours=ours.url)

        assert ours.bodies == theirs.bodies
        assert {(0, 4, True, False)} == {
            tuple(body[name] for name in ("temperature", "max_tokens", "stream", "cache_prompt"))
            for body in ours.bodies
        }
        systems = [body["messages"][0]["content"] for body in ours.bodies]
        assert len(systems) == len(set(systems))
        assert "class Basket" in ours.bodies[-1]["messages"][1]["content"]  # the file of an edit
        assert theirs.url.removeprefix("http://") in capsys.readouterr().out


def test_cached_tokens_of_prompts_are_told(capsys):
    usage = {"completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 17}}
    with running() as ours, running(usage=usage) as theirs:
        assert 0 == race(theirs.url, ours=ours.url)

    assert "at most 0 tokens were cached in ours and 17 in theirs" in capsys.readouterr().out


def test_the_fastest_server_is_chosen_for_each_prompt():
    def answer(seconds: float) -> ServerAnswer:
        return ServerAnswer("a", 10, 0, 1.0, seconds)

    raced = [
        RacedPrompt("chat", {"auto": answer(2.0)}, {"plain": answer(4.0), "ngram": answer(8.0)}),
        RacedPrompt("chat", {"auto": answer(2.0)}, {"plain": answer(6.0), "ngram": answer(2.0)}),
    ]

    fastest = rows_of(as_table(raced))[-1]

    assert "**fastest for each**: plain 1, ngram 1" == fastest[2]
    assert ["1.50 (1.00-2.00)", "1.00 (1.00-1.00)", "2.00 (1.00-3.00)"] == fastest[5:8]  # answer, first text, decoding


@each_row(
    "settings, said",
    [
        ({"status": 503}, "status 503"),
        ({"texts": ()}, "or without any"),
        ({"usage": {"prompt_tokens": 3}}, "an answer without the number of its tokens"),
        ({"end": "{"}, "the stream broke off"),
        ({"end": '{"error": "no room"}'}, "no room"),
        ({"end": "{}"}, "the stream ended without [DONE]"),
    ],
)
def test_a_server_that_does_not_answer_well_is_one_line(settings, said, capsys):
    with running() as ours, running(**settings) as theirs:
        assert 0 != race(theirs.url, ours=ours.url)

    err = capsys.readouterr().err.splitlines()
    assert said in err[-1]
    assert theirs.url in err[-1]


def test_the_first_text_of_an_empty_answer_is_its_end():
    with running(texts=("",)) as server:
        answer = ChatServer("a", server.url).answer({})

    assert ("", 1, answer.seconds) == (answer.text, answer.tokens, answer.first_text_seconds)


def test_a_server_that_is_not_there_is_one_line(capsys):
    with running() as gone:
        url = gone.url

    assert 0 != race(url, ours=url.replace("http", "auto=http", 1))

    assert "no server answers there" in capsys.readouterr().err.splitlines()[-1]


@each_row(
    "words, said",
    [
        (["--server", "localhost:1"], "give a server as http://ADDRESS:PORT"),
        (["--server", "a=https://b:1"], "give a server as http://ADDRESS:PORT"),
        (["--server", "a=http://b:1", "--server", "a=http://b:2"], "a: two servers have this name"),
        (["--server", "http://b:1", "--gguf", "x.gguf"], "--server decides what is compared and how; leave --gguf out"),
        (["--server", "http://b:1", "--threads", "1"], "leave --threads out"),
        (["--server", "http://b:1", "--target", "embedded"], "leave --target out"),
        (["--server", "http://b:1", "--count", "0"], "--count and --limit must be at least 1"),
    ],
)
def test_what_cannot_be_raced_is_one_line(words, said, capsys):
    assert 2 == run(["bench", "peers", *words])

    err = capsys.readouterr().err
    assert said in err
    assert 1 == len(err.splitlines())


def test_a_name_may_stand_before_an_address():
    assert ChatServer("no drafts", "http://b:1/v1") == ChatServer.parse("no drafts=http://b:1/v1")
    assert ChatServer("b:1", "http://b:1/v1?a=b") == ChatServer.parse("http://b:1/v1?a=b")
    with pytest.raises(UsageError):
        ChatServer.parse("a=b")


def test_an_interrupted_race_prints_the_rows_so_far(monkeypatch, capsys):
    with running() as ours, running() as theirs:
        monkeypatch.setattr("specchat_bench.server_race._fastest", _interrupt_after(1))

        assert 130 == race(theirs.url, ours=ours.url)

    out, err = capsys.readouterr()
    assert ["chat"] == [row[0] for row in rows_of(out)]
    assert "interrupted; the table has what was measured so far" in err


def _interrupt_after(calls: int) -> Any:
    left = iter(range(calls))

    def fastest(answers: Mapping[str, ServerAnswer]) -> str:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return next(iter(answers))

    return fastest
