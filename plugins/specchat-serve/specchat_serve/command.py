"""`specchat serve`: programs that speak the HTTP API of OpenAI, Anthropic or Ollama."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specchat.cli.completion import complete_models
from specchat.cli.notes import print_note
from specchat.cli.options import profile_options, resolve_profile
from specchat.cli.session_options import session_request
from specchat.errors import UsageError
from specchat.profile.keys import AUTO

if TYPE_CHECKING:
    from specchat_serve.served_models import ServedModel

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 11535
TOKEN_VARIABLE = "SPECCHAT_SERVE_TOKEN"  # noqa: S105 (the name of a variable)


@click.command()
@click.option("--host", default=LOOPBACK, show_default=True, help="The address; other than loopback needs --token.")
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="0: a free one.")
@click.option(
    "--token", envvar=TOKEN_VARIABLE, show_envvar=True, default="", help="The API key that clients must send."
)
@click.option("--alias", "aliases", multiple=True, metavar="NAME", help="A name of the model; clients see the first.")
@click.option(
    "--also", multiple=True, metavar="MODEL", shell_complete=complete_models,
    help="Another model, with the same settings, for requests that name it; repeat it for more.",
)  # fmt: skip
@profile_options
def serve(host: str, port: int, token: str, aliases: tuple[str, ...], also: tuple[str, ...], **options: Any) -> None:
    """Serve programs that use the API of OpenAI, Anthropic or Ollama.

    Listens on this machine only, unless --host says otherwise. docs/serve.md has settings for several programs, and
    lists what is not supported.
    """
    from specchat_serve.authorization import AccessPolicy
    from specchat_serve.served_models import ServedModel
    from specchat_serve.server import ServeConfig, bind_socket, is_loopback_socket
    from specchat_serve.server import serve as serve_on

    target = resolve_profile(options).models.target
    first = ServedModel(model_names(target, aliases), session_request(options), target)
    models, model = (first, *(_other_model(name, options) for name in also)), first.name
    listener = bind_socket(host, port)
    is_local = is_loopback_socket(listener)
    if not (is_local or token):
        listener.close()
        raise UsageError(f"--host {host} admits other machines: give a --token, or ${TOKEN_VARIABLE}")

    def ready() -> None:
        bound_host, bound_port = listener.getsockname()[:2]
        address = f"http://{f'[{bound_host}]' if ':' in bound_host else bound_host}:{bound_port}/v1"
        click.echo(
            f"specchat serve: {address}, model {model!r} (Ctrl-C ends it)\n{_curl_example(address, model, token)}",
            err=True,
        )

    def log(text: str) -> None:
        print_note(f"specchat serve: {text}")

    serve_on(ServeConfig(models, AccessPolicy(token, is_local)), listener, log, ready)
    log("ended")


def _other_model(name: str, options: Mapping[str, Any]) -> "ServedModel":
    """A model beside the first one, with the settings of that; its drafters are found for it."""
    from specchat_serve.model_facts import check_is_known
    from specchat_serve.served_models import ServedModel

    own = {**options, "target": name, "draft": AUTO, "head": (AUTO,)}
    target = resolve_profile(own).models.target
    check_is_known(target)
    return ServedModel(model_names(target), session_request(own), target)


def model_names(target: str, aliases: Sequence[str] = ()) -> tuple[str, ...]:
    """All names by which clients may ask for a model, the shown one first; Ollama's clients add ":latest"."""
    names = [*aliases, model_name(target), Path(target).name]
    return tuple(dict.fromkeys([*names, *(f"{name}:latest" for name in names if ":" not in name)]))


def model_name(target: str) -> str:
    """The name of a model for clients: that of the profile; of a folder only its name, since its path is private."""
    return Path(target).name if Path(target).is_absolute() else target


def _curl_example(address: str, model: str, token: str) -> str:
    """An example call. The token is not in it, because other users can list the arguments of processes."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello"}]})
    header = f'-H "Authorization: Bearer ${TOKEN_VARIABLE}" ' if token else ""
    return f"example: curl {address}/chat/completions {header}-d '{body}'"
