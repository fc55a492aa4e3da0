import contextlib
import math
from functools import partial

import pytest
import torch
from torch import nn

from companion import AGLU, DACConv2d, DACLinear, LAHardSiLU, LASiLU
from companion.apa.study.experiments import PublishedGradientAGLU
from companion.study.datasets import Part
from companion.study.models import SmallCNN
from companion.study.training import (
    Patience,
    balanced_softmax,
    checkpoints,
    constant,
    cosine,
    evaluate,
    linear,
    mean_squared_error,
    one_cycle,
    parameter_groups,
    predict,
    staircase,
    train,
    warm_up,
)


class Exempting(nn.Module):
    no_weight_decay = ("gain",)

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.gain * x * self.weight


def decay_of(groups):
    return {id(p): group["weight_decay"] for group in groups for p in group["params"]}


def blobs(n=90, classes=3):
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(n) % classes
    centres = 3 * torch.eye(classes)[targets]
    inputs = centres + 0.3 * torch.randn(n, classes, generator=generator)
    return Part(inputs[:, None, None, :], targets)


def classifier(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3))


def test_listed_parameters_of_nested_modules_are_not_decayed():
    inner = Exempting()
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(inner))
    decay = decay_of(parameter_groups(model, 0.1))
    assert decay[id(inner.gain)] == 0
    assert decay[id(inner.weight)] == 0.1
    assert decay[id(model[0].weight)] == 0.1


def test_each_learnable_parameter_appears_once_even_when_modules_share_it():
    shared = Exempting()
    model = nn.Sequential(shared, nn.Linear(2, 2), shared)
    model[1].bias.requires_grad_(False)
    listed = [id(p) for group in parameter_groups(model, 0.1) for p in group["params"]]
    assert sorted(listed) == sorted({id(shared.gain), id(shared.weight), id(model[1].weight)})


def test_one_module_that_exempts_a_shared_parameter_is_enough():
    first, second = Exempting(), nn.Linear(2, 2)
    second.bias = first.gain
    assert decay_of(parameter_groups(nn.Sequential(second, first), 0.1))[id(first.gain)] == 0


def test_groups_without_parameters_are_left_out():
    assert len(parameter_groups(nn.Linear(2, 2), 0.1)) == 1
    assert parameter_groups(nn.Identity(), 0.1) == []


def test_a_name_that_is_no_parameter_is_an_error():
    model = nn.Linear(2, 2)
    model.no_weight_decay = ("wieght",)
    with pytest.raises(ValueError, match=r"lists 'wieght'.*\['bias', 'weight'\]"):
        parameter_groups(model, 0.1)


def test_a_method_may_list_names_as_timm_does() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.position, self.layer = nn.Parameter(torch.ones(3)), nn.Linear(3, 3)

        def no_weight_decay(self) -> set[str]:
            return {"position", "layer.bias", "a_token_that_others_have"}

    model = nn.Sequential(Tokens())
    decayed, spared = parameter_groups(model, 0.1)
    assert decayed["params"] == [model[0].layer.weight]
    assert [id(p) for p in spared["params"]] == [id(model[0].position), id(model[0].layer.bias)]


def test_a_property_may_list_names_and_weights_without_a_shape_are_refused() -> None:
    class Gain(nn.Linear):
        @property
        def no_weight_decay(self) -> set[str]:
            return {"bias"}

    assert [len(group["params"]) for group in parameter_groups(Gain(2, 3), 0.1)] == [1, 1]
    with pytest.raises(ValueError, match=r"0\.weight has no shape yet"):
        parameter_groups(nn.Sequential(nn.LazyLinear(4)), 0.1, "kernels")


def test_a_compiled_module_lists_nothing_itself() -> None:
    decayed, spared = parameter_groups(nn.Sequential(torch.compile(Exempting()), nn.Linear(2, 2)), 0.1)
    assert [len(group["params"]) for group in (decayed, spared)] == [3, 1]


def test_the_decay_of_kernels_spares_biases_of_any_shape_and_normalisations():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), DACConv2d(2, 3, 3), nn.Flatten(), DACLinear(3, 2))
    decayed, spared = parameter_groups(model, 1e-4, "kernels")
    kernels = [model[0].weight, model[2].weight, model[4].weight]
    assert {id(p) for p in decayed["params"]} == {id(p) for p in kernels}
    assert (decayed["weight_decay"], spared["weight_decay"]) == (1e-4, 0.0)
    assert len(spared["params"]) == 5
    assert len(parameter_groups(model, 1e-4)) == 1


