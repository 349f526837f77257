"""Reads the header of a GGUF file: metadata, and where each tensor is. Reads no weights.

A GGUF file is untrusted. Every count, length and offset is checked against the size of the file before anything is
allocated, so that a damaged or hostile file gives one clear line at once. Knows neither architectures nor tokenizers.
The reader of the package `gguf` trusts them: of the 21 faulty headers of the tests it reads six without a complaint,
has not ended after 25 s on one (2^60 items), and answers the others with errors of NumPy. So only its tables are used.

Layout (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), all numbers little-endian:

    "GGUF"  version:u32  tensors:u64  pairs:u64
    pairs   key:string type:u32 value           a string is length:u64 and UTF-8; an array is type:u32 count:u64 values
    tensors name:string dimensions:u32 sizes:u64 each, fastest first, type:u32 offset:u64
    padding to general.alignment, then the data of the tensors
"""

import mmap
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod
from pathlib import Path
from typing import Any, overload

from specchat.errors import ModelError

MAGIC = b"GGUF"
SUPPORTED_VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
SCALARS: Mapping[int, str] = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
# Those that a kernel of a GPU multiplies as they are (`forward.linear.block_linear`, which imports torch).
MULTIPLIED_TYPES = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "MXFP4")
DEFAULT_ALIGNMENT = 32
# Far above every published file, and low enough that a hostile header is refused within seconds.
MAX_METADATA_BYTES = 2**27
MAX_PAIRS = 2**16
MAX_TENSORS = 2**16
MAX_ARRAY_ITEMS = 2**21
MAX_KEY_BYTES = 2**16 - 1
MAX_STRING_BYTES = 2**24
MAX_ITEM_BYTES = 2**13  # of a string in an array: a token or a merge
MAX_DIMENSIONS = 4
MAX_MESSAGE_CHARACTERS = 200
SHARD_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


@dataclass(frozen=True)
class GgufTensor:
    """A tensor in a file, by rows: shape [rows, ..., columns] as in torch, the last dimension contiguous."""

    path: Path
    name: str
    shape: tuple[int, ...]
    type_name: str  # of its blocks: F32, Q4_1, ...
    offset: int  # in the file
    bytes: int

    @property
    def row_bytes(self) -> int:
        """The bytes of one row, which is a whole number of blocks."""
        return self.bytes // (prod(self.shape[:-1]) or 1)


@dataclass(frozen=True)
class GgufFile:
    """The header of a model in one file or several."""

    path: Path  # the first shard
    paths: tuple[Path, ...]
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]

    @property
    def bytes(self) -> int:
        """The size of all shards."""
        return sum(path.stat().st_size for path in self.paths)

    @property
    def quantization(self) -> str:
        """The block type that holds the most weights, for example Q4_K."""
        sizes = dict[str, int]()
        for tensor in self.tensors.values():
            sizes[tensor.type_name] = sizes.get(tensor.type_name, 0) + prod(tensor.shape)
        return max(sizes, key=lambda name: sizes[name]) if sizes else "no tensors"


class StringArray(Sequence[str]):
    """Strings as a file has them, decoded when the first one is read: a model that is converted needs none of them."""

    def __init__(self, stored: bytes, count: int) -> None:
        self._stored, self._count = stored, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self._texts[index]

    @cached_property
    def _texts(self) -> list[str]:
        texts, position, unpack = list[str](), 0, struct.Struct("<Q").unpack_from
        for _ in range(self._count):
            start = position + 8
            position = start + unpack(self._stored, position)[0]
            texts.append(self._stored[start:position].decode("utf-8", "replace"))
        return texts


