"""Responses of a hub with limits: when they begin, how large they are, how slowly they come. Knows no file.

They hold for the body of an error, too, which huggingface_hub reads.
"""

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread
from time import monotonic
from typing import Any, cast

from huggingface_hub import get_session
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

# The base class of the HTTP client that huggingface_hub uses.
HTTPError = cast("type[Exception]", HfHubHTTPError.__bases__[0])
WINDOW_SECONDS = 30.0


@contextmanager
def bounded_response(url: str, most: int, window_bytes: int, seconds: float = 0, /, **headers: str) -> Generator[Any]:
    """A response that is no error. HTTPError for more bytes, and for fewer in any `WINDOW_SECONDS` before its end."""
    opened, headers = Future[Any](), {**build_hf_headers(), "Accept-Encoding": "identity", **headers}
    seconds = seconds or WINDOW_SECONDS  # until it begins
    Thread(target=_open, args=(opened, url, headers, seconds), daemon=True).start()  # headers may come byte by byte
    try:
        response = opened.result(seconds)
    except TimeoutError:
        raise HTTPError("it did not answer in time") from None
    read = response.iter_raw
    response.iter_raw = lambda *_: _bounded(read, "content-encoding" in response.headers, most, window_bytes)
    try:
        hf_raise_for_status(response)
        yield response
    finally:
        response.close()


def _open(opened: Future[Any], url: str, headers: dict[str, str], seconds: float) -> None:
    try:
        request = get_session().build_request("GET", url, headers=headers, timeout=seconds)
        opened.set_result(get_session().send(request, stream=True))
    except BaseException as error:  # noqa: BLE001 (it is raised where the response is awaited)
        opened.set_exception(error)


def _bounded(read: Callable[[], Iterator[bytes]], is_packed: bool, most: int, window_bytes: int) -> Iterator[bytes]:
    count, window_begin, window_end = 0, 0, monotonic() + WINDOW_SECONDS
    for piece in read():
        count += len(piece)
        if is_packed or count > most:
            raise HTTPError("its body is packed" if is_packed else f"it sent more than {most:,} bytes")
        if monotonic() >= window_end:
            if count - window_begin < window_bytes:
                raise HTTPError("it sends too slowly")
            window_begin, window_end = count, monotonic() + WINDOW_SECONDS
        yield piece
