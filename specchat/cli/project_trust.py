"""Whether the file of a project counts: a person is asked once for each content, and nobody else is believed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from specchat.errors import ProfileError
from specchat.profile import Profile
from specchat.profile.project_file import ProjectFile, TrustStore, find_project_file
from specchat.profile.validation import merge_sources


def project_trust() -> TrustStore:
    """What was said of project files; it stands beside the history."""
    from specchat.host.spawn import history_path

    return TrustStore(history_path().with_name("trusted.json"))


def trusted_project(folder: Path) -> ProjectFile | None:
    """The project file that counts in this folder, if any.

    One that nobody has judged yet is a question on a terminal; elsewhere it is left out, which is said in a line.
    """
    file = find_project_file(folder)
    if file is None:
        return None
    known = project_trust()
    verdict = known.is_trusted(file)
    if verdict is None and sys.stdin.isatty() and sys.stderr.isatty():
        verdict = _ask_for_trust(file)
        known.record(file, is_trusted=verdict)
    elif verdict is None:
        hint = "'specchat config trust' accepts it"
        print(f"specchat: {file.path} is not trusted and left out; {hint}", file=sys.stderr)
    return file if verdict else None


def _ask_for_trust(file: ProjectFile) -> bool:
    click.echo(f"{file.path} sets {summarize_project(file)}", err=True)
    return click.confirm("use it in this folder and below, until it changes?", err=True)


def summarize_project(file: ProjectFile) -> str:
    """What a project file wants, in one line: `limits.answer = 200, 2 rules for routes`."""
    try:
        tables = validated_tables(file)
    except ProfileError as error:
        return f"nothing that can be used ({error})"
    wishes: list[str] = []
    for name, table in tables.items():
        if isinstance(table, list):
            wishes.append(f"{len(table)} rules for {name}")
        else:
            wishes += [f"{name}.{key} = {value!r}" for key, value in table.items()]
    return ", ".join(wishes) or "nothing"


def validated_tables(file: ProjectFile) -> Mapping[str, Any]:
    """The tables of a project file; ProfileError when they hold what no profile could."""
    source = file.source()
    merge_sources(Profile(), [source])
    return source.tables
