import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from companion import DACLinear, to_dac
from companion.dac.study import constructions, experiments
from companion.dac.study.experiments import changes, comparisons
from companion.study import datasets
from companion.study.analysis import holm, paired
from companion.study.experiments import Job, get
from companion.study.experiments.classification import fit, validation_accuracy
from companion.study.training import Patience, checkpoints, mean_squared_error, train
from companion.weight_decay import parameter_groups
from tests.study.experiments.committed import committed, runs

# The keys that claims and chapter read.
KEYS = {
    "dac-sgemm": {
        *("unit", "shape", "depth", "width", "equivalent_width", "parameters", "log_mse", "mse"),
        *("validation_mse", "best_epoch", "epochs", "failed", "seed", "learning_rate"),
    },
    **{
        f"dac-{name}": {
            *("network", "unit", "seed", "learning_rate", "parameters"),
            *("test_error", "validation_error", "test_errors", "validation_errors"),
        }
        for name in ("cifar10", "cifar100", "imagenette")
    },
    "dac-toy": {"problem", "network", "units", "start", "seed", "parameters", "solved", "error", "loss"},
}


def job_of(name, case, seed=0, rate=0.01, preset="smoke", **changes):
    kept = {**get(name).presets[preset], **changes}
    settings = {key: value for key, value in kept.items() if key not in ("seeds", "learning_rates", "tuning_seeds")}
    return Job(name, "evaluation", case, settings, seed, rate)


TestRuns = runs(KEYS, committed("dac"), again=("dac-sgemm",))


# What the paper fixes, read in its section 5.
def test_the_reproductions_follow_the_paper_and_tune_nothing():
    for preset in ("laptop", "full"):
        sgemm = get("dac-sgemm").presets[preset]
        assert (sgemm["batch_size"], sgemm["learning_rates"], sgemm["weight_decay"]) == (1024, [0.01], 1e-5)
        assert sgemm["threshold"] == 1e-4
        assert sgemm["tuning_seeds"] == []
    assert (sgemm["stop_from"], sgemm["patience"]) == (250, 50)
    assert (min(sgemm["depths"]), max(sgemm["depths"])) == (5, 16)
    assert {25, 50, 100, 200} <= set(sgemm["rectangular_base"])
    assert {18, 35, 71, 141} <= set(sgemm["rectangular_dac"])
    for name, decay in (("cifar10", 2e-4), ("cifar100", 3e-4)):
        full = get(f"dac-{name}").presets["full"]
        assert full["epochs"] * math.ceil(40_000 / full["batch_size"]) == pytest.approx(80_000, rel=0.01)
        assert (full["batch_size"], full["learning_rates"], full["weight_decay"]) == (128, [0.1], decay)
        assert (full["milestones"], full["folds"], full["seeds"]) == ([0.4, 0.6, 0.8], 5, 5)
        assert (full["augment"], full["decay"], full["tuning_seeds"]) == (True, "kernels", [])
        cases = [(case["network"], case["unit"]) for case in get(f"dac-{name}").cases(full)]
        assert len(cases) == len(set(cases)) == 10 * 2 + 2 * 4
    imagenette = get("dac-imagenette").presets["full"]
    assert imagenette["epochs"] * math.ceil(7575 / 128) == pytest.approx(64_000, rel=0.001)


def test_the_comparisons_tune_every_competitor_alike(results):
    for name, keys in (("dac-cifar10", ("network", "unit")), ("dac-toy", ("problem", "network", "units", "start"))):
        tried = {}
        for row in results[name]["tuning"]:
            tried.setdefault(tuple(row[key] for key in keys), []).append((row["learning_rate"], row["seed"]))
        settings = results[name]["settings"]
        assert len(tried) == len(get(name).cases(settings))
        for pairs in tried.values():
            assert sorted(pairs) == sorted((r, s) for r in settings["learning_rates"] for s in settings["tuning_seeds"])


# dac-sgemm.


def regression_case(unit, width, depth=5, shape="rectangular"):
    return {"unit": unit, "shape": shape, "depth": depth, "width": width}


