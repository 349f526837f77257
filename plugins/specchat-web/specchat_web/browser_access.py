"""Access control for one browser. Knows no network.

Every user of the machine and every website in a browser can reach a page on loopback. So the token of the printed URL
works once and gives the browser a cookie; the Host header must be the server's address, because of DNS rebinding; and
only pages of this server may open a websocket.
"""

import secrets
from dataclasses import dataclass, field
from hmac import compare_digest


def _new_secret() -> str:
    return secrets.token_urlsafe(32)


@dataclass
class BrowserAccess:
    authority: str  # host and port, as in a Host header
    token: str = field(default_factory=_new_secret, repr=False)
    _cookie: str = field(default_factory=_new_secret, repr=False)
    _is_token_used: bool = False

    @property
    def origin(self) -> str:
        return f"http://{self.authority}"

    @property
    def login_url(self) -> str:
        """The URL with the token; it works once."""
        return f"{self.origin}/?token={self.token}"

    @property
    def cookie_name(self) -> str:
        """The cookie name; it includes the port, because browsers send a cookie to all ports of a host."""
        return f"specchat-{self.authority.rpartition(':')[2]}"

    def is_same_origin(self, host: str, origin: str | None, *, needs_origin: bool) -> bool:
        """Whether the headers name this server, and the request comes from its own page or from the address bar."""
        return host == self.authority and (origin == self.origin or (origin is None and not needs_origin))

    def exchange_token(self, token: str) -> str | None:
        """The cookie for the first request with the token; None otherwise."""
        if self._is_token_used or not _is_same(token, self.token):
            return None
        self._is_token_used = True
        return self._cookie

    def is_valid_cookie(self, cookie: str) -> bool:
        return self._is_token_used and _is_same(cookie, self._cookie)


def _is_same(given: str, expected: str) -> bool:
    return compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())