def test_an_unknown_kind_of_decay_is_an_error():
    with pytest.raises(ValueError, match="decay: got 'biases', allowed are 'all' and 'kernels'"):
        parameter_groups(classifier(), 1e-4, "biases")


@pytest.mark.parametrize("weight_decay", [-0.1, float("nan"), float("inf")])
def test_a_weight_decay_is_finite_and_not_negative(weight_decay):
    with pytest.raises(ValueError, match=f"weight_decay: got {weight_decay}, allowed is a finite number"):
        parameter_groups(nn.Linear(2, 2), weight_decay)


def test_the_scale_of_a_normalisation_is_no_kernel_whatever_its_shape():
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm((3, 4)), nn.RMSNorm((3, 4)))
    decayed, spared = parameter_groups(model, 1e-4, "kernels")
    assert [len(decayed["params"]), len(spared["params"])] == [1, 4]


def test_training_learns_and_weight_decay_spares_the_exempt():
    data = blobs()
    model = classifier()
    losses = train(model, data, epochs=20, learning_rate=0.1)
    assert len(losses) == 20
    assert losses[-1] < 0.1 * losses[0]
    assert evaluate(model, data).accuracy == 1.0


def test_the_same_seed_gives_the_same_weights_and_another_seed_another_order():
    data = blobs()
    models = []
    for seed in (1, 1, 2):
        models.append(model := classifier())
        train(model, data, epochs=2, learning_rate=0.1, batch_size=8, seed=seed)
    weights = [model[1].weight for model in models]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


class Constant(nn.Module):
    """The gradient of this "model" in its bias b is constant, so the steps show the rates."""

    def __init__(self):
        super().__init__()
        self.b = nn.Parameter(torch.zeros(2, dtype=torch.float64))
        self.seen = []

    def forward(self, x):
        self.seen.append(self.b.detach().clone())
        return (self.b - self.b.detach()).expand(len(x), 2)


def rates_of(epochs, **options):
    """The learning rates of a training with one step per epoch."""
    model = Constant()
    data = Part(torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64))
    train(model, data, epochs=epochs, batch_size=4, weight_decay=0.0, **{"momentum": 0.0, **options})
    path = torch.stack([*model.seen, model.b.detach()])[:, 0]
    return (path.diff() / 0.5).tolist()


def test_the_schedule_falls_as_a_cosine_from_the_learning_rate_to_almost_zero():
    expected = [0.5 * (1 + math.cos(math.pi * k / 4)) for k in range(4)]
    assert rates_of(4, learning_rate=1.0) == pytest.approx(expected)