def test_a_training_that_is_interrupted_keeps_its_lowest_error(tmp_path, monkeypatch):
    job = job_of("dac-sgemm", regression_case("inner", 5, depth=3))
    [whole] = experiments._measure_regression(job)
    measured = []

    def error(model, data):
        measured.append(data)
        if len(measured) == 9:
            raise KeyboardInterrupt
        return mean_squared_error(model, data)

    monkeypatch.setattr(experiments, "mean_squared_error", error)
    with checkpoints(tmp_path, 0.0), pytest.raises(KeyboardInterrupt):
        experiments._measure_regression(job)
    with checkpoints(tmp_path, 0.0):
        assert experiments._measure_regression(job) == [whole]
    # every epoch once, the ninth twice, and the test
    assert len(measured) == whole["epochs"] + 2


def test_the_network_of_the_lowest_error_survives_an_interruption_after_it(monkeypatch):
    errors = iter([3.0, 1.0, 2.0, 2.0, 2.0])
    monkeypatch.setattr(experiments, "mean_squared_error", lambda model, data: next(errors))
    first, second = (experiments._Lowest(nn.Linear(1, 1), None, Patience(1, 3, 0.0)) for _ in range(2))
    for epoch in (1, 2, 3):
        nn.init.constant_(first.model.weight, epoch)
        assert not first(epoch)
    second.load_state_dict(first.state_dict())
    assert (second.network["weight"].item(), second.error, second.epoch) == (2.0, 1.0, 2)
    assert [second(4), second(5)] == [False, True]


def test_a_training_counts_what_is_below_the_smallest_normal_number_as_zero(monkeypatch):
    def tiny():
        return float(torch.full((1,), 1e-30) * 1e-10)

    seen = []
    monkeypatch.setattr(experiments, "train", lambda *args, **settings: seen.append(tiny()) or train(*args, **settings))
    experiments._measure_regression(job_of("dac-sgemm", regression_case("base", 7, 3), epochs=1))
    assert seen == [0.0]
    assert tiny() > 0


def test_a_compiled_training_ends_near_one_that_is_not():
    job = job_of("dac-sgemm", regression_case("inner", 5, depth=3), epochs=4)
    compiled = replace(job, settings={**job.settings, "compiled": True})
    [one], [other] = map(experiments._measure_regression, (job, compiled))
    assert one["log_mse"] == pytest.approx(other["log_mse"], abs=0.02)


@pytest.mark.parametrize("depth", [5, 16])
def test_as_the_paper_says_141_units_have_as_many_parameters_as_200(depth):
    base, dac = (
        experiments._parameters(experiments._regressor(regression_case(unit, width, depth), 14, 0))
        for unit, width in (("base", 200), ("dac", 141))
    )
    # Weights, two numbers per normalised unit, the last layer and the shift; then pairs of weight and bias, one number
    # per normalised unit, the last layer's pairs and the shift.
    assert base == 200 * 14 + (depth - 1) * 200**2 + depth * 2 * 200 + 200 + 1
    assert dac == 2 * 141 * 14 + (depth - 1) * 2 * 141**2 + depth * 141 + 2 * 141 + 1
    assert dac == pytest.approx(base, rel=0.011)
    assert abs(dac - base) < abs(dac - 141 * 14 - base)


def test_where_the_paper_sees_a_gain_networks_of_equal_size_meet():
    large = get("dac-sgemm").presets["large"]
    size = {
        (case["unit"], case["width"]): experiments._parameters(experiments._regressor(case, 14, 0))
        for case in get("dac-sgemm").cases(large)
    }
    assert size.keys() == {("base", 141), ("base", 200), ("dac", 141), ("inner", 142)}
    assert min(size["base", 200], size["dac", 141]) > 1e5
    assert size["dac", 141] == pytest.approx(size["base", 200], rel=0.01)
    # One matrix of the inputs, four square ones with biases, five scales, the last unit's pairs and the shift.
    assert size["inner", 142] == 142 * 14 + 4 * 2 * 142**2 + 5 * 142 + 2 * 142 + 1
    assert size["inner", 142] == pytest.approx(size["base", 200], rel=0.005)


def test_the_large_preset_makes_the_comparisons_that_were_fixed_beforehand():
    large = get("dac-sgemm").presets["large"]
    assert large["seeds"] == 8
    rows = [
        {**case, "seed": seed, "log_mse": 0.1 * seed, "failed": False, "parameters": 1}
        for case in get("dac-sgemm").cases(large)
        for seed in (0, 1)
    ]
    assert [(change.key.width, change.key.kind, change.key.other) for change in changes(rows)] == [
        *((141, "weights", 200), (141, "biases", 141)),
        *((200, "trade", 141), (200, "inner", 142)),
    ]


