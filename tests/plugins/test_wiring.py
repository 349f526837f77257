"""The extensions of a plugin in use: a command, a slash command, a loader, a drafter, a server."""

from __future__ import annotations

import json
import sys
from threading import Event

import pytest

from specchat.app.command_registry import ChatState, help_text, run_line
from specchat.chat.request import Request
from specchat.cli.main import run
from specchat.context.at_names import check_name, find_mentions
from specchat.context.retrieve import ContextBudget, gather_context
from specchat.errors import InputError, ModelError, PluginError, ProfileError, UsageError
from specchat.host import spawn
from specchat.host.engine_loader import EngineLoader
from specchat.host.environment import host_environment
from specchat.loading.load_engine import load_engine
from specchat.profile.keys import Profile
from specchat.tui.picker import variant_rows
from specchat.tui.screen_commands import all_commands
from specchat_editors.install.profile_schema import profile_schema
from tests.each_row import each_row
from tests.engine_answers import measure_answer
from tests.processes import modules_after
from tests.tiny import tiny_profile

ASKED = Request("why why why", max_tokens=24, seed=3, temperature=0.8)
MANY = """
import click
from specchat.errors import InputError

@hookimpl
def register_commands():
    return [Extension("hello", "say hello", "many:hello"), Extension("seven", "no command", "many:SEVEN")]

@hookimpl
def register_slash_commands():
    return [
        Extension("shout", "say it louder", "many:shout", "WORDS"),
        Extension("mute", "answers nothing", "many:mute"),
        Extension("theme", "a name of a screen command", "many:shout"),
    ]

@hookimpl
def register_context_loaders():
    return [Extension("twice", "a text twice", "many:twice"), Extension("bytes", "no text", "many:as_bytes")]

SEVEN = 7

@click.command()
@click.argument("name")
def hello(name):
    click.echo(f"hello {name}")

def shout(talk, words):
    from specchat.app.chat_state import CommandResult
    return CommandResult(words.upper())

def mute(talk, words):
    return None

def twice(rest):
    if not rest:
        raise InputError("@twice: what?")
    return rest * 2 if rest != "long" else "x" * 100_000

def as_bytes(rest):
    return b"bytes"
"""
DRAFTERS = """
from specchat.errors import PluginError

@hookimpl
def register_drafters():
    return [Extension(name, f"drafts {name}", f"drafting:{name}") for name in NAMES]

@hookimpl
def register_servers():
    return [Extension("far", "a server", "drafting:connect")]

def connect(profile, on_event):
    return f"the engine of {profile.models.url}"

NAMES = ("wild", "raising", "outside", "elsewhere", "greedy", "stranger", "nobody", "unmade", "missing", "near")

def _drafter(propose):
    from specchat.engine.drafter import Drafter
    drafter = Drafter()
    drafter.propose = propose
    return drafter

def _chain(tokens, root=None):
    def propose(context):
        from specchat.engine.tree import DraftTree
        tree = DraftTree(context.tokens[-1] if root is None else root)
        tree.add_chain(tokens)
        context.tokens.clear()
        return tree
    return propose

def wild(*_parts): return _drafter(_chain([3, 1, 4, 1]))
def raising(_parts): return _drafter(lambda context: 1 / 0)
def outside(_parts): return _drafter(_chain([10**6]))
def elsewhere(_parts): return _drafter(_chain([3], root=-5))
def greedy(_parts): return _drafter(_chain([7] * 500))
def stranger(_parts): return 5
def nobody(_parts): return None
def unmade(_parts): raise RuntimeError("no")

def near(_parts):
    def propose(context):
        assert context.cache.length == len(context.tokens) - 1
        return _chain([3])(context_of(context))
    drafter = _drafter(propose)
    drafter.drafts_with_models = True
    return drafter

def context_of(context):
    from dataclasses import replace
    return replace(context, tokens=list(context.tokens))
"""


@pytest.fixture
def many(install):
    return install("many", MANY)


@pytest.fixture
def drafting(install):
    return install("drafting", DRAFTERS)


@pytest.mark.usefixtures("many")
def test_a_command_is_listed_and_runs(capsys):
    assert 0 == run(["hello", "you"])
    assert "hello you\n" == capsys.readouterr().out

    assert 0 == run(["--help"])
    assert "say hello" in capsys.readouterr().out


