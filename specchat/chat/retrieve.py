"""From files, folders, globs and the repository to what the model reads with a question. Knows no model and no screen.

What is small enough travels whole. Of the rest travel the passages that the question is about: files are scanned for
its words, the best are cut into pieces, and the best pieces are packed into the room there is, in the order of the
files, each under its name and lines, so that an answer can quote them and a drafter can copy them. For the repository,
a map of its definitions comes first. The same files and question always give the same passages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path

from specchat.chat.at_names import REPOSITORY, resolve
from specchat.chat.attachments import decode_text, shown_name
from specchat.chat.ignore import MAX_FILE_BYTES, MOST_FILES, Listing
from specchat.chat.passages import Chunk, cut, rank, terms
from specchat.chat.plugin_loaders import is_loaded
from specchat.chat.repomap import draw_map
from specchat.chat.request import MAX_ATTACHED_BYTES, Attachment
from specchat.errors import ContextError, InputError

LETTERS_OF_TOKEN = 3  # fewer than most tokenizers reach, so that an estimate is on the safe side
FOUND_SHARE, WHOLE_SHARE = 1 / 3, 3 / 4  # of the window; the rest is for the conversation and the answer
MAP_SHARE = 1 / 4  # of the room for what is found
SEARCHED_LETTERS = 1_000_000  # of the files that hold words of the question: what is cut in a quarter of a second
FRAME_LETTERS = 24  # what stands around a passage: its heading and its fence
NAMED = 3  # files that a notice names


@dataclass(frozen=True)
class Room:
    """How many letters may travel: all together, and of what was found in folders or in files too long."""

    whole: int
    found: int

    @classmethod
    def of_window(cls, tokens: int) -> Room:
        """The room in a window of so many tokens."""
        letters = min(tokens * LETTERS_OF_TOKEN, MAX_ATTACHED_BYTES // 4)
        return cls(int(letters * WHOLE_SHARE), int(letters * FOUND_SHARE))


@dataclass(frozen=True)
class Context:
    """What travels with a question, what a person should know of it (one line), and where its passages are from."""

    files: tuple[Attachment, ...] = ()
    notice: str = ""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Counted:
    """How often each word of a question stands in a file."""

    path: Path
    length: int
    counts: list[int]


@dataclass(frozen=True)
class _Scan:
    """What a first look at many files found. `whole` is all their text where it fits, `hits` come best first."""

    count: int
    whole: tuple[Attachment, ...] | None
    hits: tuple[_Counted, ...]
    left_out: Listing
    binary: int


def gather(names: Sequence[str], question: str, room: Room) -> Context:
    """What these names (files, folders, globs, "@repo") have to say about a question.

    InputError for a name that leads to no text or to none that fits the question, ContextError where there is no room.
    """
    named, listing = resolve(names)
    pinned, long = _pinned(named, room, is_more=bool(listing.files))
    if fetched := [str(path) for path in long if is_loaded(str(path))]:
        raise ContextError(f"{fetched[0]} is too long to be attached whole; only files are searched for passages")
    if not long and listing == Listing():
        return Context(pinned)
    searched = replace(listing, files=(*long, *listing.files))
    scan = _scan(searched, set(terms(question)), room.found if not long else 0)
    if not scan.count:
        raise InputError(f"{_rest(names, pinned)}: no text to read{_left_out(scan)}")
    if scan.whole is not None:
        return Context((*pinned, *scan.whole), f"{_plural(scan.count, 'file')} attached{_left_out(scan)}")
    found = _found(searched, scan, question, room.found, has_map=REPOSITORY in names)
    if not found.files:
        raise InputError(
            f"{_rest(names, pinned)}: too long to be attached whole, and without a word of the question; "
            "ask in its words, or name the files that matter"
        )
    return replace(found, files=(*pinned, *found.files))


def _rest(names: Sequence[str], pinned: Sequence[Attachment]) -> str:
    """The names that are no trouble left out."""
    good = {each.name for each in pinned}
    return ", ".join(name for name in names if name not in good)


def _pinned(named: Sequence[Attachment], room: Room, *, is_more: bool) -> tuple[tuple[Attachment, ...], list[Path]]:
    """The named files that travel whole, the shortest first if not all can; and those that are too long."""
    is_more = is_more or sum(len(each.text) for each in named) > room.whole
    left = room.whole - (room.found if is_more else 0)
    pinned = set[str]()
    for each in sorted(named, key=lambda each: len(each.text)):
        if len(each.text) <= left:
            left -= len(each.text)
            pinned.add(each.name)
    return tuple(each for each in named if each.name in pinned), [
        Path(each.name) for each in named if each.name not in pinned
    ]


def _scan(listing: Listing, asked: set[str], most_letters: int) -> _Scan:
    """Read everything once and keep only counts, unless it is little."""
    whole, left, binary, unreadable = list[Attachment](), most_letters, 0, list(listing.unreadable)
    counted = list[_Counted]()
    words = sorted(asked)
    for path in listing.files:
        try:
            text = _text(path)
        except OSError:
            unreadable.append(shown_name(path))
            continue
        if text is None:
            binary += 1
        elif text.strip():
            lowered = f"{path}\n{text}".lower()
            counted.append(_Counted(path, len(text), [lowered.count(word) for word in words]))
            left -= len(text) + len(str(path)) + FRAME_LETTERS
            if left >= 0:
                whole.append(Attachment(shown_name(path), text))
    return _Scan(
        len(counted), tuple(whole) if left >= 0 else None, tuple(_hits(counted)),
        replace(listing, unreadable=tuple(unreadable)), binary,
    )  # fmt: skip


def _text(path: Path) -> str | None:
    """A file as text, None when it is none."""
    content = path.read_bytes()
    try:
        return decode_text(content, str(path))
    except InputError:
        return None


def _hits(counted: Sequence[_Counted]) -> list[_Counted]:
    """The files that hold a word, best first: BM25 (Robertson and Zaragoza, 2009) with k = 1.2 and b = 0.75."""
    mean = sum(each.length for each in counted) / max(len(counted), 1)
    holders = [sum(map(bool, column)) for column in zip(*(each.counts for each in counted), strict=True)]
    rarity = [log(1 + (len(counted) - count + 0.5) / (count + 0.5)) for count in holders]

    def score(each: _Counted) -> float:
        long = 1.2 * (0.25 + 0.75 * each.length / mean)
        return sum(weight * count / (count + long) for weight, count in zip(rarity, each.counts, strict=True))

    return sorted((each for each in counted if any(each.counts)), key=lambda each: (-score(each), each.path))


def _found(searched: Listing, scan: _Scan, question: str, room: int, *, has_map: bool) -> Context:
    """A map, if it is wanted or nothing else is found, and the passages that the question is about."""
    ranked = rank([piece for name, text in _texts(_enough(scan.hits)) for piece in cut(name, text)], question)
    drawn = draw_map(_texts(searched.files), int(room * MAP_SHARE)) if has_map or not ranked else ""
    passages = _packed(ranked, room - len(drawn))
    if ranked and not passages:
        raise ContextError(
            f"{ranked[0].source} has {len(ranked[0].text)} letters, and there is room for {room - len(drawn)}; "
            "raise limits.context, or attach a shorter file"
        )
    parts = {
        "a map of the definitions": drawn,
        f"{_plural(len(passages), 'passage')} of {_plural(len({each.file for each in passages}), 'file')}": passages,
    }
    said = " and ".join(part for part, is_there in parts.items() if is_there)
    files = [Attachment(each.name, each.text) for each in passages]
    return Context(
        (*[Attachment("map of the definitions", drawn)] * bool(drawn), *files),
        f"{said} attached, out of {_plural(scan.count, 'file')}{_left_out(scan)}",
        tuple(each.source for each in passages),
    )


def _enough(hits: Sequence[_Counted]) -> Iterator[Path]:
    """The first files, as many as can be cut in short time; one in any case."""
    letters = 0
    for each in hits:
        if letters and letters + each.length > SEARCHED_LETTERS:
            return
        letters += each.length
        yield each.path


def _texts(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Names and texts, without the files that were deleted meanwhile."""
    for path in paths:
        try:
            yield shown_name(path), _text(path) or ""
        except OSError:
            continue


