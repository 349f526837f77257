"""One edit: an instruction, the text before and the text after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from recipes.snippets import Snippet


@dataclass(frozen=True)
class Edit:
    """One task: what is asked, what is there, what should be there."""

    kind: str
    instruction: str
    before: str
    after: str


Maker = Callable[[Snippet, Random], "Edit | None"]
