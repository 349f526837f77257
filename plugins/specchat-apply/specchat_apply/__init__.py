"""A plugin that merges sketches, code with gaps for what stays, and adds `specchat apply`.

    command.py          the command line
    merge.py            a sketch and a file to the new file, where that is certain; what a model may change instead
    sketch_places.py    which lines of a file the lines of a sketch are

Every process of specchat imports this file, so it only declares the extensions.
"""

from __future__ import annotations

from specchat.plugins.hooks import Extension, hookimpl


@hookimpl
def register_commands() -> list[Extension]:
    description = "Merge a sketch with gaps, or a diff, into a file."
    return [Extension("apply", description, "specchat_apply.command:apply")]


@hookimpl
def register_sketch_mergers() -> list[Extension]:
    description = "merges what has one certain place, and holds models to the sketch"
    return [Extension("structure", description, "specchat_apply.merge:StructureMerger")]
