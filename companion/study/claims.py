"""The ledger: what the papers say, and verdicts that tests computed.

Each claim of a paper is a test of its own, in ``tests/claims/<mechanism>`` of the source. What it found is a row of
``data/claims/<mechanism>.json``, written by ``make claims`` and compared with a new computation by every ``make test``.
Here the rows are read and printed.
"""

from __future__ import annotations

import html
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

from companion.rooms import ROOMS, title
from companion.study.results import data_path

__all__ = ["BASES", "KINDS", "SEVERITIES", "STATUSES", "Claim", "cards", "get", "ledger", "summary", "table"]

Status = Literal[
    "holds",
    "seen",
    "holds in part",
    "seen in part",
    "not decided",
    "not tested",
    "not seen",
    "opposite",
    "does not hold",
]
Basis = Literal[
    "formulas", "their table, not rerun", "our run", "our run, set-up ours", "our run, smaller", "nothing yet"
]
Severity = Literal["fatal", "matters", "detail"]
Kind = Literal["mathematics", "tables", "experiments"]

STATUSES: tuple[Status, ...] = get_args(Status)
"""What a verdict can be, from yes to no. The appendix of the book says what each means."""

BASES: tuple[Basis, ...] = get_args(Basis)
"""What a verdict can rest on."""

SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""How much depends on a claim, from the method itself, or what a reader would do, down to nothing."""

KINDS: tuple[Kind, ...] = get_args(Kind)
"""What decides a claim, a computation, the paper's own numbers, or trainings of ours."""


@dataclass(frozen=True)
class Claim:
    """One claim of a paper, and what its test found.

    Attributes
    ----------
    id : str
        Begins with the mechanism: "apa-silu". It is the anchor on the page of the ledger.
    claim : str
        Our paraphrase.
    source : str
        Section, equation or table of the paper.
    kind : {"mathematics", "tables", "experiments"}
        What decides it.
    severity : {"fatal", "matters", "detail"}
        How much depends on it.
    status : str
        One of `STATUSES`.
    rests_on : str
        One of `BASES`.
    evidence : str
        One sentence, at most 40 words.
    power : str
        For experiments: the effect that would have been found with a probability of 80 %. Else empty.
    decided_by : str
        Where the status is "not tested" or "not decided": what would decide it. Else empty.
    chapter : str
        The page that discusses it, perhaps with an anchor: "mechanisms/apa#eq-apa-aglu".
    test : str
        What computes the verdict: "tests/claims/apa/test_mathematics.py::test_silu".
    """

    id: str
    claim: str
    source: str
    kind: Kind
    severity: Severity
    status: Status
    rests_on: Basis
    evidence: str
    power: str
    decided_by: str
    chapter: str
    test: str

    @property
    def mechanism(self) -> str:
        """The room whose paper says it."""
        return self.id.partition("-")[0]


@cache
def _read(mechanism: str) -> tuple[Claim, ...]:
    path = data_path() / "claims" / f"{mechanism}.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return tuple(Claim(**row) for row in rows)


def ledger(mechanism: str | None = None) -> list[Claim]:
    """Return the claims of a mechanism's paper, or those of all papers.

    Parameters
    ----------
    mechanism : str, optional
        For example "apa".

    Returns
    -------
    list of Claim
        In the order of the paper.

    Raises
    ------
    FileNotFoundError
        If the mechanism has no ledger.

    Examples
    --------
    >>> {claim.kind for claim in ledger("apa")} == set(KINDS)
    True
    """
    if mechanism is not None:
        return list(_read(mechanism))
    return [claim for room in ROOMS if (data_path() / "claims" / f"{room}.json").is_file() for claim in _read(room)]


def get(*ids: str) -> list[Claim]:
    """Return claims by their ids, in the order of these.

    Parameters
    ----------
    *ids : str
        Such as "apa-silu".

    Returns
    -------
    list of Claim
        As many as ids.

    Raises
    ------
    KeyError
        If an id is in no ledger.

    Examples
    --------
    >>> get("apa-silu")[0].mechanism
    'apa'
    """
    claims = {claim.id: claim for claim in ledger()}
    unknown = [name for name in ids if name not in claims]
    if unknown:
        raise KeyError(f"ids: {', '.join(unknown)} not in the ledger")
    return [claims[name] for name in ids]


