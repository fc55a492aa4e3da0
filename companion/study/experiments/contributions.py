"""What a result that somebody contributes must pass: it is whole, of today's code, as the protocol says, and nameless.

`faults` computes nothing of the result again but its smoke preset: seconds, on any machine. Who wants to be sure of the
rest runs it with one seed.
"""

import contextlib
import getpass
import json
import platform
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from companion.study import results
from companion.study.experiments import runner
from companion.study.experiments.parts import canonical
from companion.study.experiments.provenance import differences
from companion.study.experiments.registry import OF_THE_MACHINE, Case, Experiment, get

__all__ = ["faults"]

# What hardware is called. No address, no path.
_HARDWARE = re.compile(r"[\w .,+()@-]+")
_VERSION = re.compile(r"\d[\w.+-]*")
_PATH = re.compile(r"(?:^|[\s\"'=:])(?:/|~/|\\\\|[A-Za-z]:\\)[\w.-]+[/\\]")


def faults(path: Path) -> list[str]:
    """Say what is wrong with the file of a result.

    Parameters
    ----------
    path : pathlib.Path
        ``<experiment>-<preset>.json``, as `companion.study.experiments.run` writes it.

    Returns
    -------
    list of str
        A sentence for each fault: of the schema, the settings, the seeds, the rows, the grid of learning rates, the
        machines, names of machines, users or folders, and of the smoke preset, which is run here. None, if the result
        may be contributed.
    """
    try:
        result = results.read(path)
        experiment = get(result["experiment"])
        told = experiment.preset(result["preset"])
    except (ValueError, OSError) as error:
        return [str(error)]
    if result["preset"] == "smoke":
        return ["its preset is smoke, which compares nothing"]
    if "machines" not in result["provenance"]:
        return ["its provenance does not say of each row which machine computed it: an older version made it"]
    cases = experiment.cases(result["settings"])
    found = [
        *_settings(experiment, result),
        *_seeds(told, result),
        *_grid(experiment, told, cases, result),
        *_rows(told, cases, result),
        *_machines(experiment, result),
        *_names(result),
    ]
    return found or [f"its smoke preset: {each}" for each in _smoke(experiment, result)]


def _settings(experiment: Experiment, result: Mapping[str, Any]) -> Iterator[str]:
    settings = result["settings"]
    told = {key: value for key, value in experiment.preset(result["preset"]).items() if key != "seeds"}
    wanted = {"learning_rates": [], "tuning_seeds": [], **told}
    # what `--device` and `--precision` may change
    for key, values in OF_THE_MACHINE.items():
        if key in wanted and settings.get(key) in values:
            wanted[key] = settings[key]
    wanted = json.loads(canonical(wanted))
    for key in sorted(wanted.keys() | settings.keys()):
        if wanted.get(key, ...) != settings.get(key, ...):
            yield f"its setting {key} is {settings.get(key)!r}, and the preset's is {wanted.get(key)!r}"
    if result["description"] != experiment.description:
        yield f"its description is {result['description']!r}, and the experiment's is {experiment.description!r}"
    if "outdated" in result:
        yield f"it is outdated: {result['outdated']}"


