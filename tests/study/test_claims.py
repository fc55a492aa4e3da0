"""The ledger: each claim is a test of its own in tests/claims; here is what holds of all of them, and their form."""

from __future__ import annotations

import csv
import random
import re
from collections import Counter
from dataclasses import replace

import pytest

from companion.study import claims, results, symbolic
from companion.study.analysis import interval
from companion.study.claims import Claim
from tests.cases import together
from tests.claims import form
from tests.claims.form import (
    FOLDER,
    MORE_SEEDS,
    REGISTER,
    ROOT,
    Run,
    Verdict,
    both,
    cells,
    claim,
    count,
    declared,
    difference,
    formula,
    judged_alike,
    not_tested,
    rank,
    rows,
    share,
    swap,
    written,
)

MECHANISMS = sorted(path.name for path in FOLDER.iterdir() if (path / "test_mathematics.py").is_file())
TABLES = sorted(path.stem for path in (results.data_path() / "published").glob("*.csv"))


# --- All claims ---------------------------------------------------------------------------------------------


@together("mechanism", MECHANISMS)
def test_the_ledger_holds_the_claims_that_have_a_test_and_no_others(mechanism):
    assert [row.id for row in written(mechanism)] == [entry.row.id for entry in declared(mechanism)]


@together("mechanism", MECHANISMS)
def test_a_row_can_be_understood_alone(mechanism):
    place = re.compile("Section|Eq|Table|Appendi|Abstract|Definition|Theorem|Remark|Fig|Algorithm|The ")
    for row in claims.ledger(mechanism):
        assert row.claim.endswith("."), row.id
        assert place.match(row.source), row.id
        assert len(row.claim.split()) <= form.WORDS, row.id
        assert len(row.evidence.split()) <= form.WORDS, row.id
        page, _, anchor = row.chapter.partition("#")
        text = (ROOT / "book" / f"{page}.ipynb").read_text(encoding="utf-8")
        assert not anchor or f"({anchor})=" in text, row.id


def test_every_published_table_is_read_by_some_claim_or_page():
    sources = [*FOLDER.rglob("*.py"), *(ROOT / "book").glob("*/*.ipynb")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    unread = [name for name in TABLES if not re.search(rf"\b{re.escape(name)}\b", text)]
    # tables whose names are made of a number
    numbered = set(re.findall(r'f\\?"([\w-]+-table-)\{', text))
    assert [name for name in unread if not name.startswith(tuple(numbered) or " ")] == []


@together("name", TABLES)
def test_a_published_table_is_rectangular_and_names_its_rows_once(name):
    with (results.data_path() / "published" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        header, *body = csv.reader(file)
    assert all(len(row) == len(header) for row in body)
    assert all(header)
    if "quoted" not in header and header[0] == "method":
        assert len({row[0] for row in body}) == len(body)


# --- What prints it -----------------------------------------------------------------------------------------


def test_a_chapter_shows_rows_of_the_ledger():
    [silu] = claims.get("apa-silu")
    head, rule, row = claims.table([silu]).splitlines()
    assert (head, rule) == ("| Claim | Verdict | Evidence |", "| --- | --- | --- |")
    assert row.startswith("| At κ = λ = 1 AGLU is SiLU.")
    assert f"| <a href='../appendix/claims.html#apa-silu'>**{silu.status}**</a> |" in row
    with pytest.raises(KeyError, match="ids: apa-never not in the ledger"):
        claims.get("apa-silu", "apa-never")


def test_special_characters_of_a_row_are_no_markdown():
    row = replace(claims.ledger("apa")[0], evidence="a|b * c_d $5 <b> -3 x-2.")
    assert r"a\|b \* c\_d \$5 &lt;b&gt; −3 x-2." in claims.table([row])


def test_the_summary_counts_every_claim_once():
    numbers = [int(n) for n in re.findall(r"(?<=\| )\d+", claims.summary())]
    assert sum(numbers) == len(claims.ledger())
    assert Counter(row.mechanism for row in claims.ledger()).keys() == set(MECHANISMS)


# --- The form: a claim that cannot fail is none -------------------------------------------------------------

fact = 1
ROW = {"id": "apa-planted", "text": "One is one.", "source": "Section I"}


@pytest.fixture
def planted(monkeypatch, tmp_path):
    """Declare a claim in this file as though its name were a kind's; its committed row is what it gives."""
    monkeypatch.setattr(form, "REGISTER", dict(REGISTER))
    monkeypatch.setattr(form.Path, "stem", property(lambda path: "test_mathematics"))
    committed: list[Claim] = []
    monkeypatch.setattr(form, "written", lambda mechanism: committed)

    def declare(judge, commit=True, **how):
        options = {"severity": "detail", "chapter": "mechanisms/apa"} | how
        test = claim(*ROW.values(), **options)(judge)
        if commit:
            committed.append(form.REGISTER[ROW["id"]].computed())
        return test

    declare.committed = committed
    return declare


def judge():
    return Verdict("holds" if fact == 1 else "does not hold", f"One is {fact}, to 0.50.")


def test_a_claim_passes_where_its_row_agrees_and_the_planted_change_turns_it(planted):
    planted(judge, turned_by=swap(fact=2))()


def test_a_claim_fails_where_the_planted_change_leaves_its_status(planted):
    with pytest.raises(pytest.fail.Exception, match="the planted change leaves it 'holds'"):
        planted(judge, turned_by=swap(fact=1))()
    with pytest.raises(AssertionError, match="names no planted change"):
        planted(judge)()
    with pytest.raises(ValueError, match="swap: facts not in"):
        planted(judge, turned_by=swap(facts=2))()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"status": "does not hold"}, "has another status"),
        ({"evidence": "One is 1, to 0.51."}, "has another evidence"),
        ({"severity": "fatal"}, "has another severity"),
        ({"claim": "Two is two."}, "has another claim"),
    ],
)
def test_a_claim_fails_where_its_row_says_something_else(planted, change, words):
    test = planted(judge, turned_by=swap(fact=2))
    planted.committed[0] = replace(planted.committed[0], **change)
    with pytest.raises(pytest.fail.Exception, match=words):
        test()


