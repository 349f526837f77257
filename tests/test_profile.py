"""A profile says what it should, or one line says what is wrong with it."""

from __future__ import annotations

import tomllib
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from specchat.errors import ProfileError
from specchat.profile import Limits, Profile, Sampling, load_profile, profile_names
from tests.processes import modules_after

SHIPPED = ("chat", "cpu", "edit", "plain")
FILES = Path(__file__).parents[1] / "profiles"


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """An empty folder for the user's own profiles."""
    folder = tmp_path / "config" / "profiles"
    folder.mkdir(parents=True)
    monkeypatch.setenv("SPECCHAT_CONFIG", str(folder.parent))
    return folder


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_profile_loads_under_its_name(name):
    assert load_profile(name).name == name


def test_the_shipped_profiles_are_the_files_of_the_folder():
    assert profile_names() == SHIPPED == tuple(sorted(file.stem for file in FILES.glob("*.toml")))


@pytest.mark.parametrize("name", SHIPPED)
def test_every_key_of_a_shipped_profile_has_a_comment_above_it(name):
    lines = (FILES / f"{name}.toml").read_text(encoding="utf-8").splitlines()
    keys = [number for number, line in enumerate(lines) if "=" in line and not line.startswith(("#", "["))]

    assert keys
    assert all(lines[number - 1].startswith("# ") for number in keys)


def test_the_chat_profile_shows_every_key_there_is():
    text = (FILES / "chat.toml").read_text(encoding="utf-8").replace("# seed", "seed")
    tables = tomllib.loads(text)
    parts = {each.name: getattr(Profile(), each.name) for each in fields(Profile)}

    assert tables.keys() == parts.keys()
    for name, part in parts.items():
        if is_dataclass(part):
            assert tables[name].keys() == {each.name for each in fields(part)}


def test_the_chat_profile_says_what_is_so_anyway():
    chat = load_profile("chat")

    assert chat == Profile(name="chat", description=chat.description)


def test_what_a_profile_leaves_out_comes_from_the_one_it_extends():
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[models]\ntagret = 'x'", "unknown key 'tagret' in [models]; did you mean 'target'?"),
        ("[sampler]\nseed = 1", "unknown key 'sampler'; did you mean 'sampling'?"),
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
        ("[models]\ntarget = ''", "models.target must not be empty"),
        ("models = 3", "models must be a table, [models], not 3"),
        ("name = 3", "name must be a text in quotes, not 3"),
        ("extends = ['a', 'b']", "extends must be the name or the path of one profile"),
        ("extends = 'chatt'", "extends an unknown profile 'chatt'; did you mean 'chat'?"),
        ("[models", "not valid TOML"),
    ],
)
def test_a_wrong_profile_is_one_line_that_names_the_file_and_the_fault(own_folder, text, said):
    path = write(own_folder, "wrong", text)

    with pytest.raises(ProfileError) as caught:
        load_profile("wrong")

    message = str(caught.value)
    assert message.startswith(f"{path.resolve()}: ")
    assert message.count(str(path.resolve())) == 1
    assert said in message
    assert "\n" not in message


def test_an_unknown_name_lists_the_known_ones_and_the_nearest():
    with pytest.raises(
        ProfileError, match="unknown profile 'edti'; did you mean 'edit'\\? known are chat, cpu, edit, plain"
    ):
        load_profile("edti")


def test_a_path_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ProfileError, match=r"gone\.toml: cannot be read: No such file"):
        load_profile(str(tmp_path / "gone.toml"))


def test_profiles_that_extend_one_another_are_refused(own_folder):
    write(own_folder, "one", 'extends = "two.toml"')
    write(own_folder, "two", 'extends = "one.toml"')

    with pytest.raises(ProfileError, match=r"leads back to one\.toml"):
        load_profile("one")


def test_an_override_makes_a_new_profile_and_leaves_the_old_one_alone():
    before = load_profile("chat")

    after = before.override({"sampling.temperature": 1, "limits.answer": 9, "models.draft": None, "name": "mine"})

    assert (after.sampling.temperature, after.limits, after.name) == (1.0, Limits(answer=9), "mine")
    assert after.models == before.models
    assert before == load_profile("chat")


def test_an_override_is_checked_like_a_file():
    with pytest.raises(ProfileError, match=r"^options: sampling\.top_k must lie between 0 and"):
        Profile().override({"sampling.top_k": -2})


def test_profiles_are_read_without_torch():
    assert "torch" not in modules_after("from specchat.profile import load_profile; load_profile('chat')")
