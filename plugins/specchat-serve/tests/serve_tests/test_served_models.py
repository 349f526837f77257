"""Several models behind one server: each request names its own."""

from __future__ import annotations

import json

import openai
import pytest

from serve_tests.conftest import MODEL, Served, raw
from specchat.host.client import SessionRequest
from specchat.profile.settings import read_settings
from specchat_serve.authorization import AccessPolicy
from specchat_serve.served_models import ServedModel
from specchat_serve.server import ServeConfig

OTHER = "small"


@pytest.fixture(scope="module")
def both(runtime):
    """The first model fills no gaps, the other one does."""
    other = ServedModel((OTHER, f"{OTHER}:latest"), SessionRequest(settings=read_settings("another")))
    first = ServedModel((MODEL,), SessionRequest(settings=read_settings("no gaps")))
    with Served(ServeConfig((first, other), AccessPolicy())) as served:
        yield served


def complete(served, model):
    return served.client.completions.create(model=model, prompt="before", suffix="after").choices[0].text


def test_a_request_is_answered_by_the_model_that_it_names(both):
    with pytest.raises(openai.BadRequestError, match="no fill-in-the-middle tokens"):
        complete(both, MODEL)

    assert complete(both, OTHER) == complete(both, f"{OTHER}:latest") == "BEFORE AFTER"
    chat = both.client.chat.completions.create(model=OTHER, messages=[{"role": "user", "content": "write hello"}])
    assert (chat.model, chat.choices[0].message.content) == (OTHER, "hello")


def test_a_name_of_none_of_them_is_an_error_that_names_all(both):
    with pytest.raises(openai.NotFoundError, match="no model 'third'; this server has 'org/ours', 'small'"):
        complete(both, "third")
    with pytest.raises(openai.NotFoundError, match="third"):
        both.client.models.retrieve("third")


def test_a_request_without_a_name_is_for_the_first_model(both):
    body = json.dumps({"messages": [{"role": "user", "content": "write hello"}]})

    status, answer = raw(both, "POST", "/v1/chat/completions", body)

    assert (status, answer["model"]) == (200, MODEL)


def test_all_models_are_listed(both):
    assert [each.id for each in both.client.models.list()] == [MODEL, OTHER]
    assert both.client.models.retrieve(OTHER).id == OTHER
    tags = raw(both, "GET", "/api/tags")[1]["models"]
    assert [each["name"] for each in tags] == [MODEL, OTHER]
    shown = raw(both, "POST", "/api/show", json.dumps({"model": OTHER}))
    assert shown[0] == 200
    anthropic = raw(both, "GET", "/v1/models", **{"anthropic-version": "2023-06-01"})[1]
    assert (anthropic["first_id"], anthropic["last_id"], len(anthropic["data"])) == (MODEL, OTHER, 2)
