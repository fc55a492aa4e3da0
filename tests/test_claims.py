"""The ledger: every claim has a source and a check, every verdict is computed, and none is typed by hand."""

import csv
import functools
import importlib
import inspect
import math
import random
import subprocess
import sys
from typing import get_args

import pytest

from companion import claims, results, rooms
from companion.claims import Claim, Run, Status, Verdict
from companion.experiments import registry
from tests.together import together

MECHANISMS = [*rooms.modules("claims")]
LEDGER = [claim for mechanism in MECHANISMS for claim in claims.ledger(mechanism)]
EXPERIMENTS = (
    *("apa-digits", "apa-digits-rates", "apa-logits", "apa-attention", "apa-lambda-gradient"),
    *("layeract-mnist", "layeract-cifar10"),
    *("dac-sgemm", "dac-cifar10", "dac-toy"),
)
TABLES = sorted(path.stem for path in (results.data_path() / "published").glob("*.csv"))


def identifier(claim: Claim) -> str:
    return claim.id


def by_id(name: str) -> Claim:
    [claim] = [claim for claim in LEDGER if claim.id == name]
    return claim


@functools.cache
def observed(claim: Claim) -> tuple[Verdict, frozenset[str], frozenset[str]]:
    """Return a claim's verdict with the published tables and the results that its check read: ask before a change."""
    tables, experiments = set(), set()
    published, load = claims.published, results.load
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims, "published", lambda name: tables.add(name) or published(name))
        patch.setattr(results, "load", lambda name, *rest, **more: experiments.add(name) or load(name, *rest, **more))
        return claim.verdict(), frozenset(tables), frozenset(experiments)


# --- The ledger ---------------------------------------------------------------------------------------------


@together("claim", LEDGER, of=identifier)
def test_a_claim_has_a_verdict_with_a_sentence_of_evidence(claim):
    verdict, _, experiments = observed(claim)
    assert verdict.status in get_args(Status)
    assert any(character.isdigit() for character in verdict.evidence) or experiments
    assert "\n" not in verdict.evidence


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_check_judges_exactly_one_claim(mechanism):
    module = importlib.import_module(f"companion.{mechanism}.claims")
    checks = [
        f"{module.__name__}:{name}"
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    ]
    assert sorted(claim.check for claim in claims.ledger(mechanism)) == sorted(checks)


def test_every_claim_names_a_place_in_the_paper():
    places = ("Section", "Eq", "Table", "Appendi", "Abstract")
    assert [claim.id for claim in LEDGER if not claim.source.startswith(places)] == []


def test_every_published_table_is_read_by_some_claim():
    read = set().union(*(observed(claim)[1] for claim in LEDGER))
    assert set(TABLES) - read == set()