def _packed(ranked: Sequence[Chunk], room: int) -> list[Chunk]:
    """The best pieces that fit, in the order of their files; neighbours become one."""
    taken, left = list[Chunk](), room
    for piece in ranked:
        size = len(piece.text) + len(piece.name) + FRAME_LETTERS
        if size <= left:
            left -= size
            taken.append(piece)
    packed = list[Chunk]()
    for piece in sorted(taken, key=lambda piece: (piece.file, piece.first)):
        before = packed[-1] if packed else None
        if before and before.file == piece.file and before.last + 1 == piece.first:
            packed[-1] = replace(before, last=piece.last, text=before.text + piece.text)
        else:
            packed.append(piece)
    return packed


def _left_out(scan: _Scan) -> str:
    """What a notice ends with: "; left out: 3 not text, 1 link; cannot be read: a, b and 2 more"."""
    listing = scan.left_out
    kinds = {
        f"{scan.binary} not text": scan.binary,
        f"{listing.large} over {MAX_FILE_BYTES // 2**20} MiB": listing.large,
        _plural(listing.links, "link"): listing.links,
        f"all after the first {MOST_FILES} names": listing.is_cut,
    }
    skipped = ", ".join(said for said, is_so in kinds.items() if is_so)
    more = len(listing.unreadable) - NAMED
    closed = ", ".join(listing.unreadable[:NAMED]) + (f" and {more} more" if more > 0 else "")
    return (f"; left out: {skipped}" if skipped else "") + (f"; cannot be read: {closed}" if closed else "")


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