@pytest.mark.parametrize("learning_rate", [0.003, 0.01, 0.03, 0.1, 0.3, 1.0])
def test_the_cosine_as_a_factor_rounds_as_it_does_in_the_product(learning_rate):
    # Results of earlier runs were computed in this order.
    for steps in (7, 1080, 23_460):
        for step in range(0, steps, 1 + steps // 997):
            product = learning_rate * 0.5 * (1 + math.cos(math.pi * step / steps))
            assert learning_rate * cosine(step, steps) == product


def test_the_first_step_with_nesterovs_momentum_is_longer_already():
    steps = partial(rates_of, 3, learning_rate=1.0, momentum=0.5, schedule=constant)
    # v ← ½v + g from v = 0; a step is v, or Nesterov's g + ½v
    assert steps() == pytest.approx([1.0, 1.5, 1.75])
    assert steps(nesterov=True) == pytest.approx([1.5, 1.75, 1.875])


def test_a_warm_up_and_a_line_make_a_triangle():
    assert rates_of(8, learning_rate=6.0, schedule=warm_up(0.25, linear)) == pytest.approx([3, 6, 6, 5, 4, 3, 2, 1])


def test_a_staircase_falls_at_its_milestones_and_nowhere_else():
    rates = rates_of(8, learning_rate=0.4, schedule=staircase([0.5, 0.75]))
    assert rates == pytest.approx([0.4] * 4 + [0.04] * 2 + [0.004] * 2)


# The paper's 80 epochs of MNIST: 469 steps of 128 images each.
def test_the_staircase_of_the_mnist_run_falls_after_epochs_40_and_60():
    schedule = staircase([0.5, 0.75])
    factors = [schedule(step, 80 * 469) for step in range(80 * 469)]
    falls = [step for step in range(1, len(factors)) if factors[step] != factors[step - 1]]
    assert falls == [40 * 469, 60 * 469]
    assert factors[-1] == pytest.approx(0.01)


@pytest.mark.parametrize("steps", [2, 3, 10, 97, 7040])
def test_one_cycle_is_torchs_own(steps):
    rule = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(rule, max_lr=0.7, total_steps=steps, cycle_momentum=False)
    for step in range(steps):
        assert 0.7 * one_cycle(step, steps) == pytest.approx(rule.param_groups[0]["lr"], rel=1e-9), step
        rule.step()
        if step < steps - 1:
            scheduler.step()


@pytest.mark.parametrize(("milestones", "factor"), [([0.5, 1.0], 0.1), ([0.0], 0.1), ([40], 0.1), ([0.5], 0.0)])
def test_impossible_staircases_are_errors(milestones, factor):
    with pytest.raises(ValueError, match="allowed are fractions between 0 and 1"):
        staircase(milestones, factor)


def test_a_watcher_sees_the_network_after_every_epoch():
    data, model = blobs(), classifier()
    seen = []
    train(model, data, epochs=3, learning_rate=0.1, after_epoch=lambda n: seen.append((n, model[1].weight.clone())))
    assert [n for n, _ in seen] == [1, 2, 3]
    assert not torch.equal(seen[0][1], seen[1][1])
    assert torch.equal(seen[2][1], model[1].weight)


def test_listeners_hear_the_loss_of_every_step(monkeypatch):
    heard = []
    monkeypatch.setattr("companion.study.training.listeners", [heard.append])
    losses = train(classifier(), blobs(), epochs=2, learning_rate=0.1, batch_size=45)
    assert len(heard) == 4
    assert not any(loss.requires_grad for loss in heard)
    assert losses == pytest.approx([float(sum(heard[:2])) / 2, float(sum(heard[2:])) / 2])


def test_a_watcher_can_end_the_training():
    losses = train(classifier(), blobs(), epochs=5, learning_rate=0.1, after_epoch=lambda epoch: epoch == 2)
    assert len(losses) == 2


class StoppedError(Exception):
    pass


class Seen:
    """Watches, collects and interrupts: as a listener after so many steps, as a watcher after so many epochs."""

    def __init__(self, interrupt=0, stop=0):
        self.seen, self.interrupt, self.stop = [], interrupt, stop

    def __call__(self, what):
        self.seen.append(float(what))
        if len(self.seen) == self.interrupt:
            raise StoppedError
        return len(self.seen) == self.stop

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


def noisy(inputs):
    return inputs + 0.1 * torch.randn_like(inputs)


def two_trainings(listener, watcher, **options):
    """All that two trainings leave behind: weights, statistics, losses, what was seen, and the generator."""
    torch.manual_seed(0)
    found = []
    for seed in (0, 1):
        model = nn.Sequential(nn.Flatten(), nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 3))
        options = {"epochs": 2, "learning_rate": 0.03, "batch_size": 32, "augment": noisy, "seed": seed} | options
        losses = train(model, blobs(), after_epoch=watcher, **options)
        assert model.training
        found += [*model.state_dict().values(), torch.tensor(losses)]
    return [*found, torch.tensor(listener.seen), torch.tensor(watcher.seen), torch.rand(1)]


@pytest.mark.parametrize(
    ("options", "stop", "long"),
    [
        ({}, 0, (12, 4)),
        ({"optimiser": "adam"}, 0, (12, 4)),
        ({"optimiser": "adamw", "clip": 0.1, "precision": "bfloat16"}, 0, (12, 4)),
        # the watcher ends the first training, and the second goes on
        ({"epochs": 3}, 2, (15, 5)),
    ],
)
def test_a_training_goes_on_from_any_step_or_epoch_to_the_same_bits(tmp_path, monkeypatch, options, stop, long):
    monkeypatch.setattr("companion.files._force_to_disk", lambda path: None)

    def run(folder, every=0.0, of_steps=0, of_epochs=0):
        listener, watcher = Seen(of_steps), Seen(of_epochs, stop)
        monkeypatch.setattr("companion.study.training.listeners", [listener])
        with checkpoints(tmp_path / folder, every):
            return two_trainings(listener, watcher, **options)

    whole = run("whole")
    steps, epochs = long
    assert [len(seen) for seen in whole[-3:-1]] == [steps, epochs]
    interrupts = [{"of_steps": step} for step in (1, 3, 5, 8)] + [{"of_epochs": epochs - 2}]
    for every, where in [*((0.0, each) for each in interrupts), (1e9, {"of_steps": steps})]:
        with pytest.raises(StoppedError):
            run(f"{every} {where}", every, **where)
        assert all(map(torch.equal, run(f"{every} {where}"), whole)), (every, where)
    assert all(map(torch.equal, run("whole"), whole))


