"""`python -m tools.load_changes`: the shown speedup beside the truth, while other programs start and stop."""

from __future__ import annotations

import json
import subprocess
import sys

from specchat.chat.events import CommittedToken, Speedup, StepDone, TextDelta
from specchat.errors import InputError, UsageError
from tests.each_row import each_row
from tests.tiny import speaking
from tools import burner
from tools.instrument import run_instrument
from tools.load_changes import LOAD_PATTERNS, Burners, LoadAnswer, LoadPattern, as_table, load, plain_line, with_load

ON_OFF = LoadPattern("on and off", ((0.0, False), (0.25, True), (0.5, False)))


class Switch:
    """Burners that only record what they are set to."""

    def __init__(self) -> None:
        self.states: list[bool] = []

    def set_running(self, *, is_running: bool) -> None:
        self.states.append(is_running)


def step(tokens: int) -> StepDone:
    return StepDone((), (), (CommittedToken(1, b"a", "target"),) * tokens, 0.0, 0.1)


def answer(shown: Speedup | None, plain: tuple[float, float] = (2.0, 2.0), pattern: str = "calm") -> LoadAnswer:
    return LoadAnswer(pattern, 10, shown, 1.0, plain, (1.0, 1.0))


def test_the_load_changes_at_its_shares_of_an_answer():
    switch = Switch()
    events = [TextDelta("a"), *map(step, (10, 20, 40, 10))]

    assert list(with_load(events, ON_OFF, 100, switch)) == events
    assert switch.states == [False, False, True, False, False]


def test_every_pattern_says_what_happens_from_the_first_token_on():
    assert all(pattern.changes[0][0] == 0.0 for pattern in LOAD_PATTERNS)
    assert {pattern.is_busy(0, 100) for pattern in LOAD_PATTERNS} == {False, True}


def test_the_truth_is_the_mean_of_plain_decoding_before_and_after():
    near, far = answer(Speedup(2.2, 0.1), (1.9, 2.1)), answer(Speedup(2.4, 0.1))

    assert near.true_factor == 2.0
    assert (near.is_near, near.is_inside) == (True, True)
    assert (far.is_near, far.is_inside) == (False, False)


def test_the_table_counts_numbers_and_ranges_apart_and_leaves_out_what_is_not_known():
    answers = [
        answer(Speedup(2.1, 0.1)),
        answer(Speedup(3.0, 0.1)),
        answer(Speedup(2.4, 0.5), pattern="busy"),
        answer(None, pattern="busy"),
        answer(Speedup(9.0, 0.1), (2.0, 3.0), pattern="busy"),
    ]
    rows = [line.split(" | ") for line in as_table(answers).removeprefix("| ").splitlines()[2:]]

    counted = {row[0].removeprefix("| "): [int(cell) for cell in row[1:7]] for row in rows}
    assert counted == {"calm": [2, 0, 2, 1, 0, 0], "busy": [2, 1, 0, 0, 1, 0], "all": [4, 1, 2, 1, 1, 0]}
    assert plain_line(answers) == "plain decoding reads 1.00 to 1.00 in 10 answers"


def test_burners_live_as_long_as_their_context():
    with Burners(2) as burners:
        assert [process.poll() for process in burners.processes] == [None, None]
        burners.set_running(is_running=True)

    assert all(process.poll() is not None for process in burners.processes)


def test_a_burner_ends_with_the_program_that_started_it(tmp_path):
    (tmp_path / "flag").write_bytes(b"\1")
    start = f"""
import os, subprocess, sys
subprocess.Popen([sys.executable, {burner.__file__!r}, {str(tmp_path / "flag")!r}, str(os.getpid())])
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", start], stdout=subprocess.PIPE, check=True, timeout=120)  # until all end


def load_command(*arguments: str) -> int:
    models = ("--target", str(speaking()), "--draft", "")
    return run_instrument(load, [*models, "--limit", "8", "--burners", "1", "--drafter", "suffix", *arguments])


def test_the_command_prints_a_table_and_stores_every_answer(tmp_path, capsys):
    assert load_command("--count", "2", "--json", str(tmp_path / "answers.json")) == 0

    printed = capsys.readouterr()
    assert "| all | " in printed.out
    assert "in 4 answers" in printed.out
    assert "2/2 busy" in printed.err
    assert [each["pattern"] for each in json.loads((tmp_path / "answers.json").read_text())] == ["calm", "busy"]


def test_ctrl_c_leaves_the_answers_so_far(monkeypatch, capsys):
    def interrupted(*_arguments):
        yield answer(Speedup(2.0, 0.1))
        raise KeyboardInterrupt

    monkeypatch.setattr("tools.load_changes.measure_answers", interrupted)

    assert load_command() == 130
    assert "| calm | 1 |" in capsys.readouterr().out


@each_row(
    "arguments, code, said",
    [
        (("--drafter", "nobody"), UsageError.exit_code, "unknown drafter 'nobody'"),
        (("--json", "gone/answers.json"), InputError.exit_code, "its folder does not exist"),
        (("gone.jsonl",), InputError.exit_code, "no such file or folder"),
    ],
)
def test_what_cannot_be_measured_is_said_before_models_are_loaded(arguments, code, said, capsys):
    assert load_command(*arguments) == code
    assert said in capsys.readouterr().err
