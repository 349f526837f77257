"""The models of a server: requests name theirs, and the engine process loads it for its first request. Knows no API."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from specchat.host.client import SessionRequest
from specchat_serve.connection_pool import ConnectionPool
from specchat_serve.json_fields import no_such_model
from specchat_serve.model_facts import ModelFacts, read_model_facts


@dataclass(frozen=True)
class ServedModel:
    """One model, and the settings of its answers."""

    names: tuple[str, ...]  # clients see the first one
    session_request: SessionRequest
    target: str = ""  # the model of the profile; "": no details of it are known

    @property
    def name(self) -> str:
        return self.names[0]


@dataclass(eq=False)
class RunningModel:
    """A served model with its connections, and what its files say once it was asked for."""

    model: ServedModel
    pool: ConnectionPool
    facts: ModelFacts | None = None

    def read_facts(self, started_at: datetime) -> ModelFacts:
        self.facts = self.facts or read_model_facts(self.model.target, started_at)
        return self.facts


def named_model(models: Sequence[RunningModel], name: Any) -> RunningModel:
    """The model with this name; the first one without a name, and where it is the only one, which checks the name.

    RequestError for a name that none of several has.
    """
    found = next((each for each in models if name in each.model.names), None)
    if found is None and len(models) > 1 and name:
        raise no_such_model(name, (each.model.name for each in models))
    return found or models[0]
