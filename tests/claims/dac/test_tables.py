"""What the paper on DAC says of its own numbers, recomputed from its tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from companion.study import datasets, results
from tests.claims.dac.facts import (
    COSTS,
    RESNETS,
    SIGNIFICANT,
    TWO_SIDED,
    VGGS,
    Conv,
    Pair,
    clearly_better,
    detail,
    fatal,
    growth,
    matters,
    network_flops,
    network_parameters,
    pairs,
    printed,
    quoted,
    regressor,
    resnet,
    vgg,
)
from tests.claims.form import (
    Verdict,
    agrees,
    cells,
    count,
    enumerated,
    graded,
    not_tested,
    tables,
)

SGEMM, WIDE = "Section 5, SGEMM", "Section 5, wide ResNet20"


@matters(
    "dac-consistent",
    "DAC consistently outperforms the baselines across networks and data sets of images.",
    "Section 1",
    turned_by=cells("dac-table-1", {"data": "CIFAR-100", "version": "v1", "network": "ResNet44"}, dac=31.3),
)
def test_consistent():
    rows = [row for table in (1, 2) for row in pairs(f"dac-table-{table}")]
    ahead = [row.gain > 0 for row in rows]
    ahead += [float(row["improvement"]) > 0 for row in results.published("dac-vgg")]
    ahead += [float(row["base"]) > float(row["dac"]) for row in results.published("dac-isic")]
    ahead.append(quoted(WIDE, "baseline error") > quoted(WIDE, "DAC error"))
    behind = [row for row in rows if row.gain <= 0]
    clear = [row for row in behind if row.p_value < SIGNIFICANT]
    listed = [
        f"{row.name}, {row.dac:g} ± {row.dac_error:g} against {row.base:g} ± {row.base_error:g}" for row in behind
    ]
    return Verdict(
        graded(not clear and 2 * sum(ahead) > len(ahead), any(ahead)),
        f"{sum(ahead)} of {len(ahead)} networks for images have the lower error with DAC; the exception, "
        f"{enumerated(listed)}, is {'clear' if clear else 'a tie'} by the printed standard errors.",
    )


@detail(
    "dac-slips",
    "Statements that recur in the paper agree with one another.",
    "Sections 4 to 6",
    turned_by=tables(lambda name, rows: [row | {"printed": row.get("elsewhere")} for row in rows]),
)
def test_slips():
    cases = {
        f"“{row['printed']}” for “{row['elsewhere']}” ({row['where']})": row["printed"] == row["elsewhere"]
        for row in results.published("dac-slips")
    }
    return count(cases, "places looked at agree with the rest of the paper")


def said_growth(place: str, nets: Sequence[Sequence[Conv]]) -> bool:
    """Whether parameters, and operations by the count of Section 4, grow by as many percent as the paper says."""
    parameters, operations = (quoted(place, f"more {what}, percent") for what in ("parameters", "operations"))
    return all(abs(growth(net) - parameters) < 0.75 and abs(growth(net, "output") - operations) < 0.25 for net in nets)


@matters(
    "dac-vgg-size",
    "The VGGs with DAC have 11 % more parameters and need 5.5 % more operations.",
    "Section 5, plain convolutional networks",
    chapter=COSTS,
    turned_by=cells("dac-quoted", {"place": "Section 5, VGG", "quantity": "more operations, percent"}, value=7.5),
)
def test_vgg_size():
    pooled, strided = ([vgg(*shape, 32, strided=how) for shape in VGGS.values()] for how in (False, True))
    more, by_output, by_input = (
        " and ".join(f"{growth(net, *grid):.1f}" for net in nets)
        for nets, grid in ((pooled, ()), (pooled, ("output",)), (strided, ("input",)))
    )
    return Verdict(
        graded(said_growth("Section 5, VGG", [*pooled, *strided])),
        f"They have {more} % more parameters, and {by_output} % more operations by the count of Section 4; with a bias "
        f"for each position of the input, and strides between the stages, {by_input} %.",
    )


@detail(
    "dac-wide-size",
    "The ResNet20 that is four times as wide has 11 % more parameters with DAC and needs 5.5 % more operations.",
    "Section 5, ResNet networks on CIFAR",
    chapter=COSTS,
    turned_by=cells("dac-quoted", {"place": WIDE, "quantity": "more operations, percent"}, value=9),
)
def test_wide_size():
    wide = resnet(3, 32, 64)
    return Verdict(
        graded(said_growth(WIDE, [wide])),
        f"It has {growth(wide):.1f} % more parameters, and {growth(wide, 'output'):.1f} % more operations if biases "
        f"are added once for each position of the output, as in Section 4; for each of the input, as in Table 2, "
        f"{growth(wide, 'input'):.1f} %.",
    )


@detail(
    "dac-wide-parameters",
    "A ResNet20 four times as wide has 4.3 million parameters.",
    "Section 5, ResNet networks on CIFAR",
    chapter=COSTS,
    turned_by=cells("dac-quoted", {"quantity": "parameters, millions"}, value="4.8"),
)
def test_wide_parameters():
    exact, narrow = (network_parameters(resnet(3, 32, width), 10, dac=False) for width in (64, 16))
    said = printed("Section 5, wide ResNet20", "parameters, millions")
    return Verdict(
        graded(agrees(exact / 1e6, said)),
        f"It has {exact:,} with normalisation and without parameters in the shortcuts, where the ordinary one has "
        f"{narrow:,}; the paper says {said} million.",
    )


@matters(
    "dac-gflops",
    "At 80 × 80 pixels ResNet20 and ResNet32 need 0.509 and 0.865 GFLOPs, with DAC 0.542 and 0.918.",
    "Table 2",
    chapter=COSTS,
    turned_by=cells("dac-table-2-gflops", {"network": "ResNet20"}, dac=0.537),
)
def test_gflops():
    image = round(quoted("Section 5, Imagenette", "image size"))
    rows = {row["network"]: row for row in results.published("dac-table-2-gflops")}
    flops = {
        (name, grid): network_flops(resnet(RESNETS[name], image), 10, grid) / 1e9
        for name in rows
        for grid in ("base", "input")
    }
    right = [
        # normalisation, shortcuts and the digits cut off may be counted otherwise
        abs(flops[name, grid] / float(row[column]) - 1) < 0.003
        for name, row in rows.items()
        for column, grid in (("base", "base"), ("dac", "input"))
    ]
    counted = enumerated([f"{flops[name, grid]:.4f}" for grid in ("base", "input") for name in rows])
    more = enumerated([f"{100 * (float(row['dac']) / float(row['base']) - 1):.1f}" for row in rows.values()])
    return Verdict(
        graded(all(right)),
        f"Counted with biases added for each position of the input they are {counted}; so DAC costs {more} % more, not "
        "the 5.5 % of the text, which counts positions of the output.",
    )


@detail(
    "dac-sgemm-range",
    "The networks for SGEMM, 5 to 16 layers of 16 to 250 units, have 1700 to 1.4 million parameters.",
    "Section 5, SGEMM",
    turned_by=cells("dac-quoted", {"quantity": "most parameters"}, value=2_500_000),
)
def test_sgemm_range():
    inputs, shallow, narrow, deep, wide = (
        round(quoted(SGEMM, quantity))
        for quantity in ("inputs", "fewest layers", "narrowest layer", "most layers", "widest layer")
    )
    smallest = regressor(inputs, narrow, shallow, dac=False)
    base, dac = (regressor(inputs, wide, deep, dac=dac) for dac in (False, True))
    return Verdict(
        graded(smallest <= quoted(SGEMM, "fewest parameters") and quoted(SGEMM, "most parameters") <= dac),
        f"Such networks have from {smallest:,}, a baseline of {shallow} layers of {narrow} units, to {base:,}, one of "
        f"{deep} layers of {wide}, and {dac:,} as DAC; so the largest were DACs without a baseline of their size.",
    )


@detail(
    "dac-sgemm-width",
    "A DAC with 141 units a layer has as many parameters as a baseline with 200.",
    "Section 5, SGEMM",
    turned_by=cells("dac-quoted", {"quantity": "actual width"}, value=150),
)
def test_sgemm_width():
    inputs, actual, equivalent, shallow, deep = (
        round(quoted(SGEMM, quantity))
        for quantity in ("inputs", "actual width", "equivalent width", "fewest layers", "most layers")
    )
    gaps = [
        100 * (regressor(inputs, actual, depth, dac=True) / regressor(inputs, equivalent, depth, dac=False) - 1)
        for depth in range(shallow, deep + 1)
    ]
    return Verdict(
        graded(max(map(abs, gaps)) < 2),
        f"It has {min(gaps):+.1f} to {max(gaps):+.1f} % more, for {shallow} to {deep} layers, and three quarters of "
        "the operations.",
    )


@matters(
    "dac-sgemm-failures",
    "DAC fails to train significantly less often than the baseline on SGEMM, p = 0.0063.",
    "Section 5, SGEMM",
    turned_by=cells("dac-quoted", {"quantity": "DAC failures"}, value=9),
)
def test_sgemm_failures():
    from scipy import stats

    runs, failed = (
        {name: round(quoted(SGEMM, f"{name} {what}")) for name in ("baseline", "DAC")} for what in ("runs", "failures")
    )
    p_value = float(stats.fisher_exact([[failed[name], runs[name] - failed[name]] for name in runs])[1])
    said = printed(SGEMM, "p-value of the failures")
    return Verdict(
        graded(agrees(p_value, said) and p_value < SIGNIFICANT, p_value < SIGNIFICANT),
        f"{failed['baseline']} of {runs['baseline']} and {failed['DAC']} of {runs['DAC']} give p = {p_value:.4f} by "
        f"Fisher's test (printed: {said}), which takes networks of all sizes for alike, though the numbers of runs "
        "show that not all had a partner.",
    )


@detail(
    "dac-sgemm-experiments",
    "Figure 8 shows the 1008 experiments that did not fail.",
    "Appendix D, Fig. 8",
    turned_by=cells("dac-quoted", {"quantity": "experiments"}, value=1025),
)
def test_sgemm_experiments():
    shown = quoted("Appendix D, Fig. 8", "experiments")
    runs, failed = (quoted(SGEMM, f"baseline {what}") + quoted(SGEMM, f"DAC {what}") for what in ("runs", "failures"))
    return Verdict(
        graded(shown == runs - failed),
        f"{runs:g} runs less {failed:g} failed ones are {runs - failed:g}; the caption says {shown:g}.",
    )


@detail(
    "dac-cifar-epochs",
    "80,000 steps are 256 epochs of CIFAR.",
    "Section 5, plain convolutional networks",
    turned_by=cells("dac-quoted", {"place": "Section 5, CIFAR", "quantity": "epochs"}, value=213),
)
def test_cifar_epochs():
    place, batch = "Section 5, CIFAR", quoted("Section 5, images", "batch size")
    training = quoted(place, "images") * quoted(place, "training parts of six") / 6
    epochs = quoted(place, "steps") * batch / training
    return Verdict(
        graded(agrees(epochs, printed(place, "epochs"))),
        f"Batches of {batch:g} pass {epochs:.1f} times over the {training:,.0f} images that train, four sixths of all.",
    )


TRAINING_PICTURES = datasets._IMAGENETTE_PICTURES["train"]
"""Of Imagenette, as it is distributed; less than half as many more are a test set. The paper says "about 10k"."""


@matters(
    "dac-imagenette-epochs",
    "With batches of 128, as for CIFAR, 64,000 steps are 259 epochs of Imagenette.",
    "Section 5, Imagenette",
    turned_by=cells("dac-quoted", {"place": "Section 5, images", "quantity": "batch size"}, value=31),
)
def test_imagenette_epochs():
    place, batch = "Section 5, Imagenette", quoted("Section 5, images", "batch size")
    steps, said = quoted(place, "steps"), quoted(place, "epochs")
    # 4 : 1 : 2 "approximately": four fifths of these train, and the test set is another half as large
    training = TRAINING_PICTURES * 4 // 5
    epochs = steps / math.ceil(training / batch)
    return Verdict(
        graded(abs(epochs / said - 1) < 0.1),
        f"They are {epochs:.0f} epochs of the {training} pictures that train, four fifths of the {TRAINING_PICTURES} "
        f"that Imagenette has for it; {said:g} epochs would need batches of about {said * training / steps:.0f}.",
    )


@matters(
    "dac-vgg-significant",
    "DAC improves the VGGs significantly in all four cases.",
    "Section 5, plain convolutional networks",
    turned_by=cells("dac-vgg", {"data": "CIFAR-10", "network": "20/16"}, improvement=0.3),
)
def test_vgg_significant():
    ratios = [float(row["improvement"]) / float(row["uncertainty"]) for row in results.published("dac-vgg")]
    clear = [each for each in ratios if each > TWO_SIDED]
    return Verdict(
        graded(len(clear) == len(ratios), clear),
        f"Improvements are {enumerated([f'{each:.1f}' for each in ratios])} times what stands behind ±, which in "
        f"{len(clear)} of {len(ratios)} cases is significant even if that is one standard error; the paper does not "
        "say.",
    )


def beside_line(by: str) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """By data and version: how far DAC's errors lie below the baselines' line in the logarithm of parameters or
    operations, in points and in standard errors. Nothing is as large as the DAC of the deepest network."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for one, deeper in itertools.pairwise(pairs("dac-table-1")):
        if one[1:3] != deeper[1:3]:
            continue
        nets = [resnet(RESNETS[row.network], 32) for row in (one, deeper)]
        if by == "parameters":
            low, high = (network_parameters(net, 10, dac=False) for net in nets)
            own = network_parameters(nets[0], 10, dac=True)
        else:
            low, high = (network_flops(net, 10, "base", skips=True) for net in nets)
            own = network_flops(nets[0], 10, "output", skips=True)
        at = math.log(own / low) / math.log(high / low)
        gap = (1 - at) * one.base + at * deeper.base - one.dac
        error = math.hypot((1 - at) * one.base_error, at * deeper.base_error, one.dac_error)
        found.setdefault((one.data, one.version), []).append((gap, gap / error))
    return found