def test_what_is_done_is_not_done_again(tmp_path, monkeypatch):
    computed = []

    def loss(logits, targets):
        computed.append(len(logits))
        return nn.functional.cross_entropy(logits, targets)

    for interrupt in (8, 0):
        listener = Seen(interrupt)
        monkeypatch.setattr("companion.study.training.listeners", [listener])
        with contextlib.suppress(StoppedError), checkpoints(tmp_path, 0.0):
            two_trainings(listener, Seen(), loss=loss)
    # twelve steps, and the eighth twice: it was computed, and then interrupted before it was written
    assert len(computed) == 13


def test_where_somebody_watches_who_cannot_go_on_nothing_is_kept(tmp_path, monkeypatch):
    seen = []
    for watcher, listeners in ((seen.append, []), (Seen(), [seen.append])):
        monkeypatch.setattr("companion.study.training.listeners", listeners)
        with checkpoints(tmp_path, 0.0):
            train(classifier(), blobs(), epochs=2, learning_rate=0.1, after_epoch=watcher)
    assert not list(tmp_path.iterdir())


def test_without_checkpoints_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(classifier(), blobs(), epochs=2, learning_rate=0.1)
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_is_written_every_so_many_seconds_and_at_the_end(tmp_path, monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr("companion.study.training.time.perf_counter", lambda: next(clock))
    written = []
    monkeypatch.setattr("companion.study.training.write_atomically", lambda path, content: written.append(path.name))
    with checkpoints(tmp_path, 10.0):
        train(classifier(), blobs(), epochs=12, learning_rate=0.1, batch_size=90)
        train(classifier(), blobs(), epochs=1, learning_rate=0.1, batch_size=90)
    assert written == ["1.pt", "1.pt", "2.pt"]


def test_the_seconds_are_those_of_all_legs(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("companion.study.training.time.perf_counter", lambda: now[0])

    def leg(steps):
        def listener(_):
            now[0] += 5
            if now[0] == 5 * steps:
                raise StoppedError

        listener.state_dict, listener.load_state_dict = dict, lambda state: None
        monkeypatch.setattr("companion.study.training.listeners", [listener])
        with checkpoints(tmp_path, 0.0) as kept, contextlib.suppress(StoppedError):
            train(classifier(), blobs(), epochs=4, learning_rate=0.1, batch_size=90)
        return kept.seconds

    assert leg(3) == 15
    now[0] = 1000
    # two steps were written after ten seconds; the third was lost
    assert leg(0) == 20


@pytest.mark.parametrize("damage", [b"", b"something", "cut", "other"])
def test_a_damaged_checkpoint_or_one_of_another_training_is_named(tmp_path, damage):
    with checkpoints(tmp_path):
        train(classifier(), blobs(), epochs=1, learning_rate=0.1)
    file = tmp_path / "1.pt"
    if damage != "other":
        file.write_bytes(file.read_bytes()[:-200] if damage == "cut" else damage)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 3)) if damage == "other" else classifier()
    with pytest.raises(ValueError, match=f"(?s){file} is damaged or of another training.*remove that file"):  # noqa: SIM117
        with checkpoints(tmp_path):
            train(model, blobs(), epochs=1, learning_rate=0.1)


def test_a_checkpoint_holds_the_network_and_its_optimiser_and_not_the_data(tmp_path):
    model = nn.Sequential(nn.Flatten(), nn.Linear(1000, 100), nn.Linear(100, 10))
    data = Part(torch.zeros(2000, 1000), torch.zeros(2000, dtype=torch.int64))
    with checkpoints(tmp_path):
        train(model, data, epochs=1, learning_rate=0.1, batch_size=1000, optimiser="adam")
    weights = 4 * sum(parameter.numel() for parameter in model.parameters())
    assert 3 * weights < (tmp_path / "1.pt").stat().st_size < 3 * weights + 30_000


def images(n=50):
    generator = torch.Generator().manual_seed(0)
    return Part(torch.randn(n, 1, 8, 8, generator=generator), torch.arange(n) % 10)


