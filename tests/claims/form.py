"""How a claim becomes a test.

::

    @claim(
        "apa-silu",
        "At κ = λ = 1 AGLU is SiLU.",
        "Section IV-A, Table I",
        severity="matters",
        chapter="mechanisms/apa",
        turned_by=swap(aglu=lambda z, kappa, lam: z * normal_cdf(z)),
    )
    def test_silu():
        worst = largest(...)
        return Verdict(graded(worst < ROUNDING), f"AGLU(z, 1, 1) and zσ(z) differ by {at_most(worst)} on [−30, 30].")

The function computes and returns a verdict. The test that the decorator makes of it compares the verdict with the row
in data/claims, as the outputs of notebooks are compared, and then plants the change that the claim names: a fact, a
number of a table, the rows of a run or a formula is another, and the *status* has to be another too. The name of the
file says the kind of claim: test_mathematics, test_tables, test_experiments. ``make claims`` writes the rows.

A claim is judged in its weakest sensible reading: "can" is not "always", and a sentence about the paper's own numbers
is about these numbers. A sentence that infers from bare numbers, without intervals, what is so in general is
"not tested".

One rule says what a run of ours makes of a claim: `Run.judge`.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from book._tools.outputs import Tolerance, same
from companion.rooms import ROOMS
from companion.study import results, symbolic
from companion.study.analysis import Comparison, Interval, alike
from companion.study.claims import KINDS, SEVERITIES, STATUSES, Claim, Severity, Status

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "claims"
WORDS = 40
"""The most that evidence may have."""

MORE_SEEDS = "The same run with more seeds would decide it."

_NEXT_SENTENCE = re.compile(r"\n|(?<!Eq)(?<!Eqs)(?<!Fig)(?<!Sec)\. [A-Z]")

ROUNDING = 1e-12
"""Differences below it are put down to rounding."""


@dataclass(frozen=True)
class Verdict:
    """What a computation makes of a claim: its status, one sentence of evidence, and for runs what could be seen."""

    status: Status
    evidence: str
    power: str = ""
    decided_by: str = ""

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status: got {self.status!r}, allowed are {', '.join(STATUSES)}")
        for text in filter(None, (self.evidence, self.power, self.decided_by)):
            if not text.endswith(".") or len(text.split()) > WORDS or _NEXT_SENTENCE.search(text):
                raise ValueError(f"{text!r} is not one sentence of at most {WORDS} words, but of {len(text.split())}")
        if bool(self.decided_by) != (self.status in ("not tested", "not decided")):
            raise ValueError(f"decided_by: got {self.decided_by!r} with the status {self.status!r}")


def graded(whole: object, part: object = False) -> Status:
    """ "holds" where the whole claim is true, "holds in part" where a part of it is."""
    return "holds" if whole else "holds in part" if part else "does not hold"


def not_tested(evidence: str, decided_by: str) -> Verdict:
    """The verdict where nothing that we have can decide: what is known, and what would decide."""
    return Verdict("not tested", evidence, decided_by=decided_by)


# --- The claim ----------------------------------------------------------------------------------------------

Judge = Callable[[], Verdict]
Change = Callable[[Judge], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Entry:
    """A claim as its test declares it."""

    row: Claim  # without what is computed
    judge: Judge
    turned_by: Change | None
    tolerance: Tolerance
    line: int

    def computed(self) -> Claim:
        """The row with the verdict, computed now."""
        return replace(self.row, **asdict(self.judge()))


REGISTER: dict[str, Entry] = {}
"""Claims by id; those of a file once it is imported."""


def claim(
    id: str,
    text: str,
    source: str,
    *,
    severity: Severity,
    chapter: str,
    turned_by: Change | None = None,
    tolerance: str = "",
) -> Callable[[Judge], Callable[[], None]]:
    """Make a claim's test of the function that judges it.

    Parameters
    ----------
    id
        Begins with the mechanism and a hyphen. A promise: pages and docstrings link to it.
    text
        The claim in our words, understandable alone.
    source
        Its place in the paper.
    severity
        What depends on it: "fatal", the method or the main result; "matters", what a reader would do; else "detail".
    chapter
        The page, perhaps with an anchor.
    turned_by
        The planted change: `swap`, `cells`, `rows`, `formula`. Needed, unless the verdict is "not tested" by decision.
    tolerance
        Of the numbers in the evidence, such as "0.02" or "5%", where processors differ in the printed digits.
    """
    if severity not in SEVERITIES or id.partition("-")[0] not in ROOMS:
        raise ValueError(
            f"{id}: severity is one of {', '.join(SEVERITIES)}, an id begins with one of {', '.join(ROOMS)}"
        )

    def decorate(judge: Judge) -> Callable[[], None]:
        path = Path(inspect.getfile(judge)).resolve().relative_to(ROOT)
        kind = path.stem.removeprefix("test_")
        if kind not in KINDS:
            raise ValueError(f"{path}: a file of claims is called test_ and one of {', '.join(KINDS)}")
        name = judge.__name__
        if (known := REGISTER.get(id)) and known.row.test != f"{path.as_posix()}::{name}":
            raise ValueError(f"{id}: two claims have this id")
        row = Claim(
            id=id,
            claim=text,
            source=source,
            kind=kind,  # type: ignore[arg-type]
            severity=severity,
            status="not tested",
            evidence="",
            power="",
            decided_by="",
            chapter=chapter,
            test=f"{path.as_posix()}::{name}",
        )
        tags = [f"tolerance={tolerance}"] if tolerance else []
        entry = Entry(row, judge, turned_by, Tolerance.of(tags), inspect.getsourcelines(judge)[1])
        REGISTER[id] = entry

        def test() -> None:
            _compared_and_turned(entry)

        test.__name__ = test.__qualname__ = name
        test.__doc__, test.__module__ = judge.__doc__, judge.__module__
        return test

    return decorate


def by_severity(chapter: str) -> tuple[Callable[..., Any], ...]:
    """`claim` on a page for each severity: fatal, matters, detail."""
    return tuple(partial(claim, severity=severity, chapter=chapter) for severity in SEVERITIES)


def _compared_and_turned(entry: Entry) -> None:
    found = entry.computed()
    committed = {row.id: row for row in written(entry.row.mechanism)}.get(entry.row.id)
    difference = "is missing" if committed is None else differs(found, committed, entry.tolerance)
    if difference:
        pytest.fail(f"data/claims: {entry.row.id} {difference}; `make claims` writes it", pytrace=False)
    if entry.turned_by is None:
        assert found.status == "not tested", f"{entry.row.id} names no planted change that turns its status"
        return
    with entry.turned_by(entry.judge):
        turned = entry.judge()
    if turned.status == found.status:
        pytest.fail(f"{entry.row.id}: the planted change leaves it {found.status!r}: {turned.evidence}", pytrace=False)


def differs(found: Claim, committed: Claim, tolerance: Tolerance) -> str:
    for key, value in asdict(committed).items():
        now = getattr(found, key)
        if not (same(now, value, tolerance) if key in ("evidence", "power", "decided_by") else now == value):
            return f"has another {key}: {now!r} instead of {value!r}"
    return ""


def written(mechanism: str) -> list[Claim]:
    """The committed rows of a mechanism; none where there is no file."""
    path = ROOT / "data" / "claims" / f"{mechanism}.json"
    return [Claim(**row) for row in json.loads(path.read_text(encoding="utf-8"))] if path.is_file() else []


def declared(mechanism: str) -> list[Entry]:
    """Import a mechanism's files and return its claims in their order: mathematics, tables, experiments."""
    for kind in KINDS:
        if (FOLDER / mechanism / f"test_{kind}.py").is_file():
            importlib.import_module(f"tests.claims.{mechanism}.test_{kind}")
    entries = [entry for entry in REGISTER.values() if entry.row.mechanism == mechanism]
    return sorted(entries, key=lambda entry: (KINDS.index(entry.row.kind), entry.line))


