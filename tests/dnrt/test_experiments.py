"""The experiments on DNRT: each response is what its name says, and what is looked at inside is what was computed."""

import pytest
import torch
from torch.nn import functional as F

from companion.dnrt.layers import RAA
from companion.dnrt.study import experiments
from companion.dnrt.study.experiments import comparisons, label
from companion.study import datasets
from companion.study.analysis import sparsity, within_class_share
from companion.study.experiments import Job, get
from tests.study.experiments.committed import committed, runs

KEYS = (
    "dnrt-ablation",
    "dnrt-cifar10",
    "dnrt-conditions",
    "dnrt-mnist",
    "dnrt-overfitting",
    "dnrt-sensitivity",
    "dnrt-versions",
)


def job_of(name, response, preset="smoke", **changes):
    settings = {**get(name).presets[preset], **changes}
    kept = {key: value for key, value in settings.items() if key not in ("seeds", "learning_rates", "tuning_seeds")}
    case = experiments._cases({**kept, "responses": [response]})[0]
    return Job(name, "evaluation", case, kept, 0, 0.003)


TestRuns = runs(dict.fromkeys(KEYS, ()), committed("dnrt"))


@pytest.mark.parametrize(
    ("response", "kind", "has_arr"),
    [
        ("relu", "ReLU", False),
        ("gdn", "GDN", False),
        ("raa", "RAA", False),
        ("relu+arr", "ReLU", True),
        ("gelu+arr", "GELU", True),
        ("dnrt", "RAA", True),
    ],
)
def test_a_response_is_an_activation_with_or_without_a_loss(response, kind, has_arr):
    for name, count in (("dnrt-ablation", 4), ("dnrt-mnist", 1)):
        fitted = experiments._fit(job_of(name, response, epochs=0))
        activations, _ = experiments._hidden(fitted.model)
        assert [type(module).__name__ for module in activations] == [kind] * count
        assert hasattr(fitted.model, "arr") == has_arr
        output, target = fitted.model(fitted.splits.train.inputs[:40]), fitted.splits.train.targets[:40]
        extra = experiments._loss({}, fitted)(output, target) - F.cross_entropy(output, target)
        assert (extra > 1e-3) == has_arr


def test_the_two_readings_of_a_perceptron_hold_what_the_activation_gives_and_the_logits():
    settings = job_of("dnrt-mnist", "dnrt").settings
    widths = {}
    for case in experiments._cases({**settings, "responses": ["dnrt"]}):
        fitted = experiments._fit(Job("dnrt-mnist", "evaluation", case, {**settings, "epochs": 0}, 0, 0.003))
        widths[label(case)] = list(fitted.model.arr.widths.values())
        assert fitted.model.arr.weight == case["weight"]
    assert widths == {"dnrt hidden": [128], "dnrt output": [10]}


def test_what_is_looked_at_is_the_class_token_and_all_offsets(monkeypatch):
    fitted = experiments._fit(job_of("dnrt-ablation", "raa", epochs=1, train_size=100))
    model, test = fitted.model.eval(), fitted.splits.test.subset(torch.arange(60))
    raa = experiments._hidden(model)[0][2]
    assert isinstance(raa, RAA)
    given = []
    raa.register_forward_pre_hook(lambda _, args: given.append(args[0]))
    logits, inside = experiments._run(model, test.inputs)
    assert torch.equal(logits, model(test.inputs))
    torch.testing.assert_close(raa(given[0]), inside.responses[2])
    torch.testing.assert_close(inside.offsets[2], F.linear(given[0], raa.weight[None], raa.bias)[..., 0])
    assert [x.shape for x in inside.aggregated] == [(60, 17, 64)] * 4
    whole, relevance = experiments._look(model, test.inputs), experiments._relevance(model, test)
    monkeypatch.setattr(experiments, "_BATCH", 25)
    seen = experiments._look(model, test.inputs)
    for wanted, *found in (
        (inside.offsets, whole.offsets, seen.offsets),
        *(([x[:, 0] for x in getattr(inside, name)], getattr(whole, name), getattr(seen, name))
          for name in ("responses", "aggregated")),
    ):  # fmt: skip
        for each in found:
            torch.testing.assert_close(each, wanted)
    row = experiments._learned(model, seen, test)
    assert row["offset_deviation"] == pytest.approx(sum(float(c.std()) for c in inside.offsets) / 4)
    assert row["relevance"] == pytest.approx(relevance, abs=1e-4)
    assert -1 <= relevance <= 1