@together("name", TABLES)
def test_a_published_table_is_rectangular_and_names_its_rows_once(name):
    with (results.data_path() / "published" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert all(len(row) == len(header) for row in rows)
    assert all(header)
    if "quoted" not in header and header[0] == "method":
        assert len({row[0] for row in rows}) == len(rows)


def test_what_the_ledger_says_of_the_formulas():
    verdicts = {claim.id: observed(claim)[0].status for claim in LEDGER}
    assert verdicts["layeract-backward"] == verdicts["layeract-eq-7"] == verdicts["layeract-bound-can"] == "holds"
    assert verdicts["layeract-eq-8"] == verdicts["layeract-eq-9-half"] == verdicts["layeract-scale"] == "holds in part"
    assert verdicts["layeract-eq-9-bound"] == verdicts["layeract-terms"] == "does not hold"
    assert verdicts["layeract-any-scale"] == verdicts["layeract-bound-samples"] == "does not hold"
    assert verdicts["d-kappa"] == verdicts["d-z"] == verdicts["silu"] == verdicts["stable-equal"] == "holds"
    assert verdicts["gelu"] == verdicts["identity"] == verdicts["range-aglu"] == "holds in part"
    assert verdicts["d-lambda"] == verdicts["range-gelu"] == verdicts["entropy-zero"] == "does not hold"
    assert verdicts["dac-backward"] == verdicts["dac-figure-7a"] == verdicts["dac-remark-c-2"] == "holds"
    assert verdicts["dac-remark-2-1"] == verdicts["dac-universal"] == verdicts["dac-theorem-3"] == "holds in part"
    assert verdicts["dac-theorem-1"] == verdicts["dac-four-units"] == "does not hold"


# --- Verdicts are computed ----------------------------------------------------------------------------------


@together("claim", lambda: [claim for claim in LEDGER if observed(claim)[1]], of=identifier)
def test_other_numbers_in_the_papers_tables_give_another_verdict(claim):
    before = observed(claim)[0]
    generator = random.Random(3)
    published = claims.published

    def shaken(name):
        """Move every number by up to half of itself, the same way at every reading."""
        generator.seed(name)
        return [
            {
                key: f"{float(text) * generator.uniform(0.5, 1.5):.4g}" if is_number(text) else text
                for key, text in row.items()
            }
            # A table's number is a name.
            | {key: row[key] for key in row if key == "table"}
            for row in published(name)
        ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims, "published", shaken)
        assert claim.verdict() != before


def is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def test_the_verdict_on_a_quoted_difference_turns_when_the_table_agrees(monkeypatch):
    claim = by_id("quoted-table-8")
    published = claims.published

    def corrected(name):
        rows = published(name)
        for row in rows:
            if row["method"] == "SE-ResNet50 APA*+AGLU" and "average" in row:
                row["average"] = "79.0"
        return rows

    assert observed(claim)[0].status == "does not hold"
    monkeypatch.setattr(claims, "published", corrected)
    assert claim.verdict().status == "holds"


def test_the_verdict_on_eq_8_turns_when_the_formula_is_the_derivative(monkeypatch):
    from companion import symbolic
    from companion.apa import claims as checks

    true = symbolic.get("apa-d-lambda").rhs
    monkeypatch.setattr(checks, "_printed", lambda name: true)
    assert by_id("d-lambda").verdict().status == "holds"


@pytest.mark.parametrize("name", ["sigmoid", "silu", "richards", "roles", "error-logistic", "expected-output"])
def test_the_verdict_on_a_special_case_turns_when_the_function_is_another(name, monkeypatch):
    from companion.apa import claims as checks

    monkeypatch.setattr(checks, "_eta", lambda z, kappa, lam: 0.5 - 0.01 * math.tanh(kappa * z / lam))
    assert by_id(name).verdict().status != "holds"


def test_the_verdict_on_the_backward_pass_turns_when_the_formula_is_another(monkeypatch):
    from companion import symbolic
    from companion.layeract import claims as checks

    # The equations without what the variance passes on.
    without = symbolic.get("layeract-gradient-assembled").rhs.replace(
        lambda term: term.func.__name__ == "Partial" and str(term.args[1]) == "v", lambda term: 0 * term
    )
    monkeypatch.setattr(checks, "_printed", lambda name: without)
    assert by_id("layeract-backward").verdict().status == "does not hold"


LAYERACT = {
    "layeract-saturation-input": ("_normalised", lambda row, alpha=1e-5: list(row)),
    "layeract-shape": ("_layer_act", lambda row, scale, alpha=1e-5: [y / 2 for y in row]),
    "layeract-delivers": ("_layer_act", lambda row, scale, alpha=1e-5: [0.5 for _ in row]),
    "layeract-scale-sums": ("_normalised", lambda row, alpha=1e-5: [abs(y) for y in row]),
    "layeract-continuity": ("_step", lambda x: 1 / (1 + math.exp(-x))),
    "layeract-negative": ("_layer_act", lambda row, scale, alpha=1e-5: [max(0.0, y) for y in row]),
    "layeract-eq-7": ("_bound", lambda *inputs: 0.0),
    "layeract-bound-can": ("_both_bounds", lambda row, noise: (1.0, 2.0)),
}


@pytest.mark.parametrize("name", LAYERACT)
def test_a_verdict_that_holds_turns_when_the_function_is_another(name, monkeypatch):
    from companion.layeract import claims as checks

    assert observed(by_id(name))[0].status.startswith("holds")
    monkeypatch.setattr(checks, *LAYERACT[name])
    assert by_id(name).verdict().status != observed(by_id(name))[0].status


def test_what_is_refuted_of_layeract_would_hold_of_a_function_without_normalisation(monkeypatch):
    from companion.layeract import claims as checks

    monkeypatch.setattr(checks, "_layer_act", lambda row, scale, alpha=1e-5: [y * scale(y) for y in row])
    assert by_id("layeract-bound-samples").verdict().status == "holds"
    assert by_id("layeract-after-layernorm").verdict().status == "holds"


def test_significance_turns_with_the_deviations(monkeypatch):
    """With deviations ten times as large, next to nothing is significant."""
    published = claims.published

    def wider(name):
        return [
            {
                key: f"{10 * float(text):g}" if name == "layeract-table-5" and is_number(text) else text
                for key, text in row.items()
            }
            for row in published(name)
        ]

    monkeypatch.setattr(claims, "published", wider)
    assert by_id("layeract-significance").verdict().status == "does not hold"


def test_the_verdict_on_imagenet_turns_when_the_table_agrees(monkeypatch):
    published = claims.published

    def corrected(name):
        rows = published(name)
        for row in rows:
            if name in ("layeract-table-4", "layeract-table-12") and row["method"].startswith("LA-"):
                row["blur"] = "70.00"
        return rows

    both = [by_id(name) for name in ("layeract-imagenet", "layeract-imagenet-second")]
    assert [observed(claim)[0].status for claim in both] == ["holds in part"] * 2
    monkeypatch.setattr(claims, "published", corrected)
    assert [claim.verdict().status for claim in both] == ["holds"] * 2


# What is changed in the checks, and the claims whose verdict has to turn.
DAC = {
    "dac-remark-2-1": ("_composed", lambda b, c, z: max(0.0, b + c + z)),
    "dac-more-general": ("_unit", lambda w, b, z: sum(a * (c + x) for a, c, x in zip(w, b, z, strict=True))),
    "dac-no-effect": ("_grouped", lambda generator, inputs, outputs, groups: groups > 1),
    "dac-otherwise-more": ("_biases", lambda inputs, outputs, groups: outputs * inputs),
    "dac-mba-parameters": ("_conv_parameters", lambda n, m, side, dac: m * n * side**2),
    "dac-dense-parameters": ("_dense", lambda n, m, dac: (2 * n - 1 if dac else n) * m),
    "dac-conv-parameters": (
        "_conv_parameters",
        lambda n, m, side, dac: m * (n * side**2 + n - 1) if dac else m * n * side**2,
    ),
    "dac-three-by-three": ("_conv_parameters", lambda n, m, side, dac: m * n * (side**2 + 3 * dac)),
    "dac-dense-flops": ("_conv_flops", lambda n, m, side, outside, inside, dac: m * (3 * n - 1 if dac else 2 * n)),
    "dac-conv-flops": (
        "_conv_flops",
        lambda n, m, side, outside, inside, dac: m * (2 * n * side**2 + (n - 1) * dac) * outside,
    ),
    "dac-flops-percent": ("_conv_flops", lambda n, m, side, outside, inside, dac: m * n * (side**2 + dac)),
    "dac-cached": ("_looked_at", lambda image, side, stride, padding: (image**2, image**2)),
    "dac-shift": ("_unit", lambda w, b, z: sum(a * c * x for a, c, x in zip(w, b, z, strict=True))),
    "dac-wide-parameters": (
        "_network_parameters",
        lambda convs, classes, dac: sum(2 * conv.m * conv.n for conv in convs),
    ),
    "dac-universal": ("_interpolated", lambda knots, values, points: [0.0 for _ in points]),
    "dac-reparametrised": ("_relu", math.tanh),
    "dac-similar-power": ("_relu", lambda x: x),
    "dac-replication-alone": ("_relu", lambda x: random.random()),
    "dac-backward": ("_printed", lambda name: squared(name)),
    "dac-figure-7a": ("_values", lambda construction, points, *more: [p[0] + p[1] for p in points]),
    "dac-figure-7b": (
        "_values",
        lambda construction, points, *more: [1 - abs(x) - abs(y) for x, y in points],
    ),
    "dac-figure-7b-standard": (
        # A DAC of Fig. 7b with a higher threshold: a bounded set that is not empty.
        "_network_2_2",
        lambda w, c, v, d, u: sum(max(0.0, 1 + x) - 2 * max(0.0, x) for x in u) - 1.1,
    ),
    "dac-four-units": ("_values", lambda construction, points, *more: [1.0 for _ in points]),
    "dac-theorem-1": ("_unit", lambda w, b, z: -1.0),
    "dac-theorem-2": ("_relu", lambda x: x),
    "dac-theorem-3": ("_two_layers", lambda kinks, slopes, height, x: (0.0, 1.0)),
    "dac-remark-c-2": ("_rank", lambda k, seed: (2 * k - 1, 2 * k)),
    "dac-remark-c-2-minimum": ("_unit", lambda w, b, z: -1.0),
    # Every epoch of a replicate has the same noise.
    "dac-error-variance": (
        "_noises",
        lambda seed, draws, sigma, tau, memory=0.0: [
            [[tau * noise(seed, draw, k) * 1000] * 5 for k in range(5)] for draw in range(draws)
        ],
    ),
    "dac-error-first": ("_estimates", lambda sample: (0.0, 0.0, 0.0)),
    "dac-error-second": ("_estimates", lambda sample: (0.1, 1.0, 10.0)),
}


def squared(name):
    from companion import symbolic

    return symbolic.get(name).rhs ** 2


@pytest.mark.parametrize("name", DAC)
def test_a_verdict_on_dac_turns_when_the_fact_is_another(name, monkeypatch):
    from companion.dac import claims as checks

    before = observed(by_id(name))[0].status
    monkeypatch.setattr(checks, *DAC[name])
    assert by_id(name).verdict().status != before


# --- Experiments --------------------------------------------------------------------------------------------


class Finished(dict):
    """Rows by experiment, and whether they are of its largest preset or of a smaller one."""

    scale = "paper"

    def load(self, name, preset="laptop"):
        largest = "full" if "full" in registry.get(name).presets else "laptop"
        if name not in self or preset != ("laptop" if self.scale == "smaller" else largest):
            raise FileNotFoundError(name)
        return {"rows": self[name], "settings": {"dataset": "digits"}}


@pytest.fixture
def finished(monkeypatch):
    """Let `results.load` return given rows, and nothing else; at the paper's scale if nothing else is said."""
    made = Finished()
    monkeypatch.setattr(results, "load", made.load)
    return made


def statuses(*names):
    return [by_id(name).verdict().status for name in names]


def on_results():
    """The claims that runs of ours judge. No constant: every worker that collects these tests would judge them all."""
    return [claim for claim in LEDGER if observed(claim)[2]]


# Comparisons that clearly show the claim, that clearly show the opposite, and all.
@pytest.mark.parametrize(
    ("shown", "against", "of", "paper", "smaller"),
    [
        (1, 0, 1, "holds", "seen at smaller scale"),
        (6, 0, 6, "holds", "seen at smaller scale"),
        (0, 0, 1, "does not hold", "not seen at smaller scale"),
        (0, 0, 6, "does not hold", "not seen at smaller scale"),
        (0, 1, 1, "does not hold", "opposite at smaller scale"),
        (0, 4, 6, "does not hold", "opposite at smaller scale"),
        (0, 3, 6, "does not hold", "not seen at smaller scale"),
        (1, 0, 6, "holds in part", "seen in part at smaller scale"),
        (3, 3, 6, "holds in part", "seen in part at smaller scale"),
        (1, 5, 6, "holds in part", "opposite at smaller scale"),
    ],
)
def test_one_rule_says_what_a_run_makes_of_a_claim_at_either_scale(shown, against, of, paper, smaller):
    for scale, status in (("paper", paper), ("smaller", smaller)):
        verdict = Run([], {}, scale).judge("So.", shown=shown, against=against, of=of)
        assert verdict == Verdict(status, "So.", scale)


@pytest.mark.parametrize(
    ("scale", "status"), [("paper", "holds in part"), ("smaller", "seen in part at smaller scale")]
)
def test_what_is_shown_everywhere_and_yet_not_in_full_is_shown_in_part(scale, status):
    assert Run([], {}, scale).judge("So.", shown=3, against=0, of=3, whole=False).status == status


@pytest.mark.parametrize(("shown", "against", "of"), [(0, 0, 0), (2, 2, 3), (-1, 0, 1)])
def test_counts_that_cannot_be_are_refused(shown, against, of):
    with pytest.raises(ValueError, match=f"of: {of} comparisons, {shown} for and {against} against the claim"):
        Run([], {}, "paper").judge("So.", shown=shown, against=against, of=of)


@pytest.mark.parametrize(
    ("name", "preset", "scale"),
    [
        ("apa-digits", "laptop", "smaller"),
        ("apa-digits", "full", "paper"),
        ("layeract-cifar10", "laptop", "smaller"),
        ("layeract-mnist", "laptop", "paper"),
        ("dac-sgemm", "laptop", "smaller"),
        ("dac-sgemm", "full", "paper"),
        ("dac-toy", "laptop", "paper"),
    ],
)
def test_the_scale_of_a_run_follows_from_its_preset(name, preset, scale, finished):
    finished[name] = [{"seed": 0}]
    finished.scale = "smaller" if preset == "laptop" else "paper"
    assert claims.run_of(name) == Run([{"seed": 0}], {"dataset": "digits"}, scale)


def test_the_larger_of_two_runs_judges(monkeypatch):
    monkeypatch.setattr(results, "load", lambda name, preset: {"rows": [preset], "settings": {}})
    assert claims.run_of("apa-digits") == Run(["full"], {}, "paper")


@together("claim", LEDGER, of=identifier)
def test_a_verdict_carries_a_scale_where_a_run_of_ours_judged(claim):
    verdict, _, experiments = observed(claim)
    assert (verdict.scale is not None) == (bool(experiments) and verdict.status != "not tested")


def test_the_experiments_of_the_list_are_what_claims_read():
    assert sorted(set().union(*(observed(claim)[2] for claim in on_results()))) == sorted(EXPERIMENTS)


@together("claim", on_results, of=identifier)
def test_a_claim_without_its_result_is_not_tested_and_says_which_is_missing(claim):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "load", Finished().load)
        verdict = claim.verdict()
    assert verdict.status == "not tested"
    assert any(name in verdict.evidence for name in EXPERIMENTS)


