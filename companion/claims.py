"""The ledger of claims: what the papers say, and verdicts that are computed.

A claim is a row in ``data/claims/<mechanism>.yaml``: our paraphrase, its place in the paper, and the function
that judges it. That function computes; nobody types a verdict. It works with the registered formulas, with
the papers' tables in ``data/published``, or with our own results in ``data/results``.

One rule for all claims about experiments: `Run.judge` says what a run of ours makes of a claim. A run is at the paper's
scale or at a smaller one (`Run.scale`), and a small one neither confirms nor refutes what a paper says of a large one.

- At the paper's scale a claim "holds" where every comparison clearly shows it, "holds in part" where some do, and "does
  not hold" where none does.
- At a smaller scale it is "seen at smaller scale" where every comparison clearly shows it; "opposite at smaller scale"
  where most clearly show the opposite; "seen in part at smaller scale" where some clearly show it; else "not seen at
  smaller scale", which is no evidence against it.

What counts as a comparison, and what as clear, stands at the head of each mechanism's ``claims.py``: mostly p < 0.05,
with Holm's correction where comparisons are read together. That two things are alike is shown where no clear difference
is seen. The part of this rule that is about scale was made when the first results of small runs were known.
"""

import csv
import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_args

from companion import results
from companion.results import data_path

if TYPE_CHECKING:
    from companion.analysis import Interval

__all__ = [
    "ROUNDING",
    "Claim",
    "Run",
    "Scale",
    "Status",
    "Verdict",
    "at_most",
    "column",
    "difference_of_numbers",
    "difference_of_points",
    "enumerated",
    "graded",
    "ledger",
    "no_result",
    "published",
    "run_of",
    "table",
]

Status = Literal[
    "holds",
    "holds in part",
    "does not hold",
    "seen at smaller scale",
    "seen in part at smaller scale",
    "not seen at smaller scale",
    "opposite at smaller scale",
    "not tested",
]
Scale = Literal["paper", "smaller"]

_KEYS = ("id", "claim", "source", "check", "chapter")


@dataclass(frozen=True)
class Verdict:
    """What a check found.

    Attributes
    ----------
    status : str
        "holds", "holds in part" or "does not hold": for mathematics, for the papers' tables, and for runs of ours at
        the paper's scale. "seen …", "seen in part …", "not seen …" or "opposite at smaller scale": for smaller runs, by
        the rule at the head of :mod:`companion.claims`. "not tested": nothing that we have can decide it.
    evidence : str
        One sentence with the numbers.
    scale : {"paper", "smaller"} or None
        That of the run of ours that judged the claim; None where none did.
    """

    status: Status
    evidence: str
    scale: Scale | None = None

    def __post_init__(self) -> None:
        if self.status not in get_args(Status):
            raise ValueError(f"status: {self.status!r} is unknown; allowed are {', '.join(get_args(Status))}")
        if self.status != "not tested" and self.status.endswith("at smaller scale") != (self.scale == "smaller"):
            raise ValueError(f"status: {self.status!r} does not go with the scale {self.scale!r}")
        if not self.evidence.endswith("."):
            raise ValueError(f"evidence: {self.evidence!r} is not a sentence")


@dataclass(frozen=True)
class Claim:
    """One claim of a paper.

    Attributes
    ----------
    id : str
        Unique in its ledger.
    claim : str
        Our paraphrase.
    source : str
        Section, equation or table of the paper.
    check : str
        "module:function" of what judges it. The function takes nothing and returns a `Verdict`.
    chapter : str
        The chapter that discusses it.
    """

    id: str
    claim: str
    source: str
    check: str
    chapter: str

    def verdict(self) -> Verdict:
        """Compute the verdict.

        Returns
        -------
        Verdict
            Status and evidence.

        Raises
        ------
        AttributeError
            If the function that the claim names does not exist.
        """
        module, _, function = self.check.partition(":")
        verdict: Verdict = getattr(importlib.import_module(module), function)()
        return verdict


