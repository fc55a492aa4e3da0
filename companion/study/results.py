"""Numbers that travel in the wheel: our finished results, and the papers' tables beside them.

One result is one JSON file, ``data/results/<experiment>-<preset>.json``, written by `companion.study.experiments`
and described by ``companion/study/experiments/result.schema.json``. A run that did not finish has no such file, so
it cannot be shown.
"""

import csv
import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

__all__ = ["check", "column", "data_path", "disturbed", "load", "machines", "names", "parse", "published", "read"]

_PACKAGE = Path(__file__).resolve().parents[1]
_ESSENTIALS = {
    **dict.fromkeys(("experiment", "preset", "description"), str),
    **dict.fromkeys(("rows", "tuning", "chosen", "smoke", "seeds"), list),
    **dict.fromkeys(("settings", "provenance"), dict),
}


def data_path() -> Path:
    """Return the folder that holds ``published``, ``results`` and ``claims``.

    In an installed wheel it lies inside the package, in a checkout beside it.

    Returns
    -------
    pathlib.Path
        The folder.

    Raises
    ------
    FileNotFoundError
        If neither place exists.

    Examples
    --------
    >>> (data_path() / "results").is_dir()
    True
    """
    for folder in (_PACKAGE / "_data", _PACKAGE.parent / "data"):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(
        "the data of the book is in neither place where it can be: companion/_data (an installed wheel) "
        "or data beside companion (a checkout); install the package again"
    )


def names(preset: str = "laptop") -> list[str]:
    """Return the experiments that have a finished result for a preset, sorted.

    Parameters
    ----------
    preset : str
        "laptop" or "full".

    Returns
    -------
    list of str
        Names that `load` accepts together with this preset.
    """
    ending = f"-{preset}.json"
    return sorted(path.name.removesuffix(ending) for path in (data_path() / "results").glob(f"*{ending}"))


def load(name: str, preset: str = "laptop") -> dict[str, Any]:
    """Read one finished result.

    The file is checked against the schema where fastjsonschema is installed (the extra ``experiments`` has it). Without
    it only the essentials are checked: the result is finished, and it is the one that was asked for.

    Parameters
    ----------
    name : str
        The experiment, for example "apa-digits".
    preset : str
        "laptop" or "full".

    Returns
    -------
    dict
        Keys: experiment, preset, finished, description, settings, seeds, rows, tuning, chosen, smoke (what the smoke
        preset gave at the code that made the result), provenance; and outdated, a sentence, where today's code gives
        other numbers.

    Raises
    ------
    FileNotFoundError
        If there is no such result. The message names the file and the commands that make it.
    ValueError
        If the file holds something else than this finished result. The message names it.
    """
    path = data_path() / "results" / f"{name}-{preset}.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"no finished result results/{path.name} in the data of the book; make it with "
            f"`python -m companion experiments run {name} --preset {preset}` and then `make results`"
        )
    return read(path)


def read(path: Path) -> dict[str, Any]:
    """Read the file of a result and check that it holds what its name says: ``<experiment>-<preset>.json``.

    Parameters
    ----------
    path : pathlib.Path
        Of data/results or of a run.

    Returns
    -------
    dict
        As `load` returns it.

    Raises
    ------
    OSError
        If there is no such file, or it cannot be read.
    ValueError
        If it holds something else than this finished result. The message names the file.
    """
    result: dict[str, Any] = parse(path)
    check(result, str(path))
    if (held := f"{result['experiment']}-{result['preset']}") != path.stem:
        raise ValueError(f"{path} holds {held}")
    return result


def machines(result: Mapping[str, Any], of: Literal["rows", "tuning"] = "rows") -> list[dict[str, Any]]:
    """Return what computed each row of a result.

    Parameters
    ----------
    result : mapping
        As `load` gives it.
    of : str
        "rows" or "tuning".

    Returns
    -------
    list of dict
        One for each row, in their order: "versions", "hardware" (cpu and gpu) and "precision".

    Examples
    --------
    >>> {machine["precision"] for machine in machines(load("apa-digits"))}
    {'float32'}
    """
    about = result["provenance"]
    if "machines" in about:
        return [about["machines"][number] for number in about["row_machines" if of == "rows" else "tuning_machines"]]
    # before parts could come from several; and benchmarks
    precision = result["settings"].get("precision", "float32")
    return [{"versions": about["versions"], "hardware": about["hardware"], "precision": precision}] * len(result[of])


