"""Text to tokens by the tokenizers library, with a limit on the time that a text may take. Thread-safe."""

from pathlib import Path
from threading import Lock, Thread

import tokenizers

from specchat.errors import ModelError

ALWAYS_QUICK_CHARACTERS = 16  # the engine of regular expressions gives up on one place after less than a second
ENCODE_SECONDS = 20.0
SLOWEST_CHARACTERS_PER_SECOND = 10_000  # a core computes a million


class TokenEncoder:
    """The encoder of one tokenizer.json. A text on which its regular expressions take for ever makes it useless."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.backend = folder, _load_backend(folder / "tokenizer.json")
        self._lock = Lock()  # encode_special_tokens is a state of the backend
        self._is_stuck = False

    def encode(self, text: str, parse_special: bool) -> list[int]:
        """ModelError for a text that the tokenizer cannot split, or not in time."""
        with self._lock:
            if not self._is_stuck:
                self.backend.encode_special_tokens = not parse_special
            if len(text) > ALWAYS_QUICK_CHARACTERS or self._is_stuck:
                return self._encode_in_time(text)
            return self._encode_now(text)

    def start_tokens(self) -> list[int]:
        """The tokens that the library puts before every text."""
        with self._lock:
            ids = self.backend.encode("x", add_special_tokens=True).ids
            text_ids = self.backend.encode("x", add_special_tokens=False).ids
        count = next((start for start in range(len(ids)) if ids[start : start + len(text_ids)] == text_ids), 0)
        return ids[:count]

    def _encode_in_time(self, text: str) -> list[int]:
        """Encode in a thread: a regular expression in a tokenizer.json may take for ever, and nothing can end it.

        From then on the tokenizer is of no use, because the thread holds it.
        """
        results = list[list[int] | ModelError]()
        if not self._is_stuck:
            worker = Thread(target=lambda: results.append(self._try_to_encode(text)), name="encode", daemon=True)
            worker.start()
            worker.join(ENCODE_SECONDS + len(text) / SLOWEST_CHARACTERS_PER_SECOND)
            self._is_stuck = worker.is_alive()
        if self._is_stuck:
            raise ModelError(f"{self._folder}: the regular expressions of its tokenizer take for ever on a text")
        if isinstance(results[0], ModelError):
            raise results[0]
        return results[0]

    def _try_to_encode(self, text: str) -> list[int] | ModelError:
        try:
            return self._encode_now(text)
        except ModelError as error:
            return error

    def _encode_now(self, text: str) -> list[int]:
        try:
            # `encode` keeps the interpreter lock, and a long text would stop every thread.
            return self.backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # of Rust; it is no Exception and cannot be imported
                raise
            raise ModelError(f"{self._folder}: its tokenizer cannot split this text: {error}") from None


def _load_backend(path: Path) -> tokenizers.Tokenizer:
    if not path.is_file():
        raise ModelError(f"{path.parent}: tokenizer.json is missing")
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises bare Exception for an invalid file
        raise ModelError(f"{path}: not a tokenizer: {error}") from error
    backend.no_truncation()
    backend.no_padding()
    return backend
