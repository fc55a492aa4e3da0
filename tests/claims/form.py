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

One rule says what a run of ours makes of a claim, in all rooms: `Effect.outcome` for one comparison, `Run.judge` for
all of them. Every comparison is given the effect that is claimed, in its unit; there is no default. A comparison
is clear where it is so in the family that was fixed for its run, and among all that the claim is judged by (`jointly`,
thought of when the results were known; it took "seen in part" from one claim). Where the paper
names none, None says so, and nothing can be ruled out. Its unit is that of the paper, points for example; where a run
has other data than the paper, gains are asked for as shares of the errors. Who had the best learning rate at the edge
of a grid might do better beyond it, and is not compared.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import pytest

from book._tools.outputs import Tolerance, same
from companion.rooms import ROOMS
from companion.study import results, symbolic
from companion.study.analysis import Comparison, Interval, alike, detectable, holm
from companion.study.claims import KINDS, SEVERITIES, STATUSES, Basis, Claim, Severity, Status

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "claims"
WORDS = 40
"""The most that evidence may have."""

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
    rests_on: Basis | None = None  # of a run; else it follows from the kind of the claim

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
        found = self.judge()
        of_kind: dict[str, Basis] = {"mathematics": "formulas", "tables": "their table, not rerun"}
        basis = "nothing yet" if found.status == "not tested" else found.rests_on or of_kind[self.row.kind]
        return replace(self.row, **asdict(found) | {"rests_on": basis})


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
            rests_on="nothing yet",
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


Outcome = Literal["for", "against", "ruled out", "open"]
"""What one comparison says of a claim."""


@dataclass(frozen=True)
class Effect:
    """An effect that is claimed, and what one comparison shows of it, in the unit of the claim.

    Parameters
    ----------
    claimed : float or None
        Above zero. Where the paper names no size, what would matter, and the row says that it is ours; or None.
    shown : Interval
        At 95 %; above zero is what is claimed.
    sign : int
        1 or -1 where what is shown is clearly above or below zero after the correction, else 0.
    detectable : float
        What would have been found with a probability of 80 % after the correction.
    family : int
        How many comparisons are corrected for.
    p_value : float
        Of this comparison alone.
    """

    claimed: float | None
    shown: Interval
    sign: int
    detectable: float
    family: int
    p_value: float

    @property
    def outcome(self) -> Outcome:
        """Clearly for the claim, clearly against it, ruled out since the interval excludes what is claimed, or open."""
        if self.sign:
            return "for" if self.sign > 0 else "against"
        return "ruled out" if self.claimed is not None and self.shown.high < self.claimed else "open"


def effect(found: Comparison[Any], claimed: float | None, *, sign: int = 1, scale: float = 1.0) -> Effect:
    """What a comparison shows of a claimed effect.

    Parameters
    ----------
    found : Comparison
        Of ours.
    claimed : float or None
        In the unit of the claim, above zero; None where the paper names no size.
    sign : int
        1 where the claim says that the difference is above zero, -1 where below.
    scale : float
        The unit of the claim in that of the difference: 100 for points of an accuracy.

    Returns
    -------
    Effect
    """
    if sign not in (1, -1) or scale <= 0 or (claimed is not None and claimed <= 0):
        raise ValueError(f"got sign {sign}, scale {scale} and claimed {claimed}; sizes are above zero, signs 1 or -1")
    mean, low, high = (sign * scale * x for x in (found.difference.mean, found.difference.low, found.difference.high))
    shown = Interval(mean, *sorted((low, high)), found.difference.n)
    return Effect(claimed, shown, sign * found.sign(), scale * found.detectable, found.size, found.p_value)


def jointly(*groups: Sequence[Effect]) -> list[list[Effect]]:
    """The effects that a claim is judged by, in the same groups: corrected for all of them together, too.

    Of a claim about several runs each run corrects for its own comparisons; so one of many runs would easily show
    something. What is clear in its run and not here is not clear.
    """
    every = [each for group in groups for each in group]
    corrected = iter(holm([each.p_value for each in every]))

    def among_all(each: Effect) -> Effect:
        sign = each.sign if next(corrected) < 0.05 else 0
        if each.family >= len(every):
            return replace(each, sign=sign)
        return replace(each, sign=sign, detectable=detectable(each.shown, len(every)), family=len(every))

    return [[among_all(each) for each in group] for group in groups]


def share_of_errors(before: float, after: float) -> float:
    """Which part of the errors, in percent, is gone between two accuracies in percent: a gain that another network or
    another data set can be asked for."""
    return 100 * (after - before) / (100 - before)