@fatal(
    "dac-not-by-size",
    "The larger size of networks with DAC alone cannot explain their improvements.",
    "Section 5, plain convolutional networks",
)
def test_not_by_size():
    operations, parameters = (
        [gap for gaps in beside_line(by).values() for gap, _ in gaps] for by in ("operations", "parameters")
    )
    better, of = ([sum(gap > 0 for gap in gaps) for gaps in (operations, parameters)], len(operations))
    return not_tested(
        f"The paper widens no baseline; against deeper ones of Table 1, interpolated to DAC's size, DAC has the lower "
        f"error in {better[0]} of {of} networks by operations and in {better[1]} by parameters.",
        "Baselines of about 5 % more channels, with as many parameters as the DACs, would decide it.",
    )


@matters(
    "dac-superimposed",
    "By number of operations, the errors of ResNets with DAC lie well below the baselines' line for CIFAR-10 v1 and "
    "CIFAR-100 v2, and partly on it for CIFAR-10 v2 and CIFAR-100 v1.",
    "Section 5, Fig. 6",
    turned_by=cells("dac-table-1", {"data": "CIFAR-100", "version": "v2", "network": "ResNet44"}, dac=30.4),
)
def test_superimposed():
    lines = beside_line("operations")
    apart = [lines["CIFAR-10", "v1"], lines["CIFAR-100", "v2"]]
    partly = [lines["CIFAR-10", "v2"], lines["CIFAR-100", "v1"]]
    right = [min(errors for _, errors in line) > 1 for line in apart]
    right += [min(errors for _, errors in line) < 1 < max(errors for _, errors in line) for line in partly]
    gaps = [f"{min(line)[0]:.2f} to {max(line)[0]:.2f}" for line in apart + partly]
    return Verdict(
        graded(all(right), any(right)),
        f"In Table 1, 20 to 44 layers, DAC is {gaps[0]} and {gaps[1]} points below the interpolated line, by more than "
        f"a standard error everywhere; {gaps[2]} and {gaps[3]} in the other two cases.",
    )


