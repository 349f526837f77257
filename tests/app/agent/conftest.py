"""A small repository, and a model that is a script."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from specchat.app.project_files import ProjectFiles
from specchat.context.workspace_roots import WorkspaceRoots
from tests.app.agent.scripted import REPOSITORY


@pytest.fixture(scope="session")
def empty_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `git init` makes, without its samples of hooks."""
    folder = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", "--template=", str(folder)], check=True)
    (folder / ".git" / "hooks").mkdir(exist_ok=True)
    return folder


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_repository: Path) -> Path:
    """The root of a repository with a few files; beside it lies a file that is none of its."""
    monkeypatch.setenv("SPECCHAT_RUNTIME", str(tmp_path / "runtime"))
    root = tmp_path / "project"
    for name, text in REPOSITORY.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    (tmp_path / "outside.txt").write_text("secret\n", encoding="utf-8")
    shutil.copytree(empty_repository / ".git", root / ".git")
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def files(project: Path) -> ProjectFiles:
    return ProjectFiles(WorkspaceRoots(project))
