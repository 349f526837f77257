"""What the hub, or the way to it, refuses: one line that a person can act on. Knows no files."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

from huggingface_hub import constants
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

HTTPError = cast("type[Exception]", HfHubHTTPError.__bases__[0])  # of httpx or its successor, as the hub has it


@contextmanager
def hub_errors_as_model_errors(source: str) -> Generator[None]:
    """A ModelError for whatever goes wrong with the hub in here."""
    hub = constants.ENDPOINT
    try:
        yield
    except OfflineModeIsEnabled as error:
        raise ModelError(f"{source}: HF_HUB_OFFLINE is set, so nothing is downloaded; unset it for this") from error
    except GatedRepoError as error:
        message = f"accept its licence at {hub}/{source}, then log in ('hf auth login', or HF_TOKEN)"
        raise ModelError(f"{source}: the hub asks for consent: {message}") from error
    except RepositoryNotFoundError as error:
        private = "check the name; a private one needs 'hf auth login' or HF_TOKEN"
        raise ModelError(f"{source}: the hub has no such model, or not for everybody: {private}") from error
    except HfHubHTTPError as error:
        raise ModelError(f"{source}: {_status_message(error.response.status_code)}") from error
    except HFValidationError as error:
        raise ModelError(f"{source}: no hub id like org/name") from error
    except (HTTPError, LocalEntryNotFoundError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        message = f"the hub ({hub}) cannot be reached or went away ({why}); what came is kept"
        raise ModelError(f"{source}: {message}") from error
    except (FileMetadataError, ValueError, TypeError, KeyError) as error:
        message = f"what answers at {hub} is no hub; is there a page to log in to this network?"
        raise ModelError(f"{source}: {message}") from error


def _status_message(status: int) -> str:
    if status == 401:
        return "the hub does not know the token (401): 'hf auth login' again, or correct HF_TOKEN"
    if status == 403:
        return "the hub does not give it to you (403): the token needs the right to read it"
    if status == 404:
        return "the hub has no such model or file (404): check the name"
    return f"the hub answers {status}; try again later"
