"""Turns errors of the hub and of the network into one-line messages that say what to do. Knows no files."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

from huggingface_hub import constants, get_session
from huggingface_hub.errors import (
    FileMetadataError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)

from specchat.errors import ModelError

HTTPError = cast(
    "type[Exception]", HfHubHTTPError.__bases__[0]
)  # the base class of the HTTP client that huggingface_hub uses
PROBE_SECONDS = 5.0


@contextmanager
def hub_errors_as_model_errors(source: str) -> Generator[None]:
    """Raise a ModelError for every error of the hub inside the block."""
    hub = constants.ENDPOINT
    try:
        yield
    except OfflineModeIsEnabled as error:
        raise ModelError(f"{source}: HF_HUB_OFFLINE is set, so nothing is downloaded; unset it") from error
    except GatedRepoError as error:
        hint = f"accept its licence at {hub}/{source}, then log in ('hf auth login', or HF_TOKEN)"
        raise ModelError(f"{source}: the model is gated: {hint}") from error
    except RepositoryNotFoundError as error:
        hint = "check the name; a private model needs 'hf auth login' or HF_TOKEN"
        raise ModelError(f"{source}: the hub has no such model, or it is private: {hint}") from error
    except HfHubHTTPError as error:
        raise ModelError(f"{source}: {_status_message(error.response.status_code)}") from error
    except HFValidationError as error:
        raise ModelError(f"{source}: not a hub id like org/name") from error
    except (HTTPError, LocalEntryNotFoundError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        message = f"the hub ({hub}) cannot be reached or closed the connection ({reason}); the downloaded part is kept"
        raise ModelError(f"{source}: {message}") from error
    except (FileMetadataError, ValueError, TypeError, KeyError) as error:
        message = f"the server at {hub} is not a hub; does this network have a login page?"
        raise ModelError(f"{source}: {message}") from error


def offline_reason() -> str:
    """Why nothing can be downloaded from the hub now; "" when it answers."""
    if constants.is_offline_mode():
        return "HF_HUB_OFFLINE is set"
    try:
        get_session().head(constants.ENDPOINT, timeout=PROBE_SECONDS)
    except (HTTPError, OSError):
        return f"the hub ({constants.ENDPOINT}) cannot be reached"
    return ""


def _status_message(status: int) -> str:
    if status == 401:
        return "the hub rejects the token (401): run 'hf auth login' again, or correct HF_TOKEN"
    if status == 403:
        return "access denied (403): the token needs read permission"
    if status == 404:
        return "the hub has no such model or file (404): check the name"
    return f"the hub answers {status}; try again later"