Scale = Literal["paper", "ours", "smaller"]
_BASIS: dict[Scale, Basis] = {"paper": "our run", "ours": "our run, set-up ours", "smaller": "our run, smaller"}


@dataclass(frozen=True)
class Run:
    """A finished result of ours that claims are judged by.

    Parameters
    ----------
    name : str
        Of the experiment.
    rows : list of dict
        A row for each case and seed.
    settings : dict
        The preset: data set, networks, epochs and so on.
    chosen : list of dict
        Which rate tuning chose in each case, and whether it lies at the edge of the grid.
    hours : float
        Of one core, which it took.
    scale : str
        "paper": as the paper describes it; "ours": of the paper's size, with settings that the paper leaves open;
        "smaller": not of the preset "full", where the experiment has one.
    """

    name: str
    rows: list[dict[str, Any]]
    settings: dict[str, Any]
    chosen: list[dict[str, Any]]
    hours: float
    scale: Scale

    def judge(self, evidence: str, outcomes: Sequence[Outcome], *, power: str, undecided: str) -> Verdict:
        """What the run makes of a claim.

        Parameters
        ----------
        evidence
            One sentence with the numbers.
        outcomes
            Of every comparison that the claim is about.
        power
            The sentence on what is claimed and what could have been seen, see `powered`.
        undecided
            The sentence on what would decide the claim where this run does not, see `with_more_seeds`.

        Returns
        -------
        Verdict
            "holds" where every comparison is for the claim. At least as many for it as against it: "holds in part".
            Else, where some are against it or it is ruled out in most: "does not hold". Else "not decided". A run that
            is not the paper's neither confirms nor refutes: it is "seen", "seen in part", "not seen", or "opposite"
            where most comparisons are against it.
        """
        if not outcomes:
            raise ValueError("outcomes is empty; a claim is judged by at least one comparison")
        of = len(outcomes)
        shown, against, out = (outcomes.count(each) for each in ("for", "against", "ruled out"))
        exact = self.scale == "paper"
        status: Status
        if shown == of:
            status = "holds" if exact else "seen"
        elif 2 * against > of:
            status = "does not hold" if exact else "opposite"
        elif shown and shown >= against:
            status = "holds in part" if exact else "seen in part"
        elif against or 2 * out > of:
            status = "does not hold" if exact else "not seen"
        else:
            return Verdict("not decided", evidence, power, undecided, rests_on=_BASIS[self.scale])
        return Verdict(status, evidence, power, rests_on=_BASIS[self.scale])

    def judge_effects(self, evidence: str, effects: Sequence[Effect], unit: str, *, ours: bool = False) -> Verdict:
        """What the run makes of a claim about differences.

        ``unit`` is that of the effects: "points". ``ours`` says that the paper names no size, and that what is asked
        for is ours.
        """
        if [[*effects]] != jointly(effects):
            raise ValueError("effects come of several families; `jointly` corrects for all of them together")
        return self.judge(
            evidence,
            [each.outcome for each in effects],
            power=powered(effects, unit, ours=ours),
            undecided=self.with_more_seeds(effects),
        )

    def at_edge(self, *names: str) -> set[tuple[Any, ...]]:
        """Who has rows with a rate at the edge of the grid that tuning went through, by the keys that name it."""
        edges = [
            {key: value for key, value in case.items() if key not in ("score", "at_edge")}
            for case in self.chosen
            if case["at_edge"]
        ]
        found = [row for row in self.rows if any(row.items() >= edge.items() for edge in edges)]
        return {tuple(row[name] for name in names) for row in found}

    def beyond_its_grid(self, evidence: str) -> Verdict:
        """The verdict where nobody is left to compare."""
        wider = f"{self.name} on a wider grid of learning rates, about {core_hours(self.hours)}"
        return Verdict("not decided", evidence, "", f"{wider}, would decide it here.", _BASIS[self.scale])

    def with_more_seeds(self, effects: Sequence[Effect]) -> str:
        """The sentence on how many seeds, and hours of one core, would show all claimed effects that are open, or those
        that are seen where no size is claimed.

        What can be found shrinks with the root of the number of seeds.
        """
        sizes = [
            each.detectable / (each.claimed or abs(each.shown.mean) or each.detectable or 1.0)
            for each in effects
            if each.outcome == "open"
        ]
        times = max([1.0, *sizes]) ** 2
        return self.with_seeds(max(each.shown.n for each in effects), times)

    def with_seeds(self, seeds: int, times: float) -> str:
        """The sentence that so many times as many seeds would decide."""
        hours = core_hours(times * self.hours)
        return f"{self.name} with {math.ceil(times * seeds):,} seeds, about {hours}, would decide it here."


