"""The ledger: each claim is a test of its own in tests/claims; here is what holds of all of them, and their form."""

from __future__ import annotations

import csv
import math
import random
import re
from collections import Counter
from dataclasses import replace

import pytest

from companion.study import claims, results, symbolic
from companion.study.analysis import Comparison, detectable, interval, paired
from companion.study.claims import Claim
from tests.cases import together
from tests.claims import form
from tests.claims.form import (
    FOLDER,
    REGISTER,
    ROOT,
    Run,
    Verdict,
    both,
    cells,
    claim,
    core_hours,
    count,
    declared,
    difference,
    effect,
    formula,
    jointly,
    judged_alike,
    no_worse,
    not_tested,
    rank,
    rows,
    share,
    share_of_errors,
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
    assert (head, rule) == ("| The paper says | We find |", "| --- | --- |")
    assert row.startswith("| At κ = λ = 1 AGLU is SiLU.")
    assert f"| <a href='../appendix/claims.html#apa-silu'>**{silu.status}**</a> ({silu.rests_on}) |" in row
    with pytest.raises(KeyError, match="ids: apa-never not in the ledger"):
        claims.get("apa-silu", "apa-never")


def test_special_characters_of_a_row_are_no_markdown():
    row = replace(claims.ledger("apa")[0], claim="a|b * c_d $5 <b> -3 x-2.")
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


def run(scale="smaller"):
    return Run("apa-digits", rows=[], settings={}, chosen=[], hours=2.0, scale=scale)


def comparison(*values, family=1):
    """Of ours, with these differences over seeds; not found in a larger family."""
    found, p_value = paired(values, [0.0] * len(values))
    return Comparison("planted", found, p_value, min(1.0, family * p_value), detectable(found, family), family)


UP, DOWN = comparison(1.0, 1.1, 0.9, 1.0), comparison(-1.0, -1.1, -0.9, -1.0)
NEAR_ZERO, WIDE = comparison(0.1, -0.1, 0.05, -0.05), comparison(3.0, -3.0, 2.0, -2.0)


@pytest.mark.parametrize(
    ("found", "claimed", "outcome"),
    [
        (UP, 0.5, "for"),
        (UP, 5.0, "for"),  # smaller than claimed, and clearly there
        (DOWN, 0.5, "against"),
        (NEAR_ZERO, 0.5, "ruled out"),
        (NEAR_ZERO, 0.05, "open"),
        (WIDE, 0.5, "open"),
        (NEAR_ZERO, None, "open"),  # no size, nothing to rule out
        (UP, None, "for"),
    ],
)
def test_one_comparison_is_for_a_claim_against_it_rules_it_out_or_leaves_it_open(found, claimed, outcome):
    assert effect(found, claimed).outcome == outcome
    # the same by its other side, in another unit
    turned = comparison(*(-x for x in (found.difference.mean,) * 3)) if claimed is None else None
    assert turned is None or effect(turned, None, sign=-1).shown.mean == pytest.approx(found.difference.mean)
    assert effect(found, claimed and 100 * claimed, scale=100).outcome == outcome


def test_an_effect_that_is_no_size_is_refused():
    for claimed, options in ((0.0, {}), (-1.0, {}), (1.0, {"sign": 0}), (1.0, {"scale": -1})):
        with pytest.raises(ValueError, match="sizes are above zero"):
            effect(UP, claimed, **options)


# Comparisons that are clearly for the claim, clearly against it, and that rule it out, of so many; and the verdict.
@pytest.mark.parametrize(
    ("shown", "against", "out", "of", "paper", "other"),
    [
        (1, 0, 0, 1, "holds", "seen"),
        (6, 0, 0, 6, "holds", "seen"),
        (1, 0, 5, 6, "holds in part", "seen in part"),
        (4, 2, 0, 6, "holds in part", "seen in part"),
        (3, 3, 0, 6, "holds in part", "seen in part"),
        (2, 3, 1, 6, "does not hold", "not seen"),
        (0, 1, 0, 6, "does not hold", "not seen"),
        (0, 0, 4, 6, "does not hold", "not seen"),
        (0, 0, 3, 6, "not decided", "not decided"),
        (0, 0, 0, 1, "not decided", "not decided"),
        (0, 4, 0, 6, "does not hold", "opposite"),
        (1, 23, 0, 24, "does not hold", "opposite"),
    ],
)
def test_one_rule_says_what_a_run_makes_of_a_claim(shown, against, out, of, paper, other):
    outcomes = ["for"] * shown + ["against"] * against + ["ruled out"] * out
    outcomes += ["open"] * (of - len(outcomes))
    for scale, status in (("paper", paper), ("ours", other), ("smaller", other)):
        found = run(scale).judge("So.", outcomes, power="", undecided="More.")
        assert found.status == status
        assert found.decided_by == ("More." if status == "not decided" else "")
        assert found.rests_on == {"paper": "our run", "ours": "our run, set-up ours"}.get(scale, "our run, smaller")


def test_a_claim_is_judged_by_at_least_one_comparison():
    with pytest.raises(ValueError, match="outcomes is empty"):
        run().judge("So.", [], power="", undecided="More.")


def test_a_verdict_on_effects_says_what_is_claimed_and_what_could_be_seen_and_what_would_decide():
    wide = effect(WIDE, 1.0)
    [effects] = jointly([wide, effect(NEAR_ZERO, 0.5)])
    found = run().judge_effects("So.", effects, "points")
    assert found.status == "not decided"
    near, far = (detectable(each.difference, 2) for each in (NEAR_ZERO, WIDE))
    assert found.power == (
        f"A difference of {near:.2g} to {far:.2g} points would have been found with 80 % probability, corrected for 2 "
        "comparisons; claimed: 0.5 to 1 points."
    )
    times = far**2
    needed = f"{math.ceil(4 * times):,} seeds, about {core_hours(2 * times)}"
    assert found.decided_by == f"apa-digits with {needed}, would decide it here."
    assert run().judge_effects("So.", [wide], "points", ours=True).power.endswith("names no size; we ask for 1 points.")
    assert run().judge_effects("So.", [effect(WIDE, None)], "points").power.endswith("; the paper names no size.")


def test_what_a_claim_is_judged_by_is_corrected_for_all_of_it():
    barely = comparison(0.9, 0.1, 0.9, 0.1, 0.6)
    assert 0.01 < barely.p_value < 0.05
    alone, wide = effect(barely, None), effect(WIDE, None)
    assert [each.outcome for of in jointly([alone], [wide] * 4) for each in of] == ["open"] * 5
    assert [[each.outcome for each in of] for of in jointly([alone], [effect(UP, None)])] == [["for"], ["for"]]
    [[among], _] = jointly([alone], [wide] * 4)
    assert (among.family, among.detectable) == (5, detectable(barely.difference, 5))
    # who was corrected for more before, stays so
    [[of_ten], _] = jointly([effect(comparison(0.9, 0.1, 0.9, 0.1, 0.6, family=10), None)], [wide])
    assert (of_ten.family, of_ten.outcome) == (10, "open")
    assert jointly([of_ten]) == [[of_ten]]
    with pytest.raises(ValueError, match="several families"):
        run().judge_effects("So.", [alone, wide], "points")


def test_who_was_tuned_to_the_edge_of_a_grid_is_known_by_the_rate_of_its_rows():
    chosen = [{"unit": "dac", "learning_rate": 1.0, "score": 0.5, "at_edge": True}]
    chosen += [{"unit": "base", "learning_rate": 0.3, "score": 0.5, "at_edge": False}]
    rows = [{"unit": "dac", "seed": 0, "learning_rate": 1.0}, {"unit": "base", "seed": 0, "learning_rate": 0.3}]
    assert replace(run(), rows=rows, chosen=chosen).at_edge("unit") == {("dac",)}
    assert replace(run(), rows=[rows[0] | {"learning_rate": 0.3}], chosen=chosen).at_edge("unit") == set()
    assert "on a wider grid of learning rates, about 2 core-hours" in run().beyond_its_grid("So.").decided_by


def test_a_gain_is_asked_for_elsewhere_as_a_share_of_the_errors():
    assert share_of_errors(50, 60) == pytest.approx(20)
    assert share_of_errors(98, 98.4) == pytest.approx(20)


def test_what_is_no_worse_than_a_margin_has_an_interval_above_it():
    assert [no_worse(each, 0.5) for each in (UP, NEAR_ZERO, WIDE, DOWN)] == ["for", "for", "open", "against"]


def test_alike_needs_an_interval_that_is_narrow_enough():
    generator = random.Random(0)
    narrow = interval([generator.gauss(0, 0.1) for _ in range(9)])
    wide = interval([generator.gauss(0, 10) for _ in range(9)])
    far = interval([5 + generator.gauss(0, 0.1) for _ in range(9)])
    found = [judged_alike(run("paper"), "So.", [each], margin=1.0).status for each in (narrow, wide, far)]
    assert found == ["holds", "not decided", "does not hold"]


@pytest.mark.parametrize(
    ("name", "preset", "scale"),
    [
        ("apa-digits", "laptop", "smaller"),
        ("apa-digits", "full", "paper"),
        ("layeract-mnist", "laptop", "paper"),
        ("dac-sgemm", "laptop", "smaller"),
        ("dac-toy", "laptop", "paper"),
    ],
)
def test_the_scale_of_a_run_follows_from_its_preset(name, preset, scale, monkeypatch):
    result = {"rows": [{"seed": 0}], "settings": {}, "chosen": [], "provenance": {"duration_seconds": 7200.0}}

    def load(asked, given):
        if (asked, given) != (name, preset):
            raise FileNotFoundError(asked)
        return result

    monkeypatch.setattr(results, "load", load)
    found = Run(name, rows=[{"seed": 0}], settings={}, chosen=[], hours=2.0, scale=scale)
    assert form.run_of(name) == found
    # settings that the paper leaves open make no smaller run larger
    assert form.run_of(name, ours=True) == replace(found, scale="ours" if scale == "paper" else scale)
    assert form.run_of("apa-logits") is None
    assert form.no_result("apa-logits").status == not_tested("So.", "So.").status == "not tested"
