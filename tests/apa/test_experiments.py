import json
import math

import pytest
import torch

from companion.apa.layers import AGLU
from companion.apa.study import experiments
from companion.apa.study.experiments import PublishedGradientAGLU
from companion.study import datasets
from companion.study.experiments import Job, classification, get, run
from tests.study.experiments.committed import committed, runs

# The keys that the claims read.
KEYS = {
    "apa-digits": {"activation", "imbalance", "seed", "learning_rate", "test_accuracy", "few_accuracy"},
    "apa-digits-rates": {"activation", "imbalance", "seed", "learning_rate", "test_accuracy", "few_accuracy"},
    "apa-logits": {"imbalance", "seed", "class", "class_size"}
    | {f"{name}{of}" for name in ("ks_logistic", "ks_gumbel", "skewness") for of in ("", "_rest")},
    "apa-attention": {"imbalance", "seed", "gate", "entropy_frequent", "entropy_rare", "response_rare"},
    "apa-lambda-gradient": {"gradient", "imbalance", "seed", "test_accuracy", "final_loss", "lam", "kappa"},
    "apa-cifar100-lt": {"variant", "imbalance", "seed", "test_accuracy", "few_accuracy", "many_accuracy"},
    "apa-cifar10-lt": {"activation", "gradient", "imbalance", "seed", "test_accuracy", "few_accuracy", "many_accuracy"},
}


@pytest.fixture
def smoke(results):
    """The rows of every experiment's smoke preset."""
    return {name: result["rows"] for name, result in results.items()}


TestRuns = runs(
    KEYS, committed("apa"), again=("apa-digits", "apa-attention"), rows={"apa-logits": 10, "apa-digits-rates": 2}
)


def test_all_activations_have_the_same_weights_and_aglu_two_more_per_layer(smoke):
    parameters = {row["activation"]: row["parameters"] for row in smoke["apa-digits"]}
    assert parameters["aglu"] == parameters["relu"] + 2 * 2


def test_tuned_runs_are_those_of_the_same_rate_in_the_table_of_all_rates(smoke):
    def key(row):
        return row["activation"], row["imbalance"], row["learning_rate"], row["seed"]

    table = {key(row): row["test_accuracy"] for row in smoke["apa-digits-rates"]}
    assert all(row["test_accuracy"] == table[key(row)] for row in smoke["apa-digits"])


def test_every_class_has_a_row_and_the_long_tail_is_where_it_says(smoke):
    rows = [row for row in smoke["apa-logits"] if row["imbalance"] == 100 and row["seed"] == 0]
    assert [row["class"] for row in rows] == list(range(10))
    assert (min(row["class_size"] for row in rows), max(row["class_size"] for row in rows)) == (1, 111)


def test_entropies_are_in_nats(smoke):
    for row in smoke["apa-attention"]:
        assert 0 < row["entropy_frequent"] <= math.log(2)
        assert 0 < row["entropy_rare"] <= math.log(2)
        assert 0 < row["weight_rare"] < 1


def pair(init):
    return AGLU(init=init).double(), PublishedGradientAGLU(init=init).double()


def gradients(layer, z):
    value = layer(z)
    lam = layer.lam
    value = layer(z)
    grads = torch.autograd.grad(value.sum(), (z, layer.kappa, layer.raw_lam))
    # d softplus(ρ)/dρ, to get from ρ to λ
    return value, *grads[:2], grads[2] / torch.autograd.grad(lam, layer.raw_lam)[0]


@pytest.mark.parametrize("z", [-3.0, -0.5, 0.7, 4.0])
@pytest.mark.parametrize("init", [(1.0, 1.0), (1.3, 0.2), (-0.5, 2.0)])
def test_the_published_gradient_differs_in_lambda_only_and_is_equation_8(z, init):
    point = torch.tensor([z], dtype=torch.float64, requires_grad=True)
    true, published = (gradients(layer, point) for layer in pair(init))
    for ours, theirs in zip(true[:3], published[:3], strict=True):
        torch.testing.assert_close(ours, theirs)
    kappa, lam = init
    eta = (1 + lam * math.exp(-kappa * z)) ** (-1 / lam)
    assert published[3].item() == pytest.approx(-z / lam * eta / (lam + math.exp(kappa * z)))
    # The true derivative is z times something positive, the printed one z times something negative.
    assert true[3].item() * published[3].item() < 0


def test_the_published_gradient_is_no_gradient():
    layer = PublishedGradientAGLU(init=(1.0, 1.0)).double()
    z = torch.linspace(-2, 3, 7, dtype=torch.float64)

    def total(raw_lam):
        return torch.func.functional_call(layer, {"raw_lam": raw_lam}, (z,)).sum()

    assert not torch.autograd.gradcheck(total, (layer.raw_lam,), raise_exception=False)