def noise(*key):
    return random.Random(repr(key)).gauss(0, 0.001)


def digits_rows(gain):
    activations = ("aglu", "relu", "gelu", "silu", "mish", "elu", "prelu")
    return [
        {
            "activation": activation,
            "imbalance": imbalance,
            "seed": seed,
            "learning_rate": 0.1,
            "test_accuracy": 0.9 + gain.get(activation, 0.0) + noise("test", activation, imbalance, seed),
            "few_accuracy": 0.6 + gain.get(activation, 0.0) + noise("few", activation, imbalance, seed),
            "many_accuracy": 0.95,
        }
        for activation in activations
        for imbalance in (1, 10, 100)
        for seed in range(5)
    ]


@pytest.mark.parametrize("name", ["aglu-balanced", "aglu-imbalance-10", "aglu-imbalance-100", "aglu-rare"])
def test_aglu_is_better_only_where_it_beats_all_six_beyond_chance(name, finished):
    finished["apa-digits"] = digits_rows({"aglu": 0.02})
    assert by_id(name).verdict().status == "holds"
    finished["apa-digits"] = digits_rows({"aglu": 0.02, "gelu": 0.04})
    verdict = by_id(name).verdict()
    assert verdict.status == "holds in part"
    assert "better than 5 of 6 and worse than 1" in verdict.evidence
    finished["apa-digits"] = digits_rows({})
    assert by_id(name).verdict().status == "does not hold"


