"""`specchat config`: the settings, where each comes from, and which project files are trusted."""

import json
from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import click

from specchat.cli.notes import print_rows
from specchat.cli.options import profile_options, read_profile_layers
from specchat.cli.project_trust import summarize_project, validated_tables
from specchat.errors import InputError
from specchat.host.spawn import project_trust
from specchat.paths import configuration_folder
from specchat.profile.keys import Profile
from specchat.profile.profile_files import profile_names, user_config_file
from specchat.profile.project_file import PROJECT_FILE, find_project_file, read_project_file
from specchat.profile.validation import MergedSettings, has_names, key_info

TABLE_LIST_KEYS = ("routes", "mcp")  # keys that hold tables
TRUST_STATES = {True: "trusted", False: "refused", None: "not decided yet"}


@click.group()
def config() -> None:
    """Show the settings and where they come from. The strongest first:

    option, environment (SPECCHAT_SAMPLING_TOP_P), project file (.specchat.toml), profile, user file, model
    (generation_config.json of the target), advice (of its authors), default.
    """


@config.command()
@click.option("--origin", "has_origin", is_flag=True, help="Add the origin of each value.")
@click.option("--json", "is_json", is_flag=True, help="As one JSON object.")
@profile_options
def show(has_origin: bool, is_json: bool, **options: Any) -> None:
    """Print the settings as a profile that can be saved."""
    settings = read_profile_layers(options).resolve()
    if is_json:
        click.echo(json.dumps(_as_json(settings, has_origin=has_origin), indent=1))
        return
    click.echo("\n".join(_as_toml(settings, has_origin=has_origin)))


@config.command()
def path() -> None:
    """Print the files that are read here, the strongest first."""
    if project := find_project_file(Path.cwd()):
        print_rows(f"project file  {project.path} ({TRUST_STATES[project_trust().is_trusted(project)]})")
    else:
        print_rows(f"project file  none ({PROJECT_FILE} in this folder or above it)")
    print_rows(f"profiles      {configuration_folder() / 'profiles'} and shipped: {', '.join(profile_names())}")
    print_rows(f"user file     {user_config_file()}{'' if user_config_file().is_file() else ' (does not exist)'}")
    print_rows(f"trust         {project_trust().path}")


@config.command(name="trust")
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
@click.option("--forget", is_flag=True, help="Ask again next time.")
def trust_folder(folder: Path, forget: bool) -> None:
    """Trust the project file of a folder in its present content."""
    file = folder.absolute() if folder.name == PROJECT_FILE else folder.absolute() / PROJECT_FILE
    if forget:
        was_known = project_trust().forget(file)
        print_rows(f"{file}: {'forgotten' if was_known else 'was not known'}")
        return
    if not file.is_file():
        raise InputError(f"{file}: no such file; a project is trusted by its {PROJECT_FILE}")
    project = read_project_file(file)
    validated_tables(project)
    project_trust().record(project, is_trusted=True)
    print_rows(f"{project.path} is trusted until it changes; it sets {summarize_project(project)}")


def _as_toml(settings: MergedSettings[Profile], *, has_origin: bool) -> Iterator[str]:
    def origin_comment(*path: str | int) -> str:
        return f"  # {settings.origin(*path)}" if has_origin else ""

    profile = settings.value
    yield f"name = {_toml_value(profile.name)}"
    yield f"description = {_toml_value(profile.description)}"
    for part in fields(profile):
        table = getattr(profile, part.name)
        if not is_dataclass(table):
            continue
        yield from ("", f"[{part.name}]")
        for key, value in asdict(table).items():  # type: ignore[arg-type]
            line = f"# {key} is not set" if value is None else f"{key} = {_toml_value(value)}"
            yield line + origin_comment(part.name, key)
    for name in TABLE_LIST_KEYS:
        for number, table in enumerate(getattr(profile, name)):
            header = f"[{name}.{table.name}]" if has_names(type(table)) else f"[[{name}]]"
            yield from ("", f"{header}{origin_comment(name, number)}")
            shown = [each for each in key_info(type(table)) if each != "name" or not has_names(type(table))]
            defaults = {each.name: each.default for each in fields(table) if each.name in shown}
            changed = {key: value for key in defaults if (value := getattr(table, key)) != defaults[key]}
            yield from (f"{key} = {_toml_value(value)}" for key, value in changed.items())


def _toml_value(value: Any) -> str:
    """A value in TOML, which for every value of a profile is also its JSON."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _as_json(settings: MergedSettings[Profile], *, has_origin: bool) -> dict[str, Any]:
    profile = asdict(settings.value)
    if not has_origin:
        return profile
    keys = [(name, key) for name, table in profile.items() if isinstance(table, dict) for key in table]
    keys += [(name, number) for name in TABLE_LIST_KEYS for number in range(len(getattr(settings.value, name)))]
    return {**profile, "origins": {".".join(map(str, path)): asdict(settings.origin(*path)) for path in keys}}
