"""Runs an experiment job by job. Whatever has been computed survives a kill, and nothing is counted twice.

Each finished job is one file, which exists whole or not at all. Its name is a hash of the job, of the package's
sources, of the versions and of the hardware: a part that other code or another machine made has another name and is
never read. The result is put together from the list of jobs, not from what lies in the folder.

Nothing is ever deleted. A file takes the place of its predecessor when it is whole; until then, and after whatever
stops a run, the predecessor is there. Only one process at a time works in a folder of runs.

A result outlives the sources that made it. So it stores what the smoke preset gave beside it, and
`companion.experiments.provenance.differences` says whether today's code still gives that.
"""

import contextlib
import datetime
import hashlib
import json
import math
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection
from pathlib import Path
from typing import Any, Literal

import torch

from companion import datasets, results, training
from companion.experiments.provenance import environment, git_state, sources
from companion.experiments.registry import Case, Experiment, Job, Row
from companion.extras import need
from companion.files import write_atomically

__all__ = ["find", "promote", "run", "runs_path", "smoke"]

_THREADS = 1
# What the runner, its tables and every data set import; torchvision is asked for by the data sets that need it.
_PACKAGES = ("jsonschema", "numpy", "scipy", "sklearn", "tqdm")
# Seconds. Two runs of an experiment may need its smoke preset at the same time; one of them makes it.
_PATIENCE = 600
# So many times the grid grows at most, where the best rate of a case is at its edge.
_FURTHER = 4
# Of every training of a smoke preset, so many losses are kept.
_FIRST = 2


def runs_path() -> Path:
    """Return the folder that runs go to: ``$COMPANION_RUNS``, or ``runs`` in the working directory."""
    return Path(os.environ.get("COMPANION_RUNS") or "runs")


def run(
    experiment: Experiment,
    preset: str,
    *,
    seeds: int | None = None,
    resume: bool = False,
    workers: int = 1,
) -> Path:
    """Run an experiment to its end and write the result.

    Every job runs on one thread, so that its numbers do not depend on how many processors there are. The smoke preset
    runs first: its rows, which hold the losses of the first steps as well, become part of the result. What is needed
    is asked for before anything is computed or written: packages, data, the folder.

    Parameters
    ----------
    experiment : Experiment
        What to run.
    preset : str
        Which settings.
    seeds : int, optional
        Number of evaluation seeds; default: the preset's.
    resume : bool
        Keep the jobs that an earlier run finished with this code, these settings and this machine. Otherwise
        every job is computed again and takes the place of its predecessor when it is finished.
    workers : int
        Processes. With 1 the jobs run in this one.

    Returns
    -------
    pathlib.Path
        ``<runs>/<experiment>-<preset>.json``.

    Raises
    ------
    ValueError
        If the preset is unknown, a number is below 1, or a tuning seed is also an evaluation seed. If a file of an
        earlier run or of the data is damaged; the message names it.
    ModuleNotFoundError
        If a package is missing.
    OSError
        If the data are absent and cannot be downloaded, the disk is full, the folder is read-only, or another process
        works in it.
    """
    return _run(experiment, preset, seeds, resume, workers, patience=0)


def _run(experiment: Experiment, preset: str, seeds: int | None, resume: bool, workers: int, patience: float) -> Path:
    settings = dict(experiment.preset(preset))
    default_seeds = settings.pop("seeds")
    evaluation_seeds = list(range(default_seeds if seeds is None else seeds))
    rates, tuning_seeds = settings.pop("learning_rates", []), settings.pop("tuning_seeds", [])
    if not evaluation_seeds or workers < 1:
        raise ValueError(f"seeds is {seeds} and workers is {workers}; allowed is 1 or more")
    if overlap := set(tuning_seeds) & set(evaluation_seeds):
        raise ValueError(f"tuning_seeds holds {sorted(overlap)}, which are evaluation seeds")
    if settings.get("device") == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"{experiment.name} {preset} needs a CUDA GPU, and torch finds none")
    need("experiments", *_PACKAGES)
    datasets.fetch(settings.get("dataset", ""))

    # Before anything is computed: what changes on the disk from here on is not what this process runs.
    code = sources()
    target = runs_path() / f"{experiment.name}-{preset}.json"
    with _alone_in(target.with_suffix(""), patience) as folder:
        machine = environment(settings.get("device", "cpu"))
        session = _Session(experiment, preset, settings, folder, machine, code, resume, workers)
        beside = [] if preset == "smoke" else smoke(experiment)
        _write(target, _result(session, rates, tuning_seeds, evaluation_seeds, beside))
    return target


