"""Vi keys for the prompt: text, cursor and keys in, a change of the text out. Knows no widget.

Moves: h l 0 ^ $ w b e f t F T gg G, with counts. Operators: d c y with a move or doubled. Also: x X D C Y s S r p P u,
and i I a A o O. The prompt itself handles j and k, which also go to earlier prompts.
"""

import re
from dataclasses import dataclass

WORD = re.compile(r"\w+|[^\w\s]+")
MOVE = r"(?P<move>[hl0^$wbeG]|gg|[fFtT].)"
COMMAND = re.compile(
    rf"(?P<count>[1-9]\d*)?(?:(?P<operator>[dcy])(?P<again>[1-9]\d*)?(?:{MOVE}|(?P<line>(?P=operator)))"
    r"|(?P<simple>[xXDCYsSpPuiIaAoO]|r.)|(?P<only_move>[hl0^$wbeG]|gg|[fFtT].))",
    re.DOTALL,
)
BEGINNING = re.compile(r"(?:[1-9]\d*)?(?:[dcy](?:[1-9]\d*)?)?[gfFtTr]?")
SHORTHANDS = {"x": "dl", "X": "dh", "D": "d$", "C": "c$", "Y": "yy", "s": "cl", "S": "cc"}
INCLUSIVE_MOVES = frozenset("e$ft")


@dataclass(frozen=True)
class ViChange:
    """Put `inserted` in place of text[start:end], and the cursor at `cursor`; or undo the last change."""

    cursor: int
    start: int = 0
    end: int = 0
    inserted: str = ""
    is_undo: bool = False

    @property
    def is_edit(self) -> bool:
        return self.start != self.end or bool(self.inserted)


class ViKeys:
    """The mode, the keys of an incomplete command, and the text that was deleted or copied last."""

    def __init__(self) -> None:
        self.is_inserting = True
        self.is_incomplete = False
        self._keys = self._register = ""

    def start_inserting(self) -> None:
        self.is_inserting, self.is_incomplete, self._keys = True, False, ""

    def escape(self, text: str, cursor: int) -> ViChange:
        """Drop an incomplete command, or leave the insert mode, with the cursor one to the left."""
        was_inserting, self.is_inserting = self.is_inserting, False
        self.is_incomplete, self._keys = False, ""
        return ViChange(max(cursor - was_inserting, _line_start(text, cursor)))

    def press(self, character: str, text: str, cursor: int) -> ViChange | None:
        """The effect of a key in normal mode; None while the command is incomplete, or when there is none."""
        self._keys += character
        command = COMMAND.fullmatch(self._keys)
        self.is_incomplete = command is None and BEGINNING.fullmatch(self._keys) is not None
        if self.is_incomplete:
            return None
        self._keys = ""
        return self._run(command, text, cursor) if command else None

    def _run(self, command: re.Match[str], text: str, cursor: int) -> ViChange | None:
        count = int(command["count"] or 1)
        if move := command["only_move"]:
            target = _target(move, text, cursor, int(command["count"]) if command["count"] else None)
            return None if target is None else ViChange(_on_character(text, target))
        if simple := command["simple"]:
            if longer := SHORTHANDS.get(simple):
                return self._run(_matched(f"{count}{longer}"), text, cursor)
            return self._run_simple(simple, count, text, cursor)
        operator, count = command["operator"], count * int(command["again"] or 1)
        if command["line"]:
            return self._operate_on_lines(operator, count, text, cursor)
        return self._operate(operator, command["move"], count, text, cursor)

    def _operate(self, operator: str, move: str, count: int, text: str, cursor: int) -> ViChange | None:
        if move in ("G", "gg"):
            last_line = text.count("\n", cursor) + 1
            return (
                self._operate_on_lines(operator, last_line, text, cursor)
                if move == "G"
                else self._operate_on_lines(operator, text.count("\n", 0, cursor) + 1, text, 0)
            )
        move = "e" if (operator, move) == ("c", "w") and text[cursor : cursor + 1].strip() else move
        target = _target(move, text, cursor, count)
        if target is None:
            return None
        if move == "w" and cursor < (line_end := _line_end(text, cursor)):
            target = min(target, line_end)
        start, end = sorted((cursor, target))
        end = min(end + (move[0] in INCLUSIVE_MOVES), len(text))
        return self._cut(operator, start, end, text)

    def _operate_on_lines(self, operator: str, count: int, text: str, cursor: int) -> ViChange:
        start, end = _line_start(text, cursor), _line_end(text, cursor)
        for _ in range(count - 1):
            end = _line_end(text, min(end + 1, len(text)))
        self._register = text[start:end] + "\n"
        if operator == "y":
            return ViChange(start)
        if operator == "c":
            self.is_inserting = True
            return ViChange(start, start, end)
        is_last = end == len(text)
        start, end = (max(start - 1, 0), end) if is_last else (start, end + 1)
        left = text[:start] + text[end:]
        return ViChange(_line_start(left, min(start, len(left))), start, end)

    def _cut(self, operator: str, start: int, end: int, text: str) -> ViChange:
        self._register = text[start:end]
        if operator == "y":
            return ViChange(start)
        self.is_inserting = operator == "c"
        left = text[:start] + text[end:]
        return ViChange(start if self.is_inserting else _on_character(left, start), start, end)

    def _run_simple(self, key: str, count: int, text: str, cursor: int) -> ViChange | None:
        line_start, line_end = _line_start(text, cursor), _line_end(text, cursor)
        match key[0]:
            case "u":
                return ViChange(cursor, is_undo=True)
            case "r" if cursor + count <= line_end:
                return ViChange(cursor + count - 1, cursor, cursor + count, key[1] * count)
            case "r":
                return None
            case "p" | "P":
                return self._put(count, text, cursor, is_after=key == "p")
            case _:
                self.is_inserting = True
        if key in "oO":
            place = line_end if key == "o" else line_start
            return ViChange(place + (key == "o"), place, place, "\n")
        indent = len(text[line_start:line_end]) - len(text[line_start:line_end].lstrip())
        places = {"i": cursor, "a": min(cursor + 1, line_end), "A": line_end, "I": line_start + indent}
        return ViChange(places[key])

    def _put(self, count: int, text: str, cursor: int, *, is_after: bool) -> ViChange:
        if self._register.endswith("\n"):
            lines = self._register * count
            if not is_after:
                place = _line_start(text, cursor)
                return ViChange(place, place, place, lines)
            place = _line_end(text, cursor)
            return ViChange(place + 1, place, place, "\n" + lines[:-1])
        place = min(cursor + is_after, _line_end(text, cursor))
        inserted = self._register * count
        return ViChange(max(place + len(inserted) - 1, 0), place, place, inserted)