def test_a_pyramids_widths_fall_evenly_to_a_quarter():
    assert experiments._widths(regression_case("base", 100, 4, "pyramidal")) == [100, 75, 50, 25]
    assert experiments._widths(regression_case("base", 100, 4)) == [100] * 4


def normalised(z, scale):
    return scale * (z - z.mean(0)) / torch.sqrt(z.var(0, correction=0) + 1e-5)


def test_the_networks_compute_what_the_paper_writes():
    x = torch.randn(50, 14)
    with torch.no_grad():
        for unit in ("base", "dac", "inner"):
            model = experiments._regressor(regression_case(unit, 6, 2), 14, 0)
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn(parameter.shape))
            state = list(model.parameters())
            shift = next(p for p in state if p.ndim == 0)
            state = [p for p in state if p.ndim > 0]
            if unit == "base":
                first, scale, beta, second, scale_2, beta_2, last = state
                y = (normalised(x @ first.T, scale) + beta).relu()
                y = (normalised(y @ second.T, scale_2) + beta_2).relu()
                expected = y @ last.T
            else:
                if unit == "dac":
                    first, bias, scale, second, bias_2, scale_2, last, bias_3 = state
                    sums = (first * (x[:, None] + bias).relu()).sum(2)
                else:
                    first, scale, second, bias_2, scale_2, last, bias_3 = state
                    sums = x @ first.T
                z = normalised(sums, scale)
                z = normalised((second * (z[:, None] + bias_2).relu()).sum(2), scale_2)
                expected = (last * (z[:, None] + bias_3).relu()).sum(2)
            torch.testing.assert_close(model(x), expected[:, 0] + shift, atol=1e-4, rtol=1e-4)


def test_networks_of_one_shape_start_from_the_same_weights_and_zero_biases():
    base, dac, inner = (experiments._regressor(regression_case(unit, 9, 3), 14, 5) for unit in ("base", "dac", "inner"))
    ours = [m for m in base.modules() if isinstance(m, nn.Linear)]
    theirs = [m for m in dac.modules() if isinstance(m, DACLinear)]
    within = [m for m in inner.modules() if isinstance(m, (nn.Linear, DACLinear))]
    assert len(ours) == len(theirs) == len(within) == 4
    assert [type(layer) for layer in within] == [nn.Linear, DACLinear, DACLinear, DACLinear]
    for a, b, c in zip(ours, theirs, within, strict=True):
        assert torch.equal(a.weight, b.weight)
        assert torch.equal(a.weight, c.weight)
        assert not b.bias.any()
        assert c.bias is None or not c.bias.any()


def test_a_dac_behind_a_usual_layer_is_what_a_conversion_makes():
    base, inner = (experiments._regressor(regression_case(unit, 9, 3), 14, 5).eval() for unit in ("base", "inner"))
    x = torch.randn(50, 14)
    converted = to_dac(base.body)
    torch.testing.assert_close(inner(x), base(x))
    torch.testing.assert_close(inner.body(x), converted(x))
    assert experiments._parameters(inner.body) == experiments._parameters(converted)


@pytest.mark.parametrize("unit", ["base", "dac", "inner"])
def test_only_weights_are_regularised(unit):
    model = experiments._regressor(regression_case(unit, 9, 3), 14, 5)
    decayed, _ = parameter_groups(model, 1e-5, "kernels")
    layers = [each for each in model.modules() if isinstance(each, (nn.Linear, DACLinear))]
    assert [p.shape for p in decayed["params"]] == [layer.weight.shape for layer in layers]


def replayed(job):
    """The training of a job, written down again with torch alone: the weights' penalty is part of the loss."""
    splits = experiments._regression_data(job)
    model = experiments._regressor(job.case, 14, job.seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=job.rate)
    kernels = [m.weight for m in model.modules() if isinstance(m, (nn.Linear, DACLinear))]
    generator = torch.Generator().manual_seed(job.seed)
    errors = []
    for _ in range(job.settings["epochs"]):
        model.train()
        for batch in torch.randperm(len(splits.train), generator=generator).split(job.settings["batch_size"]):
            optimiser.zero_grad()
            penalty = sum(w.square().sum() for w in kernels) * job.settings["weight_decay"] / 2
            error = (model(splits.train.inputs[batch]) - splits.train.targets[batch]).square().mean()
            (error + penalty).backward()
            optimiser.step()
        model.eval()
        with torch.no_grad():
            errors.append(
                [
                    float((model(part.inputs) - part.targets).square().mean())
                    for part in (splits.validation, splits.test)
                ]
            )
    return errors


