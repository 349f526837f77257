"""Access rules: loopback host names, the token, and no websites."""

from __future__ import annotations

import pytest

from specchat_serve.authorization import AccessPolicy, host_name, is_loopback
from tests.each_row import each_row


def status(policy: AccessPolicy, host: str = "127.0.0.1:1", origin: str | None = None, key: str | None = None) -> int:
    refusal = policy.check_access(host, origin, key)
    return refusal.status if refusal else 200


@each_row("host", ["127.0.0.1:11535", "localhost", "LOCALHOST:8", "[::1]:80", "127.8.0.1"])
def test_loopback_host_names_are_accepted(host):
    assert 200 == status(AccessPolicy(), host)


@each_row("host", ["evil.example", "evil.example:11535", "", "127.0.0.1.evil.example", "0.0.0.0", "::"])
def test_other_host_names_are_not_accepted(host):
    assert 403 == status(AccessPolicy(), host) == status(AccessPolicy("right"), host, key="Bearer right")


@each_row("origin", ["http://evil.example", "http://localhost:3000", "null"])
def test_a_web_page_needs_the_token(origin):
    assert 403 == status(AccessPolicy(), origin=origin)
    assert 401 == status(AccessPolicy("right"), origin=origin)
    assert 200 == status(AccessPolicy("right"), origin=origin, key="Bearer right")


@each_row("key", [None, "", "right", "Bearer", "Bearer wrong", "Basic right", "Bearer righté"])
def test_a_wrong_token_is_not_accepted(key):
    assert 401 == status(AccessPolicy("right"), key=key)


def test_the_token_may_be_the_key_of_anthropic():
    def status_with(key: str) -> int:
        refusal = AccessPolicy("right").check_access("127.0.0.1", None, None, key)
        return refusal.status if refusal else 200

    assert (200, 401, 401) == (status_with("right"), status_with("wrong"), status_with(""))


def test_beyond_loopback_the_token_is_enough():
    policy = AccessPolicy("right", listens_on_loopback=False)

    assert (200, 401) == (status(policy, "box.example:1", key="bearer right"), status(policy, "box.example:1"))


def test_a_policy_beyond_loopback_needs_a_token():
    with pytest.raises(AssertionError):
        AccessPolicy(listens_on_loopback=False)


def test_a_host_name_has_no_port():
    assert ["::1", "a", "a", ""] == [host_name(each) for each in ("[::1]:80", "a:80", "a", "")]
    assert not is_loopback("192.168.0.1")
