"""Where files lie: one variable for each folder, one for all, the variables of the system, else the home folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from specchat import paths
from specchat.host.environment import inherited_variables
from specchat.paths import cache_folder, configuration_folder, data_folder, home_folder, models_folder
from tests.each_row import each_row

FOLDERS = {"config": configuration_folder, "cache": cache_folder, "models": models_folder, "data": data_folder}
VARIABLES = (
    "SPECCHAT_HOME", "SPECCHAT_CONFIG", "SPECCHAT_CACHE", "SPECCHAT_MODELS", "SPECCHAT_RUNTIME",
    "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
)  # fmt: skip


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    """A user of Linux who sets nothing."""
    monkeypatch.setattr(paths.sys, "platform", "linux")
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def folders() -> dict[str, str]:
    return {name: str(folder()) for name, folder in FOLDERS.items()}


def test_without_variables_they_lie_in_the_home_folder_of_the_user_database(monkeypatch):
    monkeypatch.setenv("HOME", "/elsewhere")
    home = home_folder()

    assert folders() == {
        "config": f"{home}/.config/specchat",
        "cache": f"{home}/.cache/specchat",
        "models": f"{home}/.local/share/specchat/models",
        "data": f"{home}/.local/share/specchat",
    }


def test_one_variable_moves_all_of_them(monkeypatch):
    monkeypatch.setenv("SPECCHAT_HOME", "/x")
    monkeypatch.setenv("SPECCHAT_RUNTIME", "/run")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/y")

    assert folders() == {"config": "/x/config", "cache": "/x/cache", "models": "/x/data/models", "data": "/x/data"}


def test_the_variables_of_the_system_are_obeyed(monkeypatch):
    for name in ("CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", f"/{name.lower()}")

    assert folders() == {
        "config": "/config/specchat",
        "cache": "/cache/specchat",
        "models": "/data/specchat/models",
        "data": "/data/specchat",
    }


def test_a_relative_path_of_the_system_is_ignored(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")

    assert cache_folder() == home_folder() / ".cache" / "specchat"


@each_row("kind", ["config", "cache", "models"])
def test_the_variable_of_one_folder_moves_only_this_one(kind, monkeypatch):
    monkeypatch.setenv("SPECCHAT_HOME", "/x")
    before = folders()
    monkeypatch.setenv(f"SPECCHAT_{kind.upper()}", "/own")

    assert folders() == before | {kind: "/own"}


def test_a_relative_folder_is_one_of_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPECCHAT_HOME", "state")

    assert configuration_folder() == tmp_path / "state" / "config"
    assert inherited_variables()["SPECCHAT_HOME"] == str(tmp_path / "state")


@each_row("name", VARIABLES)
def test_an_engine_takes_over_every_variable_of_a_folder(name, monkeypatch):
    monkeypatch.setenv(name, "/x")

    assert inherited_variables()[name] == "/x"


def test_on_a_mac_they_lie_where_its_programs_keep_them(monkeypatch):
    monkeypatch.setattr(paths.sys, "platform", "darwin")

    assert configuration_folder() == home_folder() / "Library/Application Support/specchat"
    assert Path("Library/Caches/specchat") == cache_folder().relative_to(home_folder())


def test_windows_has_its_own_folders_and_variables_still_decide(monkeypatch, tmp_path):
    monkeypatch.setattr("platformdirs.windows.get_win_folder", lambda _name: str(tmp_path / "Local"))
    monkeypatch.setattr(paths.sys, "platform", "win32")

    own = {name: str(folder().relative_to(tmp_path)) for name, folder in FOLDERS.items()}
    monkeypatch.setenv("SPECCHAT_HOME", str(tmp_path / "home"))

    assert own == {
        "config": "Local/specchat", "cache": "Local/specchat/Cache", "models": "Local/specchat/models",
        "data": "Local/specchat",
    }  # fmt: skip
    assert folders()["config"] == str(tmp_path / "home" / "config")