def run_of(name: str, *, ours: bool = False, presets: Sequence[str] = ("full", "laptop")) -> Run | None:
    """Our result of an experiment, of the first of some presets that has one; None where there is none.

    An "excerpt" has some cases of "full" and does not judge claims about all of them. ``ours`` says of a run of the
    paper's size that settings were chosen here which the paper leaves open.
    """
    from companion.study.experiments import registry

    for preset in presets:
        try:
            result = results.load(name, preset)
        except FileNotFoundError:
            continue
        smaller = preset != "full" and "full" in registry.get(name).presets
        hours = result["provenance"]["duration_seconds"] / 3600
        return Run(
            name=name,
            rows=result["rows"],
            settings=result["settings"],
            chosen=result["chosen"],
            hours=hours,
            scale="smaller" if smaller else "ours" if ours else "paper",
        )
    return None


def no_result(name: str) -> Verdict:
    """The verdict on a claim whose experiment has not run."""
    return not_tested(f"The experiment {name} has no finished result.", "A run of that experiment would decide it.")


def powered(effects: Sequence[Effect], unit: str, *, ours: bool = False) -> str:
    """The sentence on what is claimed, and what each comparison would have found with a probability of 80 %."""
    claimed = [each.claimed for each in effects if each.claimed is not None]
    asked = f"{span(claimed)} {unit}" if claimed else ""
    if ours or not claimed:
        asked = "the paper names no size" + (f"; we ask for {asked}" if claimed else "")
    else:
        asked = f"claimed: {asked}"
    families = sorted({each.family for each in effects})
    of = families[0] if len(families) == 1 else f"{families[0]} to {families[-1]}"
    corrected = f", corrected for {of} comparisons" if families != [1] else ""
    return (
        f"A difference of {span([each.detectable for each in effects])} {unit} would have been found with 80 % "
        f"probability{corrected}; {asked}."
    )


def no_worse(found: Comparison[Any], margin: float) -> Outcome:
    """Whether something is worse by no more than a margin, in the unit of the difference.

    It is not where the interval excludes a larger loss, and it is where the interval excludes a smaller one; that no
    difference was found would say less.
    """
    if found.difference.low > -margin:
        return "for"
    return "against" if found.sign() < 0 and found.difference.high < -margin else "open"


def judged_alike(run: Run, evidence: str, differences: Sequence[Interval], margin: float) -> Verdict:
    """What a run makes of the claim that things are alike: all intervals have to lie within the margin."""
    outcome: dict[int, Outcome] = {1: "for", -1: "against", 0: "open"}
    farthest = max(max(abs(each.low), abs(each.high)) for each in differences)
    widest = max(each.half_width for each in differences) / margin
    times = max(1.0, 4 * widest**2)  # half the margin is left for the difference
    return run.judge(
        evidence,
        [outcome[alike(each, margin)] for each in differences],
        power=f"Alike means within ±{margin:g}, and intervals reach {farthest:.2g} from zero.",
        undecided=run.with_seeds(differences[0].n, times),
    )


# --- Words --------------------------------------------------------------------------------------------------


def at_most(difference: float) -> str:
    """How large a difference is, without the digits of rounding errors: they vary between machines."""
    return "less than 1e-12" if difference < ROUNDING else f"up to {difference:.0e}"


def span(sizes: Sequence[float]) -> str:
    """The range of some sizes, to two digits: "0.25" or "0.25 to 1.3"."""
    low, high = (f"{float(f'{size:.2g}'):g}" for size in (min(sizes), max(sizes)))
    return low if low == high else f"{low} to {high}"


def core_hours(hours: float) -> str:
    """Hours of one core to two digits, or one below ten."""
    rounded = f"{hours:.1g}" if hours < 9.5 else f"{float(f'{hours:.2g}'):,.0f}"
    return f"{rounded} core-hour{'' if rounded == '1' else 's'}"


def enumerated(names: Sequence[str]) -> str:
    """ "a, b and c"."""
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)


def with_interval(value: Interval, digits: int = 2, scale: float = 1.0) -> str:
    """A difference and its interval: "+1.20 [+0.90, +1.50]"."""
    mean, low, high = (f"{scale * x:+.{digits}f}" for x in (value.mean, value.low, value.high))
    return f"{mean} [{low}, {high}]"