def logit_rows(balanced, tailed):
    """Rows in which a share of ten classes is nearer to the Gumbel law."""
    return [
        {
            "imbalance": imbalance,
            "seed": seed,
            "class": label,
            "class_size": 10,
            "ks_logistic": 0.1,
            "ks_gumbel": 0.05 if label < share else 0.2,
            "skewness": share / 10 + noise("skew", seed, label),
        }
        for imbalance, share in ((1, balanced), (100, tailed))
        for seed in range(5)
        for label in range(10)
    ]


def test_logits_are_judged_by_the_share_of_classes_nearer_to_a_law(finished):
    finished["apa-logits"] = logit_rows(balanced=1, tailed=9)
    names = ("logits-balanced", "logits-long-tailed", "logits-skewed")
    assert [by_id(name).verdict().status for name in names] == ["holds"] * 3
    assert "90%" in by_id("logits-long-tailed").verdict().evidence
    finished["apa-logits"] = logit_rows(balanced=9, tailed=1)
    assert [by_id(name).verdict().status for name in names] == ["does not hold"] * 3
    finished["apa-logits"] = logit_rows(balanced=5, tailed=5)
    assert statuses(*names[:2]) == ["does not hold"] * 2


def attention_rows(effect, apa):
    """Rows in which rare classes lack `effect` under imbalance, and APA* has `apa` more entropy."""
    return [
        {
            "imbalance": imbalance,
            "seed": seed,
            "gate": gate,
            "entropy_frequent": 0.5 + apa * (gate == "apa_star") + noise("a", seed, imbalance, gate),
            "entropy_rare": 0.5
            - effect * (imbalance == 100)
            + apa * (gate == "apa_star")
            + noise("b", seed, imbalance, gate),
            "response_frequent": 1.0 + noise("c", seed, gate),
            "response_rare": 1.0 - effect * (imbalance == 100) + noise("d", seed, gate),
        }
        for imbalance in (1, 100)
        for seed in range(5)
        for gate in ("sigmoid", "gumbel", "apa", "apa_star")
    ]


def test_attention_is_judged_by_paired_differences(finished):
    names = ("attention-entropy", "attention-response", "attention-apa", "attention-balanced")
    finished["apa-attention"] = attention_rows(effect=0.1, apa=0.05)
    assert [by_id(name).verdict().status for name in names] == ["holds"] * 4
    finished["apa-attention"] = attention_rows(effect=-0.1, apa=-0.05)
    assert [by_id(name).verdict().status for name in names[:3]] == ["does not hold"] * 3
    finished["apa-attention"] = attention_rows(effect=0.0, apa=0.0)
    assert [by_id(name).verdict().status for name in names[:3]] == ["does not hold"] * 3


