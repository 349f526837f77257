"""F1: the keys of `keys_screen.toml`, those that one needs first.

Shows the keys of `screen.toml` where it has changed them. Knows no conversation. Any other key closes the page and goes
to the prompt.
"""

from collections.abc import Iterable, Mapping, Sequence

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen

from specchat.drawing.glyphs import Glyphs
from specchat.own_tables import own_tables
from specchat.tui.own_label import OwnLabel
from specchat.tui.turn_widget import TurnView

KEY_COLUMNS = 16
KEY_NAMES = {"escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn", "less_than_sign": "<", "greater_than_sign": ">"}


def selection_keys(keymap: Mapping[str, str]) -> str:
    """The keys that act on a selected answer, in one line."""
    bindings = {binding.id: binding for binding in Binding.make_bindings(TurnView.BINDINGS) if binding.id}
    return "  ".join(
        f"{key_text(keymap.get(name, binding.key).split(',')[0])} {binding.description}"
        for name, binding in bindings.items()
    )


def key_lines(bindings: Iterable[BindingType], keymap: Mapping[str, str]) -> list[str]:
    """The page as lines: headings, and rows of a key and its meaning. `keymap` has the changed keys by action."""
    by_id: dict[str, list[Binding]] = {}
    for binding in Binding.make_bindings(bindings):
        by_id.setdefault(binding.id or "", []).append(binding)
    lines: list[str] = []
    groups: dict[str, list[list[str] | str]] = own_tables(__file__)
    for heading, rows in groups.items():
        lines += ["", heading] if lines else [heading]
        for row in rows:
            if isinstance(row, list):
                key, meaning = row
            elif not (bound := by_id.get(row)):
                continue
            else:
                chosen = keymap[row].split(",") if row in keymap else [binding.key for binding in bound]
                key, meaning = ", ".join(map(key_text, chosen)), bound[0].description
            lines.append(f"  {key:{KEY_COLUMNS}}{meaning}")
    return lines


def key_text(key: str) -> str:
    """How people write a key: Ctrl+R for ctrl+r."""
    *modifiers, last = key.split("+")
    shown = KEY_NAMES.get(last) or (last if len(last) == 1 and not modifiers else last.capitalize())
    return "+".join([*(each.capitalize() for each in modifiers), shown])


class KeysScreen(ModalScreen[str]):
    """Returns the character of the key that closed it; "" for Escape and F1."""

    def __init__(self, lines: Sequence[str], help_key: str, glyphs: Glyphs) -> None:
        super().__init__()
        self._lines, self._help_key, self._glyphs = lines, help_key, glyphs

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="keys"):
            yield OwnLabel("\n".join(self._lines), markup=False)
        hint = f" {self._glyphs.dot} ".join(("Esc back", "PgDn more", "a letter goes to the prompt"))
        yield OwnLabel(hint, id="keys-hint", markup=False)

    def on_mount(self) -> None:
        self.set_class(self._glyphs.is_ascii, "-ascii")

    def on_key(self, event: events.Key) -> None:
        if event.key in ("escape", *self._help_key.split(",")):
            event.stop()
            self.dismiss("")
        elif event.is_printable and event.character:
            event.stop()
            self.dismiss(event.character)
