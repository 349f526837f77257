"""Which models a profile that names none has: the starter where it is on this disk, and the drafters shipped for it."""

from __future__ import annotations

import pytest

from specchat import paths
from specchat.cli.options import KEY_BY_FLAG, parameter_name, read_profile_layers
from specchat.errors import ModelError
from specchat.hub.find_models import find_local_model, find_model
from specchat.hub.local_models import local_models, locate_model
from specchat.profile import shipped_drafters as shipped
from specchat.profile.keys import Models
from specchat.profile.profile_files import load_profile
from specchat.profile.shipped_drafters import with_shipped_drafters
from tests.each_row import each_row

NO_OPTIONS = {parameter_name(flag): None for flag in KEY_BY_FLAG} | {"exact": None, "profile": "chat"}


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("SPECCHAT_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(shipped, "STARTER_DRAFTERS", tmp_path / "heads")
    return tmp_path


@pytest.fixture
def starter(own_folders):
    """A file in place of the starter model."""
    file = own_folders / "models" / "starter" / "model.gguf"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"GGUF")
    return file


def ship(folder, *roles: str) -> None:
    for role in roles:
        (folder / "heads" / role).mkdir(parents=True)
        (folder / "heads" / role / "config.json").write_text("{}")


def test_without_the_starter_the_embedded_model_is_the_default():
    assert "embedded" == load_profile("chat").models.target
    assert None is paths.starter_file()


@each_row("profile", ["chat", "edit", "code", "rag", "creative", "cpu", "plain"])
def test_where_it_is_here_the_starter_is_the_default(starter, profile):
    assert "starter" == load_profile(profile).models.target
    assert starter == paths.starter_file()


def test_a_target_that_somebody_chose_is_kept(starter, own_folders, monkeypatch):
    assert "embedded" == load_profile("chat", {"models.target": "embedded"}).models.target
    assert "org/name" == read_profile_layers({**NO_OPTIONS, "target": "org/name"}).resolve().value.models.target
    monkeypatch.setenv("SPECCHAT_MODELS_TARGET", "embedded")
    assert "embedded" == read_profile_layers(NO_OPTIONS).resolve().value.models.target
    (own_folders / "config").mkdir()
    (own_folders / "config" / "config.toml").write_text('[models]\ntarget = "embedded"\n')
    assert "embedded" == load_profile("chat").models.target


def test_the_default_has_the_origin_of_a_default(starter):
    assert "default" == read_profile_layers(NO_OPTIONS).resolve().origin("models", "target").kind


def test_drafters_follow_the_target(own_folders):
    assert ["", ()] == drafters("starter") == drafters("org/name")
    assert ["embedded", ("embedded",)] == drafters("embedded")

    ship(own_folders, "eagle3", "draft")

    assert ["starter/draft", ("starter/eagle3",)] == drafters("starter")
    assert ["", ()] == drafters("org/name")


def test_named_drafters_are_kept():
    models = with_shipped_drafters(Models(target="starter", draft="org/small", heads=("org/head",)))

    assert ["org/small", ("org/head",)] == [models.draft, models.heads]


def test_shipped_heads_are_found_by_name(own_folders):
    ship(own_folders, "eagle3")

    assert own_folders / "heads" / "eagle3" == find_model("starter/eagle3", "head")
    with pytest.raises(ModelError):
        find_model("starter/gone", "head")


def test_a_missing_starter_is_one_line_with_the_command():
    for find in (find_model, find_local_model):
        with pytest.raises(ModelError, match=r"^starter: not on this disk; 'specchat models pull starter' downloads"):
            find("starter")


def test_the_starter_is_listed_where_it_is_here(starter):
    assert ("starter", starter.parent) in [(model.id, model.path) for model in local_models()]


def test_the_size_of_the_starter_is_known_before_its_download():
    assert 134_515_008 == locate_model("starter").architecture.parameters


def drafters(target: str) -> list[object]:
    models = with_shipped_drafters(Models(target=target))
    return [models.draft, models.heads]
