"""What the hub gives out, or its cache when there is no network; every failure in one line."""

from __future__ import annotations

import os
from pathlib import Path

from specchat.errors import ModelError


def from_hub(source: str, patterns: list[str]) -> Path:
    """The folder of a hub id with the files that match; ModelError says why there is none and what to do."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(source, allow_patterns=patterns))
    except LocalEntryNotFoundError as error:
        offline = os.environ.get("HF_HUB_OFFLINE") in ("1", "true", "True")
        why = "HF_HUB_OFFLINE is set" if offline else "the hub cannot be reached"
        message = f"{source}: not on this machine, and {why}; fetch it once while online, or give a folder"
        raise ModelError(message) from error
    except HFValidationError as error:
        raise ModelError(f"{source}: neither a folder nor a hub id like org/name") from error
    except HfHubHTTPError as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(f"{source}: the hub does not give it out: {lines[0][:200]}") from error