@fatal(
    "dac-in-favour",
    "Of 16 comparisons of ResNets on CIFAR, 15 are in favour of DAC.",
    "Section 5, Table 1",
    turned_by=cells("dac-table-1", {"data": "CIFAR-10", "version": "v2", "network": "ResNet44"}, dac=7.2),
)
def test_in_favour():
    said, of = (quoted("Section 5, ResNet", what) for what in ("comparisons in favour of DAC", "comparisons"))
    rows = pairs("dac-table-1")
    others = [row.name for row in rows if row.gain <= 0]
    better = len(rows) - len(others)
    return Verdict(
        graded((better, len(rows)) == (said, of)),
        f"In Table 1 DAC is ahead in {better} of {len(rows)}, but not for {enumerated(others)} (the paper's text "
        "counts by another estimate of the error, and prints no numbers of it).",
    )


@matters(
    "dac-significant",
    "Nine of the 16 comparisons of ResNets on CIFAR are significant in favour of DAC.",
    "Section 5, Table 1",
    turned_by=cells("dac-table-1", {"data": "CIFAR-100", "version": "v2", "network": "ResNet56"}, dac=29.8),
)
def test_significant():
    from scipy import stats

    from companion.study.analysis import holm

    rows = pairs("dac-table-1")
    corrected = holm([row.p_value for row in rows])
    strict = [row for row, p in zip(rows, corrected, strict=True) if row.gain > 0 and p < SIGNIFICANT]
    plain, root = clearly_better(rows), math.sqrt(5)
    welch = [
        row
        for row in plain
        if stats.ttest_ind_from_stats(
            row.base, row.base_error * root, 5, row.dac, row.dac_error * root, 5, equal_var=False
        ).pvalue
        < SIGNIFICANT
    ]
    return Verdict(
        graded(len(plain) == quoted("Section 5, ResNet", "significant comparisons")),
        f"By the standard errors of Table 1 {len(plain)} of {len(rows)} are, {len(welch)} by Welch's test for five "
        f"replicates, and {len(strict)} after Holm's correction of the former, which the paper does not make.",
    )