def trained(activation, epochs=1, widths=(16, 32, 64), **options):
    """The weights of a small network after a training on images, 16 in a batch but for the last 2."""
    torch.manual_seed(0)
    model = SmallCNN(1, 10, widths, activation=activation).to(memory_format=torch.channels_last)
    losses = train(model, images(), epochs=epochs, learning_rate=0.05, batch_size=16, **options)
    assert all(math.isfinite(loss) for loss in losses)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def distance(a, b):
    return float((a - b).norm() / b.norm())


ACTIVATIONS = {
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "la_silu": LASiLU,
    "la_hardsilu": LAHardSiLU,
    "aglu": partial(AGLU, init=(1.2, 0.5)),
    "published_aglu": partial(PublishedGradientAGLU, init=(1.2, 0.5)),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_bfloat16_changes_a_training_little_and_keeps_the_weights_in_float32(name):
    exact, mixed = (trained(ACTIVATIONS[name], precision=precision) for precision in ("float32", "bfloat16"))
    assert mixed.dtype == torch.float32
    # The training moves the weights by 1 % of their norm; bfloat16 turns a tenth of that aside (ReLU) or a hundredth.
    assert 0 < distance(mixed, exact) < 2e-3


def test_networks_see_bfloat16_and_losses_float32():
    seen = []

    def loss(logits, targets):
        seen.append(logits.dtype)
        return nn.functional.cross_entropy(logits, targets)

    model = classifier()
    model[1].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    train(model, blobs(), epochs=1, learning_rate=0.1, batch_size=90, loss=loss, precision="bfloat16")
    assert seen == [torch.bfloat16, torch.float32]


def test_an_unknown_precision_is_an_error():
    with pytest.raises(ValueError, match="precision is 'float16'; allowed are float32, bfloat16"):
        train(classifier(), blobs(), epochs=1, learning_rate=0.1, precision="float16")


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_is_traced_as_one_graph_for_whole_batches_and_trains_as_without(name, precision):
    plain, compiled = (trained(ACTIVATIONS[name], precision=precision, compiled=compiled) for compiled in (False, True))
    counters = torch._dynamo.utils.counters
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
    assert distance(compiled, plain) < (1e-5 if precision == "float32" else 2e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("name", ["la_silu", "aglu"])
def test_a_compiled_training_in_bfloat16_is_as_near_to_float32_as_one_that_is_not(name):
    exact, plain, compiled = (
        # two blocks: each more is as much code again for the compiler
        trained(ACTIVATIONS[name], widths=(16, 32), precision=precision, compiled=compiled)
        for precision, compiled in (("float32", False), ("bfloat16", False), ("bfloat16", True))
    )
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert distance(compiled, exact) < 2 * distance(plain, exact)


def line(n=40):
    x = torch.linspace(-1, 1, n)[:, None]
    return Part(x, 2 * x[:, 0] + 1)


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)
        nn.init.zeros_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)

    def forward(self, x):
        return self.layer(x).squeeze(1)


def test_a_regression_with_adam_finds_the_line():
    data, model = line(), Line()
    assert mean_squared_error(model, data) == pytest.approx(float(data.targets.square().mean()))
    options = {"schedule": constant, "loss": nn.functional.mse_loss, "optimiser": "adam", "weight_decay": 0}
    losses = train(model, data, epochs=200, learning_rate=0.1, **options)
    assert losses[-1] < 1e-4
    assert (model.layer.weight.item(), model.layer.bias.item()) == pytest.approx((2, 1), abs=0.02)


def test_adams_first_step_is_as_long_as_the_learning_rate_says():
    """Adam divides a gradient by its own size; the step of a schedule that stays at 1 is the rate itself."""
    model = Line()
    train(model, line(), epochs=1, learning_rate=0.03, schedule=constant, loss=nn.functional.mse_loss, optimiser="adam")
    assert (model.layer.weight.item(), model.layer.bias.item()) == pytest.approx((0.03, 0.03), rel=1e-4)


def test_an_unknown_optimiser_is_an_error():
    with pytest.raises(ValueError, match="optimiser is 'lion'; allowed are sgd, adam"):
        train(classifier(), blobs(), epochs=1, learning_rate=0.1, optimiser="lion")


def test_patience_counts_only_from_its_start_and_only_real_progress_resets_it():
    patience = Patience(start=3, epochs=3, threshold=0.1)
    errors = [0.1, 0.1, 1.0, 0.95, 0.92, 0.85, 0.84, 0.80, 0.76]
    assert [patience(epoch, error) for epoch, error in enumerate(errors, start=1)] == [False] * 8 + [True]


