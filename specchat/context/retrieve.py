"""Retrieve the context of a question from files, folders, globs and the repository. Knows no model and no screen.

Small files are attached whole. From the others, the passages that match the question are attached: the files are
scanned for its words, the best files are split into chunks, and the best chunks are packed into the budget, in the
order of the files and with name and line numbers, so that an answer can quote them and a drafter can copy them. For the
repository, a map of its definitions comes first. The same files and question always give the same passages.

A named file that is asked about as a whole, or that has no passage for the question, is attached with all of its text
although it does not fit: `app/part_reader.py` reads it in parts and attaches its notes instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path

from specchat.chat.attachments import decode_text, display_name
from specchat.chat.request import MAX_ATTACHED_BYTES, Attachment
from specchat.context.at_names import REPOSITORY, THIS_FOLDER, FileAccess, find_loader, resolve_names
from specchat.context.file_listing import MAX_FILE_BYTES, MAX_FILES, FileListing
from specchat.context.long_files import asks_about_whole, split_parts, without_names
from specchat.context.passages import FileChunk, rank_chunks, split_file, terms
from specchat.context.repomap import build_repo_map
from specchat.errors import ContextError, InputError

CHARACTERS_PER_TOKEN = 3  # a cautious estimate: most tokenizers need fewer tokens
PASSAGES_SHARE, ATTACHMENTS_SHARE = 1 / 3, 3 / 4  # of the window; the rest is for the conversation and the answer
REPO_MAP_SHARE = 1 / 4  # of the budget of passages
MAX_SEARCHED_CHARACTERS = 1_000_000  # of the best files; they are split in a quarter of a second
FRAME_CHARACTERS = 24  # the heading and the fence of a passage
MAX_NAMED_FILES = 3  # in a notice

Read = Callable[[Path], str | None]  # the text of a file; None for a binary file


@dataclass(frozen=True)
class ContextBudget:
    """How many characters may be attached: in total, and as passages of folders and long files."""

    total_characters: int
    passage_characters: int

    @classmethod
    def of_window(cls, window_tokens: int) -> ContextBudget:
        characters = min(window_tokens * CHARACTERS_PER_TOKEN, MAX_ATTACHED_BYTES // 4)
        return cls(int(characters * ATTACHMENTS_SHARE), int(characters * PASSAGES_SHARE))

    @property
    def part_characters(self) -> int:
        """Of a file that is read in parts: half of the window, which leaves room for the note about the part."""
        return max(1, self.total_characters * 2 // 3)


@dataclass(frozen=True)
class RetrievedContext:
    """The attachments of a question, a notice for the user (one line), and the citations of the passages."""

    files: tuple[Attachment, ...] = ()
    notice: str = ""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class _TermCounts:
    """How often each word of a question occurs in a file."""

    path: Path
    character_count: int
    counts: list[int]


@dataclass(frozen=True)
class _Scan:
    """The result of a scan. `whole_files` are all files if they fit the budget; `matching_files` come best first."""

    file_count: int
    whole_files: tuple[Attachment, ...] | None
    matching_files: tuple[_TermCounts, ...]
    listing: FileListing
    binary_count: int


def gather_context(
    names: Sequence[str], question: str, budget: ContextBudget, access: FileAccess = THIS_FOLDER
) -> RetrievedContext:
    """Retrieve what these names (files, folders, globs, "@repo", names with a loader) contain about a question.

    Raises InputError for names without text or without a match, and ContextError when nothing fits the budget.
    """
    named, listing = resolve_names(names, access)
    pinned, long = split_named_files(named, budget, is_more=bool(listing.files))
    whole = [file for file in long if find_loader(file.name, access) or _is_read_whole(file, question, names)]
    known = {Path(file.name): file.text for file in long if file not in whole}
    read: Read = lambda path: known[path] if path in known else _read_text(path)
    searched = replace(listing, files=(*known, *listing.files))
    start = RetrievedContext((*pinned, *whole), _joined(_attached_notice(pinned), _parts_notice(whole, budget)))
    if searched == FileListing():
        return start
    scan = _scan(searched, read, set(terms(question)), budget.passage_characters if not long else 0)
    if not scan.file_count:
        raise InputError(f"{_failed_names(names, start.files)}: no text to read{_left_out_notice(scan)}")
    if scan.whole_files is not None:
        attached = (*pinned, *scan.whole_files)
        return RetrievedContext(attached, _attached_notice(attached) + _left_out_notice(scan))
    room = budget.passage_characters // (2 if whole else 1)  # the notes about the whole files need the other half
    try:
        retrieved = _retrieve_passages(scan, read, question, room, has_map=REPOSITORY in names)
    except ContextError:
        if listing.files:
            raise
        retrieved = RetrievedContext()
    if not retrieved.files and not listing.files:
        return RetrievedContext((*pinned, *long), _joined(_attached_notice(pinned), _parts_notice(long, budget)))
    if not retrieved.files:
        raise InputError(
            f"{_failed_names(names, start.files)}: too long to be attached whole, and without a word of the question; "
            "use words of the files in the question, or name the relevant files"
        )
    hint = "" if len(whole) == len(long) else "; ask for a summary to have all of a named file read in parts"
    notice = _joined(start.notice, retrieved.notice + hint)
    return replace(retrieved, files=(*start.files, *retrieved.files), notice=notice)


def describe_texts(files: Sequence[Attachment], budget: ContextBudget) -> str:
    """The notice about texts that are attached as they are; those that do not fit are read in parts."""
    fitting, long = split_named_files(files, budget)
    return _joined(_attached_notice(fitting), _parts_notice(long, budget))


def _is_read_whole(file: Attachment, question: str, names: Sequence[str]) -> bool:
    """Whether a long file is read in parts, all of it: the question is not about passages, or no passage matches."""
    if asks_about_whole(question, names):
        return True
    text = file.text.lower()
    return not any(word in text for word in terms(without_names(question, names)))


def _failed_names(names: Sequence[str], pinned: Sequence[Attachment]) -> str:
    """The names that are not attached whole."""
    attached = {each.name for each in pinned}
    return ", ".join(name for name in names if name not in attached)


def split_named_files(
    named: Sequence[Attachment], budget: ContextBudget, *, is_more: bool = False
) -> tuple[tuple[Attachment, ...], tuple[Attachment, ...]]:
    """The files to attach whole, the shortest first if not all fit; and those that are too long; both in their order.

    `is_more`: passages of other files need room as well.
    """
    is_more = is_more or sum(len(each.text) for each in named) > budget.total_characters
    left = budget.total_characters - (budget.passage_characters if is_more else 0)
    fitting = set[int]()
    for number in sorted(range(len(named)), key=lambda number: len(named[number].text)):
        if len(named[number].text) <= left:
            left -= len(named[number].text)
            fitting.add(number)
    return (
        tuple(file for number, file in enumerate(named) if number in fitting),
        tuple(file for number, file in enumerate(named) if number not in fitting),
    )


def _scan(listing: FileListing, read: Read, query: set[str], max_characters: int) -> _Scan:
    """Read all files once and count the words of the query; keep the texts only while they fit."""
    whole, left, binary, unreadable = list[Attachment](), max_characters, 0, list(listing.unreadable)
    counted = list[_TermCounts]()
    words = sorted(query)
    for path in listing.files:
        try:
            text = read(path)
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
    """The text of a file; None for a binary file."""
    content = path.read_bytes()
    try:
        return decode_text(content, str(path))
    except InputError:
        return None


def _rank_files(counted: Sequence[_TermCounts]) -> list[_TermCounts]:
    """The files that contain a word, best first: BM25 (Robertson and Zaragoza, 2009) with k = 1.2 and b = 0.75."""
    mean = sum(each.character_count for each in counted) / max(len(counted), 1)
    document_counts = [sum(map(bool, column)) for column in zip(*(each.counts for each in counted), strict=True)]
    idf = [log(1 + (len(counted) - count + 0.5) / (count + 0.5)) for count in document_counts]

    def score(each: _TermCounts) -> float:
        length = 1.2 * (0.25 + 0.75 * each.character_count / mean)
        return sum(weight * count / (count + length) for weight, count in zip(idf, each.counts, strict=True))

    return sorted((each for each in counted if any(each.counts)), key=lambda each: (-score(each), each.path))


def _retrieve_passages(
    scan: _Scan, read: Read, question: str, max_characters: int, *, has_map: bool
) -> RetrievedContext:
    """The passages that match the question; and a map for the repository, or when no passage matches."""
    texts = _read_files(_top_files(scan.matching_files), read)
    ranked = rank_chunks([chunk for name, text in texts for chunk in split_file(name, text)], question)
    is_mapped = has_map or not ranked
    repo_map = (
        build_repo_map(_read_files(scan.listing.files, read), int(max_characters * REPO_MAP_SHARE)) if is_mapped else ""
    )
    left = max_characters - len(repo_map)
    passages = _pack_chunks(ranked, left)
    if ranked and not passages:
        raise ContextError(
            f"{ranked[0].citation} has {len(ranked[0].text)} characters, and only {left} fit; raise limits.context, or "
            "attach a shorter file"
        )
    parts = {
        "a map of the definitions": repo_map,
        f"{_plural(len(passages), 'passage')} of {_plural(len({each.file for each in passages}), 'file')}": passages,
    }
    attached = " and ".join(text for text, part in parts.items() if part)
    files = [Attachment(each.name, each.text) for each in passages]
    return RetrievedContext(
        (*[Attachment("map of the definitions", repo_map)] * bool(repo_map), *files),
        f"attached: {attached} {_token_count(files, repo_map)}, out of {_plural(scan.file_count, 'file')}; "
        f"the rest does not fit or does not match the question{_left_out_notice(scan)}",
        tuple(each.citation for each in passages),
    )


def _top_files(matching: Sequence[_TermCounts]) -> Iterator[Path]:
    """The first files, as many as can be split in a short time; at least one."""
    characters = 0
    for each in matching:
        if characters and characters + each.character_count > MAX_SEARCHED_CHARACTERS:
            return
        characters += each.character_count
        yield each.path


def _read_files(paths: Iterable[Path], read: Read) -> Iterator[tuple[str, str]]:
    """Names and texts, without files that were deleted since."""
    for path in paths:
        try:
            yield display_name(path), read(path) or ""
        except OSError:
            continue


def _pack_chunks(ranked: Sequence[FileChunk], max_characters: int) -> list[FileChunk]:
    """The best chunks that fit, in the order of their files, with neighbours joined."""
    selected, left = list[FileChunk](), max_characters
    for chunk in ranked:
        size = len(chunk.text) + len(chunk.name) + FRAME_CHARACTERS
        if size <= left:
            left -= size
            selected.append(chunk)
    packed = list[FileChunk]()
    for chunk in sorted(selected, key=lambda chunk: (chunk.file, chunk.first_line)):
        last = packed[-1] if packed else None
        if last and last.file == chunk.file and last.last_line + 1 == chunk.first_line:
            packed[-1] = replace(last, last_line=chunk.last_line, text=last.text + chunk.text)
        else:
            packed.append(chunk)
    return packed


def _joined(*notices: str) -> str:
    return "; ".join(filter(None, notices))


def _attached_notice(files: Sequence[Attachment]) -> str:
    """`attached: a.py (about 1,200 tokens), b.py (about 30 tokens)`; of many files the first names and the sum."""
    if not files:
        return ""
    if len(files) <= MAX_NAMED_FILES:
        return f"attached: {', '.join(f'{file.name} {_token_count([file])}' for file in files)}"
    names = ", ".join(file.name for file in files[:MAX_NAMED_FILES])
    return f"attached: {names} and {_plural(len(files) - MAX_NAMED_FILES, 'more file')} {_token_count(files)}"


def _parts_notice(files: Sequence[Attachment], budget: ContextBudget) -> str:
    """What will be done with the files that do not fit."""
    if not files:
        return ""
    long = ", ".join(
        f"{file.name} {_token_count([file])} in {_plural(len(split_parts(file.text, budget.part_characters)), 'part')}"
        for file in files
    )
    return f"too long for the context window, so read in parts and summarized: {long}; Esc or Ctrl-C stops it"


def _token_count(files: Sequence[Attachment], more: str = "") -> str:
    """An estimate: the tokenizer is in the engine process."""
    characters = sum(len(file.text) for file in files) + len(more)
    return f"(about {-(-characters // CHARACTERS_PER_TOKEN):,} tokens)"


def _left_out_notice(scan: _Scan) -> str:
    """The end of a notice: "; left out: 3 not text, 1 link; cannot be read: a, b and 2 more"."""
    listing = scan.listing
    kinds = {
        f"{scan.binary_count} not text": scan.binary_count,
        f"{listing.large_files} over {MAX_FILE_BYTES // 2**20} MiB": listing.large_files,
        _plural(listing.symlinks, "link"): listing.symlinks,
        f"all after the first {MAX_FILES} names": listing.is_truncated,
    }
    skipped = ", ".join(text for text, count in kinds.items() if count)
    more = len(listing.unreadable) - MAX_NAMED_FILES
    unreadable = ", ".join(listing.unreadable[:MAX_NAMED_FILES]) + (f" and {more} more" if more > 0 else "")
    return (f"; left out: {skipped}" if skipped else "") + (f"; cannot be read: {unreadable}" if unreadable else "")


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
