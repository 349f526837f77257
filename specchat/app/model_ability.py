"""What a model is asked for in an edit: by its size, as far as that was measured (docs/edits.md). Loads no model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from specchat.edit.edit_plan import Format
from specchat.errors import ModelError
from specchat.profile import Models
from specchat.profile.keys import EMBEDDED

WHOLE_LINES = 100  # a text of more lines is hardly rewritten for a change of a few
NAMING_PARAMETERS = 10**9  # one of 135 million names an operation for nearly every instruction that is none
SMALL_PARAMETERS, SMALL_LINES = 500 * 10**6, 20  # of 8 edits of 40 and 80 lines, one of 135 million made none rightly


@dataclass(frozen=True)
class ModelAbility:
    """`lines`: so many it can rewrite; 0 where it is not known to be too small, or the user has been told so."""

    names_operations: bool = True
    lines: int = 0

    @classmethod
    def of(cls, models: Models) -> Self:
        """That of the target, by the headers of its files; one whose size is unknown, as on a server, can do all."""
        from specchat.hub.local_models import locate_model

        try:
            size = NAMING_PARAMETERS if models.is_on_server else locate_model(models.target).architecture.parameters
        except ModelError:
            return cls()
        is_small = size < SMALL_PARAMETERS and models.target != EMBEDDED
        return cls(size >= NAMING_PARAMETERS, SMALL_LINES if is_small else 0)

    def first_format(self, lines: int) -> Format:
        """What it writes first of a text of so many lines: all of it, what the instruction names, or changes."""
        if lines <= (self.lines or WHOLE_LINES):
            return "whole"
        return "blocks" if self.names_operations else "region"

    def warning_before(self, lines: int) -> str:
        """Why it should not rewrite so many lines, and what to do; "" if it can."""
        if not 0 < self.lines < lines:
            return ""
        return (
            f"a model of this size is too small to rewrite {lines} lines; give at most {self.lines} (-l FIRST-LAST), "
            "or find a larger model: 'specchat setup'"
        )
