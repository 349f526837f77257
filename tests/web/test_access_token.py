"""Who is let in, without any network."""

from __future__ import annotations

import pytest

from specchat.web.access_token import Guard

AUTHORITY = "127.0.0.1:8000"
OURS = f"http://{AUTHORITY}"


def test_the_token_buys_a_cookie_once():
    guard = Guard(AUTHORITY)

    cookie = guard.spend(guard.token)

    assert cookie and guard.knows(cookie)
    assert guard.spend(guard.token) is None


def test_before_the_token_came_nobody_is_known():
    guard = Guard(AUTHORITY)

    assert not guard.knows("") and not guard.knows(guard._cookie)


@pytest.mark.parametrize("token", ["", "wrong", "é\udce9"])
def test_a_wrong_token_buys_nothing_and_spends_nothing(token):
    guard = Guard(AUTHORITY)

    assert guard.spend(token) is None
    assert guard.spend(guard.token)


def test_two_servers_have_tokens_and_cookies_of_their_own():
    one, other = Guard(AUTHORITY), Guard("127.0.0.1:8001")

    assert one.token != other.token
    assert one.cookie_name != other.cookie_name
    assert not other.knows(one.spend(one.token) or "")


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
    guard = Guard(AUTHORITY)

    assert guard.is_ours(host, origin, needs_origin=False) is is_ours
    assert guard.is_ours(host, origin, needs_origin=True) is is_ours_for_a_socket


def test_neither_token_nor_cookie_stands_in_what_is_printed_for_debugging():
    guard = Guard(AUTHORITY)

    assert guard.token not in repr(guard) and guard._cookie not in repr(guard)