@pytest.mark.parametrize("unit", ["base", "dac", "inner"])
def test_a_row_holds_the_test_error_of_the_epoch_that_validates_best(unit):
    options = {"epochs": 6, "weight_decay": 0.1, "stop_from": 9}
    job = job_of("dac-sgemm", regression_case(unit, 7, 3), **options)
    [row] = experiments._measure_regression(job)
    errors = replayed(job)
    best = min(range(6), key=lambda epoch: errors[epoch][0])
    assert (row["best_epoch"], row["epochs"]) == (best + 1, 6)
    assert (row["validation_mse"], row["mse"]) == pytest.approx(errors[best], rel=1e-3)
    assert row["log_mse"] == pytest.approx(math.log(row["mse"]))


def test_a_training_stops_when_validation_stands_still():
    options = {"epochs": 30, "stop_from": 4, "patience": 3, "threshold": 1e9}
    [row] = experiments._measure_regression(job_of("dac-sgemm", regression_case("base", 7, 3), **options))
    assert row["epochs"] == 7


def test_a_failed_training_is_marked():
    [row] = experiments._measure_regression(job_of("dac-sgemm", regression_case("base", 7, 3), epochs=1, rate=1e-6))
    assert row["failed"]
    assert row["mse"] > 0.1
    [row] = experiments._measure_regression(job_of("dac-sgemm", regression_case("base", 7, 3), epochs=2, rate=1e30))
    assert row["failed"]
    assert math.isnan(row["log_mse"])


def test_the_sgemm_settings_keep_so_many_rows(monkeypatch):
    part = datasets.Part(torch.randn(90, 14), torch.arange(90.0))
    monkeypatch.setattr(datasets, "sgemm", lambda seed: datasets.Splits(part, part, part, 0))
    job = job_of("dac-sgemm", {}, dataset="sgemm", train_size=60, validation_size=20)
    splits = experiments._regression_data(job)
    assert [len(p) for p in (splits.train, splits.validation, splits.test)] == [60, 20, 90]
    whole = experiments._regression_data(job_of("dac-sgemm", {}, dataset="sgemm", train_size=None))
    assert torch.equal(whole.train.targets, part.targets)