def test_an_offset_that_is_the_share_in_the_logit_has_relevance_one(monkeypatch):
    fitted = experiments._fit(job_of("dnrt-ablation", "raa", epochs=0))
    part = fitted.splits.test.subset(torch.arange(20))
    run = experiments._run

    def with_shares(model, images):
        logits, inside = run(model, images)
        margins = logits.gather(1, part.targets[:, None])[:, 0] - logits.mean(1)
        gradients = torch.autograd.grad(margins.sum(), inside.responses, retain_graph=True)
        shares = [(y * g).sum(-1).detach() for y, g in zip(inside.responses, gradients, strict=True)]
        return logits, inside._replace(offsets=shares)

    monkeypatch.setattr(experiments, "_run", with_shares)
    assert experiments._relevance(fitted.model, part) == pytest.approx(1)


def test_sparsity_and_the_share_within_classes_do_not_depend_on_the_scale():
    x, targets = torch.randn(50, 8), torch.arange(50) % 3
    torch.testing.assert_close(sparsity(3 * x), sparsity(x))
    assert within_class_share(3 * x, targets) == pytest.approx(within_class_share(x, targets))
    assert within_class_share(x + 100 * targets[:, None], targets) < 0.01 < within_class_share(x, targets) <= 1
    for wrong in (torch.zeros(3), torch.zeros(3, 1)):
        with pytest.raises(ValueError, match="allowed is"):
            sparsity(wrong[:1] if wrong.ndim == 1 else wrong)
    with pytest.raises(ValueError, match=r"allowed are \(N, d\) and \(N,\)"):
        within_class_share(x, targets[:-1])


def test_of_several_weights_the_one_that_validates_best_counts():
    rows = [
        {"response": "dnrt", "layers": "hidden", "weight": weight, "seed": seed, "accuracy": weight,
         "accuracy_validation": validation + seed}
        for weight, validation in ((0.01, 0.3), (0.1, 0.4), (1.0, 0.2))
        for seed in range(2)
    ]  # fmt: skip
    plain = {"response": "gelu", "seed": 0, "accuracy": 0.5}
    assert experiments.with_chosen_weight([plain, *rows]) == [plain, *rows[2:4]]
    found = experiments.summaries({"rows": [*rows, {**plain, "accuracy": 0.4}, plain]})
    assert {key: each.mean for key, each in found.items()} == {("dnrt hidden",): 0.1, ("gelu",): pytest.approx(0.45)}


def test_the_comparisons_are_those_of_the_protocol():
    rows = [
        {"response": response, "seed": seed, "accuracy": 0.9 + shift + 0.001 * seed, **more}
        for response, shift, more in (
            ("gelu", 0.0, {}),
            ("raa", 0.01, {}),
            ("dnrt", 0.02, {"layers": "hidden", "weight": 0.1}),
        )
        for seed in range(3)
    ]
    found = {c.key: c.difference.mean for c in comparisons({"experiment": "dnrt-mnist", "rows": rows})}
    assert found == pytest.approx({("raa", "gelu"): 0.01, ("dnrt hidden", "raa"): 0.01, ("dnrt hidden", "gelu"): 0.02})


