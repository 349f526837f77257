"""`specchat config`, and what becomes of options, environment and project files on their way to a conversation."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from specchat.chat.events import Notice
from specchat.cli.main import run
from specchat.cli.options import KEY_BY_FLAG, parameter_name, read_profile_layers
from specchat.cli.session_options import session_request
from specchat.host.spawn import project_trust
from specchat.profile.drafter_names import DRAFTERS
from specchat.profile.keys import Profile
from specchat.profile.profile_files import load_profile
from tests.each_row import each_row
from tests.front import command
from tests.processes import modules_after
from tests.scripted_session import ScriptedSession, run_with, scripted_answer
from tests.tiny import speaking

QUIET = dict.fromkeys([*(parameter_name(flag) for flag in KEY_BY_FLAG), "exact"])


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """A folder of a project to stand in, with a state folder and a configuration of its own."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    monkeypatch.setenv("SPECCHAT_RUNTIME", str(state))
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path / "config"))
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def settings(project: Path, text: str = "[limits]\nanswer = 200\n") -> Path:
    return write(project / ".specchat.toml", text)


def shown(monkeypatch, *arguments: str) -> dict:
    """What `config show` prints, read back as TOML."""
    ran = command(monkeypatch, "config", "show", *arguments)
    assert ran.code == 0, ran.err
    return tomllib.loads(ran.out.decode())


def options(**given) -> dict:
    """What click passes to a command; everything that is not given is None."""
    return {"profile": "chat", **QUIET, **given}


def answered(*arguments: str) -> Profile:
    """The profile that `ask` opens a conversation with."""
    seen: list[Profile] = []

    def opened(profile):
        seen.append(profile)
        return ScriptedSession([scripted_answer(["x"])])

    assert run_with(["ask", "x", *arguments], opened) == 0
    return seen[0]


def test_what_is_shown_is_a_profile_that_says_the_same(monkeypatch, tmp_path):
    write(tmp_path / "config" / "config.toml", '[prompt]\nsystem = "Say \\"é\\"\\n\\u007f"\n[sampling]\nseed = 3\n')
    ran = command(monkeypatch, "config", "show", "--profile", "plain", "--origin", "--temperature", "0.5")
    saved = write(tmp_path / "plain.toml", ran.out.decode())

    wanted = load_profile("plain").override({"sampling.temperature": 0.5})
    assert wanted == load_profile(str(saved))


def test_every_layer_counts_in_its_turn_and_is_named(monkeypatch, project, tmp_path):
    write(tmp_path / "config" / "config.toml", "[sampling]\ntop_k = 1\nseed = 1\n")
    write(tmp_path / "config" / "profiles" / "mine.toml", 'extends = "chat"\n[sampling]\nseed = 2\ntop_p = 0.2\n')
    settings(project, "[sampling]\nseed = 3\ntop_p = 0.3\nmin_p = 0.03\n")
    assert command(monkeypatch, "config", "trust").code == 0
    monkeypatch.setenv("SPECCHAT_SAMPLING_SEED", "4")
    monkeypatch.setenv("SPECCHAT_SAMPLING_MIN_P", "0.04")

    ran = command(monkeypatch, "config", "show", "--origin", "-P", "mine", "--seed", "5")

    lines = ran.out.decode().splitlines()
    assert "seed = 5  # option --seed" in lines
    assert "min_p = 0.04  # environment SPECCHAT_SAMPLING_MIN_P" in lines
    assert f"top_p = 0.3  # project file {project}/.specchat.toml:3" in lines
    assert f"top_k = 1  # user file {tmp_path}/config/config.toml:2" in lines
    assert "temperature = 0.0  # default" in lines


def test_programs_get_json(monkeypatch):
    plain = json.loads(command(monkeypatch, "config", "show", "--json").out)
    full = json.loads(command(monkeypatch, "config", "show", "--json", "--origin", "--seed", "5").out)

    assert "origins" not in plain
    assert (None, 5) == (plain["sampling"]["seed"], full["sampling"]["seed"])
    assert {"kind": "option", "location": "--seed"} == full["origins"]["sampling.seed"]
    assert {"kind": "default", "location": ""} == full["origins"]["sampling.top_k"]
    assert "profile chat" == full["origins"]["routes.0"]["kind"]


def test_the_files_that_count_are_listed(monkeypatch, project, tmp_path):
    before = command(monkeypatch, "config", "path").out.decode()
    settings(project)
    asked = command(monkeypatch, "config", "path").out.decode()
    command(monkeypatch, "config", "trust")
    after = command(monkeypatch, "config", "path").out.decode()

    assert "project file  none" in before
    assert f"{tmp_path}/config/config.toml (does not exist)" in before
    assert f"{project}/.specchat.toml (not decided yet)" in asked
    assert f"{project}/.specchat.toml (trusted)" in after