def table(claims: Iterable[Claim]) -> str:
    """Return claims with their verdicts as a Markdown table for a chapter.

    Parameters
    ----------
    claims : iterable of Claim
        From `get` or `ledger`.

    Returns
    -------
    str
        Markdown with a column for the claim and one for the verdict, which says what it rests on and links to its row
        in the appendix, where the evidence is.

    Examples
    --------
    >>> print(table(get("apa-silu")).splitlines()[0])
    | The paper says | We find |
    """
    lines = ["| The paper says | We find |", "| --- | --- |"]
    for claim in claims:
        verdict = f"<a href='../appendix/claims.html#{claim.id}'>**{claim.status}**</a> ({claim.rests_on})"
        lines.append(f"| {_escaped(claim.claim)} ({_escaped(claim.source)}) | {verdict} |")
    return "\n".join(lines)


def cards(claims: Iterable[Claim]) -> str:
    """Return claims as HTML: a card each, with its id as anchor, and what a filter asks for as data.

    Parameters
    ----------
    claims : iterable of Claim
        From `ledger`.

    Returns
    -------
    str
        One element of the class "claims".

    Examples
    --------
    >>> "id='apa-silu'" in cards(get("apa-silu"))
    True
    """
    return "\n".join(["<div class='claims'>", *map(_card, claims), "</div>"])


def _card(claim: Claim) -> str:
    asked = {
        "paper": title(claim.mechanism),
        "kind": claim.kind,
        "severity": claim.severity,
        "verdict": claim.status,
        "basis": claim.rests_on,
    }
    data = " ".join(f"data-{name}='{html.escape(value)}'" for name, value in asked.items())
    page, hashed, anchor = claim.chapter.partition("#")
    evidence = " ".join(filter(None, (claim.evidence, claim.power)))
    rest = f"<p class='decided'>{html.escape(claim.decided_by)}</p>" if claim.decided_by else ""
    return (
        f"<article id='{claim.id}' {data}>"
        f"<header><strong>{claim.status}</strong> <em>{claim.rests_on}</em> "
        f"<span>{asked['paper']}, {html.escape(claim.source)}</span></header>"
        f"<p>{_signed(html.escape(claim.claim))}</p><p class='evidence'>{_signed(html.escape(evidence))}</p>{rest}"
        f"<footer>{claim.severity} · {claim.kind} · <a href='../{page}.html{hashed}{anchor}'>chapter</a> · "
        f"<code>{claim.test}</code> · <a href='#{claim.id}'>{claim.id}</a></footer></article>"
    )


def summary() -> str:
    """Return how many claims of each paper have which verdict, and on what it rests, as a Markdown table.

    Returns
    -------
    str
        A row for each verdict and basis, a column for each paper; in parentheses how many of the claims are fatal.

    Examples
    --------
    >>> summary().splitlines()[0].startswith("| Verdict | Rests on |")
    True
    """
    claims = ledger()
    papers = list(dict.fromkeys(claim.mechanism for claim in claims))
    names = [title(paper) for paper in papers]
    every = Counter((claim.status, claim.rests_on, claim.mechanism) for claim in claims)
    fatal = Counter((claim.status, claim.rests_on, claim.mechanism) for claim in claims if claim.severity == "fatal")
    lines = [f"| Verdict | Rests on | {' | '.join(names)} |", f"| --- | --- |{' --- |' * len(papers)}"]
    for status, basis in itertools.product(STATUSES, BASES):
        if any(every[status, basis, paper] for paper in papers):
            cells = [_counted(every[status, basis, paper], fatal[status, basis, paper]) for paper in papers]
            lines.append(f"| **{status}** | {basis} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _counted(every: int, fatal: int) -> str:
    return f"{every} ({fatal})" if fatal else f"{every}" if every else ""


def _signed(text: str) -> str:
    return re.sub(r"(?<!\w)-(?=\d)", "−", text)


def _escaped(cell: str) -> str:
    plain = html.escape(" ".join(cell.split()), quote=False)
    for special in "|*$_":
        plain = plain.replace(special, f"\\{special}")
    return _signed(plain)
