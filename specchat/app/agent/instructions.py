"""What the model reads before it works in a project: a few sentences, and the AGENTS.md of the project.

AGENTS.md holds instructions of its author, so the user is asked once for each content of it, as for a project file;
the decision is in the same store. Without a person it is left out. Either way a line says so.
"""

from collections.abc import Callable
from dataclasses import dataclass

from specchat.app.project_files import ProjectFiles
from specchat.chat.shortened_text import bounded
from specchat.errors import CancelledError, SpecchatError
from specchat.host.spawn import project_trust
from specchat.profile.project_file import ProjectFile

INSTRUCTIONS_FILE = "AGENTS.md"
MAX_FILE_BYTES = 2**20
MAX_CHARACTERS = 16_000
HEADING = "# Tools"  # begins the section; all after it is ours
WORKING = (
    "You work in the folder of the project {name} with tools. Look at files before you change them, and find out with "
    "the tools what you do not know. When the work is done, say in a few words what you did."
)
PLANNING = "You only read now. Find out what is needed, and answer with a plan of the changes."


@dataclass(frozen=True)
class Instructions:
    """The text for the model, "" for none, and a line for the user about it."""

    text: str = ""
    notice: str = ""


def project_instructions(files: ProjectFiles, confirm: Callable[[str], bool] | None) -> Instructions:
    """AGENTS.md, if there is one and the user accepts it."""
    path = files.root / INSTRUCTIONS_FILE
    if not path.exists():
        return Instructions()
    try:
        real = files.path_of(INSTRUCTIONS_FILE)
        text = files.read(real).text
        file = ProjectFile(real, files.read_bytes(real, MAX_FILE_BYTES))
        store = project_trust()
        is_trusted = store.is_trusted(file)
        if is_trusted is None:
            if not confirm:
                return Instructions("", f"{INSTRUCTIONS_FILE} is not read: accept it once in 'specchat chat'")
            is_trusted = confirm(f"read {path} as instructions to the model, until it changes?\n{text}")
            store.record(file, is_trusted=is_trusted)
    except CancelledError:  # the user has not decided
        raise
    except SpecchatError as error:
        return Instructions("", f"{INSTRUCTIONS_FILE} is not read: {error}")
    if not is_trusted:
        return Instructions("", f"{INSTRUCTIONS_FILE} is not read, as you decided")
    return Instructions(bounded(text, MAX_CHARACTERS), f"{INSTRUCTIONS_FILE} is read: {len(text)} characters")


def without_section(system: str) -> str:
    """The system prompt as the user has it."""
    text = system.removeprefix(HEADING) if system.startswith(f"{HEADING}\n") else None
    return "" if text is not None else system.partition(f"\n\n{HEADING}\n")[0]


def with_section(system: str, project: str, instructions: str, is_plan: bool) -> str:
    parts = [without_section(system), f"{HEADING}\n{WORKING.format(name=project)}"]
    parts[1] += f" {PLANNING}" if is_plan else ""
    if instructions:
        parts.append(f"{INSTRUCTIONS_FILE} of this project:\n\n{instructions}")
    return "\n\n".join(filter(None, parts))