def test_an_untrusted_project_file_is_left_out_with_one_line(monkeypatch, project):
    settings(project)

    ran = command(monkeypatch, "config", "show")

    assert 1024 == tomllib.loads(ran.out.decode())["limits"]["answer"]
    assert (
        f"specchat: {project}/.specchat.toml is not trusted and ignored; 'specchat config trust' accepts it\n"
        == ran.err
    )


def test_on_a_terminal_it_is_asked_about_once_and_shown(monkeypatch, project):
    settings(project)

    first = command(monkeypatch, "config", "show", stdin=b"y\n", on_terminal=True)
    second = command(monkeypatch, "config", "show", on_terminal=True)

    assert f"{project}/.specchat.toml sets limits.answer = 200\n" in first.err
    assert "use it in this folder and below" in first.err
    assert not second.err
    assert [200, 200] == [tomllib.loads(ran.out.decode())["limits"]["answer"] for ran in (first, second)]


def test_a_no_is_remembered_as_well(monkeypatch, project):
    settings(project)

    first = command(monkeypatch, "config", "show", stdin=b"n\n", on_terminal=True)
    second = command(monkeypatch, "config", "show", on_terminal=True)

    assert "use it in this folder" in first.err
    assert not second.err
    assert [1024, 1024] == [tomllib.loads(ran.out.decode())["limits"]["answer"] for ran in (first, second)]


def test_who_gives_no_answer_is_asked_again(monkeypatch, project):
    file = settings(project)

    assert 130 == command(monkeypatch, "config", "show", stdin=b"", on_terminal=True).code
    assert str(file.resolve()) not in (project_trust().path.read_text() if project_trust().path.exists() else "")


def test_a_changed_file_is_asked_about_again(monkeypatch, project):
    settings(project)
    command(monkeypatch, "config", "trust")
    assert 200 == shown(monkeypatch)["limits"]["answer"]

    settings(project, "[limits]\nanswer = 300\n")

    assert "is not trusted and ignored" in command(monkeypatch, "config", "show").err
    assert 1024 == shown(monkeypatch)["limits"]["answer"]


def test_trust_can_be_given_to_a_folder_and_taken_back(monkeypatch, project):
    settings(project)
    monkeypatch.chdir(project.parent)

    given = command(monkeypatch, "config", "trust", "project")
    monkeypatch.chdir(project)
    assert 200 == shown(monkeypatch)["limits"]["answer"]
    taken = command(monkeypatch, "config", "trust", "--forget")

    assert b"is trusted until it changes; it sets limits.answer = 200\n" in given.out
    assert b"forgotten" in taken.out
    assert b"was not known" in command(monkeypatch, "config", "trust", "--forget").out
    assert 1024 == shown(monkeypatch)["limits"]["answer"]


def test_a_project_counts_in_the_folders_below_it(monkeypatch, project):
    settings(project)
    command(monkeypatch, "config", "trust")
    below = project / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)

    assert 200 == shown(monkeypatch)["limits"]["answer"]


def test_what_a_project_file_says_cannot_play_tricks_on_the_terminal(monkeypatch, project):
    settings(project, '[prompt]\nsystem = "\\u001b[2J"\n')
    value = command(monkeypatch, "config", "show", stdin=b"n\n", on_terminal=True)
    settings(project, '"\\u001b[2J" = 1\n')
    key = command(monkeypatch, "config", "show", stdin=b"n\n", on_terminal=True)

    assert "\x1b" not in value.err + key.err
    assert "sets nothing usable" in key.err


@each_row(
    "text, said",
    [
        ("[limits]\nanwser = 1", ".specchat.toml:2: unknown key 'anwser' in [limits]; did you mean 'answer'?"),
        ("[limits\n", ".specchat.toml:1: not valid TOML"),
        ("extends = 'edit'", ".specchat.toml:1: 'extends' belongs in a profile, not in .specchat.toml"),
        ("[speculation]\nvariant = 'magic'", ".specchat.toml:2: speculation.variant cannot be 'magic'"),
    ],
)
def test_a_wrong_project_file_is_not_trusted(monkeypatch, project, text, said):
    settings(project, text)

    ran = command(monkeypatch, "config", "trust")

    assert 2 == ran.code
    assert said in ran.err
    assert 1 == ran.err.count("\n")
    assert "is not trusted" in command(monkeypatch, "config", "show").err


def test_a_folder_without_a_project_file_cannot_be_trusted(monkeypatch, project):
    ran = command(monkeypatch, "config", "trust")

    assert 2 == ran.code
    assert f"specchat: {project}/.specchat.toml: no such file; a project is trusted by its .specchat.toml\n" == ran.err