@detail(
    "dac-fewer-layers",
    "Some DACs are better than baselines with more layers.",
    "Section 5, Table 1",
    turned_by=tables(lambda name, rows: [row | {"dac": row["base"]} if "dac" in row else row for row in rows]),
)
def test_fewer_layers():
    deeper = [
        (one, other)
        for one, other in itertools.permutations(pairs("dac-table-1"), 2)
        if one[1:3] == other[1:3] and one.network < other.network
    ]
    found = [
        f"{one.name} ({one.dac:g}) than {other.network} ({other.base:g})"
        for one, other in deeper
        if one.dac < other.base
    ]
    # as the baseline itself is there
    return Verdict(
        graded(any(one.dac < other.base <= one.base for one, other in deeper)),
        f"In Table 1 {len(found)} of {len(deeper)} have a lower error: {enumerated(found)}.",
    )


@matters(
    "dac-subsets-better",
    "DAC is markedly better on Imagenette and Imgewoof.",
    "Section 5, Table 2",
    turned_by=tables(lambda name, rows: [row | {"dac": row["base"]} if "dac" in row else row for row in rows]),
)
def test_subsets_better():
    """Marked in each of the four columns, by the mean of its networks: chosen when the result was known."""
    rows = pairs("dac-table-2")
    lower = sum(row.gain > 0 for row in rows)
    mean = sum(row.gain for row in rows) / len(rows)
    columns: dict[str, list[Pair]] = {}
    for row in rows:
        columns.setdefault(f"{row.data} {row.version}", []).append(row)
    faint = []
    for name, column in columns.items():
        error = math.hypot(*(each for row in column for each in (row.base_error, row.dac_error)))
        if sum(row.gain for row in column) <= TWO_SIDED * error:
            faint.append(name)
    weak = [row for name in faint for row in columns[name]]
    small = sum(row.gain < math.hypot(row.base_error, row.dac_error) for row in weak)
    gains = [f"{gain:.2f}" for gain in sorted({row.gain for row in weak})]
    return Verdict(
        graded(not faint, len(faint) < len(columns)),
        f"Its error is lower in {lower} of {len(rows)} comparisons, by {mean:.2f} points on average, significantly in "
        f"{len(clearly_better(rows))}; not marked on {enumerated(faint)}, by {enumerated(gains)} points, {small} of "
        f"{len(weak)} less than one standard error.",
    )