def gradient_rows(lam, accuracy):
    return [
        {
            "gradient": gradient,
            "imbalance": imbalance,
            "seed": seed,
            "test_accuracy": 0.9 + accuracy * (gradient == "published") + noise("e", gradient, seed),
            "final_loss": 0.1 - accuracy * (gradient == "published") + noise("f", gradient, seed),
            "lam": 0.5 + lam * (gradient == "published") + noise("g", gradient, seed),
            "kappa": 1.0,
        }
        for gradient in ("true", "published")
        for imbalance in (1, 10, 100)
        for seed in range(5)
    ]


def test_the_published_gradient_is_judged_by_where_lambda_ends_and_what_it_costs(finished):
    finished["apa-lambda-gradient"] = gradient_rows(lam=0.3, accuracy=-0.05)
    assert by_id("learned-lambda").verdict().status == "does not hold"
    finished["apa-lambda-gradient"] = gradient_rows(lam=0.3, accuracy=0.0)
    assert by_id("learned-lambda").verdict().status == "holds in part"
    finished["apa-lambda-gradient"] = gradient_rows(lam=0.0, accuracy=0.0)
    assert by_id("learned-lambda").verdict().status == "holds"


def test_parameters_listed_by_layer_are_averaged(finished):
    rows = gradient_rows(lam=0.3, accuracy=0.0)
    finished["apa-lambda-gradient"] = rows
    plain = by_id("learned-lambda").verdict()
    finished["apa-lambda-gradient"] = [row | {"lam": [row["lam"] - 0.1, row["lam"] + 0.1]} for row in rows]
    assert by_id("learned-lambda").verdict() == plain


ELEMENT_LEVEL = ("relu", "leaky_relu", "prelu", "mish", "silu", "hardsilu")
LAYER_LEVEL = ("la_silu", "la_hardsilu")
LOWER = (
    *("mean_activation_epoch_1", "mean_activation_epoch_40", "mean_activation_epoch_80"),
    *("fluctuation_mean_1", "fluctuation_mean_2", "fluctuation_std_1", "fluctuation_std_2"),
    *("gain_mean_1", "gain_mean_2"),
)
ON_MNIST = {
    "layeract-mnist-mean": "mean_activation_epoch_40",
    "layeract-mnist-always": "mean_activation_epoch_1",
    "layeract-mnist-fluctuation": "fluctuation_mean_2",
    "layeract-mnist-variance": "fluctuation_std_1",
    "layeract-mnist-inherent": "gain_mean_1",
}


def mnist_rows(effect, silu=0.0, inputs=0.0):
    """Rows in which the LayerAct functions are higher by `effect`, SiLU and HardSiLU by `silu`."""
    return [
        {"activation": activation, "seed": seed}
        | {
            measure: 1.0
            + effect.get(activation, 0.0)
            + silu * (activation in ("silu", "hardsilu"))
            + noise(measure, activation, seed)
            for measure in LOWER
        }
        | {f"input_fluctuation_mean_{n}": 1.0 + inputs * (activation == "la_silu") for n in (1, 2)}
        for activation in (*ELEMENT_LEVEL, *LAYER_LEVEL)
        for seed in range(5)
    ]


@pytest.mark.parametrize("name", ON_MNIST)
def test_layeract_is_lower_only_where_both_functions_beat_all_six_beyond_chance(name, finished):
    finished["layeract-mnist"] = mnist_rows(dict.fromkeys(LAYER_LEVEL, -0.5))
    assert by_id(name).verdict().status == "holds"
    finished["layeract-mnist"] = mnist_rows({"la_silu": -0.5, "la_hardsilu": 0.5})
    assert by_id(name).verdict().status == "holds in part"
    finished["layeract-mnist"] = mnist_rows(dict.fromkeys(LAYER_LEVEL, 0.5))
    assert by_id(name).verdict().status == "does not hold"
    finished["layeract-mnist"] = mnist_rows({})
    assert by_id(name).verdict().status == "does not hold"


@pytest.mark.parametrize(("name", "measure"), ON_MNIST.items())
def test_a_claim_about_several_measures_holds_in_part_where_one_of_them_fails(name, measure, finished):
    rows = mnist_rows(dict.fromkeys(LAYER_LEVEL, -0.5))
    for row in rows:
        if row["activation"] in LAYER_LEVEL:
            row[measure] = 2.0 + noise("other", row["activation"], row["seed"])
    finished["layeract-mnist"] = rows
    alone = name == "layeract-mnist-mean"
    assert by_id(name).verdict().status == ("does not hold" if alone else "holds in part")


@pytest.mark.parametrize(("silu", "status"), [(0.5, "holds"), (0.0, "does not hold"), (-0.5, "does not hold")])
def test_silu_is_judged_against_relu_under_the_second_noise(silu, status, finished):
    finished["layeract-mnist"] = mnist_rows({}, silu=silu)
    assert by_id("layeract-mnist-silu").verdict().status == status


@pytest.mark.parametrize(
    ("inputs", "status"), [(0.05, "holds"), (-0.05, "holds"), (0.3, "does not hold"), (-0.3, "does not hold")]
)
def test_input_fluctuations_are_similar_within_a_tenth(inputs, status, finished):
    finished["layeract-mnist"] = mnist_rows({}, inputs=inputs)
    assert by_id("layeract-mnist-inputs").verdict().status == status


def cifar_rows(gain, spread=1.0):
    measures = ("clean", "gaussian_1", "gaussian_2", "gaussian_3", "gaussian_4", "poisson", "blur")
    return [
        {"activation": activation, "seed": seed}
        | {
            f"accuracy_{measure}": 0.6
            + gain.get((activation, measure), gain.get(activation, 0.0))
            + spread * noise(measure, activation, seed)
            for measure in measures
        }
        for activation in (*ELEMENT_LEVEL, *LAYER_LEVEL)
        for seed in range(5)
    ]


