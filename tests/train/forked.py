"""Two processes that work together as torchrun's do, but forked, so that none of them imports anything again."""

from __future__ import annotations

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from specchat.errors import SpecchatError
from specchat.train.distributed import DistributedContext

SECONDS = 60

Work = Callable[[DistributedContext], Any]


def together(work: Work) -> list[Any]:
    """What this returns in each of two processes, or what it raises there."""
    context, port = multiprocessing.get_context("fork"), free_port()
    ends = [context.Pipe(duplex=False) for _ in range(2)]
    children = [
        context.Process(target=_run, args=(work, DistributedContext(number, 2, number), port, tell))
        for number, (_, tell) in enumerate(ends)
    ]
    for child in children:
        child.start()
    said = [hear.recv() if hear.poll(SECONDS) else "nothing was said" for hear, _ in ends]
    for child in children:
        child.join(10)
        child.kill()
    return said


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def _run(work: Work, ranks: DistributedContext, port: int, tell: Connection) -> None:
    """One of the two. It ends without a word to what it was forked from."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    try:
        tell.send(work(ranks))
    except SpecchatError as error:
        tell.send(error)
    except BaseException:  # noqa: BLE001 - pytest, in which this runs, must not go on in a second process
        tell.send(traceback.format_exc())
    finally:
        os._exit(0)