def _seeds(told: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[str]:
    seeds = result["seeds"]
    if seeds != list(range(len(seeds))) or len(seeds) < told["seeds"]:
        yield f"its seeds are {seeds}; allowed are 0, 1, 2 and so on, {told['seeds']} of them or more"


def _grid(
    experiment: Experiment, told: Mapping[str, Any], cases: list[Case], result: Mapping[str, Any]
) -> Iterator[str]:
    """Every case meets every rate of its condition, with every seed; the best one, inside the grid, is chosen."""
    rates, seeds = told.get("learning_rates", []), told.get("tuning_seeds", [])
    tuning: list[dict[str, Any]] = result["tuning"]
    if experiment.validate is None or not seeds:
        if tuning or result["chosen"]:
            yield "it is tuned, and this preset does not tune"
        return
    met = Counter((_key(row, cases), row["learning_rate"], row["seed"]) for row in tuning)
    grids: dict[tuple[Any, ...], set[float]] = defaultdict(lambda: set(rates))
    for row in tuning:
        grids[experiment.condition(row)].add(row["learning_rate"])
    wanted = {
        (_text(case), rate, seed) for case in cases for rate in grids[experiment.condition(case)] for seed in seeds
    }
    if met.keys() != wanted or max(met.values()) > 1:
        yield (
            f"its tuning has {len(tuning)} rows, and {len(wanted)} are wanted: under each condition every case meets "
            "every learning rate with every tuning seed, once"
        )
        return
    chosen = [{**case, **runner.best_rate(case, tuning, experiment.one_rate_for)} for case in cases]
    if json.loads(canonical(chosen)) != result["chosen"]:
        yield "its chosen learning rates are not those with the best scores in its tuning"
    if edges := [row for row in chosen if row["at_edge"]]:
        yield f"{len(edges)} of {len(cases)} cases chose a rate at the edge of the grid, the first at {_text(edges[0])}"


def _rows(told: Mapping[str, Any], cases: list[Case], result: Mapping[str, Any]) -> Iterator[str]:
    """Every case has rows of every seed, at its rate."""
    rates = [[row["learning_rate"]] for row in result["chosen"]] or [told.get("learning_rates") or [None]] * len(cases)
    wanted = {
        (_text(case), rate, seed)
        for case, own in zip(cases, rates, strict=False)
        for rate in own
        for seed in result["seeds"]
    }
    found = Counter((_key(row, cases), row.get("learning_rate"), row["seed"]) for row in result["rows"])
    if missing := wanted - found.keys():
        yield f"there are no rows for {len(missing)} of {len(wanted)} cases and seeds, such as {min(map(str, missing))}"
    if strange := found.keys() - wanted:
        yield f"there are rows for {len(strange)} that no run would have, such as {min(map(str, strange))}"


def _key(row: Mapping[str, Any], cases: list[Case]) -> str:
    """The case of a row."""
    own = (key for key in dict.fromkeys(key for case in cases for key in case) if key in row)
    return _text({key: row[key] for key in own})


def _text(case: Mapping[str, Any]) -> str:
    return json.dumps(case, sort_keys=True)


def _machines(experiment: Experiment, result: Mapping[str, Any]) -> Iterator[str]:
    provenance, settings = result["provenance"], result["settings"]
    machines = provenance["machines"]
    if experiment.timed and len(machines) > 1:
        yield f"its rows come from {len(machines)} machines, and times from one alone can be compared"
    on_gpu = settings.get("device") == "cuda"
    mixed = settings.get("precision") == "bfloat16"
    for number, machine in enumerate(machines):
        hardware = machine["hardware"]
        if not hardware["cpu"] or bool(hardware["gpu"]) != on_gpu:
            yield f"machine {number} is {hardware}; allowed is a processor's name, and a GPU's where one computed"
        if machine["precision"].startswith("bfloat16") != mixed:
            yield f"machine {number} computed in {machine['precision']}, and its settings say otherwise"
    groups: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    for row, number in zip(result["rows"], provenance["row_machines"], strict=True):
        groups[row.get("seed"), experiment.condition(row)].add(machines[number]["precision"])
    if any(len(precisions) > 1 for precisions in groups.values()):
        yield "numbers that are compared were computed in two precisions"


def _names(result: Mapping[str, Any]) -> Iterator[str]:
    """Whatever could say whose machine it was, and where."""
    for machine in result["provenance"]["machines"]:
        for name, version in machine["versions"].items():
            if version is not None and not _VERSION.fullmatch(version):
                yield f"the version of {name} is {version!r}, which is none"
        for name, words in machine["hardware"].items():
            if words is not None and not _HARDWARE.fullmatch(words):
                yield f"the name of its {name} is {words!r}; allowed are letters, digits and .,+()@-"
    # Settings and description are the experiment's own words, which were compared.
    said = {word for key in ("rows", "tuning", "smoke", "provenance") for word in _strings(result[key])}
    private = re.compile(rf"\b(?:{'|'.join(map(re.escape, _this_machine()))})\b")
    for words in sorted(said):
        if _PATH.search(words):
            yield f"it names a folder: {words!r}"
        elif private.search(words):
            yield f"it names this machine or its user: {words!r}"


def _this_machine() -> set[str]:
    """What this machine and its user are called; at least one word."""
    names = {platform.node() or "localhost"}
    with contextlib.suppress(OSError, KeyError):
        names.add(getpass.getuser())
    return names


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for key, item in value.items():
                yield from (key, *_strings(item))
        case list():
            for item in value:
                yield from _strings(item)


def _smoke(experiment: Experiment, result: Mapping[str, Any]) -> list[str]:
    return differences(experiment, result["smoke"], runner.smoke(experiment))