@pytest.mark.parametrize("activation", LAYER_LEVEL)
def test_robustness_is_judged_for_each_function_over_six_noises(activation, finished):
    claim = by_id(f"layeract-cifar-{activation.replace('_', '-')}")
    finished["layeract-cifar10"] = cifar_rows({activation: 0.2})
    assert claim.verdict().status == "holds"
    finished["layeract-cifar10"] = cifar_rows({activation: 0.2, (activation, "blur"): -0.2})
    verdict = claim.verdict()
    assert verdict.status == "holds in part"
    assert "significantly in 30" in verdict.evidence
    assert "behind in 6 " in verdict.evidence
    finished["layeract-cifar10"] = cifar_rows({})
    assert claim.verdict().status == "does not hold"


@pytest.mark.parametrize("activation", LAYER_LEVEL)
def test_a_gain_on_clean_images_alone_is_no_robustness(activation, finished):
    finished["layeract-cifar10"] = cifar_rows({(activation, "clean"): 0.2})
    claim = by_id(f"layeract-cifar-{activation.replace('_', '-')}")
    assert claim.verdict().status == "does not hold"


def test_clean_accuracy_is_similar_where_it_is_neither_significantly_nor_a_point_worse(finished):
    claim = by_id("layeract-cifar-clean")
    finished["layeract-cifar10"] = cifar_rows({})
    assert claim.verdict().status == "holds"
    finished["layeract-cifar10"] = cifar_rows({"mish": 0.2})
    assert claim.verdict().status == "holds in part"
    finished["layeract-cifar10"] = cifar_rows({"la_silu": -0.2})
    assert claim.verdict().status == "does not hold"


def test_two_points_behind_are_not_similar_even_where_no_test_can_see_them(finished):
    finished["layeract-cifar10"] = cifar_rows({"la_silu": -0.02}, spread=10)
    assert by_id("layeract-cifar-clean").verdict().status != "holds"


LADDER = (25, 35, 50, 71, 100, 141, 200)
SGEMM = tuple(f"dac-experiment-sgemm-{name}" for name in ("small", "large", "biases", "weights", "trains"))


def sgemm_rows(by_width=0.0, biases=0.0, trade=(0.0, 0.0), failed=(0, 0)):
    """Baselines that gain `by_width` less with each doubling, and DACs.

    A DAC of the same width as a baseline differs by `biases`; or, where `trade` is given, one with as many parameters
    differs by its first number in small networks and by its second in large ones.
    """
    made = []
    level = 0.0
    for place, width in enumerate(LADDER):
        for seed in range(5):
            common = {"shape": "rectangular", "depth": 5, "seed": seed}
            error = level + noise("sgemm", width, seed)
            base = {"unit": "base", "width": width, "parameters": 4 * width**2, "failed": place * 5 + seed < failed[0]}
            made.append(common | base | {"log_mse": error})
            narrow = LADDER[place - 1] if place else 18
            change = trade[4 * width**2 > 1e4] if any(trade) else None
            dac = {"unit": "dac", "width": narrow, "parameters": 8 * narrow**2, "failed": place * 5 + seed < failed[1]}
            before = level + (0.6 - by_width * (place - 1) if place else 0.6)
            own = error + change if change is not None else before + biases + noise("biases", width, seed)
            made.append(common | dac | {"log_mse": own})
        level -= 0.6 - by_width * place
    return made


def test_trading_weights_for_biases_is_judged_for_small_and_for_large_networks(finished):
    names = SGEMM[:2]
    finished["dac-sgemm"] = sgemm_rows(trade=(0.3, -0.3))
    assert statuses(*names) == ["holds", "holds"]
    finished["dac-sgemm"] = sgemm_rows(trade=(-0.3, 0.3))
    assert statuses(*names) == ["does not hold", "does not hold"]
    finished["dac-sgemm"] = [row for row in sgemm_rows(trade=(0.3, -0.3)) if row["width"] <= 100]
    assert statuses(*names) == ["holds", "not tested"]


def test_unshared_biases_have_to_help_everywhere_and_by_about_as_much_as_the_paper_says(finished):
    name = "dac-experiment-sgemm-biases"
    finished["dac-sgemm"] = sgemm_rows(biases=-0.25)
    assert statuses(name) == ["holds"]
    finished["dac-sgemm"] = sgemm_rows(biases=-0.05)
    assert statuses(name) == ["holds in part"]
    finished["dac-sgemm"] = sgemm_rows(biases=0.25)
    assert statuses(name) == ["does not hold"]


def test_more_weights_help_less_where_the_first_gain_is_the_larger(finished):
    name = "dac-experiment-sgemm-weights"
    finished["dac-sgemm"] = sgemm_rows(by_width=0.1)
    assert statuses(name) == ["holds"]
    finished["dac-sgemm"] = sgemm_rows(by_width=-0.1)
    assert statuses(name) == ["does not hold"]
    finished["dac-sgemm"] = [row for row in sgemm_rows() if row["width"] < 36]
    assert statuses(name) == ["not tested"]


@pytest.mark.parametrize(
    ("failed", "status"),
    [((0, 0), "not tested"), ((3, 2), "not tested"), ((15, 0), "holds"), ((0, 15), "does not hold")],
)
def test_failed_trainings_are_compared_if_there_are_enough(failed, status, finished):
    finished["dac-sgemm"] = sgemm_rows(failed=failed)
    assert statuses("dac-experiment-sgemm-trains") == [status]


CIFAR = tuple(f"dac-experiment-cifar-{name}" for name in ("better", "shared", "mba"))