def test_where_classes_are_rare_the_softmax_is_balanced_and_a_tenth_of_the_labels_can_be_wrong():
    settings = {**get("dnrt-conditions").presets["smoke"], "epochs": 0, "train_size": 1000}
    cases = experiments._condition_cases(settings)
    plain, *_, rare = (case for case in cases if case["response"] == "gelu")
    assert [experiments._condition(case) for case in (plain, rare)] == [("wrong labels 0.1",), ("imbalance 10",)]
    right = datasets.load("digits", 0, validation=0.1).train
    for case in (plain, rare):
        fitted = experiments._fit(Job("dnrt-conditions", "evaluation", case, settings, 0, 0.003))
        train = fitted.splits.train
        counts = torch.bincount(train.targets).float()
        output = fitted.model(train.inputs)
        shifted = output + (counts.log() if case is rare else 0)
        torch.testing.assert_close(
            experiments._loss(case, fitted)(output, train.targets), F.cross_entropy(shifted, train.targets)
        )
        labels = {tuple(image.flatten().tolist()): int(k) for image, k in zip(right.inputs, right.targets, strict=True)}
        wrong = sum(
            labels[tuple(x.flatten().tolist())] != int(k) for x, k in zip(train.inputs, train.targets, strict=True)
        )
        assert wrong == (0 if case is rare else 100)


@pytest.mark.parametrize(
    ("version", "parameters", "offset"), [("eq2", 1, "b"), ("eq3", 6, "w*x + b"), ("raa", 4, "w@x + b")]
)
def test_the_versions_are_the_equations(version, parameters, offset):
    x, b, w = torch.randn(5, 3), torch.tensor([0.3, -0.2, 0.5]), torch.tensor([0.7, -1.0, 0.2])
    layer = experiments._WIDE[version](3, -1)
    assert sum(p.numel() for p in layer.parameters()) == parameters
    torch.testing.assert_close(layer(x), F.gelu(x))
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.copy_({"weight": w, "bias": b[: len(parameter)]}[name])
    c = {"b": b[0], "w*x + b": w * x + b, "w@x + b": (x @ w)[:, None] + b[0]}[offset]
    torch.testing.assert_close(layer(x), x * torch.special.ndtr(x + c))


def test_each_case_of_the_sensitivity_has_its_own_momentum_and_weight():
    settings = {**get("dnrt-sensitivity").presets["smoke"], "epochs": 0}
    plain, *cases = get("dnrt-sensitivity").cases(settings)
    found = [
        experiments._fit(Job("dnrt-sensitivity", "evaluation", case, settings, 0, 0.003)).model.arr for case in cases
    ]
    assert plain == {"response": "raa"}
    assert [(each.arr.momentum, each.weight) for each in found] == [(0.1, 0.1), (1.0, 0.1), (0.1, 10.0)]


def test_momenta_are_compared_with_a_tenth_weights_with_no_loss_and_each_condition_by_itself():
    cases = get("dnrt-sensitivity").cases(get("dnrt-sensitivity").presets["laptop"])
    rows = [
        case | {"seed": seed, "accuracy": i + 0.1 * seed * (i % 3)} for i, case in enumerate(cases) for seed in range(3)
    ]
    found = {c.key for c in comparisons({"experiment": "dnrt-sensitivity", "rows": rows})}
    assert found == set(experiments._PAIRS["dnrt-sensitivity"])
    settings = get("dnrt-conditions").presets["laptop"]
    rows = [
        case | {"seed": seed, "accuracy": i + 0.1 * seed * (i % 3), "accuracy_validation": case.get("weight", 0.0)}
        for i, case in enumerate(get("dnrt-conditions").cases(settings))
        for seed in range(3)
    ]
    kept = experiments.with_chosen_weight(rows)
    assert {row["weight"] for row in kept if "weight" in row} == {1.0}
    assert len(kept) == 4 * 4 * 3
    found = {c.key for c in comparisons({"experiment": "dnrt-conditions", "rows": rows})}
    assert len(found) == 16
    assert ("raa", "gelu", "imbalance 50") in found
