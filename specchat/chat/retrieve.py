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

from specchat.chat.at_names import REPOSITORY, resolve_names
from specchat.chat.attachments import decode_text, display_name
from specchat.chat.file_listing import MAX_FILE_BYTES, MAX_FILES, FileListing
from specchat.chat.passages import FileChunk, rank_chunks, split_file, terms
from specchat.chat.plugin_loaders import has_loader
from specchat.chat.repomap import build_repo_map
from specchat.chat.request import MAX_ATTACHED_BYTES, Attachment
from specchat.errors import ContextError, InputError

CHARACTERS_PER_TOKEN = 3  # fewer than most tokenizers reach, so that an estimate is on the safe side
PASSAGES_SHARE, ATTACHMENTS_SHARE = 1 / 3, 3 / 4  # of the window; the rest is for the conversation and the answer
REPO_MAP_SHARE = 1 / 4  # of the room for what is found
MAX_SEARCHED_CHARACTERS = (
    1_000_000  # of the files that hold words of the question: what is cut in a quarter of a second
)
FRAME_CHARACTERS = 24  # what stands around a passage: its heading and its fence
MAX_NAMED_FILES = 3  # files that a notice names


@dataclass(frozen=True)
class ContextBudget:
    """How many letters may travel: all together, and of what was found in folders or in files too long."""

    total_characters: int
    passage_characters: int

    @classmethod
    def of_window(cls, window_tokens: int) -> ContextBudget:
        """The room in a window of so many tokens."""
        letters = min(window_tokens * CHARACTERS_PER_TOKEN, MAX_ATTACHED_BYTES // 4)
        return cls(int(letters * ATTACHMENTS_SHARE), int(letters * PASSAGES_SHARE))


@dataclass(frozen=True)
class RetrievedContext:
    """What travels with a question, what a person should know of it (one line), and where its passages are from."""

    files: tuple[Attachment, ...] = ()
    notice: str = ""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class _TermCounts:
    """How often each word of a question stands in a file."""

    path: Path
    character_count: int
    counts: list[int]


@dataclass(frozen=True)
class _Scan:
    """What a first look at many files found. `whole` is all their text where it fits, `hits` come best first."""

    file_count: int
    whole_files: tuple[Attachment, ...] | None
    matching_files: tuple[_TermCounts, ...]
    listing: FileListing
    binary_count: int


def gather_context(names: Sequence[str], question: str, budget: ContextBudget) -> RetrievedContext:
    """What these names (files, folders, globs, "@repo") have to say about a question.

    InputError for a name that leads to no text or to none that fits the question, ContextError where there is no room.
    """
    named, listing = resolve_names(names)
    pinned, long = _split_by_size(named, budget, is_more=bool(listing.files))
    if fetched := [str(path) for path in long if has_loader(str(path))]:
        raise ContextError(f"{fetched[0]} is too long to be attached whole; only files are searched for passages")
    if not long and listing == FileListing():
        return RetrievedContext(pinned)
    searched = replace(listing, files=(*long, *listing.files))
    scan = _scan(searched, set(terms(question)), budget.passage_characters if not long else 0)
    if not scan.file_count:
        raise InputError(f"{_failed_names(names, pinned)}: no text to read{_left_out_notice(scan)}")
    if scan.whole_files is not None:
        return RetrievedContext(
            (*pinned, *scan.whole_files), f"{_plural(scan.file_count, 'file')} attached{_left_out_notice(scan)}"
        )
    found = _retrieve_passages(searched, scan, question, budget.passage_characters, has_map=REPOSITORY in names)
    if not found.files:
        raise InputError(
            f"{_failed_names(names, pinned)}: too long to be attached whole, and without a word of the question; "
            "ask in its words, or name the files that matter"
        )
    return replace(found, files=(*pinned, *found.files))


def _failed_names(names: Sequence[str], pinned: Sequence[Attachment]) -> str:
    """The names that are no trouble left out."""
    good = {each.name for each in pinned}
    return ", ".join(name for name in names if name not in good)


def _split_by_size(
    named: Sequence[Attachment], room: ContextBudget, *, is_more: bool
) -> tuple[tuple[Attachment, ...], list[Path]]:
    """The named files that travel whole, the shortest first if not all can; and those that are too long."""
    is_more = is_more or sum(len(each.text) for each in named) > room.total_characters
    left = room.total_characters - (room.passage_characters if is_more else 0)
    pinned = set[str]()
    for each in sorted(named, key=lambda each: len(each.text)):
        if len(each.text) <= left:
            left -= len(each.text)
            pinned.add(each.name)
    return tuple(each for each in named if each.name in pinned), [
        Path(each.name) for each in named if each.name not in pinned
    ]


def _scan(listing: FileListing, asked: set[str], most_letters: int) -> _Scan:
    """Read everything once and keep only counts, unless it is little."""
    whole, left, binary, unreadable = list[Attachment](), most_letters, 0, list(listing.unreadable)
    counted = list[_TermCounts]()
    words = sorted(asked)
    for path in listing.files:
        try:
            text = _read_text(path)
        except OSError:
            unreadable.append(display_name(path))
            continue
        if text is None:
            binary += 1
        elif text.strip():
            lowered = f"{path}\n{text}".lower()
            counted.append(_TermCounts(path, len(text), [lowered.count(word) for word in words]))
            left -= len(text) + len(str(path)) + FRAME_CHARACTERS
            if left >= 0:
                whole.append(Attachment(display_name(path), text))
    return _Scan(
        len(counted), tuple(whole) if left >= 0 else None, tuple(_rank_files(counted)),
        replace(listing, unreadable=tuple(unreadable)), binary,
    )  # fmt: skip


def _read_text(path: Path) -> str | None:
    """A file as text, None when it is none."""
    content = path.read_bytes()
    try:
        return decode_text(content, str(path))
    except InputError:
        return None


def _rank_files(counted: Sequence[_TermCounts]) -> list[_TermCounts]:
    """The files that hold a word, best first: BM25 (Robertson and Zaragoza, 2009) with k = 1.2 and b = 0.75."""
    mean = sum(each.character_count for each in counted) / max(len(counted), 1)
    holders = [sum(map(bool, column)) for column in zip(*(each.counts for each in counted), strict=True)]
    rarity = [log(1 + (len(counted) - count + 0.5) / (count + 0.5)) for count in holders]

    def score(each: _TermCounts) -> float:
        long = 1.2 * (0.25 + 0.75 * each.character_count / mean)
        return sum(weight * count / (count + long) for weight, count in zip(rarity, each.counts, strict=True))

    return sorted((each for each in counted if any(each.counts)), key=lambda each: (-score(each), each.path))


def _retrieve_passages(
    searched: FileListing, scan: _Scan, question: str, room: int, *, has_map: bool
) -> RetrievedContext:
    """A map, if it is wanted or nothing else is found, and the passages that the question is about."""
    ranked = rank_chunks(
        [piece for name, text in _read_files(_top_files(scan.matching_files)) for piece in split_file(name, text)],
        question,
    )
    drawn = build_repo_map(_read_files(searched.files), int(room * REPO_MAP_SHARE)) if has_map or not ranked else ""
    passages = _pack_chunks(ranked, room - len(drawn))
    if ranked and not passages:
        raise ContextError(
            f"{ranked[0].citation} has {len(ranked[0].text)} letters, and there is room for {room - len(drawn)}; "
            "raise limits.context, or attach a shorter file"
        )
    parts = {
        "a map of the definitions": drawn,
        f"{_plural(len(passages), 'passage')} of {_plural(len({each.file for each in passages}), 'file')}": passages,
    }
    said = " and ".join(part for part, is_there in parts.items() if is_there)
    files = [Attachment(each.name, each.text) for each in passages]
    return RetrievedContext(
        (*[Attachment("map of the definitions", drawn)] * bool(drawn), *files),
        f"{said} attached, out of {_plural(scan.file_count, 'file')}{_left_out_notice(scan)}",
        tuple(each.citation for each in passages),
    )


def _top_files(hits: Sequence[_TermCounts]) -> Iterator[Path]:
    """The first files, as many as can be cut in short time; one in any case."""
    letters = 0
    for each in hits:
        if letters and letters + each.character_count > MAX_SEARCHED_CHARACTERS:
            return
        letters += each.character_count
        yield each.path


def _read_files(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Names and texts, without the files that were deleted meanwhile."""
    for path in paths:
        try:
            yield display_name(path), _read_text(path) or ""
        except OSError:
            continue


def _pack_chunks(ranked: Sequence[FileChunk], room: int) -> list[FileChunk]:
    """The best pieces that fit, in the order of their files; neighbours become one."""
    taken, left = list[FileChunk](), room
    for piece in ranked:
        size = len(piece.text) + len(piece.name) + FRAME_CHARACTERS
        if size <= left:
            left -= size
            taken.append(piece)
    packed = list[FileChunk]()
    for piece in sorted(taken, key=lambda piece: (piece.file, piece.first_line)):
        before = packed[-1] if packed else None
        if before and before.file == piece.file and before.last_line + 1 == piece.first_line:
            packed[-1] = replace(before, last=piece.last_line, text=before.text + piece.text)
        else:
            packed.append(piece)
    return packed


def _left_out_notice(scan: _Scan) -> str:
    """What a notice ends with: "; left out: 3 not text, 1 link; cannot be read: a, b and 2 more"."""
    listing = scan.listing
    kinds = {
        f"{scan.binary_count} not text": scan.binary_count,
        f"{listing.large_files} over {MAX_FILE_BYTES // 2**20} MiB": listing.large_files,
        _plural(listing.symlinks, "link"): listing.symlinks,
        f"all after the first {MAX_FILES} names": listing.is_truncated,
    }
    skipped = ", ".join(said for said, is_so in kinds.items() if is_so)
    more = len(listing.unreadable) - MAX_NAMED_FILES
    closed = ", ".join(listing.unreadable[:MAX_NAMED_FILES]) + (f" and {more} more" if more > 0 else "")
    return (f"; left out: {skipped}" if skipped else "") + (f"; cannot be read: {closed}" if closed else "")


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