def dac_rows(gains):
    """Test errors: a unit's gain over the baseline, for all networks or for one."""
    networks = {"vgg8_8": ("base", "dac", "shared")}
    networks["resnet8_half"] = (*networks["vgg8_8"], "mba2", "mba4", "mba8")
    return [
        {
            "network": network,
            "unit": unit,
            "seed": seed,
            "test_error": 0.4 - gains.get((network, unit), gains.get(unit, 0.0)) + noise(network, unit, seed),
        }
        for network, units in networks.items()
        for unit in units
        for seed in range(5)
    ]


def test_the_units_are_compared_with_the_baseline_and_with_dac(finished):
    finished["dac-cifar10"] = dac_rows({"dac": 0.05, "mba2": 0.02, "mba4": 0.02})
    assert statuses(*CIFAR) == ["holds"] * 3
    finished["dac-cifar10"] = dac_rows({"dac": -0.05, "shared": 0.05, "mba8": 0.02})
    assert statuses(*CIFAR) == ["does not hold"] * 3
    finished["dac-cifar10"] = dac_rows({("vgg8_8", "dac"): 0.05, "shared": 0.02, "mba4": 0.05})
    assert statuses(*CIFAR) == ["holds in part", "holds in part", "does not hold"]
    finished["dac-cifar10"] = dac_rows({"dac": 0.001})
    assert statuses("dac-experiment-cifar-shared") == ["holds in part"]


def pyramids(rows):
    return [row | {"shape": "pyramidal"} for row in rows]


def test_widths_are_compared_within_a_shape(finished):
    finished["dac-sgemm"] = [*sgemm_rows(by_width=0.1), *pyramids(sgemm_rows(by_width=-0.1))]
    assert statuses("dac-experiment-sgemm-weights") == ["holds in part"]
    assert "pyramidal, 5 layers, 25: " in by_id("dac-experiment-sgemm-weights").verdict().evidence


def test_biases_of_which_nothing_trained_are_not_tested(finished):
    finished["dac-sgemm"] = [row | {"failed": True} for row in sgemm_rows(biases=-0.25)]
    assert statuses("dac-experiment-sgemm-biases") == ["not tested"]


TOY = tuple(f"dac-experiment-toy-{name}" for name in ("unit", "layer", "line"))


def toy_rows(dac, standard, error):
    """Shares of solved trainings of DACs and of the standard networks that should fail; a ratio of errors."""
    made = []
    for problem, network, sizes in (
        *(("unit", "dac", [0]), ("unit", "standard", [0, 1]), ("layer", "dac", [2]), ("layer", "standard", [2, 3, 4])),
        *(("line", "dac", [5, 8]), ("line", "standard", [3, 5])),
    ):
        for units in sizes:
            for start in ("zero", "spread"):
                for seed in range(10):
                    share = dac if network == "dac" else standard if units in (0, 3) else 1.0
                    row = {"problem": problem, "network": network, "units": units, "start": start, "seed": seed}
                    row["solved"] = float(seed < 10 * share and start == "spread")
                    row["parameters"] = 2 * units if network == "dac" else 3 * units + 1
                    row["error"] = 0.01 * (error if network == "dac" else 1) * (1 + abs(noise(problem, units, seed)))
                    made.append(row)
    return made


def test_training_has_to_find_the_dac_often_and_the_smaller_standard_network_never(finished):
    finished["dac-toy"] = toy_rows(dac=0.8, standard=0.0, error=0.1)
    assert statuses(*TOY) == ["holds"] * 3
    finished["dac-toy"] = toy_rows(dac=0.2, standard=0.0, error=1.0)
    assert statuses(*TOY) == ["holds in part", "holds in part", "does not hold"]
    finished["dac-toy"] = toy_rows(dac=0.8, standard=0.1, error=10.0)
    assert statuses(*TOY) == ["does not hold"] * 3


# For each claim that a small run judges: rows that show it, that show nothing, and that show the opposite.
SMALLER = {
    **{
        name: ("apa-digits", lambda sign: digits_rows({"aglu": 0.02 * sign}))
        for name in ("aglu-balanced", "aglu-imbalance-10", "aglu-imbalance-100", "aglu-rare")
    },
    "logits-balanced": ("apa-logits", lambda sign: logit_rows(balanced=5 - 4 * sign, tailed=5)),
    "logits-long-tailed": ("apa-logits", lambda sign: logit_rows(balanced=5, tailed=5 + 4 * sign)),
    "logits-skewed": ("apa-logits", lambda sign: logit_rows(balanced=5, tailed=5 + 4 * sign)),
    "attention-entropy": ("apa-attention", lambda sign: attention_rows(effect=0.1 * sign, apa=0.0)),
    "attention-response": ("apa-attention", lambda sign: attention_rows(effect=0.1 * sign, apa=0.0)),
    "attention-apa": ("apa-attention", lambda sign: attention_rows(effect=0.0, apa=0.05 * sign)),
    **{
        f"layeract-cifar-{name.replace('_', '-')}": (
            "layeract-cifar10",
            lambda sign, name=name: cifar_rows({name: 0.2 * sign}),
        )
        for name in LAYER_LEVEL
    },
    SGEMM[0]: ("dac-sgemm", lambda sign: sgemm_rows(trade=(0.3 * sign, 0.3)) if sign else sgemm_rows(trade=(0, 1))),
    SGEMM[1]: ("dac-sgemm", lambda sign: sgemm_rows(trade=(0.3, -0.3 * sign)) if sign else sgemm_rows(trade=(1, 0))),
    SGEMM[2]: ("dac-sgemm", lambda sign: sgemm_rows(biases=-0.25 * sign)),
    SGEMM[3]: ("dac-sgemm", lambda sign: sgemm_rows(by_width=0.1 * sign)),
    SGEMM[4]: ("dac-sgemm", lambda sign: sgemm_rows(failed={1: (15, 0), 0: (8, 7), -1: (0, 15)}[sign])),
    CIFAR[0]: ("dac-cifar10", lambda sign: dac_rows({"dac": 0.05 * sign})),
    CIFAR[2]: ("dac-cifar10", lambda sign: dac_rows({"dac": 0.05 * sign})),
}
# Claims that two things are alike: nothing clear shows them.
ALIKE = {
    "attention-balanced": ("apa-attention", lambda: attention_rows(effect=0.1, apa=0.0)),
    "learned-lambda": ("apa-lambda-gradient", lambda: gradient_rows(lam=0.0, accuracy=0.0)),
    "layeract-cifar-clean": ("layeract-cifar10", lambda: cifar_rows({})),
    CIFAR[1]: ("dac-cifar10", lambda: dac_rows({"dac": 0.05})),
}


