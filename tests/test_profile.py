"""Profiles, their sources and their errors of one line."""

from __future__ import annotations

import re
import tomllib
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path

import pytest

from specchat.errors import ProfileError
from specchat.profile import keys
from specchat.profile.drafter_names import DRAFTER_NAMES, DRAFTERS
from specchat.profile.environment_keys import environment_source
from specchat.profile.keys import REQUEST_KINDS, Limits, McpServer, Models, Profile, RouteRule, Sampling
from specchat.profile.profile_files import load_profile, profile_names, read_profile_chain
from specchat.profile.project_file import ProjectFile, TrustStore, find_project_file, read_project_file
from specchat.profile.validation import key_info, key_types, merge_sources
from tests.each_row import each_row
from tests.processes import modules_after
from tools.profile_comments import with_comments

SHIPPED = ("chat", "code", "cpu", "creative", "edit", "plain", "rag")
FILES = Path(__file__).parents[1] / "profiles"
DOCS = Path(__file__).parents[1] / "docs"
SETTING = re.compile(r"(?:# )?[a-z_]+ = \S")
PARTS = tuple(each.name for each in fields(Profile) if is_dataclass(getattr(Profile(), each.name)))


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """An empty folder for the profiles of the user."""
    folder = tmp_path / "config" / "profiles"
    folder.mkdir(parents=True)
    monkeypatch.setenv("SPECCHAT_CONFIG", str(folder.parent))
    return folder


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


@each_row("name", SHIPPED)
def test_every_shipped_profile_loads_under_its_name(name):
    assert load_profile(name).name == name


def test_the_shipped_profiles_are_the_files_of_the_folder():
    assert profile_names() == SHIPPED == tuple(sorted(file.stem for file in FILES.glob("*.toml")))


@each_row("name", SHIPPED)
def test_every_key_of_a_shipped_profile_has_a_comment_above_it(name):
    lines = (FILES / f"{name}.toml").read_text(encoding="utf-8").splitlines()
    keys = [number for number, line in enumerate(lines) if SETTING.match(line)]

    assert keys
    assert all(lines[number - 1].startswith("# ") and not SETTING.match(lines[number - 1]) for number in keys)


def _as_toml(value):
    """A value as in the file; -1 stands for None."""
    return -1 if value is None else list(value) if isinstance(value, tuple) else value


def test_the_chat_profile_shows_every_key_with_its_default():
    text = (FILES / "chat.toml").read_text(encoding="utf-8")
    shown = tomllib.loads(re.sub(r"^# (?=[a-z_]+ = )", "", text, flags=re.MULTILINE).replace("seed = 7", "seed = -1"))
    profile = Profile()

    assert shown.keys() == {each.name for each in fields(Profile)}
    for name in PARTS:
        defaults = asdict(getattr(profile, name))
        assert shown[name] == {key: _as_toml(value) for key, value in defaults.items()}
    assert all(name in text for name in key_types(RouteRule))


def test_the_comments_of_the_shipped_profiles_say_what_the_keys_say():
    texts = {path.stem: path.read_text(encoding="utf-8") for path in FILES.glob("*.toml")}

    outdated = [name for name, text in texts.items() if with_comments(text) != text]
    assert [] == outdated, "run 'python -m tools.profile_comments'"


