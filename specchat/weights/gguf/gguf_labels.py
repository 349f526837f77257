"""Which of several GGUF files a label means, the part of a name after the colon: `org/repo:Q4_K_M`.

The label of a file is the quantization in its name, or the whole name where that is missing or not unique. Knows names
only: of a hub's listing, or of a folder. Reads no file.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import TypeVar

from specchat.errors import ModelError
from specchat.paths import HUB_PREFIX
from specchat.weights.gguf.gguf_file import SHARD_NAME

File = TypeVar("File")

MODEL_FILE = re.compile(r"(?:.*/)?(?!mmproj|imatrix)(?P<label>[^/]+?)(?:-00001-of-\d{5}|(?<!-of-\d{5}))\.gguf")
QUANTIZATION = re.compile(r"(?<![a-z\d])(?:UD-)?(?:I?Q\d|TQ\d|(?:MX|NV)FP\d|BF16|F16|F32)\w*(?![a-z\d])", re.IGNORECASE)
LM_STUDIO_PREFIX = "lmstudio:"
PREFIXES = (LM_STUDIO_PREFIX, HUB_PREFIX)


def labelled_models(files: Mapping[str, File]) -> dict[str, File]:
    """The first parts of the language models among files of these names, by label; no encoders of images."""
    models = {name: match["label"] for name in sorted(files) if (match := MODEL_FILE.fullmatch(name))}
    quantizations = {name: (QUANTIZATION.findall(name) or [""])[-1] for name in models}
    counts = Counter(quantizations.values())
    is_clear = {name: each != "" and counts[each] == 1 for name, each in quantizations.items()}
    return {quantizations[name] if is_clear[name] else models[name]: files[name] for name in models}


def chosen_model(source: str, models: Mapping[str, File]) -> File | None:
    """The labelled file that this source names, or the only one; None without any. ModelError says which there are."""
    bare, wanted = split_label(source)
    chosen = [file for label, file in models.items() if wanted.lower() in ("", label.lower())]
    if len(chosen) == 1 or not (models or wanted):
        return next(iter(chosen), None)
    if not models:
        raise ModelError(f"{source}: {bare} has no GGUF files; leave ':{wanted}' out")
    problem = f"none of its GGUF files is {wanted}" if wanted else f"holds {len(models)} models"
    raise ModelError(f"{source}: {problem}; name one as {bare}:{next(iter(models))}: {', '.join(models)}")


def parts_of(source: str, first: str, names: Collection[str]) -> list[str]:
    """The names of all parts of a model. ModelError when one is missing."""
    shard = SHARD_NAME.fullmatch(first)
    if shard is None:
        return [first]
    numbers = range(1, int(shard["count"]) + 1)
    parts = [f"{shard['stem']}-{number:05d}-of-{shard['count']}.gguf" for number in numbers]
    if missing := [each for each in parts if each not in names]:
        raise ModelError(f"{source}: {missing[0]} is missing there, a part of the model; choose another quantization")
    return parts


def split_label(source: str) -> tuple[str, str]:
    """`lmstudio:org/model:Q4_K_M` → the name and "Q4_K_M"; "" for a name without a label."""
    prefix = next((each for each in PREFIXES if source.startswith(each)), "")
    bare, _, label = source.removeprefix(prefix).partition(":")
    return prefix + bare, label
