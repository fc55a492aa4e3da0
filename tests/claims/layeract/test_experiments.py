"""What the paper on LayerAct says of trained networks, judged by runs of ours.

What counts as clear stood before the results existed: differences are paired by seed, and "lower" or "better" means
that the mean difference has the wanted sign with p < 0.05, by the t-test with Holm's correction over all comparisons of
one result. A claim about both LayerAct functions and all six others makes twelve comparisons of a measure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from companion.analysis import Comparison, family, interval
from companion.corruptions import CORRUPTIONS
from companion.layeract.experiments import Pair, comparisons
from tests.claims.form import Verdict, detected, enumerated, judged_alike, no_result, not_tested, rows, run_of
from tests.claims.layeract.facts import claim

MNIST, CIFAR = "layeract-mnist", "layeract-cifar10"
LAYER_LEVEL = {"la_silu": "LA-SiLU", "la_hardsilu": "LA-HardSiLU"}
EPOCHS = tuple(f"mean_activation_epoch_{epoch}" for epoch in (1, 40, 80))
# The paper does not say whether its noise is added to the images or to the layer's input. The measures of the latter
# begin with y_, and are compared only since the first results are known.
MEAN, Y_MEAN, DEVIATION, Y_DEVIATION, GAIN = (
    tuple(f"{name}_{noise}" for noise in (1, 2))
    for name in ("fluctuation_mean", "y_fluctuation_mean", "fluctuation_std", "y_fluctuation_std", "gain_mean")
)
MEASURES = {
    MNIST: (*EPOCHS, *MEAN, *Y_MEAN, *DEVIATION, *Y_DEVIATION, *GAIN),
    CIFAR: ("accuracy_clean", *(f"accuracy_{name}" for name in CORRUPTIONS)),
}


def power(found: Sequence[Comparison[Pair]], every: Sequence[Comparison[Pair]], unit: str, scale: float = 1.0) -> str:
    """As `detected`, for some of a family."""
    return detected(found, unit, scale).replace(f"for {len(found)} comparisons", f"for {len(every)} comparisons")


def lowered(*measures: str, by: float = 100.0):
    """The run with LayerAct functions that are far lower in some measures."""
    return rows(
        MNIST,
        lambda row: row | {key: row[key] - by * (row["activation"] in LAYER_LEVEL) for key in measures},
    )


def lower(groups: Mapping[str, Sequence[str]], what: str) -> Verdict:
    """Whether both LayerAct functions are lower than all six others, in each measure; the groups say where."""
    run = run_of(MNIST)
    if run is None:
        return no_result(MNIST)
    every, found, counts = comparisons(run.rows, MEASURES[MNIST]), [], []
    for label, measures in groups.items():
        group = [each for each in every if each.key.measure in measures]
        signs = [each.sign() for each in group]
        counts.append(f"lower in {signs.count(-1)} and higher in {signs.count(1)} of {len(group)} {label}")
        found += group
    signs = [each.sign() for each in found]
    return run.judge(
        f"Over {found[0].difference.n} seeds LayerAct functions are clearly {enumerated(counts)}.",
        shown=signs.count(-1),
        against=signs.count(1),
        of=len(found),
        power=power(found, every, f"in the {what}"),
    )


@claim(
    "layeract-mnist-mean",
    "After 40 epochs of training on MNIST the units' mean outputs are nearer to zero with LayerAct functions.",
    "Section 4.1.1, Fig. 2",
    severity="fatal",
    turned_by=lowered(EPOCHS[1]),
)
def test_mnist_mean():
    return lower({"comparisons after 40 epochs": EPOCHS[1:2]}, "distance of the means from zero")


@claim(
    "layeract-mnist-always",
    "In training on MNIST the units' mean outputs are nearer to zero with LayerAct functions at every epoch.",
    "Section 4.1.1, Fig. 2",
    severity="matters",
    turned_by=lowered(*EPOCHS),
)
def test_mnist_always():
    return lower({"comparisons after 1, 40 and 80 epochs": EPOCHS}, "distance of the means from zero")


@claim(
    "layeract-mnist-fluctuation",
    "On MNIST the outputs of LayerAct functions fluctuate less on average, under both noises.",
    "Section 4.1.2, Fig. 3",
    severity="fatal",
    turned_by=lowered(*MEAN, *Y_MEAN),
)
def test_mnist_fluctuation():
    return lower({"comparisons with noise on images": MEAN, "with noise on the layer's input": Y_MEAN}, "fluctuation")


@claim(
    "layeract-mnist-variance",
    "On MNIST the fluctuation of LayerAct functions varies less between samples, under both noises.",
    "Section 4.1.2, Fig. 3",
    severity="fatal",
    turned_by=lowered(*DEVIATION, *Y_DEVIATION),
)
def test_mnist_variance():
    return lower(
        {"comparisons with noise on images": DEVIATION, "with noise on the layer's input": Y_DEVIATION}, "deviation"
    )


@claim(
    "layeract-mnist-inherent",
    "The lower fluctuation of the outputs comes from the mechanism, so that it is lower for equal fluctuation of the "
    "inputs too.",
    "Appendix G, Fig. 8",
    severity="matters",
    turned_by=lowered(*GAIN, *Y_MEAN),
)
def test_mnist_inherent():
    return lower(
        {"gains with noise on images": GAIN, "fluctuations with equal noise on the layer's input": Y_MEAN},
        "measures",
    )


@claim(
    "layeract-mnist-silu",
    "Under noise with a mean, SiLU and HardSiLU fluctuate more on MNIST than ReLU and LReLU.",
    "Section 4.1.2, Fig. 3",
    severity="detail",
    turned_by=rows(MNIST, lambda row: row | {"fluctuation_mean_2": 0.0} if "silu" in row["activation"] else row),
)
def test_mnist_silu():
    run = run_of(MNIST)
    if run is None:
        return no_result(MNIST)
    series: dict[str, dict[int, float]] = {}
    for row in run.rows:
        series.setdefault(row["activation"], {})[row["seed"]] = row["fluctuation_mean_2"]
    pairs = [(one, other) for one in ("silu", "hardsilu") for other in ("relu", "leaky_relu")]
    found = family({pair: (series[pair[0]], series[pair[1]]) for pair in pairs})
    signs = [each.sign() for each in found]
    means = {name: fmean(each.values()) for name, each in series.items()}
    return run.judge(
        f"They do clearly in {signs.count(1)} of {len(found)} comparisons over {found[0].difference.n} seeds: "
        f"SiLU {means['silu']:.1f} and HardSiLU {means['hardsilu']:.1f} against ReLU {means['relu']:.1f} and LReLU "
        f"{means['leaky_relu']:.1f}.",
        shown=signs.count(1),
        against=signs.count(-1),
        of=len(found),
        power=detected(found, "in the fluctuation"),
    )


# The differences between outputs that the similar inputs are to explain are of a tenth and more.
SIMILAR = 0.1


@claim(
    "layeract-mnist-inputs",
    "On MNIST the fluctuation of the activation's input is similar for LayerAct and element-level functions.",
    "Section 4.1.2, Appendix G, Fig. 8",
    severity="matters",
    turned_by=rows(
        MNIST, lambda row: row | {f"input_fluctuation_mean_{noise}": 20.0 + row["seed"] for noise in (1, 2)}
    ),
)
def test_mnist_inputs():
    run = run_of(MNIST)
    if run is None:
        return no_result(MNIST)
    found = {}
    for noise in (1, 2):
        of = {(row["activation"], row["seed"]): row[f"input_fluctuation_mean_{noise}"] for row in run.rows}
        seeds, names = sorted({seed for _, seed in of}), dict.fromkeys(name for name, _ in of)
        for layer in LAYER_LEVEL:
            for other in names.keys() - LAYER_LEVEL.keys():
                found[noise, layer, other] = interval([of[layer, seed] / of[other, seed] - 1 for seed in seeds])
    beyond = {
        noise: sum(abs(each.mean) > SIMILAR for key, each in found.items() if key[0] == noise) for noise in (1, 2)
    }
    return judged_alike(
        run,
        "With noise on images, inputs of LayerAct functions fluctuate over a tenth less or more than others' in "
        f"{beyond[1]} of {len(found) // 2} comparisons without a mean of the noise and in {beyond[2]} with one.",
        list(found.values()),
        SIMILAR,
    )


# On clean CIFAR the paper's leads of LA-SiLU over the best other function are of half a point and less.
HALF_A_POINT = 0.005


def on_cifar(layer: str, measures: Sequence[str], worse_by: float = 0.0) -> Verdict:
    """Whether a LayerAct function is clearly better in some columns, or at least not worse by more than a margin."""
    run = run_of(CIFAR)
    if run is None:
        return no_result(CIFAR)
    every = comparisons(run.rows, MEASURES[CIFAR])
    found = [each for each in every if each.key.layer_level == layer and each.key.measure in measures]
    shown = sum(each.sign() > 0 or (worse_by > 0 and each.difference.low > -worse_by) for each in found)
    against = sum(each.sign() < 0 and each.difference.mean < -worse_by for each in found)
    better = "better or at most half a point worse" if worse_by else "better"
    evidence = (
        f"Over {found[0].difference.n} seeds {LAYER_LEVEL[layer]} is clearly {better} in {shown} and worse in "
        f"{against} of {len(found)} comparisons"
    )
    rates = run.settings["learning_rates"]
    at_edge = {row["activation"] for row in run.rows if row["learning_rate"] in (min(rates), max(rates))}
    if run.smaller and at_edge:
        return not_tested(
            f"{evidence}; in these small networks {len(at_edge)} of 8 activations chose a learning rate at the edge.",
            "Trainings of the paper's size would decide it, and a wider grid would show what small ones say.",
        )
    could_find = power(found, every, "points", scale=100)
    return run.judge(f"{evidence}.", shown=shown, against=against, of=len(found), power=could_find)


def inside(row):
    """A row of CIFAR with a learning rate inside the grid."""
    return row | {"learning_rate": 0.3}


@claim(
    "layeract-cifar-la-silu",
    "LA-SiLU is more accurate on noisy CIFAR-10 than element-level functions.",
    "Section 4.2.2, Appendix G",
    severity="fatal",
    turned_by=rows(CIFAR, inside),
)
def test_cifar_la_silu():
    return on_cifar("la_silu", MEASURES[CIFAR][1:])


@claim(
    "layeract-cifar-la-hardsilu",
    "LA-HardSiLU is more accurate on noisy CIFAR-10 than element-level functions.",
    "Section 4.2.2, Appendix G",
    severity="fatal",
    turned_by=rows(CIFAR, inside),
)
def test_cifar_la_hardsilu():
    return on_cifar("la_hardsilu", MEASURES[CIFAR][1:])


@claim(
    "layeract-cifar-clean",
    "LA-SiLU is as accurate as or more accurate than element-level functions on clean CIFAR-10.",
    "Section 4.2.1, Table 1",
    severity="matters",
    turned_by=rows(CIFAR, inside),
)
def test_cifar_clean():
    return on_cifar("la_silu", MEASURES[CIFAR][:1], worse_by=HALF_A_POINT)
