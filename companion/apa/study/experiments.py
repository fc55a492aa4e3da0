"""The paper's claims about APA and AGLU as runs.

Protocol of the laptop presets, fixed before the runs whose results are committed.

Data: scikit-learn's digits (8×8 pixels). The training part is made long-tailed with the exponential profile
of Cao et al. (2019); the seed draws which classes are rare; validation and test parts keep all classes.
Networks: a multilayer perceptron 64-128-128-10 without normalisation, or three convolutions with batch
normalisation (16, 32 and 64 channels). Training: cross-entropy, SGD with momentum 0.9, cosine schedule from
the learning rate to zero without warm-up, batches of 64, 60 epochs (perceptron) or 40 (convolutions), no
augmentation; weight decay 1e-4, the paper's for ImageNet-LT, but none on κ, λ and PReLU's slope. Learning
rate: for each competitor and imbalance factor by itself, from one grid for all, the highest mean accuracy on
validation data over three tuning seeds. The weights of the last epoch count; nothing is selected on test
data. Evaluation: 20 seeds (perceptron; 10 in ``apa-digits-rates``) or 10 (convolutions), none of them a
tuning seed. In one seed all competitors have the same data, the same order of batches and the same initial
weights, those inside the attentions excepted. Epochs and grids come from runs of ReLU alone, with two further
seeds and validation data; no other activation was looked at.

The two gradients of ``apa-lambda-gradient`` share one learning rate per imbalance factor, so that nothing but
the gradient differs. In a first run, since replaced, each had its own; at factor 10 they took different ones
over a single validation image, and the difference of rates hid that of gradients.

The intervals are over seeds, at the rates that tuning chose; they do not contain the chance in that choice. A first run
of ``apa-digits`` showed how large that is: at factor 10 AGLU was given 0.01, by less than one validation image, and the
intervals then called it worse than five of its six rivals, most of which were given 0.03 or 0.1. The protocol stayed as
it was; ``apa-digits-rates`` was added, which evaluates every rate and chooses none. There AGLU at 0.1 is level with the
best of the others, and rates matter more than activations.

In a first run of ``apa-attention`` all gates chose 1, the largest rate of their grid, at factor 100. It was run again,
at that factor, with two larger rates in the grid, and all chose 1 again.

Scaled down against the paper: digits for ImageNet-LT and LVIS, two- and three-layer networks for ResNet-50,
no mixup, no AutoAugment, no cosine classifier, no post-calibrated softmax. A difference that the paper finds
on its scale need not show on this one, nor the other way round.

The ``full`` presets run on a GPU: CIFAR-100-LT with a ResNet-32, batches of 512, weight decay 1e-3 and 200
epochs. Dataset, network, batch and weight decay are those of the paper's Table XV; epochs (500), mixup,
AutoAugment, cosine classifier and calibration are not.

``apa-cifar10-lt`` is a comparison for two cores: CIFAR-10 with imbalance 100, which is 12,406 training images, for the
CIFAR-100-LT of Table III (b), a plain ResNet-20 for its SE-ResNet-32, and 60 epochs for 500. The paper has no
CIFAR-10-LT. Weight decay 1e-3 is that of Table XV; batches of 128 for 512, because few epochs of few images need the
steps; crops and mirror images; one cycle of the learning rate. All competitors are tuned on one grid, by trainings of
10 epochs with a cycle of the same shape and a seed that is not evaluated. All images outside the test part train when
they are evaluated, so the largest class has its 5,000; none are left to validate with. So while tuning, and only then,
a tenth of CIFAR-10's training images is held out before the rest is made long-tailed: the largest class then has 4,500
images and each a tenth fewer (11,165 in all), and the 5,000 that validate are balanced, as the test images are. What
validates in tuning may train in evaluation; what tests does neither. AGLU with the true gradient and with the printed
one share a learning rate. Trainings run in bfloat16 where autocast allows it, compiled, channels last, one thread each.

References
----------
Alexandridis, Deng, Nguyen and Luo (2025), Adaptive Parametric Activation: Unifying and Generalising
Activation Functions Across Tasks.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from companion.apa.layers import AGLU, APA, ChannelAttention
from companion.apa.neuron import NEURONS
from companion.apa.op import apa
from companion.neurons.controls import activations
from companion.operators import cast, compute_dtype
from companion.study.analysis import attention_entropy, ks_distance, skewness
from companion.study.datasets import frequent_and_rare
from companion.study.experiments import Case, Experiment, Job, Row, grid, register
from companion.study.experiments.classification import Fitted, fit, validation_accuracy
from companion.study.training import evaluate, predict

__all__ = ["PublishedGradientAGLU"]

_SMOKE: dict[str, Any] = {
    "dataset": "digits",
    "epochs": 1,
    "batch_size": 64,
    "weight_decay": 1e-4,
    "augment": False,
    "device": "cpu",
    "imbalances": [1, 100],
    "learning_rates": [0.03, 0.1],
    "tuning_seeds": [1000],
    "seeds": 2,
}
_LAPTOP_MLP: dict[str, Any] = {
    **_SMOKE,
    "network": "mlp",
    "epochs": 60,
    "imbalances": [1, 10, 100],
    "learning_rates": [0.003, 0.01, 0.03, 0.1, 0.3],
    "tuning_seeds": [1000, 1001, 1002],
    "seeds": 20,
}
_LAPTOP_CNN: dict[str, Any] = {
    **_LAPTOP_MLP,
    "network": "cnn",
    "epochs": 40,
    # Batch normalisation bears, and needs, larger steps.
    "learning_rates": [0.03, 0.1, 0.3, 1.0],
    "seeds": 10,
}
_FULL: dict[str, Any] = {
    "dataset": "cifar100",
    "network": "resnet32",
    "epochs": 200,
    "batch_size": 512,
    "weight_decay": 1e-3,
    "augment": True,
    "device": "cuda",
    "imbalances": [1, 10, 100],
    "learning_rates": [0.05, 0.1, 0.2, 0.4],
    "tuning_seeds": [1000],
    "seeds": 5,
}


def _frequent_and_rare(fitted: Fitted, job: Job) -> tuple[Tensor, Tensor]:
    return frequent_and_rare(fitted.splits.num_classes, job.seed)


def _accuracies(fitted: Fitted, job: Job) -> Row:
    """On all test images, and on those of the rare and of the frequent classes."""
    test = evaluate(fitted.model, fitted.splits.test)
    frequent, rare = _frequent_and_rare(fitted, job)
    return {
        "test_accuracy": test.accuracy,
        "few_accuracy": test.accuracy_of(rare),
        "many_accuracy": test.accuracy_of(frequent),
    }


# apa-digits: AGLU against other activations.

_ACTIVATIONS = activations("relu", "gelu", "silu", "mish", "elu", "prelu", "aglu", own=NEURONS)
# as the paper starts it: κ from U(1, 1.3), λ from U(0, 1) (Table XV), one pair per layer
_aglu = _ACTIVATIONS["aglu"]


def _activation_cases(settings: Mapping[str, Any]) -> list[Case]:
    return grid(activation=settings["activations"], imbalance=settings["imbalances"])


def _fit_activation(job: Job) -> Fitted:
    return fit(job, _ACTIVATIONS[job.case["activation"]])


def _measure_activation(job: Job) -> list[Row]:
    fitted = _fit_activation(job)
    return [{**_accuracies(fitted, job), "parameters": sum(p.numel() for p in fitted.model.parameters())}]


register(
    Experiment(
        name="apa-digits",
        mechanism="apa",
        description="AGLU against six other activations in a perceptron, balanced and long-tailed",
        presets={
            "smoke": {**_SMOKE, "network": "mlp", "activations": ["relu", "aglu"]},
            "laptop": {**_LAPTOP_MLP, "activations": list(_ACTIVATIONS)},
            "full": {**_FULL, "activations": list(_ACTIVATIONS)},
        },
        cases=_activation_cases,
        conditions=("imbalance",),
        validate=partial(validation_accuracy, _fit_activation),
        measure=_measure_activation,
        columns=("test_accuracy", "few_accuracy", "many_accuracy"),
    )
)


# apa-digits-rates: the same networks at every learning rate, whichever tuning would choose.

register(
    Experiment(
        name="apa-digits-rates",
        mechanism="apa",
        description="The activations of apa-digits at every learning rate: what matters more, activation or rate?",
        presets={
            "smoke": {**_SMOKE, "network": "mlp", "activations": ["relu", "aglu"], "tuning_seeds": []},
            "laptop": {**_LAPTOP_MLP, "activations": list(_ACTIVATIONS), "tuning_seeds": [], "seeds": 10},
        },
        cases=_activation_cases,
        conditions=("imbalance",),
        measure=_measure_activation,
        columns=("test_accuracy", "few_accuracy", "many_accuracy"),
    )
)


# apa-logits: section III-B, first part.


def _imbalance_cases(settings: Mapping[str, Any]) -> list[Case]:
    return grid(imbalance=settings["imbalances"])


def _fit_relu(job: Job) -> Fitted:
    return fit(job, nn.ReLU)


def _measure_logits(job: Job) -> list[Row]:
    """Return one row per class: how the logit of that class is distributed over all test images.

    The paper stores "the predicted classification logits, i.e., f(z_y) for every class y" at inference and
    speaks of a rare class "dominated by the frequent classes", so the sample of a class is its logit for
    every test image, not only for its own. In 1203 classes the images of the class itself hardly count; in
    ten they are a tenth of the sample and make a second hump. The keys that end in ``_rest`` are of the other
    classes' images alone.
    """
    fitted = _fit_relu(job)
    test = fitted.splits.test
    logits = predict(fitted.model, test.inputs).cpu().double().numpy()
    targets = test.targets.cpu().numpy()
    sizes = torch.bincount(fitted.splits.train.targets.cpu(), minlength=fitted.splits.num_classes)
    rows: list[Row] = []
    for label, size in enumerate(sizes.tolist()):
        sample = logits[:, label]
        rest = sample[targets != label]
        rows.append(
            {
                "class": label,
                "class_size": size,
                "ks_logistic": ks_distance(sample, "logistic"),
                "ks_gumbel": ks_distance(sample, "gumbel"),
                "ks_gumbel_left": ks_distance(sample, "gumbel_left"),
                "skewness": skewness(sample),
                "mean_logit": float(sample.mean()),
                "ks_logistic_rest": ks_distance(rest, "logistic"),
                "ks_gumbel_rest": ks_distance(rest, "gumbel"),
                "ks_gumbel_left_rest": ks_distance(rest, "gumbel_left"),
                "skewness_rest": skewness(rest),
            }
        )
    return rows


register(
    Experiment(
        name="apa-logits",
        mechanism="apa",
        description="Logits of balanced and long-tailed ReLU networks: nearer to Logistic or to Gumbel?",
        presets={
            "smoke": {**_SMOKE, "network": "cnn"},
            "laptop": _LAPTOP_CNN,
            "full": _FULL,
        },
        cases=_imbalance_cases,
        validate=partial(validation_accuracy, _fit_relu),
        measure=_measure_logits,
        columns=(
            "ks_logistic",
            "ks_gumbel",
            "skewness",
            "ks_logistic_rest",
            "ks_gumbel_rest",
            "skewness_rest",
        ),
    )
)


# apa-attention: section III-B, second part, and section V-E.

# Squeeze-and-excitation divides the channels by 16; the last of these small networks has 64 channels, and 4
# hidden units are few.
_REDUCTION = 4


def _channel_attention(gate: str, imbalance: float) -> Callable[[int], nn.Module]:
    """Return a factory of attentions; APA starts as in Table XV, balanced or long-tailed."""
    init = "apa_balanced" if imbalance == 1 else "apa_long_tailed"

    def make(channels: int) -> nn.Module:
        match gate:
            case "apa":
                return ChannelAttention(channels, _REDUCTION, gate=lambda: APA(init=init))
            case "apa_star":
                return ChannelAttention.apa_star(channels, _REDUCTION, init=init)
        return ChannelAttention(channels, _REDUCTION, gate=gate)

    return make


def _attention_cases(settings: Mapping[str, Any]) -> list[Case]:
    return grid(gate=settings["gates"], imbalance=settings["imbalances"])


def _fit_attention(job: Job) -> Fitted:
    return fit(job, nn.ReLU, _channel_attention(job.case["gate"], job.case["imbalance"]))


def _last_attention(model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the last attention's weights and each channel's mean after they are applied, (N, C) both, on the CPU."""
    attention = [module for module in model.modules() if isinstance(module, ChannelAttention)][-1]
    seen: list[Tensor] = []
    hook = attention.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    predict(model, inputs)
    hook.remove()
    attention.eval()
    with torch.no_grad():
        features = torch.cat(seen)
        weights = attention.attention(features)
        return weights.cpu(), (weights * features.mean((2, 3))).cpu()