@matters(
    "dac-v2-gains",
    "Unshared biases alone, in a ResNet that is pre-activated already, v2, lower the error.",
    "Section 5, Tables 1 and 2",
    turned_by=cells("dac-table-2", {"data": "Imgewoof", "version": "v2", "network": "ResNet32"}, dac=25),
)
def test_v2_gains():
    rows = [row for table in (1, 2) for row in pairs(f"dac-table-{table}") if row.version == "v2"]
    gains = [row.gain for row in rows]
    return Verdict(
        graded(min(gains) > 0, max(gains) > 0),
        f"It is lower in {sum(gain > 0 for gain in gains)} of {len(rows)} comparisons of Tables 1 and 2, by "
        f"{min(gains):.2f} to {max(gains):.2f} points, in {len(clearly_better(rows))} by more than 1.96 of the printed "
        "standard errors, uncorrected.",
    )


@detail(
    "dac-v1-worse",
    "On Imagenette and Imgewoof the baseline ResNet v1 is much worse than the baseline v2 and all DACs.",
    "Section 5, Table 2",
    turned_by=tables(lambda name, rows: [row | {"base": 30} if row.get("version") == "v1" else row for row in rows]),
)
def test_v1_worse():
    rows = pairs("dac-table-2")
    gaps = {}
    for one, other in itertools.product(rows, rows):
        if one.version == "v1" and one[0:3:2] == other[0:3:2]:
            rivals = {"DAC": (other.dac, other.dac_error)}
            if other.version == "v2":
                rivals["the baseline"] = (other.base, other.base_error)
            for kind, (value, its_error) in rivals.items():
                gaps[f"{kind} {other.version} with {one.network} on {one.data}"] = (
                    one.base - value,
                    TWO_SIDED * math.hypot(one.base_error, its_error),
                )
    better = [gap for gap, _ in gaps.values() if gap > 0]
    close = [name for name, (gap, least) in gaps.items() if gap <= least]
    return Verdict(
        graded(not close, better),
        f"{len(better)} of {len(gaps)} rivals are better, by {min(better):.2f} points at least, in "
        f"{len(gaps) - len(close)} by more than 1.96 standard errors; not {enumerated(close)}.",
    )


