"""Runs an experiment job by job. Whatever has been computed survives a kill, and nothing is counted twice.

Each finished job is one file, which exists whole or not at all. Its name is a hash of the job and of the code that its
experiment imports: a part that other code made has another name and is never read. Parts may come from several
machines, and each says which; only where something is timed the machine belongs to the name. Numbers that are compared,
those of one seed and condition, must have been computed in one precision: a run refuses to mix them. The result is put
together from the list of jobs, not from what lies in the folder. What a killed job had trained lies beside its part
until that is written.

Nothing is ever deleted that could still be read. A file takes the place of its predecessor when it is whole; until
then, and after whatever stops a run, the predecessor is there. Only one process at a time works in a folder of runs.

A result outlives the sources that made it. So it stores what the smoke preset gave beside it, and
`companion.study.experiments.provenance.differences` says whether today's code still gives that.
"""

import contextlib
import datetime
import hashlib
import math
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from companion.extras import need
from companion.study import datasets, results, training
from companion.study.experiments import parts, provenance, unfinished
from companion.study.experiments.executors import THREADS, Executor, LocalPool, Ray
from companion.study.experiments.parts import Part, runs_path
from companion.study.experiments.registry import Case, Experiment, Job, Row

__all__ = ["best_rate", "find", "promote", "run", "runs_path", "smoke"]

# What the runner, its tables and every data set import; torchvision is asked for by the data sets that need it.
_PACKAGES = ("fastjsonschema", "numpy", "scipy", "sklearn", "tqdm")
# Seconds. Two runs of an experiment may need its smoke preset at the same time; one of them makes it.
_PATIENCE = 600
# So many times the grid grows at most, where the best rate of a case is at its edge.
_FURTHER = 4
# Of every training of a smoke preset, so many losses are kept.
_FIRST = 2


