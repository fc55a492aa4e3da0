"""``python -m companion experiments list | run | table | check | keep | promote``."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from companion.extras import need
from companion.study import results
from companion.study.experiments import runner, unfinished
from companion.study.experiments.contributions import faults
from companion.study.experiments.provenance import differences
from companion.study.experiments.registry import OF_THE_MACHINE, Experiment, experiments, get
from companion.study.experiments.tables import table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
    except (ValueError, OSError, ModuleNotFoundError) as error:
        print(f"companion experiments: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("companion experiments: stopped; what is finished is kept, and run --resume goes on", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m companion experiments", description=__doc__)
    commands = parser.add_subparsers(required=True)

    command = commands.add_parser("list", help="the experiments and which results are finished")
    command.add_argument("--check", action="store_true", help="run smoke presets: which results are outdated?")
    command.set_defaults(command=_list)

    command = commands.add_parser("run", help="run an experiment")
    command.add_argument("name")
    command.add_argument("--preset", default="laptop", help="smoke, laptop (default), full, or another of the list")
    command.add_argument("--seeds", type=int, help="number of evaluation seeds; default: the preset's")
    for key, values in OF_THE_MACHINE.items():
        command.add_argument(f"--{key}", choices=values, help="instead of the preset's")
    command.add_argument("--resume", action="store_true", help="keep the jobs that are finished, and go on with others")
    where = command.add_mutually_exclusive_group()
    where.add_argument("--jobs", type=int, default=1, help="worker processes on this machine (default 1)")
    where.add_argument(
        "--ray", metavar="ADDRESS", help="of a Ray cluster whose workers compute: auto, HOST:PORT, local"
    )
    command.set_defaults(command=_run)

    command = commands.add_parser("table", help="show a finished result, of the runs or else the promoted one")
    command.add_argument("name")
    command.add_argument("--preset", default="laptop", help="smoke, laptop (default), full, or another of the list")
    command.set_defaults(command=_table)

    command = commands.add_parser("check", help="what a result must pass that is to be contributed")
    command.add_argument("file", type=Path)
    command.set_defaults(command=_check)

    command = commands.add_parser("keep", help="copy the finished jobs of unfinished runs to data/unfinished")
    command.set_defaults(command=_keep)

    command = commands.add_parser("promote", help="copy finished runs to data/results")
    command.set_defaults(command=_promote)
    return parser


def _list(options: argparse.Namespace) -> None:
    for experiment in experiments():
        print(f"{experiment.name}: {experiment.description}")
        for preset in experiment.presets:
            print(f"    {preset}: {_state(experiment, preset, options.check)}{_kept(experiment, preset)}")


def _kept(experiment: Experiment, preset: str) -> str:
    try:
        parts, stale = unfinished.count(experiment, preset)
    except (ValueError, OSError) as error:
        return f"; NOT READABLE: {error}"
    return f"; {parts} parts in data/unfinished, {stale} of them by other code" if parts else ""


def _state(experiment: Experiment, preset: str, check: bool) -> str:
    try:
        result, origin = runner.find(experiment.name, preset)
    except FileNotFoundError:
        return "no finished result"
    except (ValueError, OSError) as error:
        return f"NOT READABLE: {error}"
    reason = result.get("outdated", "")
    if check and preset != "smoke":
        try:
            reason = reason or "; ".join(differences(experiment, result["smoke"], runner.smoke(experiment))[:1])
        except (ValueError, OSError) as error:
            reason = f"perhaps; its smoke preset does not run: {error}"
    mark = f", outdated: {reason}" if reason else ""
    return f"finished on {result['provenance']['date']} with {len(result['seeds'])} seeds ({origin}{mark})"


def _run(options: argparse.Namespace) -> None:
    runner.run(
        get(options.name),
        options.preset,
        seeds=options.seeds,
        device=options.device,
        precision=options.precision,
        resume=options.resume,
        workers=options.jobs,
        ray=options.ray,
    )
    _table(options)


def _table(options: argparse.Namespace) -> None:
    need("experiments", "scipy")
    experiment = get(options.name)
    result, origin = runner.find(experiment.name, options.preset)
    try:
        by = list(dict.fromkeys(key for case in experiment.cases(result["settings"]) for key in case))
        tried = result["settings"]["learning_rates"]
    except KeyError as error:
        raise ValueError(f"the settings in the result, from {origin}, are not this experiment's: {error!r}") from error
    if tried and not result["chosen"]:
        by.append("learning_rate")
    print(f"{experiment.name}, preset {options.preset}, {len(result['seeds'])} seeds, from {origin}\n")
    print(table(result, by, experiment.columns))
    print(f"\n{_machines(result)}")
    if edges := [row for row in result["chosen"] if row["at_edge"]]:
        print(f"\n{len(edges)} of {len(result['chosen'])} cases chose a learning rate at the edge of the grid.")


def _check(options: argparse.Namespace) -> None:
    need("experiments", "fastjsonschema")
    if found := faults(options.file):
        raise ValueError("\n- ".join([f"{options.file} cannot be contributed", *found]))
    result = results.read(options.file)
    print(f"{options.file} can be contributed: {len(result['seeds'])} seeds\n\n{_machines(result)}")


def _machines(result: Mapping[str, Any]) -> str:
    """One line for each machine: how many rows it computed."""
    lines = []
    for machine, rows in groupby(sorted(results.machines(result), key=repr)):
        hardware = " and ".join(part for part in machine["hardware"].values() if part)
        torch = machine["versions"]["torch"]
        lines.append(f"{len(list(rows))} rows: {hardware}, {machine['precision']}, torch {torch}")
    return "\n".join(lines)


def _keep(options: argparse.Namespace) -> None:
    changed = unfinished.keep()
    print("\n".join(changed) or f"nothing new in {runner.runs_path()} for {results.data_path().name}/unfinished")


def _promote(options: argparse.Namespace) -> None:
    changed = runner.promote()
    print("\n".join(changed) or f"nothing new in {runner.runs_path()} for {results.data_path().name}/results")


if __name__ == "__main__":
    sys.exit(main())
