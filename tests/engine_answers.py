"""Answers of an engine in this process."""

from specchat.bench.latency import TimedAnswer, time_answer
from specchat.chat.request import Request
from specchat.loading.load_engine import Engine


def measure_answer(engine: Engine, request: Request) -> TimedAnswer:
    """One answer in a session of its own. SpecchatError when it cannot be made."""
    with engine.create_session() as session:
        return time_answer(session.ask(request))
