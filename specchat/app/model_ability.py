"""What a model is asked for in an edit: by its size, and by its success so far (docs/edits.md). Loads no model."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from specchat.edit.edit_plan import FORMATS, Format
from specchat.edit.measured_formats import LONG, SHORT, measured_success, read_counts
from specchat.hub.model_size import is_small, parameters_of, too_small
from specchat.profile.keys import AUTO, Models

LEAD = 0.1  # of each format over the next one in the order by size
WHOLE_LINES = 100  # a text of more lines is hardly rewritten for a change of a few
NAMING_PARAMETERS = 10**9  # one of 135 million names an operation for nearly every instruction that is none
SMALL_LINES = 20  # that a small one rewrites


@dataclass(frozen=True)
class ModelAbility:
    """`lines`: so many it can rewrite; 0 where it is not known to be too small, or the user has been told so.

    `chosen_format` is that of the profile; `counts` has what became of the edits of this `model`.
    """

    names_operations: bool = True
    lines: int = 0
    model: str = ""
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    chosen_format: str = AUTO

    @classmethod
    def of(cls, models: Models) -> Self:
        """That of the target, by the headers of its files; one whose size is unknown, as on a server, can do all."""
        name = f"{models.backend} {models.url} {models.target} {models.weights}"
        model = hashlib.sha256(name.encode()).hexdigest()[:24]
        able = cls(model=model, counts=read_counts().get(model, {}))
        names = (parameters_of(models) or NAMING_PARAMETERS) >= NAMING_PARAMETERS
        return replace(able, names_operations=names, lines=SMALL_LINES if is_small(models) else 0)

    def format_key(self, format_: Format, lines: int) -> str:
        """What counts it for a text of so many lines."""
        return f"{format_}, {LONG if lines > (self.lines or WHOLE_LINES) else SHORT}"

    def formats(self, lines: int, *, is_part: bool = False) -> list[Format]:
        """In which order it is asked for all of a text, for chosen lines or what the instruction names, or for changes.

        The order by size counts until another format has led to a new text more often; that of the profile is first.
        """
        is_whole = not is_part and lines <= (self.lines or WHOLE_LINES)
        first = "whole" if is_whole else "blocks" if self.names_operations and not is_part else "region"
        by_size = sorted(FORMATS, key=lambda each: each != first)
        success = lambda each: measured_success(self.counts, self.format_key(each, lines))[0]
        worth = lambda each: (each == self.chosen_format, success(each) - LEAD * by_size.index(each))
        return sorted(by_size, key=worth, reverse=True)

    def reason(self, format_: Format, lines: int) -> str:
        """Why it is asked for a format sooner or later; "" where sizes decide."""
        is_chosen = format_ == self.chosen_format
        return "prompt.edit_format" if is_chosen else measured_success(self.counts, self.format_key(format_, lines))[1]

    @property
    def unproven(self) -> str:
        """Why a person has to see what it wrote by itself, and what to do; "" if it is not known to be too small."""
        words = "so small a model wrote this by itself, which has to be reviewed; a larger one: 'specchat setup'"
        return words if self.lines else ""

    def warning_before(self, lines: int) -> str:
        """Why it should not rewrite so many lines, and what to do; "" if it can."""
        if not 0 < self.lines < lines:
            return ""
        return too_small(f"rewrite {lines} lines", f"give at most {self.lines} (-l FIRST-LAST)")
