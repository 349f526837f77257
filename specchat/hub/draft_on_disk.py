"""A smaller model on this disk that could draft for a target, because it has the same tokens.

It is only named: a draft model takes memory and does not pay on every machine, so the user decides. Reads headers and
vocabularies; uses no network and imports no torch.
"""

from collections.abc import Iterator
from pathlib import Path

from specchat.errors import ModelError
from specchat.hub.local_models import LocalModel, models_on_disk
from specchat.hub.recommend import MAX_DRAFT_SHARE
from specchat.hub.safetensors_headers import read_architecture
from specchat.profile.keys import EMBEDDED, STARTER
from specchat.text.tokenizer import Tokenizer
from specchat.text.vocabulary import Vocabulary
from specchat.weights.gguf.gguf_file import is_gguf, read_gguf
from specchat.weights.gguf.gguf_sources import gguf_models
from specchat.weights.gguf.gguf_tokenizer import read_tokens

MOST_BYTES_PER_BYTE = 4  # of a draft in bf16 beside a target in 4 bits, for the same number of parameters


def draft_on_disk(target: Path) -> str | None:
    """What `--draft` takes for the best smaller model that has the tokens of this target; None when there is none.

    `target` is a GGUF file or a folder. Models of its own architecture go first, then the smallest.
    """
    try:
        own, size = read_architecture(target), LocalModel("", target).bytes
    except ModelError:  # whatever is wrong with it, its loading says so
        return None
    found = list[tuple[bool, int, str, Path]]()
    for model in _other_models(target):
        try:
            if model.bytes > MOST_BYTES_PER_BYTE * MAX_DRAFT_SHARE * size:
                continue
            draft = model.details().architecture
            if draft is not None and draft.parameters <= MAX_DRAFT_SHARE * own.parameters and _writes(model.files):
                found.append((draft.family != own.family, model.bytes, model.id, model.files))
        except ModelError:  # a blob that is gone
            continue
    try:
        tokens = _tokens(target) if found else None
    except ModelError:
        return None
    return next((name for *_, name, path in sorted(found) if _has_tokens(path, tokens)), None)


def _other_models(target: Path) -> Iterator[LocalModel]:
    """Those that specchat finds by a name, and those beside the target. Parts of specchat have its own tokens."""
    yield from (each for each in models_on_disk() if each.id.partition("/")[0] not in (EMBEDDED, STARTER))
    yield from (LocalModel(str(path), path) for path in gguf_models(target.parent).values())
    yield from (LocalModel(str(path.parent), path.parent) for path in target.parent.glob("*/config.json"))


def _writes(path: Path) -> bool:
    """Whether it continues texts: models of embeddings have the tensors of others."""
    if not is_gguf(path):
        return (path / "tokenizer.json").is_file() and not (path / "modules.json").is_file()  # of sentence-transformers
    metadata = read_gguf(path).metadata
    return not metadata.get(f"{metadata.get('general.architecture')}.pooling_type")


def _has_tokens(path: Path, tokens: Vocabulary | None) -> bool:
    try:
        return tokens is not None and tokens.first_difference(_tokens(path)) is None
    except ModelError:
        return False


def _tokens(path: Path) -> Vocabulary:
    return read_tokens(read_gguf(path)) if is_gguf(path) else Tokenizer(path).tokens
