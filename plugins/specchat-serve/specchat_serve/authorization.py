"""Decides which requests the server accepts. Knows no network, only request headers.

A website in a browser can send requests to loopback, and can point its own host name there (DNS rebinding). So the Host
header must name the loopback address, and a request from a web page (with an Origin header) needs the token. A page
that has the token may be from anywhere; a browser asks for that first, without the token. Without a token of the server
every page is refused, and one of this machine can read why. Whether the server runs is no secret.
"""

from dataclasses import dataclass
from hmac import compare_digest
from ipaddress import ip_address

from specchat_serve.api_errors import UNAUTHORIZED, ApiError

LOCALHOST = "localhost"


@dataclass(frozen=True)
class AccessPolicy:
    """The access rules of one server. Without a token, it must listen on loopback."""

    token: str = ""
    listens_on_loopback: bool = True

    def __post_init__(self) -> None:
        assert self.token or self.listens_on_loopback

    def is_preflight(self, host: str, method: str, origin: str | None) -> bool:
        """Whether this is a browser's question what a web page may send here."""
        is_own_host = not self.listens_on_loopback or is_loopback(host_name(host))
        return method == "OPTIONS" and origin is not None and is_own_host

    def may_read(self, origin: str) -> bool:
        """Whether a browser may show a page what the server says; without a token, that is an error."""
        return bool(self.token) or is_loopback(host_name(origin.rpartition("//")[2]))

    def check_access(
        self, host: str, origin: str | None, authorization: str | None, api_key: str | None = None
    ) -> ApiError | None:
        """The error for a request with these headers; None when the request is accepted.

        The token is in the header Authorization, or in x-api-key, where clients of Anthropic have it.
        """
        if self.listens_on_loopback and not is_loopback(host_name(host)):
            return ApiError(403, f"{host!r} is not a loopback address; use 127.0.0.1 or localhost")
        if self.token:
            if _has_bearer_token(authorization, self.token) or _is_same(api_key or "", self.token):
                return None
            message = "the request needs the token of this server: 'Authorization: Bearer TOKEN' or 'x-api-key: TOKEN'"
            return ApiError(UNAUTHORIZED, message, code="invalid_api_key")
        if origin is not None:
            return ApiError(403, f"requests from web pages ({origin}) need a token; see 'specchat serve --help'")
        return None


def host_name(authority: str) -> str:
    """The host in a Host header, without the port: "[::1]:80" is "::1"."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0]


def is_loopback(name: str) -> bool:
    try:
        return name.lower() == LOCALHOST or ip_address(name).is_loopback
    except ValueError:
        return False


def _has_bearer_token(authorization: str | None, token: str) -> bool:
    scheme, _, given = (authorization or "").partition(" ")
    is_same = _is_same(given, token)
    return scheme.lower() == "bearer" and is_same


def _is_same(given: str, token: str) -> bool:
    return compare_digest(given.strip().encode("utf-8", "surrogateescape"), token.encode())
