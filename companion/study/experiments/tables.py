"""A finished result as a table: mean and 95 % interval over seeds."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from companion.study.analysis.statistics import interval

__all__ = ["summary", "table"]


def summary(rows: Sequence[Mapping[str, Any]], by: Sequence[str], columns: Sequence[str]) -> list[dict[str, Any]]:
    """Summarise rows over seeds.

    Rows of one case and one seed (one per class, for example) are averaged first: the seed is the unit, and
    its rows are not independent.

    Parameters
    ----------
    rows : sequence of mapping
        Of a result.
    by : sequence of str
        Keys of the case. Where a row lacks one, its case has none of it: "".
    columns : sequence of str
        Keys to summarise. Where a value is null (the run diverged), so is the summary.

    Returns
    -------
    list of dict
        One per case, in the order of the rows: the case, and an `Interval` per column (a plain mean for a
        single seed, None where a run diverged).

    Raises
    ------
    ValueError
        If a row lacks its seed or a column, or a column holds something else than numbers.
    """
    for number, row in enumerate(rows):
        if missing := [key for key in ("seed", *columns) if key not in row]:
            raise ValueError(f"row {number} of the result has no {', '.join(missing)}; other code made it")
        if wrong := [key for key in columns if not isinstance(row[key], (int, float, type(None)))]:
            raise ValueError(f"row {number} of the result has something else than a number for {', '.join(wrong)}")
    groups: dict[tuple[Any, ...], dict[int, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        groups[tuple(row.get(key, "") for key in by)][row["seed"]].append(row)
    return [
        {
            **dict(zip(by, case, strict=True)),
            **{column: _over_seeds(list(seeds.values()), column) for column in columns},
        }
        for case, seeds in groups.items()
    ]


def _over_seeds(seeds: list[list[Mapping[str, Any]]], column: str) -> Any:
    if any(row[column] is None for rows in seeds for row in rows):
        return None
    means = [sum(row[column] for row in rows) / len(rows) for rows in seeds]
    return interval(means) if len(means) > 1 else means[0]


def table(result: Mapping[str, Any], by: Sequence[str], columns: Sequence[str]) -> str:
    """Return a result as a Markdown table.

    Parameters
    ----------
    result : mapping
        A finished result.
    by, columns : sequence of str
        As in `summary`.

    Returns
    -------
    str
        One line per case, "mean ± half width" of the 95 % t-interval over seeds.
    """
    lines = [[*by, *columns], ["---"] * (len(by) + len(columns))]
    for entry in summary(result["rows"], by, columns):
        lines.append([*(str(entry[key]) for key in by), *(_cell(entry[column]) for column in columns)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return "diverged"
    if isinstance(value, float):
        return f"{value:.4f} (one seed)"
    return f"{value.mean:.4f} ± {value.half_width:.4f}"
