"""Who may come in. Knows no network, only what a request says of itself.

Every website that a browser shows can send requests to loopback, and can give its own name the number of this machine.
So a request must call this machine by a name that nobody else can have, and a page must not have made it; or it brings
a token that a website cannot know.
"""

from __future__ import annotations

from dataclasses import dataclass
from hmac import compare_digest
from ipaddress import ip_address

from specchat.serve.api_errors import ApiError

LOCALHOST = "localhost"


@dataclass(frozen=True)
class AccessPolicy:
    """What one server lets in. Without a token it must be a server for this machine alone."""

    token: str = ""
    listens_on_loopback: bool = True  # it listens on loopback

    def __post_init__(self) -> None:
        assert self.token or self.listens_on_loopback

    def check_access(self, host: str, origin: str | None, authorization: str | None) -> ApiError | None:
        """Why a request with these headers may not come in; None when it may."""
        if self.listens_on_loopback and not is_loopback(host_name(host)):
            return ApiError(403, f"{host!r} is no name of this machine; call it 127.0.0.1 or localhost")
        if self.token:
            return None if _has_bearer_token(authorization, self.token) else ApiError(
                401, "this server wants its token: 'Authorization: Bearer TOKEN'", code="invalid_api_key"
            )  # fmt: skip
        if origin is not None:
            return ApiError(
                403, f"pages in browsers ({origin}) are answered only with a token; see 'specchat serve --help'"
            )
        return None


def host_name(authority: str) -> str:
    """The name in a Host header, without its port: "[::1]:80" is "::1"."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0]


def is_loopback(name: str) -> bool:
    """Whether a name can mean nothing but this machine."""
    try:
        return name.lower() == LOCALHOST or ip_address(name).is_loopback
    except ValueError:
        return False


def _has_bearer_token(authorization: str | None, token: str) -> bool:
    scheme, _, given = (authorization or "").partition(" ")
    is_same = compare_digest(given.strip().encode("utf-8", "surrogateescape"), token.encode())
    return scheme.lower() == "bearer" and is_same
