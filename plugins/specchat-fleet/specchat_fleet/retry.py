"""Whether a question goes again to a server that did not begin to answer, and after how long. Sends nothing.

An overloaded server says so with a status, and may say for how long; without that, each wait is twice the one before.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from random import uniform
from typing import TypeGuard

from openai import APIStatusError

OVERLOADED_STATUSES = (429, 503)  # too many requests; loading its model, or no room
NO_CREDIT = "insufficient_quota"  # a 429 that no wait mends
MAX_RETRIES = 6
MAX_ASKED_SECONDS = 60.0  # a user decides about a longer wait
MAX_JITTER = 0.25  # clients that were refused together come back apart


def is_overload(error: Exception) -> TypeGuard[APIStatusError]:
    return isinstance(error, APIStatusError) and error.status_code in OVERLOADED_STATUSES and error.code != NO_CREDIT


def asked_seconds(error: APIStatusError) -> float | None:
    """What the server asks to wait; None where it does not say."""
    headers = error.response.headers
    for name, unit_seconds in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * unit_seconds)
        except (KeyError, ValueError):
            continue
    try:
        at = parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
    except (ValueError, OverflowError):
        return None


def seconds_until_retry(error: Exception, retries: int, first_seconds: float) -> float | None:
    """How long to wait before the next try, after so many; None for an error that stays."""
    if not is_overload(error) or retries >= MAX_RETRIES:
        return None
    asked = asked_seconds(error)
    if asked is not None and not asked <= MAX_ASKED_SECONDS:
        return None
    return max(asked or 0.0, first_seconds * 2**retries) * uniform(1.0, 1.0 + MAX_JITTER)