def ledger(mechanism: str) -> list[Claim]:
    """Return the claims of a mechanism's paper.

    Parameters
    ----------
    mechanism : str
        For example "apa".

    Returns
    -------
    list of Claim
        In the order of the file.

    Raises
    ------
    FileNotFoundError
        If the mechanism has no ledger.
    ValueError
        If a row lacks a key, has an unknown one, holds something else than text, or repeats an id.

    Examples
    --------
    >>> ledger("apa")[0].source
    'Section III-A, Eq. 2'
    """
    import yaml

    path = data_path() / "claims" / f"{mechanism}.yaml"
    rows: list[dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    claims: dict[str, Claim] = {}
    for number, row in enumerate(rows, start=1):
        if sorted(row) != sorted(_KEYS) or not all(isinstance(text, str) and text for text in row.values()):
            raise ValueError(f"{path.name}: row {number} has {row}; every row has text for exactly {', '.join(_KEYS)}")
        if row["id"] in claims:
            raise ValueError(f"{path.name}: the id {row['id']!r} occurs twice")
        claims[row["id"]] = Claim(**row)
    return list(claims.values())


def table(mechanism: str, *ids: str) -> str:
    """Return claims with their verdicts as a Markdown table.

    Parameters
    ----------
    mechanism : str
        For example "apa".
    *ids : str
        Which claims, in this order; all where none is named.

    Returns
    -------
    str
        Markdown with the columns Claim, Source, Verdict, Evidence.

    Raises
    ------
    KeyError
        If an id is not in the ledger.

    Examples
    --------
    >>> print(table("apa", "silu").splitlines()[0])
    | Claim | Source | Verdict | Evidence |
    """
    claims = {claim.id: claim for claim in ledger(mechanism)}
    unknown = [name for name in ids if name not in claims]
    if unknown:
        raise KeyError(f"ids: {', '.join(unknown)} not in the ledger of {mechanism!r}")
    lines = ["| Claim | Source | Verdict | Evidence |", "| --- | --- | --- | --- |"]
    for claim in [claims[name] for name in ids or claims]:
        verdict = claim.verdict()
        cells = claim.claim, claim.source, f"**{verdict.status}**", verdict.evidence
        lines.append(f"| {' | '.join(_escaped(cell) for cell in cells)} |")
    return "\n".join(lines)


def _escaped(cell: str) -> str:
    if cell.startswith("**"):  # the verdict, in bold
        return cell
    plain = " ".join(cell.split())
    for special in "|*$_":
        plain = plain.replace(special, f"\\{special}")
    return re.sub(r"(?<!\w)-(?=\d)", "−", plain)


@cache
def _read(name: str) -> tuple[dict[str, str], ...]:
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
    return [dict(row) for row in _read(name)]


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


# --- Words and steps that checks share ----------------------------------------------------------------------

ROUNDING = 1e-12
"""Differences below it are put down to rounding."""


def graded(whole: object, part: object) -> Status:
    """Return "holds" where the whole claim is true, "holds in part" where a part of it is.

    Parameters
    ----------
    whole, part : object
        What is true of the claim; only whether they are empty or false counts.

    Returns
    -------
    str
        The status.
    """
    return "holds" if whole else "holds in part" if part else "does not hold"


def at_most(difference: float) -> str:
    """Say how large a difference is, without the digits of rounding errors: they vary between machines.

    Parameters
    ----------
    difference : float
        At least 0.

    Returns
    -------
    str
        "less than 1e-12", or "up to" and one digit.
    """
    return "less than 1e-12" if difference < ROUNDING else f"up to {difference:.0e}"


def enumerated(names: Sequence[str]) -> str:
    """Return names as a sentence lists them.

    Parameters
    ----------
    names : sequence of str
        Any number.

    Returns
    -------
    str
        "a, b and c".
    """
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)


@dataclass(frozen=True)
class Run:
    """A finished result of ours that claims are judged by.

    Attributes
    ----------
    rows : list of dict
        A row for each case and seed.
    settings : dict
        The preset: data set, networks, epochs and so on.
    scale : {"paper", "smaller"}
        "paper" for the preset "full", and where the experiment has none, since "laptop" leaves nothing to enlarge; else
        "smaller".
    """

    rows: list[dict[str, Any]]
    settings: dict[str, Any]
    scale: Scale

    def judge(self, evidence: str, *, shown: int, against: int, of: int = 1, whole: bool | None = None) -> Verdict:
        """Return the verdict on a claim by the rule at the head of this module.

        Parameters
        ----------
        evidence : str
            One sentence with the numbers.
        shown, against : int
            How many comparisons clearly show the claim, and how many clearly show the opposite.
        of : int
            How many there are.
        whole : bool, optional
            Whether the run shows all of the claim; by default where all comparisons show it.

        Returns
        -------
        Verdict
            With the scale of the run.

        Raises
        ------
        ValueError
            If there is no comparison, or fewer than are counted.

        Examples
        --------
        >>> Run([], {}, "paper").judge("Two of three.", shown=2, against=1, of=3).status
        'holds in part'
        >>> Run([], {}, "smaller").judge("None of three.", shown=0, against=1, of=3).status
        'not seen at smaller scale'
        """
        if not (shown >= 0 <= against and shown + against <= of > 0):
            raise ValueError(f"of: {of} comparisons, {shown} for and {against} against the claim")
        whole = shown == of if whole is None else whole
        status: Status
        if self.scale == "paper":
            status = graded(whole, shown)
        elif whole:
            status = "seen at smaller scale"
        elif 2 * against > of:
            status = "opposite at smaller scale"
        else:
            status = "seen in part at smaller scale" if shown else "not seen at smaller scale"
        return Verdict(status, evidence, self.scale)


def run_of(name: str) -> Run | None:
    """Return our result of an experiment, "full" or else "laptop".

    An "excerpt" has some cases of "full" and does not judge claims about all of them.

    Parameters
    ----------
    name : str
        The experiment.

    Returns
    -------
    Run or None
        None where there is no finished result.
    """
    from companion.experiments import registry

    for preset in ("full", "laptop"):
        try:
            result = results.load(name, preset)
        except FileNotFoundError:
            continue
        smaller = preset != "full" and "full" in registry.get(name).presets
        return Run(result["rows"], result["settings"], "smaller" if smaller else "paper")
    return None


def no_result(name: str) -> Verdict:
    """Return the verdict on a claim whose experiment has not run.

    Parameters
    ----------
    name : str
        The experiment.

    Returns
    -------
    Verdict
        "not tested".
    """
    return Verdict("not tested", f"The experiment {name} has no finished result yet.")


def difference_of_points(difference: "Interval") -> str:
    """Return a difference of accuracies in percentage points, with its interval.

    Parameters
    ----------
    difference : Interval
        Of accuracies between 0 and 1.

    Returns
    -------
    str
        "+1.20 [+0.90, +1.50]".
    """
    mean, low, high = (100 * value for value in (difference.mean, difference.low, difference.high))
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"


def difference_of_numbers(difference: "Interval") -> str:
    """Return a difference with its interval.

    Parameters
    ----------
    difference : Interval
        Of whatever numbers.

    Returns
    -------
    str
        "+1.200 [+0.900, +1.500]".
    """
    return f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"
