"""Who is let in, without any network."""

from __future__ import annotations

import pytest

from specchat.web.browser_access import BrowserAccess

AUTHORITY = "127.0.0.1:8000"
OURS = f"http://{AUTHORITY}"


def test_the_token_buys_a_cookie_once():
    guard = BrowserAccess(AUTHORITY)

    cookie = guard.exchange_token(guard.token)

    assert cookie and guard.is_valid_cookie(cookie)
    assert guard.exchange_token(guard.token) is None


def test_before_the_token_came_nobody_is_known():
    guard = BrowserAccess(AUTHORITY)

    assert not guard.is_valid_cookie("") and not guard.is_valid_cookie(guard._cookie)


@pytest.mark.parametrize("token", ["", "wrong", "é\udce9"])
def test_a_wrong_token_buys_nothing_and_spends_nothing(token):
    guard = BrowserAccess(AUTHORITY)

    assert guard.exchange_token(token) is None
    assert guard.exchange_token(guard.token)


def test_two_servers_have_tokens_and_cookies_of_their_own():
    one, other = BrowserAccess(AUTHORITY), BrowserAccess("127.0.0.1:8001")

    assert one.token != other.token
    assert one.cookie_name != other.cookie_name
    assert not other.is_valid_cookie(one.exchange_token(one.token) or "")


@pytest.mark.parametrize(
    ("host", "origin", "is_ours", "is_ours_for_a_socket"),
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
def test_only_requests_that_mean_this_server_are_heard(host, origin, is_ours, is_ours_for_a_socket):
    guard = BrowserAccess(AUTHORITY)

    assert guard.is_same_origin(host, origin, needs_origin=False) is is_ours
    assert guard.is_same_origin(host, origin, needs_origin=True) is is_ours_for_a_socket


def test_neither_token_nor_cookie_stands_in_what_is_printed_for_debugging():
    guard = BrowserAccess(AUTHORITY)

    assert guard.token not in repr(guard) and guard._cookie not in repr(guard)