# --- Planted changes ----------------------------------------------------------------------------------------


def swap(**facts: Any) -> Change:
    """Other functions or numbers under names that the judge's file uses."""

    def change(judge: Judge) -> AbstractContextManager[Any]:
        names = inspect.unwrap(judge).__globals__
        if unknown := facts.keys() - names.keys():
            raise ValueError(f"swap: {', '.join(sorted(unknown))} not in {names['__name__']}")
        return patch.dict(names, facts)

    return change


def cells(table: str, where: Mapping[str, str], /, **numbers: object) -> Change:
    """Other numbers in the rows of a published table that have the given texts."""

    def change(row: dict[str, str]) -> dict[str, str]:
        if any(row[key] != text for key, text in where.items()):
            return row
        assert numbers.keys() <= row.keys(), f"{table} has no column {numbers.keys() - row.keys()}"
        return row | {key: str(number) for key, number in numbers.items()}

    return tables(lambda name, rows: [change(row) for row in rows] if name == table else rows)


def tables(function: Callable[[str, list[dict[str, str]]], list[dict[str, str]]]) -> Change:
    """Published tables with other rows: the function takes a table's name and rows."""

    def change(judge: Judge) -> AbstractContextManager[Any]:
        read = results.published
        return patch.object(results, "published", lambda name: function(name, read(name)))

    return change