@pytest.mark.parametrize("name", SMALLER)
def test_a_small_run_neither_confirms_nor_refutes(name, finished):
    experiment, rows = SMALLER[name]
    finished.scale = "smaller"
    found = []
    for sign in (1, 0, -1):
        finished[experiment] = rows(sign)
        found += statuses(name)
    assert found == ["seen at smaller scale", "not seen at smaller scale", "opposite at smaller scale"]


@pytest.mark.parametrize("name", ALIKE)
def test_a_small_run_shows_likeness_where_it_sees_no_clear_difference(name, finished):
    experiment, rows = ALIKE[name]
    finished.scale = "smaller"
    finished[experiment] = rows()
    assert statuses(name) == ["seen at smaller scale"]


def test_the_opposite_of_likeness_is_a_clear_difference(finished):
    finished.scale = "smaller"
    finished["apa-lambda-gradient"] = gradient_rows(lam=0.3, accuracy=-0.05)
    finished["layeract-cifar10"] = cifar_rows({"la_silu": -0.2})
    finished["dac-cifar10"] = dac_rows({"dac": -0.05, "shared": 0.05})
    names = "learned-lambda", "layeract-cifar-clean", CIFAR[1]
    assert statuses(*names) == ["opposite at smaller scale"] * 3


def test_every_claim_that_a_small_run_judges_is_among_these():
    read = {claim.id: min(observed(claim)[2]) for claim in on_results()}
    scales = {name: claims.run_of(name).scale for name in set(read.values())}
    smaller = {claim for claim, name in read.items() if scales[name] == "smaller"}
    assert smaller == {*SMALLER, *ALIKE}


# --- Ledger, table and errors -------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write a ledger of one's own."""
    (tmp_path / "claims").mkdir()
    monkeypatch.setattr(claims, "data_path", lambda: tmp_path)
    return lambda text: (tmp_path / "claims" / "new.yaml").write_text(text, encoding="utf-8")


ROW = "- {id: one, claim: a | b, source: Eq. 1, check: 'companion.apa.claims:silu', chapter: new}\n"


def test_a_table_has_a_line_per_claim_and_escapes_what_markdown_would_read(written):
    written(ROW)
    header, rule, line = claims.table("new").splitlines()
    assert header == "| Claim | Source | Verdict | Evidence |"
    assert rule.count("---") == 4
    assert line.startswith(r"| a \| b | Eq. 1 | **holds** | AGLU(z, 1, 1)")


def test_a_table_of_chosen_claims_has_them_in_their_order():
    lines = claims.table("apa", "gelu", "silu").splitlines()
    assert len(lines) == 4
    assert "GELU" in lines[2]
    with pytest.raises(KeyError, match="ids: nothing not in the ledger of 'apa'"):
        claims.table("apa", "nothing")


@pytest.mark.parametrize(
    "text",
    [
        ROW.replace("source: Eq. 1, ", ""),
        ROW.replace("Eq. 1", "1"),
        ROW.replace("chapter:", "verdict: holds, chapter:"),
    ],
    ids=["lacks a source", "has a number for a source", "has a typed verdict"],
)
def test_a_ledger_is_refused_whose_row(text, written):
    written(text)
    with pytest.raises(ValueError, match="every row has text for exactly id, claim, source, check, chapter"):
        claims.ledger("new")


def test_a_ledger_with_one_id_twice_is_refused(written):
    written(ROW + ROW)
    with pytest.raises(ValueError, match="the id 'one' occurs twice"):
        claims.ledger("new")


def test_a_claim_whose_check_does_not_exist_raises(written):
    written(ROW.replace("silu", "nothing"))
    with pytest.raises(AttributeError, match="nothing"):
        claims.ledger("new")[0].verdict()


def test_a_verdict_is_refused_with_an_unknown_status_or_without_a_sentence():
    with pytest.raises(ValueError, match="status: 'maybe' is unknown; allowed are holds,"):
        Verdict("maybe", "It is so.")
    with pytest.raises(ValueError, match="evidence: 'so' is not a sentence"):
        Verdict("holds", "so")


@pytest.mark.parametrize(
    ("status", "scale"),
    [("holds", "smaller"), ("seen at smaller scale", "paper"), ("not seen at smaller scale", None)],
)
def test_a_verdict_is_refused_whose_status_speaks_of_another_scale(status, scale):
    with pytest.raises(ValueError, match=f"status: '{status}' does not go with the scale {scale!r}"):
        Verdict(status, "So.", scale)


def test_importing_the_ledger_imports_nothing_heavy():
    heavy = "{'sympy', 'scipy', 'mpmath', 'yaml', 'pandas', 'matplotlib'}"
    code = (
        # What torch brings does not count.
        "import sys, companion, companion.apa, companion.layeract; before = set(sys.modules)\n"
        "import companion.claims, companion.apa.claims, companion.dac.claims, companion.layeract.claims\n"
        f"new = {heavy} & (set(sys.modules) - before); assert not new, new"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
