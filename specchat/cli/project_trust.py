"""Whether the project file of a folder is trusted: the user is asked once for each content."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from specchat.cli.notes import print_note
from specchat.errors import ProfileError
from specchat.host.spawn import project_trust
from specchat.profile.keys import Profile
from specchat.profile.project_file import ProjectFile, find_project_file
from specchat.profile.validation import merge_sources


def trusted_project(folder: Path) -> ProjectFile | None:
    """The project file of this folder if it is trusted, else None.

    An undecided file is a question on a terminal; elsewhere it is ignored, and one line says so.
    """
    file = find_project_file(folder)
    if file is None:
        return None
    store = project_trust()
    is_trusted = store.is_trusted(file)
    if is_trusted is None and sys.stdin.isatty() and sys.stderr.isatty():
        print_note(f"{file.path} sets {summarize_project(file)}")
        is_trusted = click.confirm("use it in this folder and below, until it changes?", err=True)
        store.record(file, is_trusted=is_trusted)
    elif is_trusted is None:
        hint = "'specchat config trust' accepts it"
        print_note(f"specchat: {file.path} is not trusted and ignored; {hint}")
    return file if is_trusted else None


def summarize_project(file: ProjectFile) -> str:
    try:
        tables = validated_tables(file)
    except ProfileError as error:
        return f"nothing usable ({error})"
    settings: list[str] = []
    for name, table in tables.items():
        if isinstance(table, list):
            settings.append(f"{len(table)} rules for {name}")
        elif name == "mcp":
            settings += [_summarize_server(server, keys) for server, keys in table.items()]
        else:
            settings += [f"{name}.{key} = {value!r}" for key, value in table.items()]
    return ", ".join(settings) or "nothing"


def _summarize_server(name: str, keys: Mapping[str, Any]) -> str:
    """A server in words, because its command runs."""
    if "command" in keys:
        what = f"the MCP server {name}, which runs {shlex.join(keys['command'])!r}"
    else:
        what = f"the MCP server {name}" + (f" at {keys['url']}" if "url" in keys else "")
    others = ", ".join(f"{key} = {value!r}" for key, value in keys.items() if key not in ("command", "url"))
    return f"{what} with {others}" if others else what


def validated_tables(file: ProjectFile) -> Mapping[str, Any]:
    """The tables of a project file; ProfileError when they are not valid."""
    source = file.source()
    merge_sources(Profile(), [source])
    return source.tables
