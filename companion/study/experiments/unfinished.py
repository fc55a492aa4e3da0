"""Parts of runs that are not finished, kept in the project: ``data/unfinished/<experiment>-<preset>.jsonl``.

So a run may go on elsewhere, or come from several machines. A line is a part and its key; lines stand in the order of
their jobs. ``run --resume`` reads them, and nobody else: neither pages nor the ledger of claims, and no wheel holds
them. A part that other code made is stale: it is not read.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from companion.files import write_atomically
from companion.study import results
from companion.study.experiments import parts, provenance
from companion.study.experiments.parts import Part, runs_path
from companion.study.experiments.registry import OF_THE_MACHINE, OF_THE_RUN, Experiment, Job, experiments, get

__all__ = ["checkout", "count", "forget", "keep", "load"]


def checkout() -> Path:
    """Return the folder ``data`` of the checkout; FileNotFoundError where there is none."""
    data = results.data_path()
    if data.name != "data":
        raise FileNotFoundError("there is no checkout to write to: the data lies in an installed wheel")
    return data


def _file(name: str, preset: str) -> Path:
    return results.data_path() / "unfinished" / f"{name}-{preset}.jsonl"


def load(name: str, preset: str) -> dict[str, Part]:
    """Return the parts that are kept of an experiment and preset, by key; stale ones too.

    Raises
    ------
    ValueError
        If a line is damaged. The message names it.
    """
    file, found = _file(name, preset), {}
    if not file.is_file():
        return {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        label = f"line {number} of {file}"
        try:
            part = json.loads(line)
            key = part.pop("key")
        except (ValueError, LookupError, AttributeError, TypeError) as error:
            raise ValueError(f"{label} is damaged: it is no part with a key") from error
        found[key] = parts.check(part, None, label)
    return found


def count(experiment: Experiment, preset: str) -> tuple[int, int]:
    """Return how many parts are kept of an experiment and preset, and how many of them are stale."""
    kept = load(experiment.name, preset)
    return len(kept), len(kept) - len(_fresh(experiment, preset, kept))


def _fresh(experiment: Experiment, preset: str, found: Mapping[str, Part]) -> dict[str, Part]:
    """Those parts that today's code and today's preset would give."""
    homes, fresh = provenance.homes(experiment), {}
    for key, part in found.items():
        job = Job(**part["job"])
        device, precision = (job.settings.get(key) for key in OF_THE_MACHINE)
        told = json.loads(parts.canonical(experiment.settings(preset, device, precision)))
        machine = part["machine"] if experiment.timed else None
        if job.settings == told and key == parts.key(job, provenance.code(homes, device or "cpu"), machine):
            fresh[key] = part
    return fresh


def keep() -> list[str]:
    """Copy the parts of this folder's unfinished runs to data/unfinished. Smoke runs stay where they are.

    Returns
    -------
    list of str
        Names of the files that are new or have changed.

    Raises
    ------
    ValueError
        If a part is damaged. The message names it.
    FileNotFoundError
        Outside a checkout.
    """
    checkout()
    changed = []
    for experiment in experiments():
        for preset in experiment.presets:
            found = {} if preset == "smoke" else _fresh(experiment, preset, _of_runs(experiment.name, preset))
            if not found or _finished(experiment, preset, found):
                continue
            file, kept = _file(experiment.name, preset), load(experiment.name, preset)
            lines = sorted(({"key": key, **part} for key, part in (kept | found).items()), key=_order)
            content = "".join(f"{json.dumps(line, allow_nan=False)}\n" for line in lines).encode()
            if not file.is_file() or file.read_bytes() != content:
                write_atomically(file, content)
                changed.append(file.name)
    return changed


def _order(line: Part) -> tuple[str, bytes, str]:
    job = line["job"]
    return job["stage"], parts.canonical([job["case"], job["learning_rate"], job["seed"]]), line["key"]


def _of_runs(name: str, preset: str) -> dict[str, Part]:
    """The parts in the folder of a run, by key. What does not say what computed it is of older code."""
    files = {path: results.parse(path) for path in sorted((runs_path() / f"{name}-{preset}").glob("*.json"))}
    return {
        path.stem: parts.check(part, None, str(path))
        for path, part in files.items()
        if not isinstance(part, dict) or "machine" in part
    }


def _finished(experiment: Experiment, preset: str, found: Mapping[str, Part]) -> bool:
    """Whether all these parts are in a finished result, of this folder's runs or promoted."""
    places = (runs_path(), results.data_path() / "results")
    files = [folder / f"{experiment.name}-{preset}.json" for folder in places]
    return any(_holds(results.read(file), found) for file in files if file.is_file())


def _holds(result: Mapping[str, Any], found: Mapping[str, Part]) -> bool:
    """Whether a result by today's code has all these parts in it."""
    homes, settings = provenance.homes(get(result["experiment"])), result["settings"]
    seeds = {"tuning": settings["tuning_seeds"], "evaluation": result["seeds"]}
    told = {key: value for key, value in settings.items() if key not in OF_THE_RUN}
    rows = {"tuning": result["tuning"], "evaluation": result["rows"]}
    return result["provenance"].get("code") == provenance.code(homes, told.get("device", "cpu")) and all(
        job["settings"] == told
        and job["seed"] in seeds[job["stage"]]
        and any(row.items() >= job["case"].items() for row in rows[job["stage"]])
        for job in (part["job"] for part in found.values())
    )


def forget(result: Mapping[str, Any]) -> None:
    """Remove what is kept of a result that is promoted, unless some of its parts are not in it.

    Parameters
    ----------
    result : mapping
        A finished one.
    """
    name, preset = result["experiment"], result["preset"]
    file = _file(name, preset)
    if file.is_file() and _holds(result, _fresh(get(name), preset, load(name, preset))):
        file.unlink()