def rows(experiment: str, function: Callable[[dict[str, Any]], dict[str, Any]]) -> Change:
    """A run whose rows are others: the function takes a row and returns another."""

    def change(judge: Judge) -> AbstractContextManager[Any]:
        read = results.load

        def load(name: str, *preset: str) -> dict[str, Any]:
            result = read(name, *preset)
            if name != experiment:
                return result
            return result | {"rows": [function(row) for row in copy.deepcopy(result["rows"])]}

        return patch.object(results, "load", load)

    return change


def formula(name: str, **sides: Any) -> Change:
    """A registered formula with another side: ``rhs=`` or ``published=``."""

    def change(judge: Judge) -> AbstractContextManager[Any]:
        read = symbolic.get
        return patch.object(
            symbolic, "get", lambda asked: replace(read(asked), **sides) if asked == name else read(asked)
        )

    return change


def both(*changes: Change) -> Change:
    """Several changes at once, where one fact stands in several places."""

    @contextmanager
    def change(judge: Judge) -> Iterator[None]:
        from contextlib import ExitStack

        with ExitStack() as stack:
            for each in changes:
                stack.enter_context(each(judge))
            yield

    return change


# --- The paper's own numbers: four judges -------------------------------------------------------------------


def number(table: str, column: str, **where: str) -> float:
    """The one number of a published table in this column and the row that has these texts."""
    found = [row[column] for row in results.published(table) if all(row[key] == text for key, text in where.items())]
    if len(found) != 1:
        raise ValueError(f"{table}: {len(found)} rows have {where}")
    return float(found[0])


def decimals(printed: str) -> int:
    """How many digits a printed number has after the point."""
    return len(printed.partition(".")[2])


def agrees(found: float, printed: str, units: float = 0.5) -> bool:
    """Whether a computed number is what the paper prints, up to some units of the printed last digit."""
    return abs(found - float(printed)) <= units * 10.0 ** -decimals(printed) * (1 + 1e-9)


def difference(printed: str, one: float, other: float, of: str) -> Verdict:
    """Whether two numbers of a table differ by what the text says, who knew more digits: the difference of the rounded
    numbers may be off by one in the last digit. ``of`` says which numbers, and ends no sentence."""
    found = round(one - other, 9)
    return Verdict(
        graded(agrees(found, printed, 1)), f"{of}: {one:g} and {other:g} differ by {found:+g}; the text says {printed}."
    )


def share(printed: str, part: float, whole: float, of: str) -> Verdict:
    """Whether a percentage that the text states is that of two numbers of a table."""
    found = 100 * part / whole
    digits = decimals(printed)
    return Verdict(
        graded(agrees(found, printed)),
        f"{of}: {part:g} of {whole:g} are {found:.{digits + 1}f} %; the text says {printed} %.",
    )


def rank(columns: Mapping[str, Mapping[str, float]], of: str, *, lowest: bool = False) -> Verdict:
    """Whether something has the best number in some columns, each a number by competitor. A tie is no lead."""
    first, places = [], []
    for column, numbers in columns.items():
        mine = numbers[of]
        ahead = [name for name, value in numbers.items() if name != of and (value <= mine if lowest else value >= mine)]
        if ahead:
            places.append(f"{column} ({mine:g}, level with or behind {enumerated(ahead)})")
        else:
            first.append(column)
    behind = f"; not in {enumerated(places)}" if places else ""
    return Verdict(
        graded(not places, first), f"{of} is alone in front in {len(first)} of {len(columns)} columns{behind}."
    )


def count(cases: Mapping[str, bool], what: str, *, listed: int = 4) -> Verdict:
    """In how many cases something is so: all, some or none of them. ``what`` completes "3 of 5 …"."""
    right = [name for name, so in cases.items() if so]
    wrong = [name for name, so in cases.items() if not so]
    named = f"; not {enumerated([*wrong[:listed], f'{len(wrong) - listed} more'] if len(wrong) > listed else wrong)}"
    return Verdict(graded(not wrong, right), f"{len(right)} of {len(cases)} {what}{named if wrong else ''}.")