def _matched(keys: str) -> re.Match[str]:
    command = COMMAND.fullmatch(keys)
    assert command is not None
    return command


def _target(move: str, text: str, cursor: int, count: int | None) -> int | None:
    """Where a move ends; None when a character is not found."""
    start, end, times = _line_start(text, cursor), _line_end(text, cursor), count or 1
    match move[0]:
        case "h":
            return max(cursor - times, start)
        case "l":
            return min(cursor + times, end)
        case "0":
            return start
        case "^":
            return start + len(text[start:end]) - len(text[start:end].lstrip())
        case "$":
            return max(end - 1, start)
        case "w":
            later = [word.start() for word in WORD.finditer(text) if word.start() > cursor]
            return later[times - 1] if times <= len(later) else len(text)
        case "e":
            later = [word.end() - 1 for word in WORD.finditer(text) if word.end() - 1 > cursor]
            return later[times - 1] if times <= len(later) else max(len(text) - 1, 0)
        case "b":
            earlier = [word.start() for word in WORD.finditer(text) if word.start() < cursor]
            return earlier[-times] if times <= len(earlier) else 0
        case "g" | "G":
            lines = [0, *(found.end() for found in re.finditer("\n", text))]
            number = count or (1 if move == "gg" else len(lines))
            return lines[min(number, len(lines)) - 1]
        case _:
            return _found(move[0], move[1], text, cursor, times)


def _found(direction: str, character: str, text: str, cursor: int, times: int) -> int | None:
    """The place of a character in this line, or the one beside it for t and T."""
    start, end = _line_start(text, cursor), _line_end(text, cursor)
    for _ in range(times):
        if direction in "ft":
            cursor = text.find(character, cursor + 1, end)
        else:
            cursor = text.rfind(character, start, cursor)
        if cursor < 0:
            return None
    return cursor + {"t": -1, "T": 1}.get(direction, 0)


def _line_start(text: str, cursor: int) -> int:
    return text.rfind("\n", 0, cursor) + 1


def _line_end(text: str, cursor: int) -> int:
    end = text.find("\n", cursor)
    return len(text) if end < 0 else end


def _on_character(text: str, cursor: int) -> int:
    """In normal mode, the cursor is on a character, not behind the last one of its line."""
    cursor = min(cursor, len(text))
    return max(min(cursor, _line_end(text, cursor) - 1), _line_start(text, cursor))
