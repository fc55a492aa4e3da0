"""Who computes the tasks of a run: this machine, or the machines of a Ray cluster."""

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

__all__ = ["THREADS", "Executor", "LocalPool", "Ray"]

Outcome = TypeVar("Outcome")
Kept = TypeVar("Kept")

#: Of every task, so that its numbers do not depend on how many processors there are.
THREADS = 1


class Executor(Protocol):
    """Computes tasks, wherever."""

    def compute(
        self, tasks: Mapping[Path, Callable[[], Outcome]], keep: Callable[[Path, Outcome], Kept]
    ) -> Iterator[tuple[Path, Kept]]:
        """Compute tasks, keep the outcome of each as soon as it is there, and give what is kept, in whatever order.

        Parameters
        ----------
        tasks : mapping
            By name; each can be pickled, and runs on `THREADS` threads.
        keep : callable
            The name of a task and its outcome → what is kept. Called on this machine, in whichever process; can be
            pickled.

        Yields
        ------
        tuple
            The name of a task and what is kept of its outcome. What a task raises is raised here.
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

    def compute(
        self, tasks: Mapping[Path, Callable[[], Outcome]], keep: Callable[[Path, Outcome], Kept]
    ) -> Iterator[tuple[Path, Kept]]:
        """As `Executor` says; the worker that has an outcome keeps it, since this process may have ended."""
        if self.workers == 1 or len(tasks) < 2:
            with _threads():
                for name, task in tasks.items():
                    yield name, keep(name, task())
            return
        pool = ProcessPoolExecutor(
            self.workers, multiprocessing.get_context("spawn"), initializer=_begin_worker, initargs=(self.prepare,)
        )
        try:
            futures = {pool.submit(_compute_and_keep, task, keep, name): name for name, task in tasks.items()}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            raise ChildProcessError(
                "a worker process ended before its job did: it was killed, for want of memory perhaps, or could not "
                "begin (then the reason stands above); the finished jobs are kept, and --resume goes on"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _compute_and_keep(task: Callable[[], Outcome], keep: Callable[[Path, Outcome], Kept], name: Path) -> Kept:
    return keep(name, task())


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


@dataclass(frozen=True)
class Ray:
    """The workers of a Ray cluster, on whichever machines; outcomes come back to this process, which keeps them.

    Every machine has this package, and the data. A task whose worker ends, or the whole machine, is computed again,
    three times at most: Ray's own rule.

    Parameters
    ----------
    address : str
        As `ray.init` takes it: "auto", "host:port", or "local" for a cluster that is begun on this machine and ends
        with the run.
    gpus : int
        That a task needs.
    prepare : callable
        Called in a worker before a task; can be pickled.
    """

    address: str
    gpus: int
    prepare: Callable[[], None]

    def compute(
        self, tasks: Mapping[Path, Callable[[], Outcome]], keep: Callable[[Path, Outcome], Kept]
    ) -> Iterator[tuple[Path, Kept]]:
        """As `Executor` says."""
        if not tasks:
            return
        import ray
        from ray.exceptions import RayError, RayTaskError
        from ray.util import as_completed

        remote = ray.remote(num_cpus=THREADS, num_gpus=self.gpus)(_compute_elsewhere)
        with ray.init(self.address):
            names = {remote.remote(self.prepare, task): name for name, task in tasks.items()}
            for found in as_completed(list(names), chunk_size=1, yield_obj_refs=True):
                try:
                    outcome = ray.get(found)
                except RayTaskError as error:
                    raise error.cause from error
                except RayError as error:
                    raise ChildProcessError(
                        f"a job was begun on Ray's workers and given up ({type(error).__name__}: they were killed, for "
                        "want of memory perhaps); the finished jobs are kept, and --resume goes on"
                    ) from error
                yield names[found], keep(names[found], outcome)


def _compute_elsewhere(prepare: Callable[[], None], task: Callable[[], Outcome]) -> Outcome:
    prepare()
    torch.set_num_threads(THREADS)
    return task()
