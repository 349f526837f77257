"""`specchat fleet`: other servers answer instead of this machine: plan, start or join them."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specchat.cli.completion import complete_profiles
from specchat.cli.notes import print_note
from specchat.errors import ModelError, UsageError
from specchat.profile.profile_files import load_profile, save_profile
from specchat.python_child import SAFE_VARIABLES

if TYPE_CHECKING:
    from specchat_fleet.launch_plan import LaunchPlan
    from specchat_fleet.server_probe import ServedModel, ServerInfo

SERVERS = ("vllm", "sglang", "llama.cpp")
TENSOR_PARALLEL_OPTION = click.option(
    "--tensor-parallel",
    "gpu_count",
    type=click.IntRange(1),
    help="GPUs that share the weights; as few as needed by default.",
)


@click.group()
def fleet() -> None:
    """Let vLLM, SGLang or another server answer, when one machine is not enough. Each has a profile."""


@fleet.command()
@click.argument("profile", default="chat", shell_complete=complete_profiles)
@click.option("--server", type=click.Choice(SERVERS), help="Only this server.")
@TENSOR_PARALLEL_OPTION
def plan(profile: str, server: str | None, gpu_count: int | None) -> None:
    """Print launch lines for the models and drafters of a profile, for the installed versions of the servers.

    For a server that is not installed, the line is for the newest version that specchat knows.
    """
    for launch in _launches(profile, (server,) if server else SERVERS, gpu_count):
        click.echo("\n".join(_launch_lines(launch)) + "\n")


@fleet.command()
@click.argument("profile", default="chat", shell_complete=complete_profiles)
@click.option("--server", type=click.Choice(SERVERS), help="This server; the first installed one by default.")
@TENSOR_PARALLEL_OPTION
def up(profile: str, server: str | None, gpu_count: int | None) -> None:
    """Run the launch line of an installed server, until Ctrl-C."""
    from specchat_fleet.installed_servers import program_path

    launches = (each for each in _launches(profile, (server,) if server else SERVERS, gpu_count) if each.is_installed)
    launch = next(launches, None)
    if launch is None:
        missing = f"{server} is not" if server else f"none of {', '.join(SERVERS)} is"
        raise ModelError(f"{missing} installed; 'specchat fleet plan {profile}' has launch lines to use elsewhere")
    for line in _launch_lines(launch):
        print_note(line)
    program = program_path(launch.command[0])
    try:
        environment = {**os.environ, **SAFE_VARIABLES}  # the program may be a Python, and the folder anybody's
        os.execvpe(program, (program, *launch.command[1:]), environment)  # noqa: S606 - it replaces this process
    except OSError as error:
        raise ModelError(f"{program}: cannot be started: {error.strerror}") from error


@fleet.command()
@click.argument("url")
@click.option("--model", help="One of its models; required where it has several.")
@click.option("--key-file", default="", help="A file with the API key of the server.")
@click.option("--save", "name", metavar="NAME", help="Write a profile of this name, to use with -P NAME.")
def join(url: str, model: str | None, key_file: str, name: str | None) -> None:
    """Probe a running server, and print a profile that uses it."""
    from specchat_fleet.server_client import ServerClient, read_api_key
    from specchat_fleet.server_probe import probe_server

    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{url}: give an address that begins with http:// or https://")
    address = url.rstrip("/") + ("" if url.rstrip("/").endswith("/v1") else "/v1")
    with closing(ServerClient(address, read_api_key(key_file))) as client:
        server = probe_server(client)
    print_note("\n".join(_server_lines(server)))
    profile = _profile_toml(server, _choose_model(server, model), key_file)
    if name is None:
        click.echo(profile, nl=False)
        return
    click.echo(f"saved: {save_profile(name, profile)}; use it with -P {name}")


def _launches(profile: str, servers: tuple[str, ...], gpu_count: int | None) -> Iterator[LaunchPlan]:
    from specchat_fleet.installed_servers import installed_version
    from specchat_fleet.launch_plan import plan_launch, resolve_server_config

    config = resolve_server_config(load_profile(profile), gpu_count)
    for server in servers:
        yield plan_launch(server, config, installed_version(server))


def _launch_lines(launch: LaunchPlan) -> Iterator[str]:
    from specchat_fleet.launch_plan import SERVER_NAMES

    state = "installed here" if launch.is_installed else "not installed here; the newest known version"
    yield f"# {SERVER_NAMES[launch.server]} {launch.version} ({state})"
    yield from (f"# {note}" for note in launch.notes)
    yield shlex.join(launch.command)


def _server_lines(server: ServerInfo) -> Iterator[str]:
    version = f" {server.version}" if server.version else ""
    yield f"{server.url}: {server.display_name}{version}, {len(server.models)} model{'s' * (len(server.models) != 1)}"
    if server.is_outdated:
        yield f"{server.display_name} {server.version} is older than the supported version; option names may differ"
    if not server.has_metrics:
        hint = "; start it with --enable-metrics" if server.backend == "sglang" else ""
        yield f"it has no metrics page, so its acceptance will not be known{hint}"
    elif not server.has_speculation:
        yield "its metrics page shows no speculative decoding: it was started without, or has not answered yet"


def _choose_model(server: ServerInfo, model: str | None) -> ServedModel:
    from specchat_fleet.server_probe import ServedModel, some_names

    names = [each.name for each in server.models]
    named = model or (names[0] if len(names) == 1 else None)
    if named is None:
        raise UsageError(f"--model: name one; the server has {some_names(names) or 'no list of models'}")
    if names and named not in names:
        raise UsageError(f"--model {named}: the server has {some_names(names)}")
    return next((each for each in server.models if each.name == named), ServedModel(named, "", None))


def _profile_toml(server: ServerInfo, model: ServedModel, key_file: str) -> str:
    lines = [
        f"description = {json.dumps(f'{model.name} by {server.display_name} at {server.url}')}",
        'extends = "chat"', "", "[models]",
        f"backend = {json.dumps(server.backend)}", f"url = {json.dumps(server.url)}",
        f"target = {json.dumps(model.name)}", 'draft = ""', "heads = []",
    ]  # fmt: skip
    lines += [f"api_key_file = {json.dumps(str(Path(key_file).expanduser().absolute()))}"] if key_file else []
    lines += ["", "[limits]", f"context = {model.context_window}"] if model.context_window else []
    return "\n".join([*lines, ""])