# --- Our own runs -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A finished result of ours that claims are judged by.

    Parameters
    ----------
    rows : list of dict
        A row for each case and seed.
    settings : dict
        The preset: data set, networks, epochs and so on.
    smaller : bool
        Whether it is smaller than the paper's: not of the preset "full", where the experiment has one.
    """

    rows: list[dict[str, Any]]
    settings: dict[str, Any]
    smaller: bool

    def judge(
        self, evidence: str, *, shown: int, against: int, of: int = 1, power: str = "", could_see: bool = True
    ) -> Verdict:
        """What the run makes of a claim.

        Parameters
        ----------
        evidence
            One sentence with the numbers.
        shown, against, of
            How many comparisons clearly show the claim, how many clearly show its opposite, and how many there are.
        power
            The sentence on what could have been seen, see `detected`.
        could_see
            Whether the effect that the paper claims was as large as what could have been seen.

        Returns
        -------
        Verdict
            At the paper's scale "holds" where every comparison shows it; "does not hold" where more comparisons show
            the opposite than the claim, or none shows it and it would have been seen; "not decided" where it might
            not have been; else "holds in part". A smaller run neither confirms nor refutes: "seen …" where every
            comparison shows it, "opposite …" where most show the opposite, "seen in part …" where more show the
            claim than the opposite, "not decided" where none shows either and it might not have been seen, else
            "not seen at smaller scale".
        """
        if not (shown >= 0 <= against and shown + against <= of > 0):
            raise ValueError(f"of: got {of} comparisons, {shown} for and {against} against the claim")
        status: Status
        if self.smaller:
            if shown == of:
                status = "seen at smaller scale"
            elif 2 * against > of:
                status = "opposite at smaller scale"
            elif not (shown or against or could_see):
                status = "not decided"
            else:
                status = "seen in part at smaller scale" if shown > against else "not seen at smaller scale"
            return Verdict(status, evidence, power, MORE_SEEDS if status == "not decided" else "")
        if shown == of:
            status = "holds"
        elif against > shown or (could_see and not shown):
            status = "does not hold"
        elif shown:
            status = "holds in part"
        else:
            return Verdict("not decided", evidence, power, MORE_SEEDS)
        return Verdict(status, evidence, power)


def run_of(name: str) -> Run | None:
    """Our result of an experiment, "full" or else "laptop"; None where there is none.

    An "excerpt" has some cases of "full" and does not judge claims about all of them.
    """
    from companion.study.experiments import registry

    for preset in ("full", "laptop"):
        try:
            result = results.load(name, preset)
        except FileNotFoundError:
            continue
        return Run(
            result["rows"], result["settings"], smaller=preset != "full" and "full" in registry.get(name).presets
        )
    return None


def no_result(name: str) -> Verdict:
    """The verdict on a claim whose experiment has not run."""
    return not_tested(f"The experiment {name} has no finished result.", "A run of that experiment would decide it.")


def detected(comparisons: Sequence[Comparison[Any]], unit: str, scale: float = 1.0) -> str:
    """The sentence on power: what each of some comparisons of a family would have found with a probability of 80 %."""
    sizes = [scale * each.detectable for each in comparisons]
    low, high = f"{min(sizes):.2g}", f"{max(sizes):.2g}"
    found = f"{low} {unit}" if low == high else f"{low} to {high} {unit}"
    family = comparisons[0].size
    corrected = f", corrected for {family} comparisons" if family > 1 else ""
    return f"A difference of {found} would have been found with 80 % probability{corrected}."


def judged_alike(run: Run, evidence: str, differences: Sequence[Interval], margin: float) -> Verdict:
    """What a run makes of the claim that things are alike: all intervals have to lie within the margin."""
    found = [alike(each, margin) for each in differences]
    farthest = max(max(abs(each.low), abs(each.high)) for each in differences)
    return run.judge(
        evidence,
        shown=found.count(1),
        against=found.count(-1),
        of=len(found),
        power=f"Alike means within ±{margin:g}, and intervals reach {farthest:.2g} from zero.",
        could_see=all(each.half_width < margin for each in differences),
    )


# --- Words --------------------------------------------------------------------------------------------------


def at_most(difference: float) -> str:
    """How large a difference is, without the digits of rounding errors: they vary between machines."""
    return "less than 1e-12" if difference < ROUNDING else f"up to {difference:.0e}"


def enumerated(names: Sequence[str]) -> str:
    """ "a, b and c"."""
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)


def with_interval(value: Interval, digits: int = 2, scale: float = 1.0) -> str:
    """A difference and its interval: "+1.20 [+0.90, +1.50]"."""
    mean, low, high = (f"{scale * x:+.{digits}f}" for x in (value.mean, value.low, value.high))
    return f"{mean} [{low}, {high}]"
