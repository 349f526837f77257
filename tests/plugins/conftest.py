"""Plugins that are installed while a test runs: a module and its metadata in a folder that Python imports from."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from specchat.plugins import discovery

Install = Callable[..., Path]


def look_again() -> None:
    """What is known of plugins is found out once in a process."""
    for remembered in (
        discovery.installed_plugins,
        discovery._resolve_conflicts,
        discovery._warn_about_plugins,
        discovery._warn_about_conflicts,
    ):
        remembered.cache_clear()


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Write a plugin; its module is called as the plugin, and ends with the test."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delenv(discovery.PLUGINS_VARIABLE, raising=False)
    names = []

    def write(name: str, code: str, package: str = "") -> Path:
        (folder / f"{name}.py").write_text(f"from specchat.plugins.hooks import Extension, hookimpl\n{code}")
        metadata = folder / f"{package or name}-1.5.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package or name}\nVersion: 1.5\n")
        (metadata / "entry_points.txt").write_text(f"[specchat]\n{name} = {name}\n")
        names.append(name)
        look_again()
        return folder

    look_again()
    yield write
    look_again()
    for name in names:
        sys.modules.pop(name, None)