def test_every_key_has_a_meaning_and_every_meaning_a_key():
    tables = [Profile, *(key_types(Profile)[part] for part in PARTS), RouteRule, McpServer]
    meanings = tomllib.loads(Path(keys.__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    names = {kind.__name__: [each for each in key_info(kind) if each not in PARTS] for kind in tables}

    assert names == {table: list(each) for table, each in meanings.items()}


def test_the_help_of_a_key_names_its_choices():
    infos = [info for part in PARTS for info in key_info(key_types(Profile)[part]).values()]

    assert [] == [
        (info.description, missing)
        for info in infos
        if info.choices is not DRAFTER_NAMES and "the same choices" not in info.description
        for missing in info.choices
        if f'"{missing}"' not in info.description
    ]


@each_row("name", SHIPPED)
def test_a_shipped_profile_sets_only_values_that_differ(name):
    text = (FILES / f"{name}.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    parent = load_profile(tables["extends"]) if "extends" in tables else Profile()
    same = {
        (part, key)
        for part in PARTS
        for key, value in tables.get(part, {}).items()
        if getattr(getattr(parent, part), key) == value
    }

    assert same <= {(part, "temperature") for part in PARTS}  # explicit where sampling would do harm


def test_the_chat_profile_has_defaults_and_rules():
    chat = load_profile("chat", {"models.target": "org/model"})

    assert chat == Profile("chat", chat.description, Models("org/model"), routes=chat.routes)
    assert chat.routes


def test_missing_values_come_from_the_extended_profile():
    chat, edit = load_profile("chat"), load_profile("edit")

    assert edit.models == chat.models
    assert edit.speculation.budget > chat.speculation.budget
    assert edit.description != chat.description


def test_an_own_profile_hides_a_shipped_one_and_can_extend_it(own_folder):
    write(own_folder, "edit", 'extends = "edit"\n[limits]\nanswer = 77\n')

    profile = load_profile("edit")

    assert profile.limits.answer == 77
    assert profile.speculation.budget == 32


def test_a_profile_can_be_a_path_and_extend_its_neighbour(tmp_path):
    write(tmp_path, "base", "[sampling]\ntemperature = 1\n")
    path = write(tmp_path, "mine", 'extends = "base.toml"\n[sampling]\ntop_k = 5\n')

    profile = load_profile(str(path))

    assert profile.name == "mine"
    assert profile.sampling == Sampling(temperature=1.0, top_k=5)


@each_row(
    "text, said",
    [
        ("[models]\ntagret = 'x'", ":2: unknown key 'tagret' in [models]; did you mean 'target'?"),
        ("# a\n\n[sampler]\nseed = 1", ":3: unknown key 'sampler'; did you mean 'sampling'?"),
        ("\ntemperature = 1", ":2: unknown key 'temperature'; it belongs in [sampling]; known are name,"),
        ("[sampling]\nbudget = 1", ":2: unknown key 'budget' in [sampling]; it belongs in [speculation]; known are"),
        ("sampling.temprature = 1", ":1: unknown key 'temprature' in [sampling]; did you mean 'temperature'?"),
        ("\nsampling = {temprature = 1}", ":2: unknown key 'temprature' in [sampling]"),
        ('[prompt]\nsystem = """\nwrong = 1\n"""\nwrong = 2', ":5: unknown key 'wrong' in [prompt]"),
        (
            "[[routes]]\nkind = 'chat'\n[[routes]]\nkind = 'code'\ncontians = ['x']",
            ":5: unknown key 'contians' in [routes]; did you mean 'contains'?",
        ),
        (
            "[[routes]]\nkind = 'chat'\n[[routes]]\nkind = 'chta'",
            ":4: routes.kind cannot be 'chta'; did you mean 'chat'?",
        ),
        ("[[routes]]\ncontains = ['x']", ":1: a rule of [[routes]] needs a kind: edit, files,"),
        ("[speculation]\nvariant = 'lokup'", ":2: speculation.variant cannot be 'lokup'; did you mean 'lookup'?"),
        ("[[routes]]\nkind = 'chat'\ncontains = 'x'", ":3: routes.contains must be a list of texts, not 'x'"),
        ("[[routes]]\nkind = 'chat'\ncontains = [1]", ":3: routes.contains must be a list of texts, not [1]"),
        ("[routes]\nkind = 'chat'", ":1: routes must be a list of tables, [[routes]], not"),
        ("routes = [1]", ":1: routes must be a table, [[routes]], not 1"),
        ("[limits]\ncontext = 'big'", "limits.context must be a whole number, not 'big'"),
        ("[limits]\ncontext = true", "limits.context must be a whole number, not True"),
        ("[limits]\ncontext = 64\nanswer = 64", "limits.answer (64) must be below limits.context (64)"),
        ("[sampling]\ntemperature = -1", "sampling.temperature must lie between 0 and 5, not -1"),
        ("[sampling]\ntemperature = nan", "sampling.temperature must lie between 0 and 5, not nan"),
        ("[sampling]\ntop_p = 0.0", "sampling.top_p must be above 0 and at most 1, not 0.0"),
        ("[sampling]\nseed = -1", "sampling.seed must lie between 0 and"),
        ("[speculation]\nvariant = 'lokup'", "speculation.variant cannot be 'lokup'; did you mean 'lookup'?"),
        ("[speculation]\nbudget = 0", "speculation.budget must lie between 1 and 128, not 0"),
        ("[models]\ndtype = 'int8'", "models.dtype cannot be 'int8'"),
        ("[models]\nplace = 'cpu:-1'", "models.place cannot be 'cpu:-1'; known are auto, none, and cpu:N for"),
        ("[models]\nplace = 'cpu:0'", "models.place cannot be 'cpu:0'"),
        ("[models]\nplace = 'twelve'", "models.place cannot be 'twelve'"),
        ("[models]\nplace = 'cuda:0:4'", "models.place cannot be 'cuda:0:4'"),
        ("[models]\nplace = 'cuda:2:4,cuda:1:4'", "the first N layers, then cuda:1:N, cuda:2:N, ... for the next ones"),
        ("[models]\nplace = 'cuda:1:4,cpu:4'", "models.place cannot be 'cuda:1:4,cpu:4'"),
        ("[models]\nplace = 'cpu:4,'", "models.place cannot be 'cpu:4,'"),
        ("[models]\ntarget = ''", "models.target must not be empty"),
        ("models = 3", "models must be a table, [models], not 3"),
        ("name = 3", "name must be a text in quotes, not 3"),
        ("extends = ['a', 'b']", "extends must be a text in quotes, not ['a', 'b']"),
        ("extends = 'chatt'", "extends an unknown profile 'chatt'; did you mean 'chat'?"),
        ("extends = 3", "extends must be a text in quotes, not 3"),
        ("[models", ":1: not valid TOML"),
        (
            "\n[sampling]\ntemprature = hot",
            ":3: not valid TOML: Invalid value (column 14); did you mean 'temperature'?",
        ),
        ("[limits]\nanswer = 1\nanswer = 2", ":3: 'answer' stands twice; keep one"),
        ("[limits]\nanswer = 1\n[limits]\n", ":3: 'limits' stands twice; keep one"),
        ('[prompt]\nsystem = """', "not valid TOML"),
        ("a = " + "[" * 5000, "not valid TOML"),
    ],
)
def test_an_invalid_profile_is_an_error_of_one_line_with_its_location(own_folder, text, said):
    path = write(own_folder, "wrong", text)

    with pytest.raises(ProfileError) as caught:
        load_profile("wrong")

    message = str(caught.value)
    assert re.match(rf"{re.escape(str(path.resolve()))}(:\d+)?: ", message)
    assert message.count(str(path.resolve())) == 1
    assert said in message
    assert "\n" not in message


def test_an_unknown_name_lists_the_known_ones_and_the_nearest():
    with pytest.raises(
        ProfileError,
        match="unknown profile 'edti'; did you mean 'edit'\\? known are chat, code, cpu, creative, edit, plain, rag",
    ):
        load_profile("edti")


def test_a_path_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ProfileError, match=r"gone\.toml: cannot be read: No such file"):
        load_profile(str(tmp_path / "gone.toml"))


def test_profiles_that_extend_each_other_are_refused(own_folder):
    write(own_folder, "one", 'extends = "two.toml"')
    write(own_folder, "two", 'extends = "one.toml"')

    with pytest.raises(ProfileError, match=r"leads back to one\.toml"):
        load_profile("one")


def test_an_override_returns_a_new_profile_and_keeps_the_old_one():
    before = load_profile("chat")

    after = before.override({"sampling.temperature": 1, "limits.answer": 9, "models.draft": None, "name": "mine"})

    assert (after.sampling.temperature, after.limits, after.name) == (1.0, Limits(answer=9), "mine")
    assert after.models == before.models
    assert before == load_profile("chat")


def test_an_override_is_checked_like_a_file():
    with pytest.raises(ProfileError, match=r"^options: sampling\.top_k must lie between 0 and"):
        Profile().override({"sampling.top_k": -2})


def test_an_override_adds_rules_before_those_of_the_profile():
    chat = load_profile("chat")

    after = chat.override({"routes": [{"kind": "code", "contains": ["x"]}]})

    assert after.routes == (RouteRule(kind="code", contains=("x",)), *chat.routes)


def test_rules_of_a_profile_come_before_those_that_it_extends(own_folder):
    write(own_folder, "mine", 'extends = "chat"\n[[routes]]\nkind = "code"\n[[routes]]\nkind = "edit"\n')

    routes = load_profile("mine").routes

    assert ["code", "edit"] == [rule.kind for rule in routes[:2]]
    assert load_profile("chat").routes == routes[2:]


def test_the_user_file_applies_unless_a_profile_sets_a_value(own_folder):
    write(own_folder.parent, "config", "[sampling]\ntemperature = 0.3\n[limits]\nanswer = 99\n")

    assert (0.3, 99) == (load_profile("chat").sampling.temperature, load_profile("chat").limits.answer)
    assert (0.0, 4096) == (load_profile("edit").sampling.temperature, load_profile("edit").limits.answer)


@each_row(
    "text, said",
    [
        ("[sampling]\ntemprature = 1", r"config\.toml:2: unknown key 'temprature'"),
        ("\nextends = 'chat'", r"config\.toml:2: 'extends' belongs in a profile, not in config\.toml"),
        ("[limits]\nanswer = 9000", r"config\.toml:2: limits\.answer \(9000\) must be below limits\.context"),
    ],
)
def test_an_invalid_user_file_is_an_error_of_one_line(own_folder, text, said):
    write(own_folder.parent, "config", text)

    with pytest.raises(ProfileError, match=said):
        load_profile("chat")


def test_contradicting_limits_are_reported_for_the_stronger_source(own_folder):
    write(own_folder, "small", 'extends = "edit"\n[limits]\ncontext = 2048\n')

    with pytest.raises(ProfileError, match=r"small\.toml:3: limits\.answer \(4096\) must be below"):
        load_profile("small")


def test_two_sources_that_are_valid_only_together_are_accepted(own_folder):
    write(own_folder.parent, "config", "[limits]\ncontext = 5000\n")
    write(own_folder, "long", "[limits]\nanswer = 4999\n")

    assert Limits(context=5000, answer=4999) == load_profile("long").limits


def test_every_value_has_an_origin(own_folder, tmp_path):
    write(own_folder.parent, "config", "[sampling]\ntop_k = 1\ntop_p = 0.5\nmin_p = 0.1\nseed = 1\ntemperature = 1\n")
    write(own_folder, "mine", "[sampling]\ntop_p = 0.6\nmin_p = 0.2\nseed = 2\n")
    project = tmp_path / ".specchat.toml"
    project.write_text("[sampling]\nmin_p = 0.3\nseed = 3\n[[routes]]\nkind = 'edit'\n", encoding="utf-8")
    above = (read_project_file(project).source(), environment_source({"SPECCHAT_SAMPLING_SEED": "4"}))
    chain = read_profile_chain("mine")

    settled = merge_sources(Profile(), (*chain, *above))

    assert Sampling(temperature=1.0, top_k=1, top_p=0.6, min_p=0.3, seed=4) == settled.value.sampling
    said = {key: str(settled.origin("sampling", key)) for key in asdict(Sampling())}
    assert said == {
        "temperature": f"user file {own_folder.parent}/config.toml:6",
        "top_k": f"user file {own_folder.parent}/config.toml:2",
        "top_p": f"profile mine {own_folder}/mine.toml:2",
        "min_p": f"project file {project}:2",
        "seed": "environment SPECCHAT_SAMPLING_SEED",
        "repetition_penalty": "default",
        "frequency_penalty": "default",
        "presence_penalty": "default",
    }
    assert f"project file {project}:4" == str(settled.origin("routes", 0))


@each_row(
    "name, value, key, wanted",
    [
        ("SPECCHAT_SAMPLING_TOP_P", "0.5", "sampling.top_p", 0.5),
        ("SPECCHAT_SAMPLING_TOP_K", " 7 ", "sampling.top_k", 7),
        ("SPECCHAT_SPECULATION_EXACT", "Yes", "speculation.exact", True),
        ("SPECCHAT_SPECULATION_EXACT", "0", "speculation.exact", False),
        ("SPECCHAT_MODELS_DRAFT", "", "models.draft", ""),
        ("SPECCHAT_PROMPT_SYSTEM", "Be brief.", "prompt.system", "Be brief."),
    ],
)
def test_the_environment_sets_every_kind_of_key(name, value, key, wanted):
    table, _, word = key.partition(".")

    assert {table: {word: wanted}} == environment_source({name: value}).tables


def test_variables_that_are_no_keys_are_ignored():
    others = {
        "SPECCHAT_CONFIG": "/x",
        "SPECCHAT_RUNTIME": "/y",
        "SPECCHAT_NAME": "z",
        "HOME": "/",
        "SPECCHAT_MODELS": "x",
    }

    assert not environment_source(others).tables


@each_row(
    "name, value, said",
    [
        ("SPECCHAT_SAMPLING_TEMPRATURE", "1", "did you mean 'SPECCHAT_SAMPLING_TEMPERATURE'?"),
        ("SPECCHAT_SAMPLING_SEED", "many", "SPECCHAT_SAMPLING_SEED must be a whole number, not 'many'"),
        ("SPECCHAT_SAMPLING_SEED", "", "SPECCHAT_SAMPLING_SEED must be a whole number, not ''"),
        ("SPECCHAT_SPECULATION_EXACT", "maybe", "SPECCHAT_SPECULATION_EXACT must be true or false, not 'maybe'"),
        (
            "SPECCHAT_SAMPLING_TEMPERATURE",
            "nan",
            "SPECCHAT_SAMPLING_TEMPERATURE: sampling.temperature must lie between",
        ),
        (
            "SPECCHAT_SPECULATION_VARIANT",
            "lokup",
            "SPECCHAT_SPECULATION_VARIANT: speculation.variant cannot be 'lokup'",
        ),
    ],
)
def test_an_invalid_variable_is_an_error_of_one_line_with_its_name(name, value, said):
    with pytest.raises(ProfileError) as caught:
        merge_sources(Profile(), [environment_source({name: value})])

    assert said in str(caught.value)
    assert str(caught.value).startswith(name)


def test_the_project_file_of_the_nearest_folder_upwards_is_found(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / ".specchat.toml").write_text("[limits]\nanswer = 1\n", encoding="utf-8")

    assert tmp_path.resolve() / ".specchat.toml" == found(inner).path
    (tmp_path / "a" / ".specchat.toml").write_text("[limits]\nanswer = 2\n", encoding="utf-8")
    assert {"limits": {"answer": 2}} == found(inner).source().tables


def test_a_model_folder_is_relative_to_the_project_file(tmp_path):
    (tmp_path / "weights").mkdir()
    (tmp_path / ".specchat.toml").write_text("[models]\ntarget = 'weights'\ndraft = 'org/name'\n", encoding="utf-8")

    tables = found(tmp_path).source().tables

    assert {"models": {"target": str(tmp_path.resolve() / "weights"), "draft": "org/name"}} == tables


def found(folder: Path) -> ProjectFile:
    file = find_project_file(folder)
    assert file is not None
    return file


def test_trust_applies_to_the_content_and_not_to_the_path(tmp_path):
    trust, path = TrustStore(tmp_path / "state" / "trusted.json"), tmp_path / ".specchat.toml"
    path.write_text("[limits]\nanswer = 1\n", encoding="utf-8")
    first = read_project_file(path)

    assert trust.is_trusted(first) is None
    trust.record(first, is_trusted=True)
    assert trust.is_trusted(first) is True
    assert trust.is_trusted(replace(first, content=b"[limits]\nanswer = 2\n")) is None
    assert trust.is_trusted(replace(first, path=tmp_path / "other" / ".specchat.toml")) is None
    trust.record(first, is_trusted=False)
    assert trust.is_trusted(first) is False
    assert trust.forget(path)
    assert not trust.forget(path)
    assert trust.is_trusted(first) is None


@each_row("said", ["", "{", "[]", '{"x": 3}', "[" * 50_000, "\0"])
def test_a_broken_trust_store_trusts_no_file_and_can_be_written_again(tmp_path, said):
    trust, file = TrustStore(tmp_path / "trusted.json"), ProjectFile(tmp_path / ".specchat.toml", b"")
    trust.path.write_text(said, encoding="utf-8")

    assert trust.is_trusted(file) is None
    trust.record(file, is_trusted=True)
    assert trust.is_trusted(file) is True
    assert 0o600 == trust.path.stat().st_mode & 0o777


def test_a_too_large_project_file_is_refused(tmp_path):
    (tmp_path / ".specchat.toml").write_bytes(b"#" * (2**20 + 1))

    with pytest.raises(ProfileError, match=r"specchat\.toml: more than 1 MiB"):
        find_project_file(tmp_path)


def test_the_docs_have_every_variant_with_its_description_and_every_kind():
    text = (DOCS / "profiles.md").read_text(encoding="utf-8")

    assert all(f"| `{name}` | {drafter.description} |" in text for name, drafter in DRAFTERS.items())
    assert all(f"`{kind}`" in text for kind in REQUEST_KINDS)
    assert DRAFTER_NAMES == tuple(DRAFTERS)


def test_profiles_are_read_without_torch():
    assert "torch" not in modules_after("from specchat.profile.profile_files import load_profile; load_profile('chat')")