def _measure_attention(job: Job) -> list[Row]:
    """Return entropy (Eq. 4) and responses of the last attention, for frequent and for rare classes.

    "Average channel responses" in the paper may mean the weights or the features after they are applied:
    ``response`` is the mean of the latter, ``weight`` of the former.
    """
    fitted = _fit_attention(job)
    test = fitted.splits.test
    weights, responses = _last_attention(fitted.model, test.inputs)
    entropies = attention_entropy(weights)
    row: Row = {"test_accuracy": evaluate(fitted.model, test).accuracy}
    for group, classes in zip(("frequent", "rare"), _frequent_and_rare(fitted, job), strict=True):
        members = torch.isin(test.targets.cpu(), classes)
        row[f"entropy_{group}"] = float(entropies[members].mean())
        row[f"response_{group}"] = float(responses[members].mean())
        row[f"weight_{group}"] = float(weights[members].mean())
    return [row]


_GATES = ["sigmoid", "gumbel", "apa", "apa_star"]

register(
    Experiment(
        name="apa-attention",
        mechanism="apa",
        description="Channel attention with four gates: entropy and response for frequent and rare classes",
        presets={
            "smoke": {**_SMOKE, "network": "cnn", "gates": ["sigmoid", "apa_star"]},
            "laptop": {
                **_LAPTOP_CNN,
                "gates": _GATES,
                # Balanced, the halves "frequent" and "rare" would be drawn at random.
                "imbalances": [100],
                # Of few images there are few steps, and every gate wants a large rate.
                "learning_rates": [0.03, 0.1, 0.3, 1.0, 3.0, 10.0],
            },
            "full": {**_FULL, "gates": _GATES},
        },
        cases=_attention_cases,
        conditions=("imbalance",),
        validate=partial(validation_accuracy, _fit_attention),
        measure=_measure_attention,
        columns=("entropy_frequent", "entropy_rare", "response_frequent", "response_rare", "test_accuracy"),
    )
)


