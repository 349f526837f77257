"""Where clients come in: who is accepted, who has to show a token first, and who is told that there is no room.

Runs on the I/O thread. Knows bytes, and of the protocol the one error that it sends.
"""

import errno
import logging
import os
import selectors
import socket
import time
from collections.abc import Callable

from specchat.host.address import LISTEN_BACKLOG, MAX_UNKNOWN_CLIENTS, TOKEN_TIMEOUT_SECONDS, Listener, UnknownClient
from specchat.host.protocol import REQUEST_FAILED, RpcError, encode
from specchat.host.spawn import check_same_user

log = logging.getLogger(__name__)

TOO_MANY_FILES = "the engine process has too many open files for another client; close one, or raise 'ulimit -n'"


class Door:
    """`serve` gets the socket of each client that is let in."""

    def __init__(
        self, listener: Listener, selector: selectors.BaseSelector, serve: Callable[[socket.socket], None]
    ) -> None:
        self._listener, self._tokens, self._selector, self._serve = listener.sock, listener.tokens, selector, serve
        self._unknown_clients: dict[UnknownClient, None] = {}  # the oldest first
        self._spare_descriptor = os.open(os.devnull, os.O_RDONLY)  # to refuse a client when no other is free
        self.has_refused_clients = False  # since the last one left
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self)

    def close(self) -> None:
        self._selector.unregister(self._listener)
        self._listener.close()
        for unknown in list(self._unknown_clients):
            self._forget(unknown).close()

    def accept(self) -> None:
        """Accept all clients that wait: many may start at once, and a round may take a while."""
        for _number in range(LISTEN_BACKLOG):
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # already disconnected, or no free descriptors
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._refuse_client()
                else:
                    log.warning("accept: %s", error)
                return
            self._add_client(sock)

    def _add_client(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        if self._tokens is not None:
            self._wait_for_token(UnknownClient(sock, self._tokens))
            return
        try:
            check_same_user(sock)
        except PermissionError as error:
            log.warning("refused a client: %s", error)
            sock.close()
            return
        self._serve(sock)

    def _wait_for_token(self, unknown: UnknownClient) -> None:
        if len(self._unknown_clients) >= MAX_UNKNOWN_CLIENTS:
            self._forget(next(iter(self._unknown_clients))).close()
        self._unknown_clients[unknown] = None
        self._selector.register(unknown.sock, selectors.EVENT_READ, unknown)

    def read_token(self, unknown: UnknownClient) -> None:
        if unknown not in self._unknown_clients:
            return  # closed for a newer one in this round
        try:
            is_known = unknown.read_token()
        except OSError as error:
            log.warning("refused a client: %s", error)
            self._forget(unknown).close()
            return
        if is_known:
            self._serve(self._forget(unknown))

    def close_late_clients(self) -> None:
        now = time.monotonic()
        for unknown in [each for each in self._unknown_clients if each.is_late(now)]:
            log.warning("refused a client: no token within %.0f s", TOKEN_TIMEOUT_SECONDS)
            self._forget(unknown).close()

    def _forget(self, unknown: UnknownClient) -> socket.socket:
        del self._unknown_clients[unknown]
        self._selector.unregister(unknown.sock)
        return unknown.sock

    def _refuse_client(self) -> None:
        """Tell a client why it is disconnected. Left waiting, it would wake this thread again and again."""
        os.close(self._spare_descriptor)
        try:
            sock, _ = self._listener.accept()
            with sock:
                sock.setblocking(False)
                sock.send(encode(RpcError(None, REQUEST_FAILED, TOO_MANY_FILES, "HostError")))
        except OSError:
            pass  # it has disconnected
        finally:
            self._spare_descriptor = os.open(os.devnull, os.O_RDONLY)
        if not self.has_refused_clients:
            self.has_refused_clients = True
            log.warning("refused a client: %s", os.strerror(errno.EMFILE))
