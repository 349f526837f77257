"""Two processes that train together as under torchrun, but forked, so that they need no imports."""

from __future__ import annotations

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from specchat.errors import SpecchatError
from specchat_train.distributed import DistributedContext

SECONDS = 120

Work = Callable[[DistributedContext], Any]


def run_in_two_processes(work: Work) -> list[Any]:
    """What this function returns or raises in each of two processes."""
    context, port = multiprocessing.get_context("fork"), free_port()
    pipes = [context.Pipe(duplex=False) for _ in range(2)]
    children = [
        context.Process(target=_run, args=(work, DistributedContext(rank, 2, rank), port, sender))
        for rank, (_, sender) in enumerate(pipes)
    ]
    for child in children:
        child.start()
    results = [receiver.recv() if receiver.poll(SECONDS) else "no result" for receiver, _ in pipes]
    for child in children:
        child.join(120)
        child.kill()
    return results


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _run(work: Work, distributed: DistributedContext, port: int, sender: Connection) -> None:
    """Send the result, and exit without running the cleanup of the parent."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    try:
        sender.send(work(distributed))
    except SpecchatError as error:
        sender.send(error)
    except BaseException:  # noqa: BLE001 - pytest must not continue in a second process
        sender.send(traceback.format_exc())
    finally:
        os._exit(0)