# apa-lambda-gradient: Eq. 8 against the derivative of Eq. 6.


class _PublishedGradient(torch.autograd.Function):
    """AGLU whose gradient in λ is the paper's Eq. 8, for comparison: it is not the derivative of Eq. 6.

    ∂/∂z and ∂/∂κ are Eqs. 9 and 7, which are right. As in `companion.AGLU`, a bfloat16 z is computed with in float32.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, kappa: Tensor, lam: Tensor) -> Tensor:
        """z · η"""
        x = cast(z, compute_dtype(z.dtype))
        eta = apa(x, kappa, lam)
        ctx.save_for_backward(z, kappa, lam, eta)
        return cast(x * eta, z.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Eqs. 9, 7 and 8, each times the gradient from above."""
        saved, kappa, lam, eta = ctx.saved_tensors
        z, upstream = cast(saved, eta.dtype), cast(upstream, eta.dtype)
        # η / (λ + e^(κz))
        common = eta / (lam + torch.exp(kappa * z))
        d_z = kappa * z * common + eta
        d_kappa = z.square() * common
        # The true derivative has a term ln(1 + λe^(−κz))/λ² that outweighs this one and turns the sign.
        d_lam = -z / lam * common
        return (
            cast(upstream * d_z, saved.dtype),
            (upstream * d_kappa).sum().reshape(kappa.shape),
            (upstream * d_lam).sum().reshape(lam.shape),
        )


