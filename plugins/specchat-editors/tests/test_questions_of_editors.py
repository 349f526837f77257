"""A question of an editor reads the files that every other front end reads, and refuses the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from acp_tests.conftest import Served
from tests.app.test_ask_verb import faults_of, folder, mentioned  # noqa: F401 (a fixture)
from tests.host.conftest import runtime  # noqa: F401 (a fixture)


def by_editor(_patch: pytest.MonkeyPatch, names: Sequence[str]) -> str:
    served = Served()
    try:
        served.editor.initialize()
        served.editor.ask(served.editor.new(Path.cwd()), mentioned(names))
        return served.editor.said()
    finally:
        served.end()


def test_an_editor_reads_the_same_files_and_refuses_the_same(folder, monkeypatch):  # noqa: F811 (the fixture)
    wrong = faults_of({"editor": by_editor}, monkeypatch)

    assert not wrong, "\n".join(wrong)
