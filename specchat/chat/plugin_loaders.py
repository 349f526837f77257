"""What `@NAME:REST` attaches: a text that a plugin fetches, such as `@clip:` or `@issue:12`. Knows no file."""

from __future__ import annotations

from specchat.chat.attachments import decode_text
from specchat.chat.request import Attachment
from specchat.plugins.discovery import find_extensions
from specchat.plugins.extension import Extension


def has_loader(name: str) -> bool:
    """Does a plugin answer to this name? `name` begins with the @."""
    return _find_loader(name) is not None


def load_attachment(name: str) -> Attachment:
    """What the plugin has for it, under the same name; InputError where that is no text."""
    loader = _find_loader(name)
    if loader is None:
        raise AssertionError(name)
    text = loader.call(name.partition(":")[2])
    if not isinstance(text, str):
        raise loader.plugin_error(f"gave a {type(text).__name__}, which is no text")
    return Attachment(name, decode_text(text.encode(errors="replace"), name))


def _find_loader(name: str) -> Extension | None:
    """Plugins are looked up only where there is a colon."""
    scheme, colon, _rest = name.removeprefix("@").partition(":")
    return find_extensions("context_loaders").get(scheme) if colon and name.startswith("@") else None
