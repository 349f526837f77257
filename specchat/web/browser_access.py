"""Who may come in: one browser, the one that brings the token first. Knows no network.

A page on loopback can be reached by every user of this machine and by every website that its browser shows. So: the
token of the printed address works once, and what it buys is a cookie; the name in the address bar must be ours (a
website can give its own name our number); and a page that opens a connection must be our own page.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from hmac import compare_digest


def _new_secret() -> str:
    return secrets.token_urlsafe(32)


@dataclass
class BrowserAccess:
    """What one server lets in; it remembers whether the token was used."""

    authority: str  # host and port, as a browser names them
    token: str = field(default_factory=_new_secret, repr=False)
    _cookie: str = field(default_factory=_new_secret, repr=False)
    _is_token_used: bool = False

    @property
    def origin(self) -> str:
        """What our own pages call themselves."""
        return f"http://{self.authority}"

    @property
    def login_url(self) -> str:
        """What a person opens, once."""
        return f"{self.origin}/?token={self.token}"

    @property
    def cookie_name(self) -> str:
        """One for each port: browsers show a cookie to all ports of a machine."""
        return f"specchat-{self.authority.rpartition(':')[2]}"

    def is_same_origin(self, host: str, origin: str | None, *, needs_origin: bool) -> bool:
        """Whether a request was meant for this server and comes from a person or from our own page."""
        return host == self.authority and (origin == self.origin or (origin is None and not needs_origin))

    def exchange_token(self, token: str) -> str | None:
        """The cookie, for whoever brings the token first."""
        if self._is_token_used or not _is_same(token, self.token):
            return None
        self._is_token_used = True
        return self._cookie

    def is_valid_cookie(self, cookie: str) -> bool:
        """Whether this is the browser that brought the token."""
        return self._is_token_used and _is_same(cookie, self._cookie)


def _is_same(given: str, expected: str) -> bool:
    return compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())
