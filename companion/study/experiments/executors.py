"""Who computes the tasks of a run. Here: this machine."""

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Protocol, TypeVar

import torch

__all__ = ["THREADS", "Executor", "LocalPool"]

Outcome = TypeVar("Outcome")

#: Of every task, so that its numbers do not depend on how many processors there are.
THREADS = 1


class Executor(Protocol):
    """Computes tasks, wherever."""

    def compute(self, tasks: Mapping[Path, Callable[[], Outcome]]) -> Iterator[tuple[Path, Outcome]]:
        """Compute tasks, and give the outcome of each as soon as it is there, in whatever order.

        Parameters
        ----------
        tasks : mapping
            By name; each can be pickled, and runs on `THREADS` threads.

        Yields
        ------
        tuple
            The name of a task and its outcome. What a task raises is raised here.
        """


@dataclass(frozen=True)
class LocalPool:
    """Worker processes on this machine; a single worker, and a single task, need none.

    Parameters
    ----------
    workers : int
        How many.
    prepare : callable
        Called in each worker process before its first task; can be pickled.
    """

    workers: int
    prepare: Callable[[], None]

    def compute(self, tasks: Mapping[Path, Callable[[], Outcome]]) -> Iterator[tuple[Path, Outcome]]:
        """As `Executor` says."""
        if self.workers == 1 or len(tasks) < 2:
            with _threads():
                for name, task in tasks.items():
                    yield name, task()
            return
        pool = ProcessPoolExecutor(
            self.workers, multiprocessing.get_context("spawn"), initializer=_begin_worker, initargs=(self.prepare,)
        )
        try:
            futures = {pool.submit(task): name for name, task in tasks.items()}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            raise ChildProcessError(
                "a worker process ended before its job did: it was killed, for want of memory perhaps, or could not "
                "begin (then the reason stands above); the finished jobs are kept, and --resume goes on"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _begin_worker(prepare: Callable[[], None]) -> None:
    prepare()
    torch.set_num_threads(THREADS)
    parent = multiprocessing.parent_process()
    if parent is not None:
        # A killed parent cannot stop its workers, and they would wait for jobs for ever.
        threading.Thread(target=_die_with, args=(parent.sentinel,), daemon=True).start()


def _die_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


@contextlib.contextmanager
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        yield
    finally:
        torch.set_num_threads(before)
