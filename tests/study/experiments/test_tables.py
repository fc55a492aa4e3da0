from companion.study.analysis import interval
from companion.study.experiments.tables import summary, table

ROWS = [
    {"activation": activation, "seed": seed, "class": label, "accuracy": seed + label + offset}
    for activation, offset in (("relu", 0.0), ("aglu", 1.0))
    for seed in (0, 1, 2)
    for label in (0, 1)
]


def test_the_seed_is_the_unit_whatever_rows_it_has():
    relu, aglu = summary(ROWS, ["activation"], ["accuracy"])
    assert relu == {"activation": "relu", "accuracy": interval([0.5, 1.5, 2.5])}
    assert aglu["accuracy"].mean == 2.5


def test_a_table_shows_mean_and_half_width():
    lines = table({"rows": ROWS}, ["activation"], ["accuracy"]).splitlines()
    assert lines[0] == "| activation | accuracy |"
    assert lines[2] == "| relu | 1.5000 ± 2.4841 |"


def test_one_seed_is_shown_as_such_and_divergence_is_not_averaged_away():
    one = [row for row in ROWS if row["seed"] == 0]
    assert "0.5000 (one seed)" in table({"rows": one}, ["activation"], ["accuracy"])
    lost = [{**row, "accuracy": None} if row["seed"] == 1 else row for row in ROWS]
    assert "diverged" in table({"rows": lost}, ["activation"], ["accuracy"])


def test_cases_that_lack_a_setting_are_apart_from_those_that_have_it():
    rows = ROWS + [{**row, "weight": 0.1, "accuracy": 7.0} for row in ROWS if row["activation"] == "aglu"]
    lines = table({"rows": rows}, ["activation", "weight"], ["accuracy"]).splitlines()
    assert [line.split("|")[1:3] for line in lines[2:]] == [[" relu ", "  "], [" aglu ", "  "], [" aglu ", " 0.1 "]]