@pytest.mark.usefixtures("many")
def test_an_object_that_is_no_command_is_an_error_of_one_line(capsys):
    assert 1 == run(["seven"])
    assert "specchat: plugin many: 'seven' is a int, which is no click.Command\n" == capsys.readouterr().err


@pytest.mark.usefixtures("many")
def test_a_slash_command_answers_in_a_chat_and_is_listed():
    assert "LOUD AND CLEAR" == run_line(ChatState(None), "/shout loud and clear").text
    assert "/shout WORDS" in run_line(ChatState(None), "/help").text
    assert "/shout WORDS" in help_text(all_commands().values())
    with pytest.raises(UsageError, match="did you mean /shout"):
        run_line(ChatState(None), "/shoutt")
    with pytest.raises(PluginError, match="plugin many: 'mute' returned a NoneType"):
        run_line(ChatState(None), "/mute")


@pytest.mark.usefixtures("many")
def test_a_name_of_a_screen_command_is_reserved(capsys):
    assert "choose the colours" == all_commands()["theme"].help
    assert "slash command 'theme' is left out, the name is taken" in capsys.readouterr().err


@pytest.mark.usefixtures("many")
def test_a_loader_is_used_by_its_name_after_an_at():
    assert ["@twice:ab", "@twice:", "@repo"] == find_mentions("see @twice:ab, @twice:. @once:ab @home and @repo!")
    check_name("@twice:")  # fetched with the question, not before
    with pytest.raises(InputError, match="no such file"):
        check_name("@once:ab")

    [attached] = gather_context(["@twice:ab"], "why", ContextBudget(1000, 500)).files
    assert ("@twice:ab", "abab") == (attached.name, attached.text)


@pytest.mark.usefixtures("many")
def test_a_long_text_of_a_loader_is_read_in_parts():
    found = gather_context(["@twice:long"], "why", ContextBudget(1000, 500))

    assert ["@twice:long"] == [file.name for file in found.files]
    assert "read in parts and summarized: @twice:long" in found.notice


@pytest.mark.usefixtures("many")
@each_row(
    "name, error, message",
    [
        ("@twice:", InputError, "@twice: what?"),
        ("@bytes:", PluginError, "plugin many: 'bytes' returned a bytes"),
        ("@twice:\0", InputError, "NUL"),
    ],
)
def test_a_loader_without_a_text_is_an_error(name, error, message):
    with pytest.raises(error, match=message):
        gather_context([name], "why", ContextBudget(1000, 500))


@pytest.mark.usefixtures("drafting")
@each_row("variant", ["wild", "raising", "outside", "elsewhere", "greedy"])
def test_no_drafter_of_a_plugin_can_change_the_text(variant, capsys):
    engine = load_engine(tiny_profile())

    plain = measure_answer(engine, Request(**{**vars(ASKED), "variant": "plain"}))
    theirs = measure_answer(engine, Request(**{**vars(ASKED), "variant": variant}))
    assert plain.text == theirs.text
    is_broken = variant in ("raising", "outside", "elsewhere")
    warnings = [line for line in capsys.readouterr().err.splitlines() if f"drafter {variant!r} is switched off" in line]
    assert is_broken == len(warnings)


@pytest.mark.usefixtures("drafting")
def test_a_drafter_that_reads_the_cache_of_the_target_drafts_in_the_thread_of_the_engine():
    engine = load_engine(tiny_profile())

    plain, near = (
        measure_answer(engine, Request(**{**vars(ASKED), "variant": variant})) for variant in ("plain", "near")
    )

    assert plain.text == near.text
    assert sum(len(step.draft_tokens) for step in near.steps) > 0


@pytest.mark.usefixtures("drafting")
def test_a_drafter_that_cannot_be_built_is_reported_and_left_out(capsys):
    with load_engine(tiny_profile()).create_session() as session:
        assert {"wild", "greedy", "plain"} < set(session.drafters)
        assert not {"stranger", "nobody", "unmade", "missing"} & set(session.drafters)
        assert "wild" in session.chooser.drafters
        *notices, failed = session.ask(Request("why", variant="nobody"))

    assert ["'stranger'", "'unmade'", "'missing'"] == [notice.text.split()[2] for notice in notices]
    assert "'nobody' cannot run with the loaded models" in failed.message
    warnings = capsys.readouterr().err
    assert "'stranger' returned a int, which is not a Drafter" in warnings
    assert "'unmade' failed: RuntimeError: no" in warnings
    assert "'missing' cannot be loaded" in warnings
    assert "nobody" not in warnings


