"""The package `instructor` against `specchat serve`: answers that fill classes of pydantic.

Not its modes that give the schema in the prompt only, where the answer is as good as the model.
"""

from collections.abc import Iterable
from enum import Enum

import anthropic
import instructor
import openai
from instructor import Mode, Partial
from pydantic import BaseModel
from steps import ADDRESS, TOKEN, attempt


class User(BaseModel):
    name: str
    age: int


class Kind(Enum):
    SPAM = "spam"
    OTHER = "other"


class Label(BaseModel):
    kind: Kind
    is_urgent: bool


class Team(BaseModel):
    leader: User
    members: list[User]


client = openai.OpenAI(base_url=f"{ADDRESS}/v1", api_key=TOKEN, max_retries=0)
asked = {
    "model": "embedded",
    "messages": [{"role": "user", "content": "Jason is 25 years old."}],
    "max_retries": 0,
}


def filled(mode, model):
    """An answer that fills a class."""
    made = instructor.from_openai(client, mode=mode).chat.completions.create(response_model=model, **asked)
    assert isinstance(made, model), made
    return made.model_dump_json()


def last_of(answers):
    *_, last = answers
    return last


attempt("`Mode.TOOLS`", lambda: filled(Mode.TOOLS, User))
attempt("`Mode.JSON_SCHEMA`", lambda: filled(Mode.JSON_SCHEMA, User))
attempt("`Mode.TOOLS_STRICT`", lambda: filled(Mode.TOOLS_STRICT, User))
attempt("a class with an enumeration", lambda: filled(Mode.TOOLS, Label))
attempt("a class of classes", lambda: filled(Mode.JSON_SCHEMA, Team))
tools = instructor.from_openai(client, mode=Mode.TOOLS).chat.completions
attempt("`Partial`, as a stream", lambda: last_of(tools.create(response_model=Partial[User], stream=True, **asked)))
attempt("`Iterable`", lambda: list(tools.create(response_model=Iterable[Label], **asked)))
other = instructor.from_anthropic(anthropic.Anthropic(base_url=ADDRESS, api_key=TOKEN, max_retries=0))
attempt("`from_anthropic`", lambda: other.messages.create(response_model=User, max_tokens=200, **asked))