@matters(
    "dac-isic",
    "On ISIC 2019 DAC lowers the error by 0.58 points with 20 layers and by 1.26 with 32.",
    "Section 5, ISIC",
    turned_by=cells("dac-isic", {"network": "ResNet32"}, dac=25.4),
)
def test_isic():
    rows = {row["network"]: row for row in results.published("dac-isic")}
    return count(
        {name: agrees(float(row["base"]) - float(row["dac"]), row["improvement"]) for name, row in rows.items()},
        "printed differences are those of the printed errors, for which no interval and no number of runs are given",
    )


@detail(
    "dac-ablation-columns",
    "The two halves of Table 3 differ by what DAC gains with ResNet20, as Table 1 has it.",
    "Table 3",
    turned_by=cells("dac-table-3", {"data": "CIFAR-100", "version": "v1"}, relative=30),
)
def test_ablation_columns():
    gains = {(row.data, row.version): row for row in pairs("dac-table-1") if row.network == "ResNet20"}
    fits, listed = {}, []
    for row in results.published("dac-table-3"):
        first = gains[row["data"], row["version"]]
        implied = 100 * float(row["absolute"]) / float(row["relative"])
        gap = abs(implied - first.gain)
        fits[f"{row['data']} {row['version']}"] = gap < TWO_SIDED * math.hypot(first.base_error, first.dac_error)
        listed.append(f"{implied:.2f} ({first.gain:.2f})")
    return Verdict(
        graded(all(fits.values()), any(fits.values())),
        f"They imply gains of {enumerated(listed)} points, in parentheses Table 1, which has another estimate of the "
        f"error; {sum(fits.values())} of {len(fits)} agree within 1.96 of its standard errors.",
    )


@matters(
    "dac-ablation-small",
    "Pre-activation with shared biases gains less than DAC, and is slightly worse than the baseline in one case.",
    "Section 5, Table 3",
    turned_by=cells("dac-table-3", {"data": "CIFAR-10", "version": "v2"}, relative=131),
)
def test_ablation_small():
    absolute, relative = (
        [float(row[key]) for row in results.published("dac-table-3")] for key in ("absolute", "relative")
    )
    less, worse = [each < 100 for each in relative], [each for each in absolute if each < 0]
    return Verdict(
        graded(all(less) and len(worse) == 1, any(less)),
        f"It gains {min(relative):g} to {max(relative):g} % of what DAC gains, less in {sum(less)} of {len(less)} "
        f"cases, and is worse than the baseline in {len(worse)}, by {-min(absolute):g} points.",
    )


@matters(
    "dac-ablation-alike",
    "Pre-activation with shared biases is comparable to the baseline, and its improvements are never significant.",
    "Section 5, Table 3",
)
def test_ablation_alike():
    absolute = [float(row["absolute"]) for row in results.published("dac-table-3")]
    return not_tested(
        f"Accuracies change by {min(absolute):+.2f} to {max(absolute):+.2f} points in four cases, and no errors are "
        "printed beside them.",
        "The standard errors of Table 3, or five replicates of each network, would decide it.",
    )


@matters(
    "dac-mba-less",
    "On CIFAR-100 multi-bias activation gains less than DAC, though it has about K times the parameters.",
    "Section 5, comparison with MBA",
    turned_by=cells("dac-mba", {"model": "MBA with K = 4"}, improvement=0.97),
)
def test_mba_less():
    gains = {row["model"]: float(row["improvement"]) for row in results.published("dac-mba")}
    dac = gains.pop("DAC")
    return Verdict(
        graded(dac > max(gains.values())),
        f"DAC gains {dac:g} points, and {enumerated([f'{name} {gain:g}' for name, gain in gains.items()])}, of which "
        "nothing was tuned; one network, without intervals.",
    )