def test_both_variants_of_one_seed_start_alike(smoke):
    # One epoch moves κ and λ little; different starts would differ by a tenth or more.
    by_seed = {}
    for row in smoke["apa-lambda-gradient"]:
        by_seed.setdefault((row["imbalance"], row["seed"], row["learning_rate"]), []).append(row["kappa"])
    for kappas in by_seed.values():
        assert max(kappas) - min(kappas) < 0.02


@pytest.mark.parametrize("init", [(1.0, 1.0), (1.3, 0.2)])
def test_the_published_gradient_of_bfloat16_is_computed_in_float32(init):
    layer = PublishedGradientAGLU(init=init)
    rounded = torch.linspace(-3, 4, 500).bfloat16()
    results = []
    for z in (rounded.clone(), rounded.float()):
        out = layer(z.requires_grad_())
        results.append([out, *torch.autograd.grad(out.float().sum(), (z, layer.kappa, layer.raw_lam))])
        assert out.dtype == z.dtype
    for low, high in zip(*results, strict=True):
        torch.testing.assert_close(low.float(), high.to(low.dtype).float(), rtol=1e-5, atol=1e-6)


LONG_TAIL = get("apa-cifar10-lt")


def test_the_long_tail_has_all_its_images_where_it_is_evaluated_and_a_tenth_fewer_where_it_is_tuned(monkeypatch):
    """With CIFAR-10's labels; each image is the number of its row."""
    rows = torch.arange(50_000.0)[:, None, None, None]
    parts = {
        True: datasets.Part(rows, torch.arange(50_000) % 10),
        False: datasets.Part(rows[:100], torch.arange(100) % 10),
    }
    monkeypatch.setattr(datasets, "_torchvision_part", lambda name, folder, train: parts[train])
    seen = {}

    def fit_(job, activation):
        seen[job.stage] = classification.splits_of(job)

    monkeypatch.setattr(experiments, "fit", fit_)
    settings = LONG_TAIL.presets["excerpt"] | {"standardise": "none"}
    for stage in ("tuning", "evaluation"):
        experiments._fit_long_tail(Job("apa-cifar10-lt", stage, LONG_TAIL.cases(settings)[0], settings, 7, 0.1))
    tuning, evaluation = seen["tuning"], seen["evaluation"]
    assert torch.bincount(evaluation.train.targets).sort().values.tolist() == [
        *(50, 83, 139, 232, 387, 645, 1077, 1796, 2997, 5000)
    ]
    assert (len(evaluation.train), len(evaluation.validation)) == (12_406, 0)
    assert (len(tuning.train), int(torch.bincount(tuning.train.targets).max())) == (11_165, 4_500)
    assert torch.bincount(tuning.validation.targets).tolist() == [500] * 10
    assert not set(tuning.train.inputs.flatten().tolist()) & set(tuning.validation.inputs.flatten().tolist())


def long_tail_job(stage, case):
    """A job of the excerpt, as it is but for digits, a smaller network, and two whole batches and a rest."""
    settings = LONG_TAIL.presets["excerpt"] | {"dataset": "digits", "network": "resnet8_half", "epochs": 1}
    settings["tuning"] = settings["tuning"] | {"epochs": 1}
    return Job("apa-cifar10-lt", stage, case, settings, 0, 0.15)


LONG_TAIL_CASES = LONG_TAIL.cases(LONG_TAIL.presets["excerpt"])


# One of torch's activations and the published gradient; tests/study/test_training.py traces every activation.
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("case", LONG_TAIL_CASES[:: len(LONG_TAIL_CASES) - 1], ids=lambda case: case["activation"])
def test_the_long_tail_is_tuned_and_measured_the_way_it_will_be(case):
    assert 0 <= LONG_TAIL.validate(long_tail_job("tuning", case)) <= 1
    [row] = LONG_TAIL.measure(long_tail_job("evaluation", case))
    assert all(0 <= row[key] <= 1 for key in LONG_TAIL.columns)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2
    for key in ("lam_by_layer", "kappa_by_layer"):
        assert len(row.get(key, [])) == (7 if case["activation"] == "aglu" else 0)


def test_both_gradients_share_their_rate_and_the_others_have_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPANION_RUNS", str(tmp_path))
    monkeypatch.setenv("CI", "1")
    result = json.loads(run(LONG_TAIL, "smoke", seeds=1).read_text())
    rates = {(row["activation"], row["gradient"]): row for row in result["chosen"]}
    assert len(rates) == 4
    assert {key: rates["aglu", "true"][key] for key in ("learning_rate", "score")} == {
        key: rates["aglu", "published"][key] for key in ("learning_rate", "score")
    }
