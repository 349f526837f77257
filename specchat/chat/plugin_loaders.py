"""Attachments `@NAME:REST` that a plugin loads, such as `@clip:` or `@issue:12`. Knows no file."""

from __future__ import annotations

from specchat.chat.attachments import decode_text
from specchat.chat.request import Attachment
from specchat.plugins.discovery import find_extensions
from specchat.plugins.extension import Extension


def has_loader(name: str) -> bool:
    """Whether a plugin has a loader for this name, which starts with @."""
    return _find_loader(name) is not None


def load_attachment(name: str) -> Attachment:
    """The text from the plugin, under the same name; InputError when it is not text."""
    loader = _find_loader(name)
    if loader is None:
        raise AssertionError(name)
    text = loader.call(name.partition(":")[2])
    if not isinstance(text, str):
        raise loader.plugin_error(f"returned a {type(text).__name__}, which is not text")
    return Attachment(name, decode_text(text.encode(errors="replace"), name))


def _find_loader(name: str) -> Extension | None:
    """Look up plugins only for names with a colon."""
    scheme, colon, _rest = name.removeprefix("@").partition(":")
    return find_extensions("context_loaders").get(scheme) if colon and name.startswith("@") else None