def test_a_claim_without_a_row_fails_and_says_what_writes_it(planted):
    with pytest.raises(pytest.fail.Exception, match="is missing; `make claims` writes it"):
        planted(judge, commit=False, turned_by=swap(fact=2))()


def test_evidence_has_the_tolerance_that_its_claim_declares(planted):
    test = planted(judge, turned_by=swap(fact=2), tolerance="0.02")
    planted.committed[0] = replace(planted.committed[0], evidence="One is 1, to 0.51.")
    test()
    planted.committed[0] = replace(planted.committed[0], evidence="One is 1, to 0.53.")
    with pytest.raises(pytest.fail.Exception, match="another evidence"):
        test()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("maybe", "So."), "status: got 'maybe'"),
        (("holds", "So"), "not one sentence"),
        (("holds", "One. Two."), "not one sentence"),
        (("holds", "word " * 40 + "more."), "not one sentence of at most 40 words, but of 41"),
        (("holds", "So.", "", "More seeds."), "decided_by: got"),
        (("not tested", "So."), "decided_by: got ''"),
    ],
)
def test_a_verdict_that_nobody_could_read_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        Verdict(*arguments)


def test_planted_changes_reach_what_judges_read_and_nothing_is_left_of_them():
    eq = symbolic.get("apa-aglu")
    changes = both(
        cells("apa-table-18", {"method": "channel shared"}, top1=50),
        rows("apa-digits", lambda row: row | {"test_accuracy": 2.0}),
        formula("apa-aglu", rhs=symbolic.z),
    )
    with changes(judge):
        assert results.column("apa-table-18", "top1") == {"channel specific": 57.5, "channel shared": 50.0}
        assert {row["test_accuracy"] for row in results.load("apa-digits")["rows"]} == {2.0}
        assert symbolic.get("apa-aglu").rhs == symbolic.z
    assert results.column("apa-table-18", "top1")["channel shared"] == 57.9
    assert max(row["test_accuracy"] for row in results.load("apa-digits")["rows"]) <= 1
    assert symbolic.get("apa-aglu") is eq


# --- The judges ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "one", "other", "status"),
    [
        ("1.9", 78.8, 76.9, "holds"),
        ("1.8", 78.8, 76.9, "holds"),  # of 78.75 and 76.94, say
        ("1.7", 78.8, 76.9, "does not hold"),
        ("-0.5", 1.0, 1.5, "holds"),
        ("2", 78.8, 76.9, "holds"),
    ],
)
def test_a_printed_difference_may_be_off_by_its_last_digit(printed, one, other, status):
    assert difference(printed, one, other, "So").status == status


def test_a_share_is_that_of_the_printed_numbers():
    assert share("17", 1044, 6020, "So").status == "holds"
    verdict = share("18", 1044, 6020, "So")
    assert verdict.status == "does not hold"
    assert verdict.evidence == "So: 1044 of 6020 are 17.3 %; the text says 18 %."