def run(
    experiment: Experiment,
    preset: str,
    *,
    seeds: int | None = None,
    device: str | None = None,
    precision: str | None = None,
    resume: bool = False,
    workers: int = 1,
    ray: str | None = None,
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
    device : str, optional
        "cpu" or "cuda"; default: the preset's.
    precision : str, optional
        "float32" or "bfloat16"; default: the preset's.
    resume : bool
        Keep the jobs that earlier runs finished with this code and these settings, here or, if they were kept in the
        project, elsewhere; and go on with the trainings that were interrupted on this machine. Otherwise every job is
        computed again and takes the place of its predecessor when it is finished.
    workers : int
        Processes. With 1 the jobs run in this one.
    ray : str, optional
        The address of a Ray cluster, as `ray.init` takes it: its workers compute instead, and this process writes what
        they give. A job of which a worker ended goes on from where it was if the folder of runs is seen there, else
        from its beginning.

    Returns
    -------
    pathlib.Path
        ``<runs>/<experiment>-<preset>.json``.

    Raises
    ------
    ValueError
        If the preset, the device or the precision is unknown, a number is below 1, or a tuning seed is also an
        evaluation seed. If a GPU has no bfloat16, and trainings are to be compiled in it. If a file of an earlier run
        or of the data is damaged; the message names it. If earlier jobs were computed in another precision than those
        that they are compared with would be. If times are to be measured on several machines.
    ModuleNotFoundError
        If a package is missing.
    OSError
        If the data are absent and cannot be downloaded, the disk is full, the folder is read-only, or another process
        works in it; if there is no cluster at the address, or its workers were killed again and again.
    """
    return _run(experiment, preset, seeds, device, precision, resume, workers, ray, patience=0)


def _run(
    experiment: Experiment,
    preset: str,
    seeds: int | None,
    device: str | None,
    precision: str | None,
    resume: bool,
    workers: int,
    ray: str | None,
    patience: float,
) -> Path:
    settings, told = experiment.settings(preset, device, precision), experiment.preset(preset)
    evaluation_seeds = list(range(told["seeds"] if seeds is None else seeds))
    if not evaluation_seeds or workers < 1:
        raise ValueError(f"seeds is {seeds} and workers is {workers}; allowed is 1 or more")
    if overlap := set(told.get("tuning_seeds", [])) & set(evaluation_seeds):
        raise ValueError(f"tuning_seeds holds {sorted(overlap)}, which are evaluation seeds")
    if settings.get("device") == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"{experiment.name} {preset} needs a CUDA GPU, and torch finds none; --device cpu does without"
        )
    if _compiles_bfloat16(settings) and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise ValueError(
            f"{experiment.name} {preset} is compiled in bfloat16, and {torch.cuda.get_device_name()} has none: allowed "
            "is a GPU of compute capability 8.0 or more; --precision float32 does without"
        )
    if ray is not None and experiment.timed:
        raise ValueError(f"ray is {ray!r}; {experiment.name} measures times, which have to come from one machine")
    need("experiments", *_PACKAGES)
    if ray is not None:
        need("scale", "ray")
    datasets.fetch(settings.get("dataset", ""))

    # Before anything is computed: what changes on the disk from here on is not what this process runs.
    homes, place = provenance.homes(experiment), settings.get("device", "cpu")
    code = provenance.code(homes, place)
    prepare = partial(_refuse_other_code, homes, place, code)
    executor: Executor = LocalPool(workers, prepare)
    if ray is not None:
        executor = Ray(ray, gpus=int(place == "cuda"), prepare=prepare)
    target = runs_path() / f"{experiment.name}-{preset}.json"
    with _alone_in(target.with_suffix(""), patience) as folder:
        session = _Session(experiment, preset, settings, folder, code, resume, executor)
        beside = [] if preset == "smoke" else smoke(experiment)
        parts.write_json(target, _result(session, told, evaluation_seeds, beside))
    return target


def _compiles_bfloat16(settings: Mapping[str, Any]) -> bool:
    """Whether torch.compile, on a GPU, is to make code in bfloat16; where a GPU only emulates it, it refuses."""
    compiled = settings.get("compiled", False) or "compiled" in settings.get("modes", ())
    return bool(compiled) and settings.get("device") == "cuda" and settings.get("precision") == "bfloat16"


@cache  # once in a process: what it has imported stays
def _refuse_other_code(homes: tuple[Path, ...], device: str, code: str) -> None:
    # A worker imports what lies on its disk now, which may be newer than what its parent imported.
    if provenance.code(homes, device) != code:
        raise RuntimeError(
            "the code has changed since this run began, or a worker has other code than this machine: make it the same "
            "everywhere and run it again with --resume"
        )


def _result(
    session: "_Session", told: Mapping[str, Any], evaluation_seeds: list[int], beside: list[Row]
) -> dict[str, Any]:
    """Compute all jobs and put the result together."""
    experiment, settings = session.experiment, {**told, **session.settings}
    rates, tuning_seeds = told.get("learning_rates", []), told.get("tuning_seeds", [])
    del settings["seeds"]
    cases = experiment.cases(settings)
    tuning = session.tune(cases, rates, tuning_seeds)
    chosen = [{**case, **best_rate(case, tuning, experiment.one_rate_for)} for case in cases] if tuning else []
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
            "machines": session.machines,
            "row_machines": session.row_machines,
            "tuning_machines": session.tuning_machines,
            "code": session.code,
            "threads": THREADS,
            "duration_seconds": round(session.seconds, 1),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "git": provenance.git_state(),
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
        for left in folder.glob("making-*"):  # by a run that was killed while it wrote a part
            shutil.rmtree(left, ignore_errors=True)
        yield folder
    finally:
        lock.release()


def smoke(experiment: Experiment) -> list[Row]:
    """Return what an experiment's smoke preset gives with today's code.

    Parameters
    ----------
    experiment : Experiment
        What to run, unless this code has run it here before.

    Returns
    -------
    list of dict
        Its rows, each with ``first_losses``.
    """
    path = _run(experiment, "smoke", None, None, None, resume=True, workers=1, ray=None, patience=_PATIENCE)
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
        As `companion.study.results.load` gives it.
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

    The parts in data/unfinished that are in such a result are removed: it is finished.

    Returns
    -------
    list of str
        Names of the files that are new or have changed.

    Raises
    ------
    ValueError
        If a file among the runs is not a finished result, is a benchmark that something disturbed, or is of an earlier
        day than the result that it would replace or has fewer seeds. The message names it, and nothing is copied.
    FileNotFoundError
        Outside a checkout: what an installed wheel carries is not to be changed.
    """
    data = unfinished.checkout()
    changed = []
    finished = {path: results.read(path) for path in sorted(runs_path().glob("*.json"))}
    for path, result in finished.items():
        if path.stem.startswith("bench-") and (why := results.disturbed(result["settings"].get("reference_ms", []))):
            raise ValueError(f"{path}: {why}; measure again on a quiet machine")
        if result["preset"] != "smoke" and (target := data / "results" / path.name).is_file():
            _refuse_a_lesser_one(path, result, results.read(target))
    for path, result in finished.items():
        if result["preset"] == "smoke":
            continue
        target = data / "results" / path.name
        if not target.is_file() or target.read_bytes() != path.read_bytes():
            parts.write_json(target, result)
            changed.append(path.name)
        unfinished.forget(result)
    return changed


def _refuse_a_lesser_one(path: Path, result: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Refuse a result that is older than a known one, or that has fewer seeds."""
    for what, (new, old) in {
        "seeds": tuple(len(each["seeds"]) for each in (result, known)),
        "date": tuple(each["provenance"]["date"] for each in (result, known)),
    }.items():
        if new < old:
            raise ValueError(
                f"{path}: {what}: got {new}, allowed is at least {old}, as in data/results; remove one of the two files"
            )


def best_rate(case: Mapping[str, Any], tuning: list[Row], shared: tuple[str, ...]) -> Row:
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
        "score": score if math.isfinite(score) else None,
        "at_edge": winner in (min(scores), max(scores)),
    }


def _beyond(winner: float, tried: Sequence[float]) -> float:
    """Return the rate after the edge of the grid that won: the next of 1, 3, 10, 30 … times a power of ten."""
    step = 1 if winner == max(tried) else -1
    exponent, odd = divmod(round(2 * math.log10(winner)) + step, 2)
    return float(f"{3 if odd else 1}e{exponent}")


@dataclass
class _Session:
    """One run: what is run, where its parts lie, and who computes them; and of what was computed, where."""

    experiment: Experiment
    preset: str
    settings: dict[str, Any]
    folder: Path
    code: str
    resume: bool
    executor: Executor
    seconds: float = 0.0
    machines: list[dict[str, Any]] = field(default_factory=list)
    row_machines: list[int] = field(default_factory=list)
    tuning_machines: list[int] = field(default_factory=list)

    def tune(self, cases: list[Case], rates: list[float], seeds: list[int]) -> list[Row]:
        """Return a score for each case, rate and seed; nothing where nothing is tuned.

        One grid for all who meet under one condition: where the best rate of any case is at its edge, every case under
        that condition meets the next rate beyond, until all the best ones lie inside. The smoke preset, which compares
        nothing, is content with its grid.
        """
        if self.experiment.validate is None or not seeds:
            return []
        tuning: list[Row] = []
        grids: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        wanted = {self.experiment.condition(case): list(rates) for case in cases}
        for _ in range(1 if self.preset == "smoke" else 1 + _FURTHER):
            pairs = [(case, rate) for case in cases for rate in wanted[self.experiment.condition(case)]]
            jobs = [self.job("tuning", case, seed, rate) for case, rate in pairs for seed in seeds]
            for job, part in zip(jobs, self.finish(jobs, self.experiment.validate), strict=True):
                row = {"seed": job.seed, "learning_rate": job.learning_rate, "score": part["outcome"]}
                tuning.append({**job.case, **row})
                self.tuning_machines.append(self.machine(part))
            for condition, tried in wanted.items():
                grids[condition] += tried
                wanted[condition] = self.beyond(condition, cases, tuning, grids[condition])
            if not any(wanted.values()):
                break
        return tuning

    def beyond(
        self, condition: tuple[Any, ...], cases: list[Case], tuning: list[Row], tried: list[float]
    ) -> list[float]:
        """Return the rates that the cases under a condition are to meet next."""
        competitors = [case for case in cases if self.experiment.condition(case) == condition]
        best = [best_rate(case, tuning, self.experiment.one_rate_for) for case in competitors]
        return sorted({_beyond(each["learning_rate"], tried) for each in best if each["at_edge"]})

    def evaluate(self, cases: list[Case], rates: Sequence[Sequence[float | None]], seeds: list[int]) -> list[Row]:
        """Return the rows of each case, rate and seed; `rates` has a list per case."""
        pairs = [(case, rate) for case, own in zip(cases, rates, strict=True) for rate in own]
        jobs = [self.job("evaluation", case, seed, rate) for case, rate in pairs for seed in seeds]
        measure = self.experiment.measure
        found: list[Row] = []
        done = self.finish(jobs, partial(_listen, measure) if self.preset == "smoke" else measure)
        for job, part in zip(jobs, done, strict=True):
            found += [{**job.case, "seed": job.seed, **_rate(job), **row} for row in part["outcome"]]
            self.row_machines += [self.machine(part)] * len(part["outcome"])
        return found

    def job(self, stage: Literal["tuning", "evaluation"], case: Case, seed: int, rate: float | None) -> Job:
        return Job(self.experiment.name, stage, case, self.settings, seed, rate)

    def machine(self, part: Part) -> int:
        """Return the number of the machine that computed a part."""
        if part["machine"] not in self.machines:
            self.machines.append(part["machine"])
        return self.machines.index(part["machine"])

    def finish(self, jobs: list[Job], work: Callable[[Job], Any]) -> list[Part]:
        """Return the parts of all jobs, in order; compute those that are not there yet."""
        from tqdm import tqdm

        paths = {self.path(job): job for job in jobs}
        done = self.read(paths) if self.resume else {}
        self.refuse_two_precisions(paths, done)
        missing = {path: job for path, job in paths.items() if path not in done}
        if not self.resume:
            for path in missing:
                shutil.rmtree(_trained(path), ignore_errors=True)
        tasks = {path: partial(_compute, work, job, path.absolute()) for path, job in missing.items()}
        bar = tqdm(
            self.executor.compute(tasks, _keep),
            desc=f"{self.experiment.name} {self.preset} {jobs[0].stage}",
            total=len(paths),
            initial=len(done),
            file=sys.stderr,
            disable=bool(os.environ.get("CI")),
        )
        done.update(bar)
        self.refuse_two_precisions(paths, done)  # several machines may have computed them
        found = [done[self.path(job)] for job in jobs]
        self.seconds += math.fsum(part["seconds"] for part in found)
        return found

    def path(self, job: Job) -> Path:
        """Return the file of a job: its name is bound to all that the outcome depends on."""
        machine = provenance.machine(self.settings) if self.experiment.timed else None
        return self.folder / f"{parts.key(job, self.code, machine)}.json"

    def read(self, paths: Mapping[Path, Job]) -> dict[Path, Part]:
        """Return the parts that are there: in this folder, or in the project."""
        kept, done = unfinished.load(self.experiment.name, self.preset), {}
        for path, job in paths.items():
            if path.exists():
                done[path] = parts.read(path, job)
                # of a run that was killed between its part and this
                shutil.rmtree(_trained(path), ignore_errors=True)
            elif path.stem in kept:
                done[path] = parts.check(kept[path.stem], job, f"the part {path.stem} in data/unfinished")
        return done

    def refuse_two_precisions(self, paths: Mapping[Path, Job], done: Mapping[Path, Part]) -> None:
        """Raise ValueError if numbers that are compared have, or would get, two precisions."""
        here = provenance.precision(self.settings)
        groups: dict[tuple[Any, ...], dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for path, job in paths.items():
            precision = done[path]["machine"]["precision"] if path in done else here
            groups[job.seed, self.experiment.condition(job.case)][precision] += 1
        for (seed, condition), found in groups.items():
            if len(found) > 1:
                under = ", ".join(
                    f"{key} {value}" for key, value in zip(self.experiment.conditions, condition, strict=True)
                )
                counts = ", ".join(f"{count} in {precision}" for precision, count in found.items())
                raise ValueError(
                    f"seed {seed} of {self.experiment.name} {self.preset}{under and f' with {under}'} would mix "
                    f"precisions, and its numbers are compared: {counts}; this machine computes in {here}. Finish it "
                    "on a machine like the first, or run without --resume, which computes everything here"
                )


def _rate(job: Job) -> Row:
    return {} if job.learning_rate is None else {"learning_rate": job.learning_rate}


class _First:
    """Hears the losses of the first steps, over an interruption too."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def __call__(self, loss: torch.Tensor) -> None:
        if len(self.losses) < _FIRST:
            self.losses.append(float(loss))

    def state_dict(self) -> dict[str, Any]:
        return {"losses": self.losses}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.losses = state["losses"]


def _listen(measure: Callable[[Job], list[Row]], job: Job) -> list[Row]:
    """Return the rows of a job, each with the losses of the first steps of its training."""
    first = _First()
    training.listeners.append(first)
    try:
        return [{**row, "first_losses": first.losses} for row in measure(job)]
    finally:
        training.listeners.remove(first)


class _Computed(NamedTuple):
    """A job, and what its part is to say."""

    job: Job
    outcome: Any
    seconds: float
    machine: dict[str, Any]


def _compute(work: Callable[[Job], Any], job: Job, path: Path) -> _Computed:
    """Compute a job; what it has trained is kept beside its part, until that is written."""
    machine = provenance.machine(job.settings)
    # Another machine would go on to other bits, and the part names one.
    here = hashlib.sha256(parts.canonical(machine)).hexdigest()[:8]
    with _place(path) as trained, training.checkpoints(trained / here) as kept:
        outcome = work(job)
    return _Computed(job, outcome, kept.seconds, machine)


@contextlib.contextmanager
def _place(path: Path) -> Iterator[Path]:
    """The folder of a job's checkpoints; on a machine that does not see the run's folder one that ends with it."""
    if path.parent.is_dir():
        yield _trained(path)
        return
    with tempfile.TemporaryDirectory() as own:
        yield Path(own)


def _keep(path: Path, computed: _Computed) -> Part:
    """Write the part of a job, after which nobody needs its checkpoints."""
    part = parts.write(path, *computed)
    shutil.rmtree(_trained(path), ignore_errors=True)
    return part


def _trained(part: Path) -> Path:
    """The folder of the checkpoints of a job, by the file of its part."""
    return part.with_suffix("")
