"""What `server_race` starts, and the comparison that it asks for."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

pytest.importorskip("specchat_fleet", reason="the plugin specchat-fleet is not installed")

from tools import server_race


def test_every_way_to_draft_and_ours_are_servers_of_one_comparison(monkeypatch, tmp_path, capsys):
    commands, called = {}, []

    @contextmanager
    def running(server, _packages, _folder):
        commands[server.name] = server.command(tmp_path, 80)
        yield SimpleNamespace(root=f"http://{server.name}:80")

    monkeypatch.setattr(server_race, "running", running)
    monkeypatch.setattr(server_race.subprocess, "call", called.append)

    server_race.main(["m.gguf", "--llama-server", "ls", "--threads", "2", "--types", "none,ngram-mod", "--count", "3"])

    assert ["plain", "auto", "none", "ngram-mod"] == list(commands)
    assert "-t 2" in " ".join(commands["none"])
    assert "--spec-type ngram-mod" in " ".join(commands["ngram-mod"])
    assert "--variant plain" in " ".join(commands["plain"])
    [words] = called
    assert ["-m", "specchat", "bench", "peers", "--ours", "plain=http://plain:80"] == words[1:7]
    assert ["--server", "ngram-mod=http://ngram-mod:80", "--count", "3"] == words[-4:]
    assert "Started by `python -m tools.server_race m.gguf --llama-server ls" in capsys.readouterr().out