class PublishedGradientAGLU(AGLU):
    """AGLU, one κ and λ for all channels, that learns λ with the gradient that the paper prints (Eq. 8).

    It exists to be compared with `companion.AGLU`; the values are the same, the gradient in λ is not a
    gradient. λ stays positive as in `companion.AGLU`, where the published code clips it at zero, so Eq. 8 is
    all that differs.
    """

    def forward(self, z: Tensor) -> Tensor:
        """Apply the activation."""
        out: Tensor = _PublishedGradient.apply(z, self.kappa, self.lam)
        return out


def _published_aglu() -> nn.Module:
    return PublishedGradientAGLU(init="aglu")


_GRADIENTS: dict[str, Callable[[], nn.Module]] = {"true": _aglu, "published": _published_aglu}


def _gradient_cases(settings: Mapping[str, Any]) -> list[Case]:
    return grid(gradient=list(_GRADIENTS), imbalance=settings["imbalances"])


def _fit_gradient(job: Job) -> Fitted:
    return fit(job, _GRADIENTS[job.case["gradient"]])


def _measure_gradient(job: Job) -> list[Row]:
    """Return accuracy, final training loss, and where κ and λ ended, by layer and on average."""
    fitted = _fit_gradient(job)
    layers = [module for module in fitted.model.modules() if isinstance(module, AGLU)]
    lam = [layer.lam.item() for layer in layers]
    kappa = [layer.kappa.item() for layer in layers]
    return [
        {
            "test_accuracy": evaluate(fitted.model, fitted.splits.test).accuracy,
            "final_loss": evaluate(fitted.model, fitted.splits.train).loss,
            "lam": sum(lam) / len(lam),
            "kappa": sum(kappa) / len(kappa),
            "lam_by_layer": lam,
            "kappa_by_layer": kappa,
        }
    ]


