"""specchat: a terminal assistant with lossless speculative decoding.

    from specchat import open_session

    with open_session("chat") as session:
        for event in session.ask("What is a generator?"):
            print(event)

Importing this imports nothing heavy: models and torch come with the first `open_session`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specchat.assemble import open_session

__version__ = "0.1.0"
__all__ = ["__version__", "open_session"]


def __getattr__(name: str) -> object:
    if name == "open_session":
        from specchat.assemble import open_session

        return open_session
    raise AttributeError(f"module 'specchat' has no attribute {name!r}")
