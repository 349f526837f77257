"""Access control for one browser, without a network."""

from __future__ import annotations

from specchat_web.browser_access import BrowserAccess
from tests.each_row import each_row

AUTHORITY = "127.0.0.1:8000"
OURS = f"http://{AUTHORITY}"


def test_the_token_gives_a_cookie_once():
    access = BrowserAccess(AUTHORITY)

    cookie = access.exchange_token(access.token)

    assert cookie and access.is_valid_cookie(cookie)
    assert access.exchange_token(access.token) is None


def test_before_the_login_no_cookie_is_valid():
    access = BrowserAccess(AUTHORITY)

    assert not access.is_valid_cookie("") and not access.is_valid_cookie(access._cookie)


@each_row("token", ["", "wrong", "é\udce9"])
def test_a_wrong_token_gives_no_cookie_and_does_not_use_the_token(token):
    access = BrowserAccess(AUTHORITY)

    assert access.exchange_token(token) is None
    assert access.exchange_token(access.token)


def test_two_servers_have_tokens_and_cookies_of_their_own():
    one, other = BrowserAccess(AUTHORITY), BrowserAccess("127.0.0.1:8001")

    assert one.token != other.token
    assert one.cookie_name != other.cookie_name
    assert not other.is_valid_cookie(one.exchange_token(one.token) or "")


@each_row(
    "host, origin, is_ours, is_ours_for_a_socket",
    [
        (AUTHORITY, OURS, True, True),
        (AUTHORITY, None, True, False),  # an address that a person typed
        (AUTHORITY, "http://evil.example", False, False),
        (AUTHORITY, "http://127.0.0.1:9000", False, False),  # another server of this machine: the same site for cookies
        (AUTHORITY, "null", False, False),
        ("evil.example:8000", None, False, False),  # a name of somebody else that leads here
        ("localhost:8000", None, False, False),
        ("127.0.0.1", None, False, False),
        ("", None, False, False),
    ],
)
def test_only_requests_of_the_same_origin_are_accepted(host, origin, is_ours, is_ours_for_a_socket):
    access = BrowserAccess(AUTHORITY)

    assert access.is_same_origin(host, origin, needs_origin=False) is is_ours
    assert access.is_same_origin(host, origin, needs_origin=True) is is_ours_for_a_socket


def test_the_repr_has_neither_token_nor_cookie():
    access = BrowserAccess(AUTHORITY)

    assert access.token not in repr(access) and access._cookie not in repr(access)