def regression_rows(failures=()):
    """Twice the weights lower the logarithm by 0.3, unshared biases by 0.2, and each seed has noise of its own."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for unit in ("base", "dac"):
        for width in (25, 35, 50):
            for seed in range(5):
                noise = 0.01 * torch.randn((), generator=generator).item()
                log_mse = -0.6 * math.log2(width / 25) - 0.2 * (unit == "dac") + 0.1 * seed + noise
                case = regression_case(unit, width)
                failed = (unit, width, seed) in failures
                parameters = width**2 * (2 if unit == "dac" else 1)
                rows.append({**case, "seed": seed, "log_mse": log_mse, "failed": failed, "parameters": parameters})
    return rows


def test_changes_are_those_of_the_paper():
    found = changes(regression_rows())
    assert [(c.key.width, c.key.kind, c.key.other) for c in found] == [
        *((25, "weights", 35), (25, "biases", 25)),
        *((35, "weights", 50), (35, "biases", 35), (35, "trade", 25)),
        *((50, "biases", 50), (50, "trade", 35)),
    ]
    for change in found:
        expected = {"weights": -0.3, "biases": -0.2, "trade": 0.1}[change.key.kind]
        assert change.difference.mean == pytest.approx(expected, abs=0.03)
        assert change.key.parameters == pytest.approx({"trade": 1}.get(change.key.kind, 2), rel=0.06)
        assert change.key.failed == 0
    assert [c.p_holm for c in found] == holm([c.p_value for c in found])
    rows = regression_rows()
    a, b = ([r["log_mse"] for r in rows if (r["unit"], r["width"]) == case] for case in (("dac", 50), ("base", 50)))
    [biases] = [c for c in found if (c.key.width, c.key.kind) == (50, "biases")]
    assert (biases.difference, biases.p_value) == paired(a, b)


def test_failed_trainings_are_left_out_in_pairs_and_counted():
    found = changes(regression_rows({("dac", 25, 0), ("base", 25, 1)}))
    failed = {(c.key.width, c.key.kind): (c.key.failed, c.difference.n) for c in found}
    assert failed[25, "biases"] == (2, 3)
    assert failed[25, "weights"] == (1, 4)
    assert failed[35, "trade"] == (1, 4)
    assert failed[50, "trade"] == (0, 5)


def test_the_laptops_ladder_has_all_three_changes_at_three_widths():
    cases = get("dac-sgemm").cases(get("dac-sgemm").presets["laptop"])
    rows = [
        {**case, "seed": seed, "log_mse": 0.1 * seed, "failed": False, "parameters": 1}
        for case in cases
        for seed in (0, 1)
    ]
    kinds = {}
    for change in changes(rows):
        kinds.setdefault(change.key.width, set()).add(change.key.kind)
    assert all(kinds[width] == {"weights", "biases", "trade"} for width in (25, 35, 50, 71, 100))


# dac-cifar10 and the others.


def image_case(unit, network="vgg8_8"):
    return {"network": network, "unit": unit}


def test_recorded_errors_are_those_of_the_network():
    job = job_of("dac-cifar10", image_case("dac"), rate=0.1, epochs=2)
    [row] = experiments._measure_classification(job)
    fitted = experiments._fit(job)
    model = fitted.model.eval()
    with torch.no_grad():
        for name in ("validation", "test"):
            part = getattr(fitted.splits, name)
            wrong = (model(part.inputs).argmax(1) != part.targets).double().mean()
            assert row[f"{name}_error"] == row[f"{name}_errors"][-1] == pytest.approx(float(wrong))
            assert len(row[f"{name}_errors"]) == 2
    assert row["parameters"] == sum(p.numel() for p in model.parameters())


def test_all_units_of_one_seed_meet_the_same_images():
    fitted = [experiments._fit(job_of("dac-cifar10", image_case(unit), epochs=0)) for unit in experiments._UNITS]
    for other in fitted[1:]:
        for name in ("train", "validation", "test"):
            assert torch.equal(getattr(other.splits, name).inputs, getattr(fitted[0].splits, name).inputs)


def test_units_have_the_parameters_that_the_paper_counts():
    counts = {}
    for unit in experiments._UNITS:
        model = experiments._fit(job_of("dac-cifar10", image_case(unit, "vgg20_16"), epochs=0)).model
        counts[unit] = sum(p.numel() for p in model.parameters() if p.ndim > 1)
        counts[unit, "all"] = sum(p.numel() for p in model.parameters())
    # "11 % more parameters", and K times the weights but for the first layer.
    assert counts["dac", "all"] / counts["base", "all"] == pytest.approx(1.11, abs=0.005)
    assert counts["shared", "all"] == counts["base", "all"]
    for copies in (2, 4, 8):
        assert counts[f"mba{copies}", "all"] / counts["base", "all"] == pytest.approx(copies, rel=0.02)


def test_shared_pre_activation_of_a_plain_network_is_the_baseline_under_other_names():
    rows = {}
    for unit in ("base", "shared"):
        [rows[unit]] = experiments._measure_classification(job_of("dac-cifar10", image_case(unit), rate=0.1, epochs=2))
    for key in ("validation_errors", "test_errors"):
        assert rows["shared"][key] == pytest.approx(rows["base"][key], abs=0.03)


def test_weight_decay_spares_every_bias():
    for unit in experiments._UNITS:
        model = experiments._fit(job_of("dac-cifar10", image_case(unit), epochs=0)).model
        decayed, spared = parameter_groups(model, 2e-4, "kernels")
        kernels = {id(p) for n, p in model.named_parameters() if n.endswith("weight") and p.ndim in (2, 4)}
        assert {id(p) for p in decayed["params"]} == kernels
        assert all(id(p) not in kernels for p in spared["params"])
        # Seven convolutions and the head.
        assert len(kernels) == 8


def test_the_five_seeds_are_the_five_folds():
    options = {"validation_size": None, "train_size": None, "epochs": 0}
    seen = [
        experiments._fit(job_of("dac-cifar10", image_case("base"), seed, **options)).splits.validation.inputs
        for seed in range(5)
    ]
    images = [{tuple(image.flatten().tolist()) for image in part} for part in seen]
    assert len(set.union(*images)) == sum(map(len, images)) == 1347


def test_test_images_are_the_same_for_every_seed_and_pixels_are_averaged():
    options = {"epochs": 0, "test_size": 50, "pool": 2}
    first, second = (experiments._fit(job_of("dac-cifar10", image_case("base"), s, **options)).splits for s in (0, 1))
    assert torch.equal(first.test.inputs, second.test.inputs)
    assert first.test.inputs.shape == (50, 1, 4, 4)
    whole = datasets.load("digits", 0, folds=5, standardise=False).test
    squares = whole.inputs.unflatten(3, (4, 2)).unflatten(2, (4, 2)).mean((3, 5))
    averaged = {tuple((16 * image).flatten().tolist()) for image in squares}
    assert all(tuple((16 * image).flatten().tolist()) in averaged for image in first.test.inputs)


def test_a_conversion_comes_before_the_training_and_inside_the_standardisation():
    seen = []

    def convert(model, splits):
        seen.append((model, splits.train.inputs.shape))
        return nn.Sequential(model)

    fitted = fit(job_of("dac-cifar10", image_case("base"), epochs=0), nn.ReLU, convert=convert)
    [(model, shape)] = seen
    assert fitted.model[1][0] is model
    assert fitted.splits.train.inputs.shape == shape


def test_validation_looks_at_the_validation_part(monkeypatch):
    job = job_of("dac-cifar10", image_case("dac"), rate=0.1, epochs=1)
    fitted = experiments._fit(job)
    part = fitted.splits.validation
    with torch.no_grad():
        expected = (fitted.model.eval()(part.inputs).argmax(1) == part.targets).double().mean()
    assert validation_accuracy(experiments._fit, job) == pytest.approx(float(expected))


def image_rows():
    generator = torch.Generator().manual_seed(0)
    return [
        {
            **image_case(unit, network),
            "seed": seed,
            "test_error": series[-1],
            "test_errors": series,
            "validation_errors": [error + 0.01 for error in series],
        }
        for network in ("vgg8_8", "resnet8_half")
        for unit in ("base", "dac", "mba2")
        for seed in range(5)
        for series in [
            (
                0.3 - 0.02 * (unit == "dac" and network == "vgg8_8") + 0.002 * torch.randn(9, generator=generator)
            ).tolist()
        ]
    ]


def test_comparisons_are_paired_with_the_same_networks_baseline_and_corrected():
    rows = image_rows()
    found = comparisons(rows)
    assert [d.key for d in found] == [(n, u) for n in ("vgg8_8", "resnet8_half") for u in ("dac", "mba2")]
    assert [d.key[1] for d in found if d.p_holm < 0.01] == ["dac"]
    a, b = (
        [r["test_error"] for r in rows if (r["network"], r["unit"]) == ("resnet8_half", unit)]
        for unit in ("mba2", "base")
    )
    assert (found[3].difference, found[3].p_value) == paired(a, b)
    assert [d.p_holm for d in found] == holm([d.p_value for d in found])


def test_missing_seeds_are_refused():
    with pytest.raises(ValueError, match=r"'dac'\) has the seeds \[0, 1, 2, 3, 4\], its reference has \[1, 2, 3, 4\]"):
        comparisons(image_rows()[1:])


# dac-toy.


def toy_case(problem, network, units, start="zero"):
    return {"problem": problem, "network": network, "units": units, "start": start}


def test_no_line_separates_the_points_of_the_unit_and_one_dac_unit_does():
    part = experiments._unit_problem().train
    groups = part.inputs.unflatten(0, (3, 5)).mean(1)
    # The middle group's centre is the mean of the others': a linear function there is the mean of its values there.
    torch.testing.assert_close(groups[1], (groups[0] + groups[2]) / 2)
    assert part.targets.unflatten(0, (3, 5)).mean(1).tolist() == [0, 1, 0]
    assert torch.equal(constructions.middle(part.inputs + 2) > 1.5, part.targets > 0.5)


def test_two_dac_units_and_three_standard_ones_solve_the_layers_problem():
    part = experiments._layer_problem().train
    assert torch.equal(constructions.separator(part.inputs, threshold=1.1) > 0, part.targets > 0.5)
    assert torch.equal(constructions.three_units(part.inputs) > 0, part.targets > 0.5)
    assert part.inputs[part.targets > 0.5].abs().sum(1).max() == 0.75
    assert part.inputs[part.targets < 0.5].abs().sum(1).min() == 1.25


def test_a_line_is_continuous_and_has_five_pieces():
    for seed in range(3):
        problem = experiments._line_problem(seed)
        x = torch.cat([problem.train.inputs, problem.test.inputs]).squeeze(1)
        y = torch.cat([problem.train.targets, problem.test.targets])
        x, order = x.sort()
        y = y[order]
        slopes = y.diff() / x.diff()
        bends = (slopes.diff().abs() > 1e-2).nonzero().squeeze(1)
        # A bend between two points shows twice.
        assert len(bends) <= 8
        assert sum(int(b) - int(a) > 1 for a, b in pairwise(bends)) == 3
        assert y.diff().abs().max() < 0.1
        assert (x[0], x[-1]) == (-1, 1)
        assert not set(problem.train.inputs.flatten().tolist()) & set(problem.test.inputs.flatten().tolist())


def test_competitors_on_the_line_have_equally_many_parameters():
    competitors = get("dac-toy").presets["laptop"]["competitors"]
    [terms] = [sizes for problem, network, sizes in competitors if (problem, network) == ("line", "dac")]
    [units] = [sizes for problem, network, sizes in competitors if (problem, network) == ("line", "standard")]
    points = experiments._line_problem(0).train.inputs
    for k, n in zip(terms, units, strict=True):
        dac = experiments._toy_network(toy_case("line", "dac", k), points, 0)
        standard = experiments._toy_network(toy_case("line", "standard", n), points, 0)
        assert experiments._parameters(dac) == experiments._parameters(standard) == 2 * k == 3 * n + 1


def test_networks_on_the_line_compute_equation_6_and_two_layers():
    x = torch.linspace(-1, 1, 9)[:, None]
    with torch.no_grad():
        weight, bias = experiments._toy_network(toy_case("line", "dac", 4, "spread"), x, 0).parameters()
        model = experiments._toy_network(toy_case("line", "dac", 4, "spread"), x, 0)
        torch.testing.assert_close(
            model(x), sum(w * (b + x[:, 0]).relu() for w, b in zip(weight[0], bias[0], strict=True))
        )
        model = experiments._toy_network(toy_case("line", "standard", 3, "spread"), x, 0)
        first, b, second, c = model.parameters()
        torch.testing.assert_close(model(x), ((x @ first.T + b).relu() @ second.T + c)[:, 0])


@pytest.mark.parametrize(
    "case",
    [toy_case(*c) for c in (("unit", "dac", 0), ("layer", "dac", 2), ("line", "dac", 6), ("line", "standard", 6))],
)
def test_kinks_start_at_zero_or_spread_over_the_data(case):
    points = experiments._PROBLEMS[case["problem"]](0).train.inputs
    reach = float(points.abs().max())
    kinks = {}
    for start in ("zero", "spread"):
        network = experiments._toy_network({**case, "start": start}, points, 0)
        layer = next(m for m in network.modules() if isinstance(m, (nn.Linear, DACLinear)))
        bias = layer.bias if isinstance(layer, DACLinear) else layer.bias / layer.weight[:, 0]
        kinks[start] = -bias.flatten()
    assert not kinks["zero"].any()
    assert kinks["spread"].abs().max() <= reach + 1e-6
    assert kinks["spread"].std() > reach / 10


def test_eight_standard_units_learn_the_square_and_a_straight_line_cannot_part_the_diagonal():
    options = {"rate": 0.1, "steps": 1000}
    square = experiments._solve(job_of("dac-toy", toy_case("layer", "standard", 8), **options))
    assert (square["solved"], square["error"]) == (1, 0)
    straight = experiments._solve(job_of("dac-toy", toy_case("unit", "standard", 0), **options))
    assert straight["solved"] == 0
    # It cannot have fewer than one of the fifteen points wrong.
    assert straight["error"] >= 1 / 15


def test_a_lines_error_is_relative_and_on_points_between_those_it_learned():
    case = toy_case("line", "standard", 9)
    problem = experiments._line_problem(0)
    row = experiments._solve(job_of("dac-toy", case, rate=1e-9, steps=1))
    with torch.no_grad():
        untrained = experiments._toy_network(case, problem.train.inputs, 0)
        y = problem.test.targets
        expected = F.mse_loss(untrained(problem.test.inputs), y) / (y - y.mean()).square().mean()
    assert row["error"] == pytest.approx(float(expected), rel=1e-4)
    assert row["solved"] == 0
