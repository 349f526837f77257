"""`/v1/apply`: a text and a sketch of its changes to the new text, as `specchat apply` merges them. Knows no network.

What has one certain place is merged without a model; else the model of the server merges it, and is held to the sketch.
"""

from collections.abc import Sequence
from threading import Event as Flag

from specchat.app.consent import EditConsent
from specchat.app.edit import rewrite_text
from specchat.app.edit_events import EditOrder
from specchat.app.edit_session import EditSession, edit_request
from specchat.app.edited_files import HeldText
from specchat.edit.source_text import make_source
from specchat.errors import EditError, NoChangeError
from specchat.host.client import SessionRequest
from specchat_serve.api_errors import RequestError
from specchat_serve.json_fields import Border, JsonObject, checked_body

UNPROCESSABLE = 422
CLIENT_NAME = "specchat serve"
BORDER = Border(frozenset(["model", "path", "text", "sketch", "instruction"]))


def apply_sketch(
    fields: JsonObject, served_models: Sequence[str], session_request: SessionRequest, cancelled: Flag
) -> JsonObject:
    """The new text, and how it came about; RequestError with the reason where there is none that is certain."""
    body = checked_body(fields, served_models, BORDER)
    text, sketch = body.text("text"), body.text("sketch")
    if not text or not sketch.strip():
        raise RequestError("give the text of the file in `text` and its changes in `sketch`", "sketch")
    file = HeldText(make_source(text.encode(), body.text("path") or "text"))
    order = EditOrder(body.text("instruction"), (file,), writes=False, sketch=sketch)
    try:
        with EditSession(edit_request(session_request), cancelled, CLIENT_NAME) as session:
            accepted = rewrite_text(order, session, EditConsent(can_ask=False, way_out=""), lambda _event: None)
            return {
                "object": "text_edit", "model": served_models[0], "text": accepted.new_bytes.decode(),
                "way": accepted.result.plan.format, "usage": {"completion_tokens": session.totals.completion_tokens},
            }  # fmt: skip
    except NoChangeError:
        return {"object": "text_edit", "model": served_models[0], "text": text, "way": "unchanged", "usage": None}
    except EditError as error:
        raise RequestError(str(error), "sketch", status=UNPROCESSABLE, code="unclear_sketch") from error
