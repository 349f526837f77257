"""Who may come in: this machine, whoever brings the token, and no website."""

from __future__ import annotations

import pytest

from specchat.serve.authorization import AccessPolicy, host_name, is_loopback


def status(guard: AccessPolicy, host: str = "127.0.0.1:1", origin: str | None = None, key: str | None = None) -> int:
    refusal = guard.check_access(host, origin, key)
    return refusal.status if refusal else 200


@pytest.mark.parametrize("host", ["127.0.0.1:11535", "localhost", "LOCALHOST:8", "[::1]:80", "127.8.0.1"])
def test_names_of_this_machine_come_in(host):
    assert 200 == status(AccessPolicy(), host)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:11535", "", "127.0.0.1.evil.example", "0.0.0.0", "::"])
def test_names_that_somebody_else_can_have_do_not(host):
    assert 403 == status(AccessPolicy(), host) == status(AccessPolicy("right"), host, key="Bearer right")


@pytest.mark.parametrize("origin", ["http://evil.example", "http://localhost:3000", "null"])
def test_a_page_comes_in_with_the_token_alone(origin):
    assert 403 == status(AccessPolicy(), origin=origin)
    assert 401 == status(AccessPolicy("right"), origin=origin)
    assert 200 == status(AccessPolicy("right"), origin=origin, key="Bearer right")


@pytest.mark.parametrize("key", [None, "", "right", "Bearer", "Bearer wrong", "Basic right", "Bearer righté"])
def test_another_token_is_none(key):
    assert 401 == status(AccessPolicy("right"), key=key)


def test_others_are_let_in_by_the_token_whatever_they_call_us():
    guard = AccessPolicy("right", listens_on_loopback=False)

    assert (200, 401) == (status(guard, "box.example:1", key="bearer right"), status(guard, "box.example:1"))


def test_there_is_no_guard_for_others_without_a_token():
    with pytest.raises(AssertionError):
        AccessPolicy(listens_on_loopback=False)


def test_a_port_is_no_part_of_a_name():
    assert ["::1", "a", "a", ""] == [host_name(each) for each in ("[::1]:80", "a:80", "a", "")]
    assert not is_loopback("192.168.0.1")