def test_the_best_is_alone_in_front():
    columns = {"a": {"x": 3.0, "y": 2.0}, "b": {"x": 1.0, "y": 1.0}}
    assert rank(columns, "x").status == "holds in part"
    assert "not in b (1, level with or behind y)" in rank(columns, "x").evidence
    assert rank({"a": columns["a"]}, "x").status == "holds"
    assert rank({"a": columns["a"]}, "x", lowest=True).status == "does not hold"


def test_a_count_is_graded_and_names_what_is_wrong():
    assert count({"a": True, "b": True}, "agree") == Verdict("holds", "2 of 2 agree.")
    assert count({"a": True, "b": False}, "agree") == Verdict("holds in part", "1 of 2 agree; not b.")
    assert count(dict.fromkeys("abcdefg", False), "agree").evidence == "0 of 7 agree; not a, b, c, d and 3 more."


# Comparisons that clearly show the claim, that clearly show the opposite, all; at the paper's scale where the effect
# would have been seen, where it might not, and for a smaller run.
@pytest.mark.parametrize(
    ("shown", "against", "of", "paper", "weak", "smaller"),
    [
        (1, 0, 1, "holds", "holds", "seen at smaller scale"),
        (6, 0, 6, "holds", "holds", "seen at smaller scale"),
        (0, 0, 1, "does not hold", "not decided", "not seen at smaller scale"),
        (0, 1, 1, "does not hold", "does not hold", "opposite at smaller scale"),
        (0, 4, 6, "does not hold", "does not hold", "opposite at smaller scale"),
        (0, 3, 6, "does not hold", "does not hold", "not seen at smaller scale"),
        (1, 0, 6, "holds in part", "holds in part", "seen in part at smaller scale"),
        (3, 3, 6, "holds in part", "holds in part", "not seen at smaller scale"),
        (1, 5, 6, "does not hold", "does not hold", "opposite at smaller scale"),
        (1, 23, 24, "does not hold", "does not hold", "opposite at smaller scale"),
    ],
)
def test_one_rule_says_what_a_run_makes_of_a_claim(shown, against, of, paper, weak, smaller):
    for is_smaller, could_see, status in ((False, True, paper), (False, False, weak), (True, True, smaller)):
        run = Run([], {}, is_smaller)
        assert run.judge("So.", shown=shown, against=against, of=of, could_see=could_see).status == status


def test_a_smaller_run_that_could_not_have_seen_an_effect_does_not_decide():
    run = Run([], {}, smaller=True)
    found = run.judge("So.", shown=0, against=0, could_see=False)
    assert (found.status, found.decided_by) == ("not decided", MORE_SEEDS)
    assert run.judge("So.", shown=0, against=1, of=4, could_see=False).status == "not seen at smaller scale"


@pytest.mark.parametrize(("shown", "against", "of"), [(0, 0, 0), (2, 2, 3), (-1, 0, 1)])
def test_counts_that_cannot_be_are_refused(shown, against, of):
    with pytest.raises(ValueError, match=f"of: got {of} comparisons, {shown} for and {against} against"):
        Run([], {}, False).judge("So.", shown=shown, against=against, of=of)


def test_alike_needs_an_interval_that_is_narrow_enough():
    generator = random.Random(0)
    narrow = interval([generator.gauss(0, 0.1) for _ in range(9)])
    wide = interval([generator.gauss(0, 10) for _ in range(9)])
    far = interval([5 + generator.gauss(0, 0.1) for _ in range(9)])
    run = Run([], {}, False)
    found = [judged_alike(run, "So.", [each], margin=1.0).status for each in (narrow, wide, far)]
    assert found == ["holds", "not decided", "does not hold"]


@pytest.mark.parametrize(
    ("name", "preset", "smaller"),
    [
        ("apa-digits", "laptop", True),
        ("apa-digits", "full", False),
        ("layeract-mnist", "laptop", False),
        ("dac-sgemm", "laptop", True),
        ("dac-toy", "laptop", False),
    ],
)
def test_the_scale_of_a_run_follows_from_its_preset(name, preset, smaller, monkeypatch):
    def load(asked, given):
        if (asked, given) != (name, preset):
            raise FileNotFoundError(asked)
        return {"rows": [{"seed": 0}], "settings": {}}

    monkeypatch.setattr(results, "load", load)
    assert form.run_of(name) == Run([{"seed": 0}], {}, smaller)
    assert form.run_of("apa-logits") is None
    assert form.no_result("apa-logits").status == not_tested("So.", "So.").status == "not tested"
