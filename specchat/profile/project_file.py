"""The settings file of a project, `.specchat.toml`, and the store of trusted project files.

A cloned or unpacked folder has the settings of its author, so its file applies only after the user has accepted its
content. The store keeps a hash of the content; a changed file needs to be accepted again.
"""

import json
import os
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

from specchat.errors import InputError, ProfileError
from specchat.paths import read_json_object, write_atomically
from specchat.profile.profile_files import read_settings_file
from specchat.profile.validation import SettingsSource
from specchat.regular_file import read_regular_file

PROJECT_FILE = ".specchat.toml"
MAX_FILE_BYTES = 2**20


@dataclass(frozen=True)
class ProjectFile:
    """A project file with the content that was read, so that the accepted content is the content in use."""

    path: Path
    content: bytes = field(repr=False)

    @property
    def hash(self) -> str:
        return blake2b(self.content, digest_size=16).hexdigest()

    def source(self) -> SettingsSource:
        """The settings; folders of models and programs of MCP servers are relative to the file."""
        file = read_settings_file(self.path, self.content)
        tables = dict(file.tables)
        for name, resolve in (("models", self._resolve_folder), ("mcp", self._resolve_program)):
            if isinstance(table := tables.get(name), dict):
                tables[name] = {key: resolve(value) for key, value in cast("dict[str, Any]", table).items()}
        return replace(file, tables=tables).source("project file")

    def _resolve_program(self, table: Any) -> Any:
        """The table of a server with an absolute path for a program that is named with a folder: "tools/server"."""
        command = cast("dict[str, Any]", table).get("command") if isinstance(table, dict) else None
        if not isinstance(command, list) or not command or not isinstance(command[0], str):
            return table
        has_folder = any(each and each in command[0] for each in (os.sep, os.altsep))
        program = str(self.path.parent / command[0]) if has_folder else command[0]
        return {**table, "command": [program, *command[1:]]}

    def _resolve_folder(self, value: Any) -> Any:
        """An absolute path for a folder that lies relative to this file; any other value unchanged."""
        is_folder = isinstance(value, str) and value and (self.path.parent / value).is_dir()
        return str(self.path.parent / value) if is_folder else value


def find_project_file(folder: Path) -> ProjectFile | None:
    """The file of this folder or the nearest parent that has one; ProfileError when it cannot be read."""
    for each in (folder, *folder.parents):
        path = each / PROJECT_FILE
        if os.path.isfile(path):  # noqa: PTH113 (is_file raises for folders that must not be searched)
            return read_project_file(path)
    return None


def read_project_file(path: Path) -> ProjectFile:
    """Read this file; ProfileError when that fails."""
    try:
        return ProjectFile(path.resolve(), read_regular_file(path, MAX_FILE_BYTES))
    except InputError as error:
        raise ProfileError(str(error)) from error


class TrustStore:
    """The decisions of the user about project files, in one file of the state folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def is_trusted(self, file: ProjectFile) -> bool | None:
        """Trusted or refused; None when there is no decision about this content."""
        entry = self._read().get(str(file.path))
        return bool(entry["trusted"]) if entry and entry.get("hash") == file.hash else None

    def record(self, file: ProjectFile, *, is_trusted: bool) -> None:
        self._write(self._read() | {str(file.path): {"hash": file.hash, "trusted": is_trusted}})

    def forget(self, path: Path) -> bool:
        """Delete the decision about a file; returns whether there was one."""
        entries = self._read()
        existed = entries.pop(str(path.resolve()), None) is not None
        if existed:
            self._write(entries)
        return existed

    def _read(self) -> dict[str, dict[str, Any]]:
        """The stored decisions; none when the file is broken."""
        entries = read_json_object(self.path)
        return {path: cast("dict[str, Any]", entry) for path, entry in entries.items() if isinstance(entry, dict)}

    def _write(self, entries: dict[str, dict[str, Any]]) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(self.path, json.dumps(entries, indent=1) + "\n", mode=0o600)
        except OSError as error:
            raise ProfileError(f"{self.path}: cannot be written: {error.strerror}") from error