def is_gguf(path: Path) -> bool:
    """Whether this is a file that starts as GGUF does; Ollama's blobs have no suffix."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC or path.suffix == ".gguf"
    except OSError:
        return path.suffix == ".gguf"


def read_gguf(path: Path) -> GgufFile:
    """Read the header of a GGUF file, or of all shards of one. ModelError for a damaged, incomplete or unknown file."""
    shards = shard_paths(path)
    headers = [_read_header_once(shard, *size_and_time(shard)) for shard in shards]
    if len(shards) > 1:
        _check_shards(headers)
    tensors = dict[str, GgufTensor]()
    for header in headers:
        if twice := tensors.keys() & header.tensors.keys():
            raise ModelError(f"{header.path}: the tensor {one_line(min(twice))} is in two shards")
        tensors |= header.tensors
    first = headers[0]
    count = first.metadata.get("split.count", 1)
    if isinstance(count, int) and count > len(shards):
        raise ModelError(
            f"{path}: is one of {count} shards, but is not named like model-00001-of-{count:05d}.gguf; "
            "keep the published names of all shards, in one folder"
        )
    if not tensors:
        raise ModelError(f"{path}: has no tensors (a vocabulary without a model?)")
    return GgufFile(first.path, shards, first.metadata, tensors)


def _check_shards(headers: Sequence[GgufFile]) -> None:
    """ModelError for a shard that is of another model, or has the name of another shard."""
    for number, header in enumerate(headers):
        own_number, count = (header.metadata.get(f"split.{key}") for key in ("no", "count"))
        if isinstance(own_number, int) and isinstance(count, int) and (own_number, count) != (number, len(headers)):
            raise ModelError(
                f"{header.path}: its header says shard {own_number + 1} of {count}, and its name shard {number + 1} "
                f"of {len(headers)}; is it of another model? Download it again"
            )
    tensors = sum(len(header.tensors) for header in headers)
    if (expected := headers[0].metadata.get("split.tensors.count", tensors)) != tensors:
        raise ModelError(
            f"{headers[0].path}: its {len(headers)} shards have {tensors} tensors, and the model {expected}; is one of "
            "another model? Download them again"
        )


def shard_paths(path: Path) -> tuple[Path, ...]:
    """All files of a model, from the name of one of them. ModelError names a shard that is missing."""
    match = SHARD_NAME.fullmatch(path.name)
    if match is None:
        return (path,)
    count = int(match["count"])
    paths = tuple(
        path.with_name(f"{match['stem']}-{number:05d}-of-{match['count']}.gguf") for number in range(1, count + 1)
    )
    for each in paths:
        if not each.is_file():
            raise ModelError(f"{path}: its shard {each.name} is missing in {path.parent}; download it to this folder")
    return paths or (path,)


def size_and_time(path: Path) -> tuple[int, int]:
    """The bytes of a file, and when it was changed, in nanoseconds. ModelError when it cannot be read."""
    try:
        status = path.stat()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
    return status.st_size, status.st_mtime_ns


@lru_cache(maxsize=4)
def _read_header_once(path: Path, _size: int, _modified_ns: int) -> GgufFile:
    """Read a header; size and modification time are part of the cache key."""
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise ModelError(f"{path}: not a GGUF file (it does not start with GGUF)")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return _parse(path, _Cursor(path, content))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error


def forget_headers() -> None:
    """Free the headers that were read: a large vocabulary takes tens of megabytes."""
    _read_header_once.cache_clear()


class _Cursor:
    """A position in a header. Every read is checked against the size of the file."""

    def __init__(self, path: Path, content: mmap.mmap) -> None:
        self.path = path
        self.content = content
        self.size = len(content)
        self.position = len(MAGIC)

    def error(self, problem: str) -> ModelError:
        return ModelError(f"{self.path}: damaged or incomplete GGUF: {one_line(problem)}; download it again")

    def skip(self, count: int, what: str) -> int:
        """Move over `count` bytes, and return where they start."""
        start, end = self.position, self.position + count
        if end > self.size:
            raise self.error(f"{what} ends at byte {end:,}, and the file has {self.size:,}")
        if end > MAX_METADATA_BYTES:
            raise self.error(f"its header is larger than {MAX_METADATA_BYTES:,} bytes")
        self.position = end
        return start

    def number(self, form: str, what: str) -> Any:
        layout = struct.Struct(f"<{form}")
        return layout.unpack_from(self.content, self.skip(layout.size, what))[0]

    def string(self, what: str, limit: int = MAX_STRING_BYTES) -> str:
        length = self.number("Q", what)
        if length > limit:
            raise self.error(f"{what} claims {length:,} bytes")
        start = self.skip(length, what)
        return self.content[start : start + length].decode("utf-8", "replace")

    def count(self, what: str, limit: int, item_bytes: int) -> int:
        """A number of items, each of at least `item_bytes`, that the rest of the file can hold."""
        count = self.number("Q", what)
        if count > limit or count * item_bytes > self.size - self.position:
            raise self.error(f"it claims {count:,} {what}")
        return count

    def value(self, kind: int, key: str) -> Any:
        if kind == STRING:
            return self.string(key)
        if kind in SCALARS:
            return self.number(SCALARS[kind], key)
        if kind == ARRAY:
            return self._array(key)
        raise self.error(f"{key} has the unknown type {kind}")

    def _array(self, key: str) -> Sequence[Any]:
        kind = self.number("I", key)
        if kind == STRING:
            return self._strings(key, self.count(f"items in {key}", MAX_ARRAY_ITEMS, 8))
        if kind not in SCALARS:
            raise self.error(f"{key} is an array of the unsupported type {kind}")
        item = struct.calcsize(f"<{SCALARS[kind]}")
        count = self.count(f"items in {key}", MAX_ARRAY_ITEMS, item)
        return list(struct.unpack_from(f"<{count}{SCALARS[kind]}", self.content, self.skip(count * item, key)))

    def _strings(self, key: str, count: int) -> StringArray:
        """As `string` for each, but fast: a vocabulary has hundreds of thousands."""
        content, position, unpack = self.content, self.position, struct.Struct("<Q").unpack_from
        end = min(self.size, MAX_METADATA_BYTES)
        for _ in range(count):
            if position + 8 > end:
                raise self.error(f"{key} ends at byte {position + 8:,}, and the file has {self.size:,}")
            start = position + 8
            position = start + unpack(content, position)[0]
            if position - start > MAX_ITEM_BYTES or position > end:
                raise self.error(f"a string in {key} claims {position - start:,} bytes")
        stored = content[self.position : position]
        self.position = position
        return StringArray(stored, count)


def one_line(text: str) -> str:
    """A text from a file, for a message: short and printable."""
    return "".join(character if character.isprintable() else "?" for character in text[:MAX_MESSAGE_CHARACTERS])


def _parse(path: Path, cursor: _Cursor) -> GgufFile:
    version = cursor.number("I", "the version")
    if version not in SUPPORTED_VERSIONS:
        is_swapped = version & 0xFFFF == 0
        kind = "big-endian GGUF" if is_swapped else f"GGUF version {version}"
        raise ModelError(f"{path}: {kind} is not supported; look for a newer copy of the model")
    tensor_count = cursor.count("tensors", MAX_TENSORS, 32)
    metadata = dict[str, Any]()
    for _ in range(cursor.count("metadata entries", MAX_PAIRS, 13)):
        key = cursor.string("a metadata key", MAX_KEY_BYTES)
        if key in metadata:
            raise cursor.error(f"{key} is there twice")
        metadata[key] = cursor.value(cursor.number("I", key), key)
    tensors = [_tensor(cursor) for _ in range(tensor_count)]
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise cursor.error(f"general.alignment is {alignment}")
    start = -(-cursor.position // alignment) * alignment
    placed = [_placed(cursor, tensor, start) for tensor in tensors]
    if len({tensor.name for tensor in placed}) < len(placed):
        raise cursor.error("two tensors have one name")
    return GgufFile(path, (path,), metadata, {tensor.name: tensor for tensor in placed})


def _tensor(cursor: _Cursor) -> GgufTensor:
    """The next tensor of the header; its offset is from the start of the data."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    name = cursor.string("the name of a tensor", MAX_KEY_BYTES)
    dimensions = cursor.number("I", name)
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise cursor.error(f"{name} has {dimensions:,} dimensions")
    sizes = tuple(cursor.number("Q", name) for _ in range(dimensions))  # fastest first
    type_number, offset = cursor.number("I", name), cursor.number("Q", name)
    try:
        kind = GGMLQuantizationType(type_number)
        block_items, block_bytes = GGML_QUANT_SIZES[kind]
    except (ValueError, KeyError) as error:
        raise ModelError(
            f"{cursor.path}: {one_line(name)} has the quantization type {type_number}, which is unknown here; "
            "choose another quantization of the model, for example Q4_K_M or Q8_0"
        ) from error
    if 0 in sizes or sizes[0] % block_items:
        raise cursor.error(f"{name} has the shape {list(sizes)}, in blocks of {block_items}")
    return GgufTensor(cursor.path, name, sizes[::-1], kind.name, offset, prod(sizes) // block_items * block_bytes)


def _placed(cursor: _Cursor, tensor: GgufTensor, data_start: int) -> GgufTensor:
    """The tensor with its place in the file, which is checked to hold it."""
    offset = data_start + tensor.offset
    if offset + tensor.bytes > cursor.size:
        raise cursor.error(f"{tensor.name} ends at byte {offset + tensor.bytes:,}, and the file has {cursor.size:,}")
    return replace(tensor, offset=offset)