def test_patience_ends_a_training_that_has_diverged():
    patience = Patience(start=1, epochs=2, threshold=0.1)
    assert [patience(epoch, math.nan) for epoch in (1, 2)] == [False, True]


def test_augmentation_sees_every_batch():
    sizes = []

    def augment(inputs):
        sizes.append(len(inputs))
        return inputs

    train(classifier(), blobs(10), epochs=2, learning_rate=0.1, batch_size=4, augment=augment)
    assert sizes == [4, 4, 2, 4, 4, 2]


def test_evaluation_counts_per_class_and_restores_the_mode():
    class Always(nn.Module):
        def forward(self, x):
            assert not self.training
            return torch.tensor([[0.0, 1.0, 0.0]]).expand(len(x), 3)

    model = Always().train()
    result = evaluate(model, Part(torch.zeros(4, 1), torch.tensor([0, 1, 1, 1])))
    assert model.training
    assert result.accuracy == 0.75
    assert result.class_accuracy[:2].tolist() == [0.0, 1.0]
    assert math.isnan(result.class_accuracy[2])
    assert result.accuracy_of(torch.tensor([0, 1])) == 0.5
    assert result.loss == pytest.approx(math.log(2 + math.e) - 0.75)


def test_a_network_that_diverged_has_no_accuracy():
    model = nn.Linear(1, 3)
    nn.init.constant_(model.bias, math.nan)
    result = evaluate(model, Part(torch.zeros(4, 1), torch.tensor([0, 1, 2, 2])))
    assert math.isnan(result.accuracy)
    assert result.class_accuracy.isnan().all()


def test_prediction_in_small_batches_is_the_same():
    model, data = classifier(), blobs(10)
    assert torch.allclose(predict(model, data.inputs, batch_size=3), predict(model, data.inputs))


def test_balanced_softmax_is_its_formula():
    counts, logits = torch.tensor([900, 90, 9]), torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([0, 1, 2, 2, 0])
    weighed = counts * logits.exp()
    expected = -(weighed[range(5), targets] / weighed.sum(1)).log().mean()
    torch.testing.assert_close(balanced_softmax(counts)(logits, targets), expected, rtol=1e-6, atol=1e-6)
    assert torch.autograd.gradcheck(balanced_softmax(counts.double()), (logits, targets))


def test_balanced_softmax_of_equal_counts_is_cross_entropy_and_an_absent_class_is_left_alone():
    logits, targets = torch.randn(5, 3, requires_grad=True), torch.tensor([0, 1, 1, 1, 0])
    torch.testing.assert_close(
        balanced_softmax(torch.full((3,), 7))(logits, targets), nn.functional.cross_entropy(logits, targets)
    )
    loss = balanced_softmax(torch.tensor([1, 1, 0]))(logits, targets)
    loss.backward()
    torch.testing.assert_close(loss, nn.functional.cross_entropy(logits[:, :2], targets))
    assert not logits.grad[:, 2].any()
    assert logits.grad[:, :2].isfinite().all()


def test_balanced_softmax_refuses_other_classes():
    with pytest.raises(ValueError, match=r"logits: got shape \(5, 4\), allowed is \(N, 3\)"):
        balanced_softmax(torch.ones(3))(torch.zeros(5, 4), torch.zeros(5, dtype=torch.long))
    with pytest.raises(ValueError, match=r"counts: got shape \(\), allowed is \(classes,\)"):
        balanced_softmax(torch.tensor(3))


def test_with_balanced_softmax_a_rare_class_is_no_longer_missed():
    """Two classes that overlap, one of them a hundred times as frequent."""
    torch.manual_seed(0)
    inputs = torch.cat([torch.randn(5000) - 1, torch.randn(50) + 1])[:, None]
    data = Part(inputs, (torch.arange(5050) >= 5000).long())
    borders = []
    for loss in (nn.functional.cross_entropy, balanced_softmax(torch.bincount(data.targets))):
        torch.manual_seed(0)
        model = nn.Linear(1, 2)
        train(model, data, epochs=20, learning_rate=0.1, loss=loss, weight_decay=0)
        weight, bias = (p.detach() for p in model.parameters())
        borders.append(-((bias[1] - bias[0]) / (weight[1, 0] - weight[0, 0])).item())
    # Where the plain logits are equal: log 100 / 2 to the right, and in the middle.
    assert borders[0] == pytest.approx(math.log(100) / 2, abs=0.3)
    assert borders[1] == pytest.approx(0, abs=0.3)
