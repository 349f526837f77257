"""The starter model, as a new user meets it: it answers in sentences, and drafts do not change its text."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import lru_cache

import pytest

from specchat.chat.events import Finished, TextDelta, Totals
from specchat.chat.request import Request
from specchat.cli.demo import QUESTIONS
from specchat.loading.load_engine import Engine, load_engine
from specchat.profile.profile_files import load_profile

FUNCTION, EDIT = QUESTIONS
CAPITAL = Request("What is the capital of Japan?")  # its first tokens are no near tie on any CPU
SETTINGS = {"models.device": "cpu", "sampling.temperature": 0.0}


@lru_cache
def engine() -> Engine:
    return load_engine(load_profile("chat", SETTINGS))


@lru_cache
def answer(request: Request, variant: str) -> tuple[str, Totals]:
    with engine().create_session() as session:
        events = list(session.ask(replace(request, variant=variant, max_tokens=90)))
    assert isinstance(events[-1], Finished), events[-1]
    return "".join(event.text for event in events if isinstance(event, TextDelta)), events[-1].totals


@pytest.mark.full
def test_it_is_the_model_of_a_profile_that_names_none():
    assert "starter" == load_profile("chat").models.target
    assert 49152 == engine().models.target.vocab_size


def test_it_knows_a_fact():
    assert "Tokyo" in answer(CAPITAL, "plain")[0]


@pytest.mark.full
def test_it_writes_a_function_and_says_what_it_does():
    text, _totals = answer(FUNCTION, "plain")

    assert "def " in text and "[::-1]" in text
    assert re.search(r"\b[A-Z][\w ,`'-]+\.(\s|$)", text), text  # the words depend on how the CPU rounds


@pytest.mark.full
def test_it_edits_a_text_that_is_attached():
    text, _totals = answer(EDIT, "plain")

    assert text.strip() == QUESTIONS[1].files[0].text.replace("Ada Lind", "Marie Holm")


@pytest.mark.dear
@pytest.mark.parametrize("request_", [FUNCTION, EDIT, CAPITAL], ids=["function", "edit", "fact"])
def test_drafts_do_not_change_the_text(request_):
    assert answer(request_, "plain")[0] == answer(request_, "auto")[0]


@pytest.mark.full
def test_an_edit_takes_a_fraction_of_the_passes():
    assert answer(EDIT, "suffix")[1].tokens_per_step > 4


@pytest.mark.full
def test_the_demo_ends_with_the_same_texts(tmp_path):
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    environment = {**os.environ, "SPECCHAT_RUNTIME": str(runtime)}

    ran = subprocess.run(
        [sys.executable, "-m", "specchat", "demo"], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    subprocess.run([sys.executable, "-m", "specchat", "host", "stop"], env=environment, check=True, capture_output=True)

    assert 0 == ran.returncode, ran.stderr
    assert 2 == ran.stderr.count("\nthe same text, ")
    assert 2 == ran.stdout.count("Marie Holm")


@pytest.mark.full
def test_it_calls_a_tool_by_grammar_and_answers(tmp_path):
    runtime, project = tmp_path / "run", tmp_path / "project"
    runtime.mkdir(mode=0o700)
    project.mkdir()
    (project / "shapes.py").write_text("def area(w, h):\n    return w * h\n")
    environment = {**os.environ, "SPECCHAT_RUNTIME": str(runtime)}
    specchat = [sys.executable, "-m", "specchat"]

    ran = subprocess.run(
        [*specchat, "ask", "--agent", "--temperature", "0", "List the files"], env=environment, cwd=project,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    subprocess.run([*specchat, "host", "stop"], env=environment, check=True, capture_output=True)

    assert 0 == ran.returncode, ran.stderr
    assert "\n* list" in ran.stderr, ran.stderr
    assert ran.stdout.strip(), ran.stderr
    assert "tool_call" not in ran.stdout
