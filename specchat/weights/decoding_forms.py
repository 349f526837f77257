"""The decoding form that a probe has found for a model, remembered between loads.

It depends on the files, the dtype and format of the weights, the device, the plugins and the versions of the
code, so all of them are in the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from specchat.forward.batch import BatchLimits
from specchat.forward.transformers.decoding_probe import PROBE_VERSION, decoding_forms, find_form
from specchat.forward.transformers.transformers_model import DecodingForm
from specchat.paths import read_json_object, remember, remembered_file

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def decoding_form(
    folder: Path, network: PreTrainedModel, limits: BatchLimits, quant_format: str, uses: Mapping[str, str]
) -> DecodingForm:
    """The form of an earlier load of this model, or that of a probe; ModelError when no form is right.

    `uses` has the weights that the code of the network uses in its own way.
    """
    path = _path(folder, network, limits, [quant_format, dict(uses)])
    stored = read_json_object(path)
    name = str(stored.get("form"))
    if name in decoding_forms():
        return DecodingForm(name, str(stored.get("reason", "")))
    form = find_form(network, limits)
    remember(path, {"form": form.name, "reason": form.reason})
    return form


def _path(folder: Path, network: PreTrainedModel, limits: BatchLimits, weights: list[object]) -> Path:
    import torch
    import transformers

    files = sorted(folder.glob("*.safetensors"))
    identity = {
        "config": (folder / "config.json").read_text(encoding="utf-8"),
        "files": [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files],
        "dtype": str(network.dtype),
        "device": str(network.device),
        "exact": limits.exact,
        "weights": weights,
        "forms": list(decoding_forms()),  # a plugin that comes or goes asks again
        "versions": [PROBE_VERSION, transformers.__version__, torch.__version__],
    }
    return remembered_file("decoding-forms", identity)
