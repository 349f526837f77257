"""The options of every command that uses a model, and the profile that results from them and the layers below.

The strongest first: option, environment, project file (where it is trusted), profile, user file, default. All of them
are read here; the engine process is sent what results (`profile/settings.py`).
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast, get_origin

import click
from click.shell_completion import CompletionItem

from specchat.cli.completion import complete_models, complete_profiles
from specchat.cli.project_trust import trusted_project
from specchat.plugins.own_plugins import missing_variant
from specchat.profile.drafter_names import DRAFTER_NAMES, all_drafters
from specchat.profile.environment_keys import environment_source
from specchat.profile.keys import Profile, options_source
from specchat.profile.profile_files import DEFAULT_PROFILE, EDIT_PROFILE, read_profile_chain
from specchat.profile.settings import Settings, settings_of
from specchat.profile.validation import KeyPath, MergedSettings, SettingsSource, key_info, key_types, merge_sources

CommandFunction = TypeVar("CommandFunction", bound=Callable[..., Any])
DRAFT_KEY, HEADS_KEY = "models.draft", "models.heads"
MODEL_KEYS = ("models.target", DRAFT_KEY)
VARIANT_HELP = "The drafter, one of 'specchat help drafters': auto is the fastest here, or none; plain is none."
NOTHING_TYPED: Mapping[str, Any] = {}


class VariantParam(click.ParamType):
    """The name of a drafter. Plugins are looked up for a list, and for a name that is not built in."""

    name = "name"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in DRAFTER_NAMES:
            return value
        known = tuple(all_drafters())
        if fault := missing_variant(value):
            self.fail(fault, param, ctx)
        return click.Choice(known).convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in all_drafters() if name.startswith(incomplete)]


KEY_BY_FLAG = {
    "--target": "models.target", "--variant": "speculation.variant", "--draft": "models.draft", "--head": HEADS_KEY,
    "--seed": "sampling.seed", "--temperature": "sampling.temperature", "--top-p": "sampling.top_p",
    "--top-k": "sampling.top_k", "--min-p": "sampling.min_p",
    "--max-tokens": "limits.answer", "--thinking-tokens": "prompt.thinking_tokens",
    "--device": "models.device", "--dtype": "models.dtype", "--weights": "models.weights",
    "--draft-weights": "models.draft_weights", "--kv-cache": "models.kv_cache", "--place": "models.place",
}  # fmt: skip
FLAG_BY_KEY = {key: flag for flag, key in KEY_BY_FLAG.items()} | {
    "speculation.exact": "--exact",
    "prompt.thinking": "--think",
}
THINKING_BY_FLAG = {None: None, True: "on", False: "off"}


class EngineOption(click.Option):
    """An option of all commands that use a model: `specchat help engine` has it, and not each of them."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        return None


def profile_options(command: CommandFunction, profile: str = DEFAULT_PROFILE) -> CommandFunction:
    """Add `--profile` and the options that override it; the command passes them to `resolve_profile`.

    `profile` is the one that counts without an option.
    """
    exact_help = "The text of plain decoding also where a GPU rounds rows of a batch differently; slower."
    exact = click.option("--exact", cls=EngineOption, is_flag=True, default=None, help=exact_help)
    think_help = "Whether a model that can think does so before it answers; otherwise as its chat template has it."
    think = click.option("--think/--no-think", "thinks", cls=EngineOption, default=None, help=think_help)
    plan_help = "Print which models and formats would be loaded, and stop."
    dry_run = click.option("--dry-run", cls=EngineOption, is_flag=True, help=plan_help)
    command = dry_run(exact(think(_or_print_plan(command))))
    for flag, key in reversed(KEY_BY_FLAG.items()):
        command = _key_option(flag, key)(command)
    profile_help = (
        "Settings by name (chat, code, edit, plain, one of yours) or in a file. `specchat help engine` lists the "
        "options that count more, such as --target and --temperature."
    )
    return click.option(
        "--profile", "-P", metavar="NAME", default=profile, show_default=True, help=profile_help,
        shell_complete=complete_profiles,
    )(command)  # fmt: skip


def edit_profile_options(command: CommandFunction) -> CommandFunction:
    """The same for a command that edits."""
    return profile_options(command, EDIT_PROFILE)


def _key_option(flag: str, key: str) -> Callable[[CommandFunction], CommandFunction]:
    """An option that overrides a key of the profile; type, choices and help are those of the key.

    One for a list may be given again; '' alone is an empty list.
    """
    table, _, name = key.partition(".")
    kind = cast("type", key_types(Profile)[table])
    info, value_type = key_info(kind)[name], key_types(kind)[name]
    is_multiple, is_variant = get_origin(value_type) is tuple, info.choices is DRAFTER_NAMES
    text = VARIANT_HELP if is_variant else info.description + " May be given again." * is_multiple
    choices = VariantParam() if is_variant else click.Choice(info.choices) if info.choices else None
    return click.option(
        flag, cls=EngineOption, type=choices or (str if is_multiple else value_type), help=text,
        multiple=is_multiple, shell_complete=complete_models if key in (*MODEL_KEYS, HEADS_KEY) else None,
    )  # fmt: skip


