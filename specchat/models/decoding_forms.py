"""Which decoding form a probe has found for a model, remembered between loads.

The answer depends on the files, the dtype, the device and the versions of the code, so all of them are in the key.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from specchat.forward.batch import BatchLimits
from specchat.forward.decoding_form import FORMS, DecodingForm
from specchat.forward.decoding_probe import PROBE_VERSION, find_form
from specchat.paths import cache_folder, write_atomically

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def decoding_form(folder: Path, network: PreTrainedModel, limits: BatchLimits) -> DecodingForm:
    """The form of an earlier load of this model, or that of a probe; ModelError when no form is right."""
    path = _path(folder, network, limits)
    stored = _read(path)
    if stored is not None:
        return stored
    form = find_form(network, limits)
    try:
        write_atomically(path, json.dumps({"form": form.name, "reason": form.reason}))
    except OSError:
        pass  # without a place to remember it, the next load asks again
    return form


def _path(folder: Path, network: PreTrainedModel, limits: BatchLimits) -> Path:
    from importlib.metadata import version

    import torch
    import transformers

    files = sorted(folder.glob("*.safetensors"))
    identity = {
        "config": (folder / "config.json").read_text(encoding="utf-8"),
        "files": [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files],
        "dtype": str(network.dtype),
        "device": str(network.device),
        "exact": limits.exact,
        "versions": [PROBE_VERSION, version("specchat"), transformers.__version__, torch.__version__],
    }
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:24]
    return cache_folder() / "decoding-forms" / f"{key}.json"


def _read(path: Path) -> DecodingForm | None:
    """None without a valid file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        form = DecodingForm(str(content["form"]), str(content["reason"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return form if form.name in FORMS else None
