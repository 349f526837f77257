"""What `@NAME:REST` attaches: a text that a plugin fetches, such as `@clip:` or `@issue:12`. Knows no file."""

from __future__ import annotations

from specchat.chat.attachments import decode_text
from specchat.chat.request import Attachment
from specchat.plugins.discovery import offers
from specchat.plugins.offer import Offer


def is_loaded(name: str) -> bool:
    """Does a plugin answer to this name? `name` begins with the @."""
    return _loader(name) is not None


def load(name: str) -> Attachment:
    """What the plugin has for it, under the same name; InputError where that is no text."""
    loader = _loader(name)
    if loader is None:
        raise AssertionError(name)
    text = loader.call(name.partition(":")[2])
    if not isinstance(text, str):
        raise loader.failure(f"gave a {type(text).__name__}, which is no text")
    return Attachment(name, decode_text(text.encode(errors="replace"), name))


def _loader(name: str) -> Offer | None:
    """Plugins are looked up only where there is a colon."""
    scheme, colon, _rest = name.removeprefix("@").partition(":")
    return offers("context_loaders").get(scheme) if colon and name.startswith("@") else None