@each_row(
    "arguments, said",
    [
        (["-P", "edti"], "unknown profile 'edti'; did you mean 'edit'?"),
        (["--temperature", "9"], "--temperature: sampling.temperature must lie between 0 and 5, not 9.0"),
        (["--max-tokens", "9999"], "--max-tokens: limits.answer (9999) must be below limits.context (8192)"),
    ],
)
def test_bad_input_is_one_line(monkeypatch, arguments, said):
    ran = command(monkeypatch, "config", "show", *arguments)

    assert 2 == ran.code
    assert f"specchat: {said}" in ran.err
    assert 1 == ran.err.count("\n")


def test_a_conversation_is_opened_as_all_layers_want_it(monkeypatch, project):
    settings(project, "[limits]\nanswer = 200\n[sampling]\ntop_k = 3\n")
    command(monkeypatch, "config", "trust")
    monkeypatch.setenv("SPECCHAT_SAMPLING_TOP_K", "4")

    profile = answered("--seed", "5")

    assert (200, 4, 5) == (profile.limits.answer, profile.sampling.top_k, profile.sampling.seed)


def test_what_counts_more_than_the_profile_travels_and_nothing_else(monkeypatch, project, tmp_path):
    write(tmp_path / "config" / "config.toml", "[sampling]\nmin_p = 0.1\n")
    settings(project, "[limits]\nanswer = 200\n[[routes]]\nkind = 'edit'\ncontains = ['x']\n")
    command(monkeypatch, "config", "trust")
    monkeypatch.setenv("SPECCHAT_LIMITS_ANSWER", "300")

    chosen = read_profile_layers(options(profile="edit", seed=5))

    overrides = chosen.settings().options
    assert {"limits.answer": 300, "sampling.seed": 5, "routes": [{"kind": "edit", "contains": ["x"]}]} == overrides
    assert chosen.resolve().value == load_profile("edit").override(json.loads(json.dumps(overrides)))


def test_the_folder_of_a_model_travels_by_its_whole_name(project):
    for name in ("config.json", "tokenizer.json"):
        write(project / "weights" / name, "{}")

    overrides = read_profile_layers(options(target="weights", draft="org/name")).settings().options

    assert {"models.target": str(project / "weights"), "models.draft": "org/name"} == overrides


def test_the_environment_reaches_the_engine_process(monkeypatch):
    monkeypatch.setenv("SPECCHAT_LIMITS_ANSWER", "300")

    assert {"limits.answer": 300} == session_request(options()).settings.options


def test_a_list_in_the_environment_has_commas(monkeypatch):
    monkeypatch.setenv("SPECCHAT_MODELS_HEADS", "org/eagle3,org/medusa")

    assert {"models.heads": ("org/eagle3", "org/medusa")} == session_request(options()).settings.options


def test_who_can_guess_is_said_by_the_help(capsys):
    assert run(["help", "drafters"]) == 0

    said = " ".join(capsys.readouterr().out.split())
    assert all(f"{name} {drafter.description}" in said for name, drafter in DRAFTERS.items())


@pytest.mark.full
def test_config_imports_nothing_heavy(project):
    settings(project)

    code = "from specchat.cli.main import run; run(['config', 'show'])"
    assert not {"torch", "transformers", "textual", "tokenizers"} & modules_after(code)


def test_heads_are_named_one_by_one_and_their_folders_become_absolute(project):
    (project / "head").mkdir()

    layers = read_profile_layers(options(head=("head", "org/eagle3")))

    assert (str(project / "head"), "org/eagle3") == layers.resolve().value.models.heads
    assert () == read_profile_layers(options(head=("",))).resolve().value.models.heads
    assert ("auto",) == read_profile_layers(options(head=())).resolve().value.models.heads


def test_a_named_draft_or_head_that_does_not_fit_is_an_error_in_one_line(monkeypatch):
    for named in (["--draft", "embedded"], ["--head", "embedded/eagle3"], ["--head", "embedded"]):
        ran = command(monkeypatch, "ask", "--target", str(speaking()), *named, "why")

        assert (7, 1) == (ran.code, ran.err.count("\n")), ran.err
        assert "does not fit" in ran.err
        assert "leave --" in ran.err


def test_a_notice_goes_to_stderr_and_leaves_the_answer_alone(capsys):
    events = [Notice("draft left out"), *scripted_answer(["yes"])]

    run_with(["ask", "why"], lambda _profile: ScriptedSession([events]))

    printed = capsys.readouterr()
    assert "yes\n" == printed.out
    assert "draft left out" == printed.err.splitlines()[0]
