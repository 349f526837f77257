"""The texts in memory, found by their tokens: every conversation goes on from the longest beginning that is known.

A text belongs to the conversation that extended it last. One that goes on with it takes it; another one with the same
beginning gets a copy of the common rows. Texts of private conversations serve no other and never reach a
disk. When there is no room, the text that was used longest ago goes, into a file if its conversation has one. Knows
tokens and rows, no prompt and no drafter.
"""

from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from specchat.engine.decode import Generation, TextRows
from specchat.errors import ModelError, SpecchatError

MAX_TEXTS = 16
MAX_IDLE_BYTES = 512 * 2**20  # what idle texts may hold; a dropped one is prefilled again
MIN_COPIED_ROWS = 32  # fewer are computed again as fast
MAX_LOST_ROWS = 16  # of a text that another conversation extends without a copy, and of a prompt that goes on


class CachedText(Protocol):
    """A generation with what follows it."""

    generation: Generation

    def memory_bytes(self) -> dict[str, int]: ...

    def close(self) -> None: ...


class Owner(Protocol):
    """A conversation: its name, which is that of its file on disk, and whether its texts are its own."""

    @property
    def name(self) -> str: ...

    @property
    def is_private(self) -> bool: ...


class RowFiles(Protocol):
    """Texts on disk, by the names of conversations."""

    def store(self, name: str, rows: TextRows, budget_bytes: int) -> None: ...

    def longest_prefix(self, tokens: Sequence[int], known: int = 0) -> TextRows | None: ...


@dataclass(frozen=True)
class _Forgotten:
    name: str = ""
    is_private: bool = True


FORGOTTEN = _Forgotten()  # owns the texts of conversations that are deleted, or that were private and have ended

T = TypeVar("T", bound=CachedText)


@dataclass(eq=False)
class _Entry(Generic[T]):
    text: T
    form: Hashable
    owner: Owner
    prompt_rows: int  # of the last answer
    is_busy: bool = True

    def is_visible_to(self, owner: Owner) -> bool:
        is_own = self.owner is not FORGOTTEN and self.owner.name == owner.name and owner.is_private
        return is_own or not self.owner.is_private

    def can_be_taken(self, owner: Owner, form: Hashable, shared: int) -> bool:
        """Whether a conversation may extend this text itself, which loses the rows that are not shared."""
        lost = self.text.generation.cache.length - shared
        is_same_form = self.form == form and self.owner.is_private == owner.is_private
        # A conversation goes on behind its last prompt, also where a template drops the thought of the answer.
        is_own = self.owner.name == owner.name and (lost <= shared or shared >= self.prompt_rows - MAX_LOST_ROWS)
        return not self.is_busy and is_same_form and (is_own or lost <= MAX_LOST_ROWS)


class PrefixCache(Generic[T]):
    """`open_text` makes an empty text of a form: texts of one form differ in their tokens only."""

    def __init__(self, open_text: Callable[[Hashable], T], files: RowFiles | None = None, disk_bytes: int = 0) -> None:
        self._open_text, self._files, self._disk_bytes = open_text, files, disk_bytes
        self._entries: list[_Entry[T]] = []  # the one used last at the end

    def __iter__(self) -> Iterator[T]:
        return (entry.text for entry in list(self._entries))

    @contextmanager
    def use(self, tokens: list[int], owner: Owner, form: Hashable = None) -> Generator[T]:
        """The text to extend to these tokens, for one answer. An answer that breaks it loses it."""
        entry = self._take(tokens, owner, form)
        try:
            yield entry.text
        except (SpecchatError, GeneratorExit) as error:
            self._give_back(entry, is_broken=isinstance(error, ModelError))
            raise
        except BaseException:
            self._give_back(entry, is_broken=True)
            raise
        self._give_back(entry, is_broken=False)

    def forget(self, name: str) -> None:
        """Offer no text of a conversation that has ended any more, and write none. Thread-safe."""
        for entry in list(self._entries):
            if entry.owner.name == name:
                entry.owner = FORGOTTEN

    def drop_forgotten(self) -> None:
        for entry in [each for each in self._entries if each.owner is FORGOTTEN and not each.is_busy]:
            self._drop(entry)

    def close(self) -> None:
        for entry in list(self._entries):
            self._store_and_drop(entry)

    def _take(self, tokens: list[int], owner: Owner, form: Hashable) -> _Entry[T]:
        best, known = self._longest(tokens, owner, form)
        rows = self._stored_rows(tokens, owner, known)
        if best is not None and rows is None and best.can_be_taken(owner, form, known):
            self._entries.remove(best)
            best.owner, best.prompt_rows, best.is_busy = owner, len(tokens), True
            self._entries.append(best)
            return best
        if best is not None and rows is None and known >= MIN_COPIED_ROWS:
            rows = best.text.generation.copy_rows(known)
        entry = _Entry(self._open_text(form), form, owner, len(tokens))
        if rows is not None:
            entry.text.generation.restore(rows)
        self._entries.append(entry)
        return entry

    def _longest(self, tokens: list[int], owner: Owner, form: Hashable) -> tuple[_Entry[T] | None, int]:
        """The text with the most rows for these tokens, and how many; of two alike the one that need not be copied."""
        best, known, best_score = None, 0, -1
        for entry in reversed(self._entries):
            if entry.is_visible_to(owner):
                shared = entry.text.generation.rows_shared_with(tokens)
                score = shared + MIN_COPIED_ROWS * entry.can_be_taken(owner, form, shared)
                if score > best_score:
                    best, known, best_score = entry, shared, score
        return best, known

    def _stored_rows(self, tokens: list[int], owner: Owner, known: int) -> TextRows | None:
        """Rows on disk, if they are many more than the known ones."""
        if self._files is None or not _has_file(owner):
            return None
        rows = self._files.longest_prefix(tokens, known)
        return rows if rows and len(rows.tokens) > known + 1 else None  # with states it may be a shorter one

    def _give_back(self, entry: _Entry[T], *, is_broken: bool) -> None:
        entry.is_busy = False
        if is_broken or entry.owner is FORGOTTEN:
            self._drop(entry)
        held, idle = 0, [each for each in reversed(self._entries) if not each.is_busy]
        for number, each in enumerate(idle):
            held += sum(each.text.memory_bytes().values())
            if number and (held > MAX_IDLE_BYTES or number >= MAX_TEXTS):
                self._store_and_drop(each)

    def _store_and_drop(self, entry: _Entry[T]) -> None:
        """Close a text; it goes into the file of its conversation, unless a later text of the same one will."""
        later = self._entries[self._entries.index(entry) + 1 :]
        is_last = all(each.owner.name != entry.owner.name for each in later)
        rows = entry.text.generation.copy_rows() if self._files and _has_file(entry.owner) and is_last else None
        if self._files and rows:
            self._files.store(entry.owner.name, rows, self._disk_bytes)
        self._drop(entry)

    def _drop(self, entry: _Entry[T]) -> None:
        if entry in self._entries:
            self._entries.remove(entry)
            entry.text.close()


def _has_file(owner: Owner) -> bool:
    return bool(owner.name) and not owner.is_private
