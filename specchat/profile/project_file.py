"""The file of a project, `.specchat.toml`, and whether its folder is trusted.

A folder that was cloned or unpacked says what its author wants, so its file counts only after a person has agreed to
its very content: what is remembered is a hash, and a changed file is a new question.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

from specchat.errors import ProfileError
from specchat.profile.profile_files import read_settings_file
from specchat.profile.validation import SettingsSource

PROJECT_FILE = ".specchat.toml"
MAX_FILE_BYTES = 2**20


@dataclass(frozen=True)
class ProjectFile:
    """What was found, as it was read: the content that is judged is the content that is used."""

    path: Path
    content: bytes = field(repr=False)

    @property
    def hash(self) -> str:
        """A word that changes with the content."""
        return blake2b(self.content, digest_size=16).hexdigest()

    def source(self) -> SettingsSource:
        """What it wants; a model's folder is taken from beside the file."""
        file = read_settings_file(self.path, self.content)
        models = file.tables.get("models")
        if isinstance(models, dict):
            whole = {key: self._resolve_folder(value) for key, value in cast("dict[str, Any]", models).items()}
            file = replace(file, tables=file.tables | {"models": whole})
        return file.source("project file")

    def _resolve_folder(self, value: Any) -> Any:
        """The name of a folder beside this file, from anywhere."""
        is_folder = isinstance(value, str) and value and (self.path.parent / value).is_dir()
        return str(self.path.parent / value) if is_folder else value


def find_project_file(folder: Path) -> ProjectFile | None:
    """The file of the nearest folder upwards that has one; ProfileError when it is there and cannot be read."""
    for each in (folder, *folder.parents):
        path = each / PROJECT_FILE
        if _is_file(path):
            return read_project_file(path)
    return None


def _is_file(path: Path) -> bool:
    """A folder that we may not look into has no file for us."""
    try:
        return path.is_file()
    except OSError:
        return False


def read_project_file(path: Path) -> ProjectFile:
    """This very file."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise ProfileError(f"{path}: larger than {MAX_FILE_BYTES} bytes, which no settings are")
    return ProjectFile(path.resolve(), content)


class TrustStore:
    """What a person said of project files, kept in one file of the state folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def is_trusted(self, file: ProjectFile) -> bool | None:
        """Trusted, refused, or None: not asked yet about this content."""
        said = self._read().get(str(file.path))
        return bool(said["trusted"]) if said and said.get("hash") == file.hash else None

    def record(self, file: ProjectFile, *, is_trusted: bool) -> None:
        """Keep an answer."""
        self._write(self._read() | {str(file.path): {"hash": file.hash, "trusted": is_trusted}})

    def forget(self, path: Path) -> bool:
        """Ask again next time; was there anything to forget?"""
        said = self._read()
        was_known = said.pop(str(path.resolve()), None) is not None
        if was_known:
            self._write(said)
        return was_known

    def _read(self) -> dict[str, dict[str, Any]]:
        """A file that cannot be understood trusts nobody."""
        try:
            said = json.loads(self.path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(said, dict):
            return {}
        entries = cast("dict[str, Any]", said)
        return {path: cast("dict[str, Any]", entry) for path, entry in entries.items() if isinstance(entry, dict)}

    def _write(self, said: dict[str, dict[str, Any]]) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside = self.path.with_name(f"{self.path.name}.{os.getpid()}")
            beside.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
            beside.chmod(0o600)
            beside.replace(self.path)
        except OSError as error:
            raise ProfileError(f"{self.path}: cannot be written: {error.strerror}") from error