register(
    Experiment(
        name="apa-lambda-gradient",
        mechanism="apa",
        description="AGLU trained with the true derivative in λ and with the printed one (Eq. 8)",
        presets={
            "smoke": {**_SMOKE, "network": "mlp"},
            "laptop": _LAPTOP_MLP,
            "full": _FULL,
        },
        cases=_gradient_cases,
        conditions=("imbalance",),
        validate=partial(validation_accuracy, _fit_gradient),
        measure=_measure_gradient,
        one_rate_for=("gradient",),
        columns=("test_accuracy", "final_loss", "lam", "kappa"),
    )
)


# apa-cifar100-lt: the paper's Table III (b).


def _fit_variant(job: Job) -> Fitted:
    gate, activation = {
        "se": ("sigmoid", nn.ReLU),
        "apa_star": ("apa_star", nn.ReLU),
        "apa_star+aglu": ("apa_star", _aglu),
    }[job.case["variant"]]
    return fit(job, activation, _channel_attention(gate, job.case["imbalance"]))


def _variant_cases(settings: Mapping[str, Any]) -> list[Case]:
    return grid(variant=["se", "apa_star", "apa_star+aglu"], imbalance=settings["imbalances"])


def _measure_variant(job: Job) -> list[Row]:
    return [_accuracies(_fit_variant(job), job)]


register(
    Experiment(
        name="apa-cifar100-lt",
        mechanism="apa",
        description="SE-ResNet-32 with Sigmoid, APA*, and APA* with AGLU on CIFAR-100-LT (Table III b)",
        presets={
            # The same network on digits: only to see that it runs.
            "smoke": {**_SMOKE, "network": "resnet32", "learning_rates": [0.1], "imbalances": [100]},
            "full": {**_FULL, "imbalances": [10, 100]},
        },
        cases=_variant_cases,
        conditions=("imbalance",),
        validate=partial(validation_accuracy, _fit_variant),
        measure=_measure_variant,
        columns=("test_accuracy", "few_accuracy", "many_accuracy"),
    )
)


# apa-cifar10-lt: the long tail, and both gradients, in a network of the paper's kind on two cores.

_LONG_TAIL_ACTIVATIONS: dict[tuple[str, str], Callable[[], nn.Module]] = {
    ("relu", "true"): nn.ReLU,
    ("silu", "true"): nn.SiLU,
    ("aglu", "true"): _aglu,
    ("aglu", "published"): _published_aglu,
}


def _long_tail_cases(settings: Mapping[str, Any]) -> list[Case]:
    return [
        {"activation": activation, "gradient": gradient, "imbalance": imbalance}
        for activation, gradient in _LONG_TAIL_ACTIVATIONS
        for imbalance in settings["imbalances"]
    ]


def _fit_long_tail(job: Job) -> Fitted:
    return fit(job, _LONG_TAIL_ACTIVATIONS[job.case["activation"], job.case["gradient"]])


def _measure_long_tail(job: Job) -> list[Row]:
    """Return accuracies; where there is an AGLU, also where κ and λ ended, by layer."""
    fitted = _fit_long_tail(job)
    row: Row = {**_accuracies(fitted, job), "training_images": len(fitted.splits.train)}
    if layers := [module for module in fitted.model.modules() if isinstance(module, AGLU)]:
        row["lam_by_layer"] = [layer.lam.item() for layer in layers]
        row["kappa_by_layer"] = [layer.kappa.item() for layer in layers]
    return [row]


register(
    Experiment(
        name="apa-cifar10-lt",
        mechanism="apa",
        description=(
            "ReLU, SiLU and AGLU, with the true and the printed gradient, in ResNet-20s on CIFAR-10-LT "
            "(excerpt: a tenth of the paper's schedule)"
        ),
        presets={
            # A smaller network of the same kind on digits: only to see that it runs.
            "smoke": {
                **_SMOKE,
                "network": "resnet8_half",
                "imbalances": [100],
                "validation": 0,
                "tuning": {"validation": 0.15},
            },
            "excerpt": {
                "dataset": "cifar10",
                "network": "resnet20",
                "epochs": 60,
                "batch_size": 128,
                "weight_decay": 1e-3,
                "augment": True,
                "one_cycle": True,
                "precision": "bfloat16",
                "compiled": True,
                "channels_last": True,
                "device": "cpu",
                "validation": 0,
                "imbalances": [100],
                "learning_rates": [0.05, 0.15, 0.5, 1.5],
                "tuning_seeds": [1000],
                "tuning": {"validation": 0.1, "epochs": 10},
                "seeds": 5,
            },
        },
        cases=_long_tail_cases,
        conditions=("imbalance",),
        validate=partial(validation_accuracy, _fit_long_tail),
        measure=_measure_long_tail,
        one_rate_for=("gradient",),
        columns=("test_accuracy", "few_accuracy", "many_accuracy"),
    )
)