def engine_options() -> list[EngineOption]:
    """The options that `profile_options` adds and a command does not explain."""
    command = click.command()(profile_options(lambda **_options: None))
    return [option for option in command.params if isinstance(option, EngineOption)]


def _or_print_plan(command: CommandFunction) -> CommandFunction:
    """With `--dry-run`, print the load plan of the profile instead of running the command."""

    @wraps(command)
    def run(*arguments: Any, dry_run: bool, **options: Any) -> Any:
        if not dry_run:
            return command(*arguments, **options)
        _print_load_plan(resolve_profile(options))
        return 0

    return cast("CommandFunction", run)


def _print_load_plan(profile: Profile) -> None:
    """Print the load plan of a profile on this machine, without torch and without a download.

    ModelError for one that would be refused, as when it is loaded.
    """
    from specchat.hub.machine import detect_machine
    from specchat.loading.fitted_plan import plan_for_machine

    machine = detect_machine()
    plan = plan_for_machine(profile, machine)
    click.echo(plan.text(machine))
    plan.check()


@dataclass(frozen=True)
class ProfileLayers:
    """The layers of a profile: the profile and the user file, and the sources that override them."""

    name: str
    profile_chain: Sequence[SettingsSource]
    override_sources: tuple[SettingsSource, ...]
    named_drafters: frozenset[str] = frozenset()  # the keys of the draft and the heads, if options name them

    def resolve(self) -> MergedSettings[Profile]:
        """The resulting profile, validated, and the origin of every value."""
        return merge_sources(Profile(), (*self.profile_chain, *self.override_sources))

    def settings(self) -> Settings:
        """The settings of a new conversation."""
        settings = settings_of(self.name, self.profile_chain, self.override_sources)
        check_drafters(settings.profile, self.named_drafters)
        return settings


def check_drafters(profile: Profile, named: Collection[str]) -> None:
    """ModelError when a draft or heads of these keys do not fit the target."""
    if DRAFT_KEY in named or HEADS_KEY in named:
        from specchat.loading.load_plan import check_named_drafters

        check_named_drafters(profile, names_draft=DRAFT_KEY in named, names_heads=HEADS_KEY in named)


def parameter_name(flag: str) -> str:
    """The parameter of the command: `--top-p` is `top_p`."""
    return flag.removeprefix("--").replace("-", "_")


def typed_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that options of the command set."""
    flat = {key: options.get(parameter_name(flag)) for flag, key in KEY_BY_FLAG.items()}
    flat[HEADS_KEY] = tuple(filter(None, heads)) if (heads := flat[HEADS_KEY]) else None
    flat["speculation.exact"] = options.get("exact")
    flat["prompt.thinking"] = THINKING_BY_FLAG[options.get("thinks")]
    return {key: value for key, value in _with_absolute_paths(flat).items() if value is not None}


def read_profile_layers(options: Mapping[str, Any], project_folder: Path | None = None) -> ProfileLayers:
    """Read the options, the environment, the project file of a folder (or of the current one) and the profile."""
    return read_layers(options["profile"], typed_values(options), project_folder)


def read_layers(
    profile: str, typed: Mapping[str, Any] = NOTHING_TYPED, project_folder: Path | None = None
) -> ProfileLayers:
    """The same for a profile and the keys that options set."""
    project = trusted_project(project_folder or Path.cwd())
    project_sources = (project.source(),) if project else ()
    sources = (*project_sources, environment_source(os.environ), options_source(typed, _flag_for_key))
    named = frozenset(key for key in (DRAFT_KEY, HEADS_KEY) if typed.get(key))
    return ProfileLayers(profile, read_profile_chain(profile), sources, named)


def resolve_profile(options: Mapping[str, Any]) -> Profile:
    """The profile `options["profile"]` with the options that are given; all others may be missing.

    ModelError when a draft or a head that an option names does not fit the target.
    """
    layers = read_profile_layers(options)
    profile = layers.resolve().value
    check_drafters(profile, layers.named_drafters)
    return profile


def _flag_for_key(path: KeyPath) -> str:
    return FLAG_BY_KEY.get(".".join(str(each) for each in path), "options")


def _with_absolute_paths(values: Mapping[str, Any]) -> dict[str, Any]:
    """Make the paths of models absolute: the engine process runs in another folder."""
    from specchat.hub.find_models import absolute_source

    absolute = {**values, **{key: absolute_source(values[key]) for key in MODEL_KEYS if values[key]}}
    if heads := values[HEADS_KEY]:
        absolute[HEADS_KEY] = tuple(map(absolute_source, heads))
    return absolute
