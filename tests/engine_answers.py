"""Answers of an engine in this process."""

from dataclasses import dataclass

from specchat.chat.events import Failed, Finished, StepDone, TextDelta, Totals
from specchat.chat.request import Request
from specchat.errors import SpecchatError
from specchat.loading.load_engine import Engine


@dataclass(frozen=True)
class MeasuredAnswer:
    text: str
    steps: tuple[StepDone, ...]
    totals: Totals


def measure_answer(engine: Engine, request: Request) -> MeasuredAnswer:
    """One answer in a session of its own. SpecchatError when it cannot be made."""
    with engine.create_session() as session:
        *events, last = session.ask(request)
    if isinstance(last, Failed):
        raise SpecchatError(last.message)
    assert isinstance(last, Finished)
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    return MeasuredAnswer(text, tuple(event for event in events if isinstance(event, StepDone)), last.totals)