def _result(
    session: "_Session", rates: list[float], tuning_seeds: list[int], evaluation_seeds: list[int], beside: list[Row]
) -> dict[str, Any]:
    """Compute all jobs and put the result together."""
    experiment, settings = session.experiment, session.settings
    cases = experiment.cases(settings)
    tuning = session.tune(cases, rates, tuning_seeds)
    chosen = [{**case, **_best(case, tuning, experiment.one_rate_for)} for case in cases] if tuning else []
    own_rates = [[row["learning_rate"]] for row in chosen] or [rates or [None]] * len(cases)
    rows = session.evaluate(cases, own_rates, evaluation_seeds)
    result = {
        "experiment": experiment.name,
        "preset": session.preset,
        "finished": True,
        "description": experiment.description,
        "settings": {**settings, "learning_rates": rates, "tuning_seeds": tuning_seeds},
        "seeds": evaluation_seeds,
        "rows": rows,
        "tuning": tuning,
        "chosen": chosen,
        "smoke": beside,
        "provenance": {
            **session.machine,
            "threads": _THREADS,
            "duration_seconds": round(session.seconds, 1),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "git": git_state(),
        },
    }
    results.check(result, f"the result of {experiment.name} {session.preset}")
    return result


@contextlib.contextmanager
def _alone_in(folder: Path, patience: float) -> Iterator[Path]:
    """Make a folder, and work in it while no other process does; the lock ends with the process."""
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock", timeout=patience)
    try:
        lock.acquire()
    except Timeout:
        raise BlockingIOError(
            f"another run works in {folder}; wait for its end, or set COMPANION_RUNS to another folder"
        ) from None
    try:
        yield folder
    finally:
        lock.release()


def smoke(experiment: Experiment) -> list[Row]:
    """Return what an experiment's smoke preset gives on this machine.

    Parameters
    ----------
    experiment : Experiment
        What to run, unless these sources have run it here before.

    Returns
    -------
    list of dict
        Its rows, each with ``first_losses``.
    """
    path = _run(experiment, "smoke", seeds=None, resume=True, workers=1, patience=_PATIENCE)
    rows: list[Row] = results.read(path)["rows"]
    return rows


def find(name: str, preset: str) -> tuple[dict[str, Any], str]:
    """Return a finished result and where it is from: this folder's runs, or else what is promoted.

    Parameters
    ----------
    name, preset : str
        Which result.

    Returns
    -------
    result : dict
        As `companion.results.load` gives it.
    origin : str
        "runs" or "data/results".

    Raises
    ------
    FileNotFoundError
        If neither place has it.
    ValueError
        If the file holds something else. The message names it.
    """
    path = runs_path() / f"{name}-{preset}.json"
    if path.is_file():
        return results.read(path), "runs"
    return results.load(name, preset), "data/results"


def promote() -> list[str]:
    """Copy the finished results of this folder's runs to data/results. Smoke runs stay where they are.

    Returns
    -------
    list of str
        Names of the files that are new or have changed.

    Raises
    ------
    ValueError
        If a file among the runs is not a finished result. The message names it, and nothing is copied.
    FileNotFoundError
        Outside a checkout: what an installed wheel carries is not to be changed.
    """
    data = results.data_path()
    if data.name != "data":
        raise FileNotFoundError("there is no checkout to promote into: the data lies in an installed wheel")
    changed = []
    finished = {path: results.read(path) for path in sorted(runs_path().glob("*.json"))}
    for path, result in finished.items():
        if result["preset"] == "smoke":
            continue
        target = data / "results" / path.name
        if not target.is_file() or target.read_bytes() != path.read_bytes():
            _write(target, result)
            changed.append(path.name)
    return changed


