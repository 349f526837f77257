"""plugins/example-drafter, installed by pip without the network, and used in conversations."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from specchat.app.command_registry import ChatState, run_line
from specchat.chat.request import Attachment, Request
from specchat.cli.main import run
from specchat.context.retrieve import ContextBudget, gather_context
from specchat.loading.load_engine import load_engine
from specchat.profile.keys import Profile
from tests.engine_answers import measure_answer
from tests.plugins.conftest import rediscover

pytestmark = pytest.mark.full  # pip builds it first

SOURCE = Path(__file__).parents[2] / "plugins" / "example-drafter"
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
CODE = "ROWS = [\n    1, 2, 3, 4, 5, 6, 7, 8, 9, 10,\n]\n\n\ndef total(values):\n    return sum(values)\n"
COUNTING = Request("Rename total to add_up.", (Attachment("a.py", CODE),), max_tokens=80, task="edit")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder into which pip installed the plugin."""
    pytest.importorskip("setuptools", reason="the build backend of the example is not installed")
    folder = tmp_path_factory.mktemp("example")
    source = shutil.copytree(SOURCE, folder / "source")  # a build writes files into the source folder
    made = subprocess.run([*PIP, "--target", folder / "site", source], capture_output=True, text=True, check=False)
    assert 0 == made.returncode, made.stderr
    return folder / "site"


@pytest.fixture
def example(installed, monkeypatch):
    """The folder is on the import path."""
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.setenv("SPECCHAT_LOAD_PLUGINS", "counting")
    rediscover()
    yield installed
    rediscover()


@pytest.mark.usefixtures("example")
def test_the_list_has_its_version_and_its_extensions(capsys):
    assert 0 == run(["plugins"])

    assert [
        "counting (specchat-counting 0.1.0)",
        "  --variant counting     continues sequences of numbers",
        "  /count N               ask for the numbers from 1 to N",
        "  @numbers:…             a sequence of numbers, as in @numbers:1-20",
    ] == capsys.readouterr().out.splitlines()


@pytest.mark.usefixtures("example")
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_its_drafts_are_accepted_and_the_text_is_that_of_plain_decoding(temperature):
    engine = load_engine(Profile())
    asked = replace(COUNTING, temperature=temperature, seed=5)

    plain, drafted = (measure_answer(engine, replace(asked, variant=variant)) for variant in ("plain", "counting"))
    assert plain.text == drafted.text
    sources = [each.source for step in drafted.steps for each in step.committed_tokens]
    assert sources.count("counting") >= 8
    assert len(drafted.steps) < len(plain.steps)


@pytest.mark.usefixtures("example")
def test_its_command_sends_a_request_and_its_loader_attaches():
    assert "Count from 1 to 12," in run_line(ChatState(None), "/count 12").request.text

    [attached] = gather_context(["@numbers:3-5"], "why", ContextBudget(1000, 500)).files
    assert ("@numbers:3-5", "3\n4\n5\n") == (attached.name, attached.text)


def test_its_own_tests_pass(installed):
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(installed), str(root)])
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "full or not full", "--doctest-modules",
         "--pyargs", "specchat_counting.sequences", SOURCE / "tests"],
        env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}, cwd=installed,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert re.search(r"\b6 passed", ran.stdout), ran.stdout


def test_it_reaches_the_engine_process_of_an_environment(installed, tmp_path):
    """In another virtual environment, the commands and the host that they start find the plugin."""
    made = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)
    [packages] = made.glob("lib/python*/site-packages")
    shutil.copytree(installed, packages, dirs_exist_ok=True)
    (packages / "ours.pth").write_text("\n".join(path for path in [str(Path(__file__).parents[2]), *sys.path] if path))
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    program = [made / "bin" / "python", "-m", "specchat"]
    environment = {**os.environ, "SPECCHAT_RUNTIME": str(runtime)}
    try:
        texts = [
            subprocess.run(
                [*program, "ask", "--variant", variant, "Count: 1, 2, 3, 4"], stdin=subprocess.DEVNULL,
                capture_output=True, text=True, env=environment, check=True,
            ).stdout
            for variant in ("plain", "counting")
        ]  # fmt: skip
    finally:
        subprocess.run([*program, "host", "stop"], env=environment, capture_output=True, check=False)
    assert texts[0] == texts[1] != ""
