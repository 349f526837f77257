"""Plugins for tests: a module and its metadata in a folder on the import path."""

from __future__ import annotations

import ast
import os
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from specchat.plugins import discovery

Install = Callable[..., Path]


def rediscover() -> None:
    """Clear the cached results of the discovery."""
    for remembered in (
        discovery.installed_plugins,
        discovery._kept_extensions,
        discovery._warn_about_plugins,
        discovery._warn_about_conflicts,
    ):
        remembered.cache_clear()


FRONT_ENDS = ("tui", "repl")


def wrong_imports(package: Path) -> list[str]:
    """What a package of a plugin takes from specchat and may not: private names, and front ends."""
    nodes = [
        node
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("specchat.")
    ]
    assert nodes
    words = {ast.unparse(node): [*str(node.module).split("."), *(each.name for each in node.names)] for node in nodes}
    return [line for line, names in words.items() if names[1] in FRONT_ENDS or any(each[0] == "_" for each in names)]


def write_metadata(source: Path, folder: Path) -> None:
    """What an installation of a plugin of this repository writes, so that specchat finds it; not its package."""
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    [(name, module)] = project["entry-points"]["specchat"].items()
    metadata = folder / f"{module}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    (metadata / "entry_points.txt").write_text(f"[specchat]\n{name} = {module}\n")


@contextmanager
def installed_plugin(source: Path, folder: Path) -> Iterator[None]:
    """A plugin of this repository as an installation leaves it: its metadata on the import path."""
    write_metadata(source, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.delenv(discovery.PLUGINS_VARIABLE, raising=False)
        rediscover()
        yield
    rediscover()


def plugin_site(conftest: str, *others: str, is_for_children: bool = False) -> Any:
    """A fixture of all tests beside a conftest: its plugin and others of ours are installed; the folder that says so.

    `is_for_children`: also for the processes that tests start.
    """
    plugin = Path(conftest).parents[1]
    beside = [plugin.with_name(f"specchat-{name}") for name in others]

    @pytest.fixture(autouse=True, scope="module")
    def site(tmp_path_factory):
        folder = tmp_path_factory.mktemp("site")
        for each in beside:
            write_metadata(each, folder)
        with installed_plugin(plugin, folder), pytest.MonkeyPatch.context() as patch:
            if is_for_children:
                import_path = folder, plugin.parents[1], plugin, *beside, plugin / "tests"
                patch.setenv("PYTHONPATH", os.pathsep.join(map(str, import_path)))
            yield folder

    return site


def host_that_sees(folders: Sequence[str]) -> tuple[str, ...]:
    """The command of an engine process that finds plugins in these folders: it does not inherit PYTHONPATH."""
    code = f"import sys; sys.path[:0] = {list(folders)!r}; from specchat.host.engine_loader import EngineLoader; "
    code += "from specchat.host.host_process import run_host; sys.exit(run_host(sys.argv[1:], EngineLoader()))"
    return (sys.executable, "-c", code)


def command_with_such_a_host(import_path: str) -> tuple[str, ...]:
    """`specchat`, whose engine process finds the plugins in the folders of a PYTHONPATH."""
    host = host_that_sees(import_path.split(os.pathsep))
    code = f"from specchat.host import spawn; spawn.HOST_COMMAND = {host!r}; from specchat.cli.main import main; main()"
    return (sys.executable, "-c", code)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Returns a function that writes a plugin; its module has the name of the plugin."""
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
        rediscover()
        return folder

    rediscover()
    yield write
    rediscover()
    for name in names:
        sys.modules.pop(name, None)