def _best(case: Mapping[str, Any], tuning: list[Row], shared: tuple[str, ...]) -> Row:
    """Return the rate with the highest mean score of a case, the smaller one if two are equal.

    A run that diverged has no score, and its rate is worse than any other.
    """
    own = {key: value for key, value in case.items() if key not in shared}
    scores: dict[float, list[float]] = {}
    for row in tuning:
        if row.items() >= own.items():
            scores.setdefault(row["learning_rate"], []).append(-math.inf if row["score"] is None else row["score"])
    score, winner = max(
        ((math.fsum(scores[rate]) / len(scores[rate]), rate) for rate in sorted(scores)), key=lambda pair: pair[0]
    )
    return {
        "learning_rate": winner,
        "score": _without_infinities(score),
        "at_edge": winner in (min(scores), max(scores)),
    }


def _beyond(winner: float, tried: Sequence[float]) -> float:
    """Return the rate after the edge of the grid that won: the next of 1, 3, 10, 30 … times a power of ten."""
    step = 1 if winner == max(tried) else -1
    exponent, odd = divmod(round(2 * math.log10(winner)) + step, 2)
    return float(f"{3 if odd else 1}e{exponent}")


@dataclass
class _Session:
    """One run: what is run, where its parts lie, and who computes them."""

    experiment: Experiment
    preset: str
    settings: dict[str, Any]
    folder: Path
    machine: dict[str, Any]
    sources: str
    resume: bool
    workers: int
    seconds: float = 0.0

    def tune(self, cases: list[Case], rates: list[float], seeds: list[int]) -> list[Row]:
        """Return a score for each case, rate and seed; nothing where nothing is tuned.

        One grid for all: where the best rate of any case is at its edge, every case meets the next rate beyond, until
        all the best ones lie inside. The smoke preset, which compares nothing, is content with its grid.
        """
        if self.experiment.validate is None or not seeds:
            return []
        tuning: list[Row] = []
        grid: list[float] = []
        wanted = list(rates)
        for _ in range(1 if self.preset == "smoke" else 1 + _FURTHER):
            jobs = [self.job("tuning", case, seed, rate) for case in cases for rate in wanted for seed in seeds]
            scores = self.finish(jobs, self.experiment.validate, "tuning")
            tuning += [
                {**job.case, "seed": job.seed, "learning_rate": job.learning_rate, "score": score}
                for job, score in zip(jobs, scores, strict=True)
            ]
            grid += wanted
            best = [_best(case, tuning, self.experiment.one_rate_for) for case in cases]
            wanted = sorted({_beyond(each["learning_rate"], grid) for each in best if each["at_edge"]})
            if not wanted:
                break
        return tuning

    def evaluate(self, cases: list[Case], rates: Sequence[Sequence[float | None]], seeds: list[int]) -> list[Row]:
        """Return the rows of each case, rate and seed; `rates` has a list per case."""
        pairs = [(case, rate) for case, own in zip(cases, rates, strict=True) for rate in own]
        jobs = [self.job("evaluation", case, seed, rate) for case, rate in pairs for seed in seeds]
        measure = self.experiment.measure
        outcomes = self.finish(jobs, partial(_listen, measure) if self.preset == "smoke" else measure, "evaluation")
        return [
            {**job.case, "seed": job.seed, **_rate(job), **row}
            for job, rows in zip(jobs, outcomes, strict=True)
            for row in rows
        ]

    def job(self, stage: Literal["tuning", "evaluation"], case: Case, seed: int, rate: float | None) -> Job:
        return Job(self.experiment.name, stage, case, self.settings, seed, rate)

    def finish(self, jobs: list[Job], work: Callable[[Job], Any], stage: str) -> list[Any]:
        """Return the outcomes of all jobs, in order; compute those that are not there yet."""
        from tqdm import tqdm

        paths = {self.part(job): job for job in jobs}
        done = {path: _read(path, job) for path, job in paths.items() if self.resume and path.exists()}
        missing = {path: job for path, job in paths.items() if path not in done}
        bar = tqdm(
            self.compute(missing, work),
            desc=f"{self.experiment.name} {self.preset} {stage}",
            total=len(paths),
            initial=len(done),
            file=sys.stderr,
            disable=bool(os.environ.get("CI")),
        )
        done.update(bar)
        parts = [done[self.part(job)] for job in jobs]
        self.seconds += math.fsum(part["seconds"] for part in parts)
        return [part["outcome"] for part in parts]

    def part(self, job: Job) -> Path:
        """Return the file of a job: its name is bound to all that the outcome depends on."""
        key = hashlib.sha256(_canonical([job.as_dict(), self.sources, self.machine])).hexdigest()
        return self.folder / f"{key[:32]}.json"

    def compute(self, missing: dict[Path, Job], work: Callable[[Job], Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
        if self.workers == 1 or len(missing) < 2:
            with _one_thread():
                for path, job in missing.items():
                    yield path, _execute(work, job, path)
            return
        pool = ProcessPoolExecutor(
            self.workers,
            multiprocessing.get_context("spawn"),
            initializer=_prepare_worker,
            initargs=(self.sources,),
        )
        try:
            futures = {pool.submit(_execute, work, job, path): path for path, job in missing.items()}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            raise ChildProcessError(
                "a worker process ended before its job did: it was killed, for want of memory perhaps, or could not "
                "begin (then the reason stands above); the finished jobs are kept, and --resume goes on"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _rate(job: Job) -> Row:
    return {} if job.learning_rate is None else {"learning_rate": job.learning_rate}


def _listen(measure: Callable[[Job], list[Row]], job: Job) -> list[Row]:
    """Return the rows of a job, each with the losses of the first steps of its training."""
    losses: list[float] = []

    def listener(loss: torch.Tensor) -> None:
        if len(losses) < _FIRST:
            losses.append(float(loss))

    training.listeners.append(listener)
    try:
        return [{**row, "first_losses": losses} for row in measure(job)]
    finally:
        training.listeners.remove(listener)


def _execute(work: Callable[[Job], Any], job: Job, path: Path) -> dict[str, Any]:
    start = time.perf_counter()
    outcome = _without_infinities(work(job))
    part = {"job": job.as_dict(), "outcome": outcome, "seconds": time.perf_counter() - start}
    _write(path, part)
    # Read back: a resumed run sees exactly the numbers that this one sees.
    return _read(path, job)


def _prepare_worker(expected: str) -> None:
    # A worker imports what lies on the disk now, which may be newer than what its parent imported.
    if sources() != expected:
        raise RuntimeError("the code has changed since this run began; run it again with --resume")
    torch.set_num_threads(_THREADS)
    parent = multiprocessing.parent_process()
    if parent is not None:
        # A killed parent cannot stop its workers, and they would wait for jobs for ever.
        threading.Thread(target=_die_with, args=(parent.sentinel,), daemon=True).start()


def _die_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(_THREADS)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, allow_nan=False).encode()


def _without_infinities(value: Any) -> Any:
    """Replace what JSON cannot hold: a loss that diverged becomes null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _without_infinities(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_infinities(item) for item in value]
    return value


def _read(path: Path, job: Job) -> dict[str, Any]:
    """The part of a job; ValueError, which names the file, if it holds something else."""
    try:
        part = results.parse(path)
        if not isinstance(part, dict) or part.keys() != {"job", "outcome", "seconds"}:
            raise ValueError(f"{path} is damaged: it is no part of a run")
        if part["job"] != json.loads(_canonical(job.as_dict())):
            raise ValueError(f"{path} holds another job than its name says: {json.dumps(part['job'])[:300]}")
        if not _is_number(part["seconds"]) or not _is_outcome(part["outcome"], job):
            raise ValueError(f"{path} is damaged: its outcome or its seconds have a wrong type")
    except ValueError as error:
        raise ValueError(f"{error}; remove that file, and its job is computed again") from error
    return part


def _is_outcome(value: Any, job: Job) -> bool:
    if job.stage == "tuning":
        return value is None or _is_number(value)
    return isinstance(value, list) and all(isinstance(row, dict) for row in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _write(path: Path, value: Any) -> None:
    write_atomically(path, _layout(value).encode())


def _layout(value: Any) -> str:
    """Return JSON with one line per row, so that a diff of two results can be read."""
    if not isinstance(value, dict):
        return json.dumps(value, allow_nan=False)
    entries = []
    for key, item in value.items():
        if isinstance(item, list) and item and isinstance(item[0], dict):
            lines = ",\n".join(f"    {json.dumps(row, allow_nan=False)}" for row in item)
            entries.append(f"  {json.dumps(key)}: [\n{lines}\n  ]")
        else:
            entries.append(f"  {json.dumps(key)}: {json.dumps(item, allow_nan=False)}")
    return "{\n" + ",\n".join(entries) + "\n}\n"