def disturbed(references: Sequence[Mapping[str, float]]) -> str | None:
    """Return why the times of a benchmark are not a quiet machine's, or None.

    Parameters
    ----------
    references : sequence of mapping
        "least" and "median" of the milliseconds that a fixed piece of work took, before the first shape and after each:
        ``reference_ms`` among the settings of the result.

    Returns
    -------
    str or None
        A sentence, if there is no reference, or if a median is more than a quarter above the least of all times.

    Examples
    --------
    >>> disturbed([{"least": 2.0, "median": 2.1}, {"least": 2.0, "median": 2.4}])
    >>> disturbed([{"least": 2.0, "median": 2.1}, {"least": 2.5, "median": 2.6}])
    'the reference took up to 2.60 ms, its least time is 2.00 ms'
    """
    if not references:
        return "no reference was timed beside it"
    least, most = min(each["least"] for each in references), max(each["median"] for each in references)
    return f"the reference took up to {most:.2f} ms, its least time is {least:.2f} ms" if most > 1.25 * least else None


@cache
def _table(name: str) -> tuple[dict[str, str], ...]:
    path = data_path() / "published" / f"{name}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def published(name: str) -> list[dict[str, str]]:
    """Return a table of a paper, as it was printed.

    Parameters
    ----------
    name : str
        The file in ``data/published`` without its ending: "apa-table-2".

    Returns
    -------
    list of dict
        A row each, by column; everything is text, and an empty text where the paper has no number.

    Raises
    ------
    FileNotFoundError
        If there is no such table.

    Examples
    --------
    >>> published("apa-table-18")
    [{'method': 'channel specific', 'top1': '57.5'}, {'method': 'channel shared', 'top1': '57.9'}]
    """
    return [dict(row) for row in _table(name)]


def column(name: str, of: str) -> dict[str, float]:
    """Return the numbers in one column of a paper's table.

    Parameters
    ----------
    name : str
        The table, as `published` takes it. It has a column "method".
    of : str
        The column.

    Returns
    -------
    dict
        Number by method. Methods without a number, or with a word in its place, are left out.

    Examples
    --------
    >>> column("apa-table-18", "top1")
    {'channel specific': 57.5, 'channel shared': 57.9}
    """
    numbers = {}
    for row in published(name):
        try:
            numbers[row["method"]] = float(row[of])
        except ValueError:
            continue
    return numbers


def parse(path: Path) -> Any:
    """Read a JSON file; a ValueError names it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: it is no JSON ({error})") from error


def check(result: Any, label: str) -> None:
    """Raise ValueError unless `result` is a finished result with rows for each of its seeds and no others.

    Parameters
    ----------
    result : object
        What a result file holds.
    label : str
        How the error calls it.
    """
    if not isinstance(result, dict) or result.get("finished") is not True:
        raise ValueError(f"{label} is not a finished result")
    if importlib.util.find_spec("fastjsonschema") is not None:
        from fastjsonschema import JsonSchemaValueException

        try:
            _validator()(result)
        except JsonSchemaValueException as error:
            raise ValueError(f"{label} breaks result.schema.json: {error.message}") from None
    else:
        _check_essentials(result, label)
    about = result["provenance"]
    for rows, key in (("rows", "row_machines"), ("tuning", "tuning_machines")):
        known = range(len(about.get("machines", [])))
        if key in about and (len(about[key]) != len(result[rows]) or not all(number in known for number in about[key])):
            raise ValueError(f"{label} does not say of each of its {rows} which machine computed it")
    if {row.get("seed") for row in result["rows"]} != (set(result["seeds"]) or {None}):
        raise ValueError(f"{label} has rows of other seeds than {result['seeds']}")


def _check_essentials(result: dict[str, Any], label: str) -> None:
    """What is left of the schema without fastjsonschema: whatever is indexed later has the type that this needs."""
    for key, kind in _ESSENTIALS.items():
        if not isinstance(result.get(key), kind):
            raise ValueError(f"{label}: {key} is no {kind.__name__}")
    for key in ("rows", "tuning", "chosen", "smoke"):
        if not all(isinstance(row, dict) for row in result[key]):
            raise ValueError(f"{label}: {key} holds something else than objects")
    if not all(isinstance(seed, int) for seed in result["seeds"]):
        raise ValueError(f"{label}: seeds holds something else than integers")


@cache
def _validator() -> Callable[[Any], Any]:
    """Of the schema, as Python that was written for it: a large result takes a tenth of a second."""
    import fastjsonschema

    path = _PACKAGE / "study" / "experiments" / "result.schema.json"
    made: Callable[[Any], Any] = fastjsonschema.compile(json.loads(path.read_text(encoding="utf-8")))
    return made