@pytest.mark.usefixtures("drafting")
def test_a_drafter_is_a_variant_everywhere(capsys):
    assert "wild" == Profile().override({"speculation.variant": "wild"}).speculation.variant
    with pytest.raises(ProfileError, match=r"did you mean 'wild'.* known are auto, .*, wild, raising"):
        Profile().override({"speculation.variant": "wil"})
    assert "wild" in profile_schema()["properties"]["speculation"]["properties"]["variant"]["enum"]
    assert "wild" in [row.value for row in variant_rows(None)]
    assert 0 == run(["config", "show", "--json", "--variant", "wild"])
    assert "wild" == json.loads(capsys.readouterr().out)["speculation"]["variant"]
    assert 2 == run(["config", "show", "--variant", "mild"])
    assert "'wild'" in capsys.readouterr().err
    assert 0 == run(["help", "drafters"])
    assert "\nwild " in capsys.readouterr().out


SERVER_URL = "http://127.0.0.1:9/v1"
FAR = {"models.url": SERVER_URL, "models.target": "org/far"}


def connect_to(backend: str) -> object:
    profile = Profile().override({**FAR, "models.backend": backend})
    return EngineLoader().load(profile, lambda _event: None, Event())


@pytest.mark.usefixtures("drafting")
def test_a_server_answers_for_profiles_with_its_name():
    assert f"the engine of {SERVER_URL}" == connect_to("far")
    with pytest.raises(ProfileError, match=r"'far' is a server: give models\.url"):
        Profile().override({"models.backend": "far"})
    with pytest.raises(ModelError, match="uses a server; this command loads the model here"):
        load_engine(Profile().override({**FAR, "models.backend": "far"}))


@each_row("backend", ["vllm", "sglang", "openai"])
def test_a_server_whose_plugin_is_missing_says_how_to_install_it(backend):
    with pytest.raises(UsageError, match=r"pip install \./plugins/specchat-fleet"):
        connect_to(backend)
    with pytest.raises(ProfileError, match=r"give models\.url"):
        Profile().override({"models.backend": backend})
    with pytest.raises(ProfileError, match="must begin with http"):
        Profile().override({"models.backend": backend, "models.url": "127.0.0.1:8000"})


def test_an_unknown_backend_is_an_error():
    with pytest.raises(ProfileError, match=r"models.backend cannot be 'tiny'"):
        tiny_profile().override({"models.backend": "tiny"})
    assert "builtin" == tiny_profile().models.backend


def test_front_ends_know_drafters_of_plugins_without_torch(drafting):
    loaded = modules_after(
        f"import sys; sys.path.insert(0, {str(drafting)!r})\n"
        "from specchat.profile.drafter_names import all_drafters; assert 'wild' in all_drafters()"
    )

    assert "pluggy" in loaded
    assert "torch" not in loaded


@each_row("chosen", ["", "many"])
def test_the_engine_process_loads_the_selected_plugins(monkeypatch, chosen):
    monkeypatch.setenv("SPECCHAT_LOAD_PLUGINS", chosen)

    assert chosen == host_environment()["SPECCHAT_LOAD_PLUGINS"]


def test_changed_code_and_changed_tables_need_another_engine_process(tmp_path, monkeypatch):
    monkeypatch.setattr(spawn, "PACKAGE_FOLDER", tmp_path)
    seen = {spawn.configuration_hash()}
    for name in ("code.py", "tables/rows.toml", "rows.json", "tables/schema.sql"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
        seen.add(spawn.configuration_hash())

    assert len(seen) == 5


def test_another_set_of_plugins_needs_another_engine_process(install, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(install("many", MANY)))
    before = spawn.configuration_hash()
    install("drafting", DRAFTERS)
    after = spawn.configuration_hash()
    monkeypatch.setenv("SPECCHAT_LOAD_PLUGINS", "")

    assert 3 == len({before, after, spawn.configuration_hash()})
