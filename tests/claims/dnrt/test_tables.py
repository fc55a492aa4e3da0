"""What the paper on DNRT says of its own numbers, recomputed from its tables."""

from __future__ import annotations

from collections import Counter
from statistics import fmean, median

from companion.study import results
from tests.claims.dnrt.facts import NEGLIGIBLE, accuracies, detail, fatal, matters, quoted
from tests.claims.form import Verdict, agrees, cells, count, enumerated, graded, not_tested, number, tables

VIT, TNT = "ViT-Tiny", "TNT-Small"


def leads(*chosen: int | str) -> dict[str, float]:
    """By row DNRT's number minus the best of its rivals."""
    return {
        place: round(numbers["DNRT"] - max(value for name, value in numbers.items() if name != "DNRT"), 2)
        for place, numbers in accuracies(*chosen).items()
    }


def in_front(table: int | str, best: bool = False, more: str = "") -> Verdict:
    """Whether DNRT has the best number in all rows; a tie is enough for the best, and not for being better."""
    found, ahead, but = accuracies(table), [], ""
    for place, lead in leads(table).items():
        mine = found[place].pop("DNRT")
        rivals = [f"{name} ({value})" for name, value in found[place].items() if value >= mine]
        ahead += [lead] if lead > 0 else []
        but += f", {'behind' if lead < 0 else 'level with'} {enumerated(rivals)} in {place}" if rivals else ""
    by = " to ".join(dict.fromkeys(f"{lead:g}" for lead in (min(ahead), max(ahead)))) if ahead else "no"
    return Verdict(
        graded(not (", behind" in but if best else but), ahead),
        f"DNRT leads alone in {len(ahead)} of {len(found)} cases, by {by} points{but}{more}.",
    )


# --- Accuracies ---------------------------------------------------------------------------------------------


@fatal(
    "dnrt-mlp",
    "DNRT gives an MLP the best accuracy on MNIST, CIFAR-10 and CIFAR-100.",
    "Section 5.1, Table 1",
    turned_by=cells("dnrt-table-1", {"data": "CIFAR-100"}, dnrt=26.0),
)
def test_mlp():
    return in_front(1, best=True)


@fatal(
    "dnrt-vit",
    "In five Vision Transformers and on three data sets DNRT is consistently better than seven other activations.",
    "Section 5.2, Table 2",
    turned_by=cells("dnrt-table-2", {"data": "CIFAR-100", "network": "PVT-Tiny"}, dnrt=70.6),
)
def test_vit():
    return in_front(2)


@fatal(
    "dnrt-cnn",
    "In CNNs of five architectures DNRT is better than seven other activations.",
    "Sections 1 and 6, Table 3",
    turned_by=cells("dnrt-table-3", {"network": "MobileNet", "data": "ImageNet-100"}, dnrt=80.95),
)
def test_cnn():
    sums: dict[str, Counter[str]] = {}
    for place, numbers in accuracies(3).items():
        sums.setdefault(place.split()[1], Counter()).update(numbers)
    first = [total.most_common(1)[0][0] == "DNRT" for total in sums.values()]
    verdict = in_front(3, more=f", and on average in {sum(first)} of {len(first)} networks")
    return Verdict(graded(all(first), any(first)), verdict.evidence)


@fatal(
    "dnrt-can",
    "DNRT can reach remarkable accuracies compared with other activations, in several tasks.",
    "Abstract, Tables 1 to 4, 9 and 10",
    turned_by=tables(lambda name, rows: [row | {"dnrt": "1"} for row in rows] if name[-1] in "23" else rows),
)
def test_can():
    found = list(leads(1, 2, 3, "4a", "4b", 9, 10).values())
    ahead, level = sum(lead > 0 for lead in found), found.count(0)
    return Verdict(
        graded(2 * ahead > len(found)),
        f"DNRT leads alone in {ahead} of {len(found)} cases of six tables and is level in {level}, and its median "
        f"lead over the best rival is {median(found):g} points.",
    )


@fatal(
    "dnrt-demonstrated",
    "The experiments demonstrate that DNRT is more effective than other activations across various architectures.",
    "Sections 1 and 6",
)
def test_demonstrated():
    mlps, vits, cnns = (median(leads(table).values()) for table in (1, 2, 3))
    return not_tested(
        f"DNRT's median lead over the best rival is {mlps:g} points in MLPs, {vits:g} in Vision Transformers and "
        f"{cnns:g} in CNNs, but no number has a deviation, and how often networks were trained is not said.",
        "The same trainings with at least five seeds, and with λ chosen without the test images, would decide it.",
    )


@matters(
    "dnrt-imagenet",
    "On ImageNet-1K, DNRT is consistently better than ReLU and GELU in five Vision Transformers.",
    "Appendix A.3, Table 9",
    turned_by=cells("dnrt-table-9", {"network": "DeiT-Tiny"}, dnrt=73.1),
)
def test_imagenet():
    return in_front(9)


@matters(
    "dnrt-graph",
    "DNRT has remarkable results in a task without images, too: classifying the nodes of a graph.",
    "Section 5.4, Table 4",
    turned_by=cells("dnrt-table-4a", {"network": "GCN"}, dnrt=72.5),
)
def test_graph():
    return in_front("4a")


@matters(
    "dnrt-imbalanced",
    "DNRT is capable of countering the harm that imbalanced classes do.",
    "Section 5.4, Table 4",
    turned_by=cells("dnrt-table-4b", {"network": VIT, "imbalance": "100"}, dnrt=48.5),
)
def test_imbalanced():
    # A harm is countered where less of it is left: a network that is better with alike classes, too, is not enough.
    # Chosen with the numbers known; to be in front, in all six cases, is said in the evidence.
    found, listed, countered = accuracies("4b"), [], []
    for name in (VIT, "ResNet-32"):
        of = ("DNRT", "ReLU", "GELU")
        mine, *others = (round(found[f"{name} 10"][each] - found[f"{name} 100"][each], 9) for each in of)
        countered.append(mine < min(others))
        listed.append(f"{mine:.1f} with {name} (ReLU {others[0]:.1f}, GELU {others[1]:.1f})")
    front = in_front("4b", more=f"; from imbalance 10 to 100 it loses {enumerated(listed)}")
    return Verdict(graded(all(countered), any(countered) or front.status == "holds"), front.evidence)


@matters(
    "dnrt-spiking",
    "On CIFAR-10 with ResNet-19, DNRT is better than two activations of spiking networks and seven others.",
    "Appendix A.5, Table 10",
    turned_by=cells("dnrt-table-10", {}, lif_lt=95.7),
)
def test_spiking():
    return in_front(10)


# --- What brings it -----------------------------------------------------------------------------------------


@fatal(
    "dnrt-parts",
    "DNRT's two parts, the activation RAA and the loss ARR, each improve a network, and together improve it further.",
    "Section 5.5, Table 5",
    turned_by=cells("dnrt-table-5", {"network": "ResNet-18"}, dnrt=76.3),
)
def test_parts():
    cases, listed = [], []
    for row in results.published("dnrt-table-5"):
        relu, gelu, alone, *arr, whole = (float(row[key]) for key in list(row)[1:-1])
        cases += [alone > max(relu, gelu), arr[0] > relu, arr[1] > gelu, whole > max(alone, *arr)]
        listed += [f"{alone - gelu:+.1f}, {arr[1] - gelu:+.1f} and {whole - gelu:+.1f} points in {row['network']}"]
    return Verdict(
        graded(all(cases), any(cases)),
        f"{sum(cases)} of {len(cases)} comparisons on CIFAR-100 show it: over GELU, RAA, ARR and both bring "
        f"{enumerated(listed)}.",
    )


@detail(
    "dnrt-extra-layer",
    "ViT-Tiny with an extra linear layer in each MLP has as many parameters as with the activation RAA, and a lower "
    "accuracy.",
    "Appendix A.1, Table 8",
    turned_by=cells("dnrt-table-8", {"method": "RAA"}, parameters=5389361),
)
def test_extra_layer():
    parameters, top1 = (results.column("dnrt-table-8", of) for of in ("parameters", "top1"))
    added = {parameters[name] - parameters["GELU"] for name in ("ex-L + ReLU", "ex-L + GELU", "RAA")}
    best = max(top1["ex-L + ReLU"], top1["ex-L + GELU"])
    same, lower = added == {12 * (768 + 1)}, best < top1["RAA"]
    return Verdict(
        graded(same and lower, same or lower),
        f"RAA and the extra layer add {enumerated([f'{n:.0f}' for n in sorted(added)])} parameters, 768 + 1 for each "
        f"of 12 blocks, and the accuracies on CIFAR-100 are {best:g} at best with the layer and {top1['RAA']:g} with "
        "RAA.",
    )


@matters(
    "dnrt-small-data",
    "ARR, which pulls responses to their class's mean, helps most where data is scarce.",
    "Section 4.2",
)
def test_small_data():
    gains: dict[str, list[float]] = {}
    for place, numbers in accuracies(2, 9).items():
        gains.setdefault(place.split()[0], []).append(numbers["DNRT"] - numbers["GELU"])
    listed = [f"{fmean(each):.1f} on {data}" for data, each in gains.items()]
    return not_tested(
        f"Over GELU, DNRT gains in points on average of five ViTs {enumerated(listed)}; CIFAR-10 and CIFAR-100 have "
        "equally many images, and none of these numbers is of ARR alone.",
        "Trainings with ARR alone on parts of one data set would decide it.",
    )


@matters(
    "dnrt-lambda-stated",
    "The weight λ of ARR's loss varies with network and data set, as Appendix A.2 shows.",
    "Section 5, Appendix A.2",
    turned_by=tables(lambda name, rows: [row | {"value": "1"} for row in rows] if "quoted" in name else rows),
)
def test_lambda_stated():
    stated = {row["quantity"]: row["value"] for row in results.published("dnrt-quoted") if "λ" in row["quantity"]}
    *best, last = stated.values()
    missing = accuracies(1, 2, 3).keys() - {quantity.partition(", ")[2].replace(",", "") for quantity in stated}
    return Verdict(
        graded(len({*best, last}) > 1),
        f"Appendix A.2 gives λ = {enumerated(best)} for four pairs of network and data set and {last} for ImageNet-1K, "
        f"but none for {len(missing)} pairs of Tables 1 to 3, and not on which images λ was chosen.",
    )


# --- Costs --------------------------------------------------------------------------------------------------

NETWORKS = {
    VIT: (5.717, 12 * [768]),
    "DeiT-Tiny": (5.911, 12 * [768]),
    "CaiT-XXS": (11.956, 26 * [768]),
    "PVT-Tiny": (13.229, 2 * [512, 1024, 1280, 2048]),
    TNT: (23.755, 12 * [96, 1536]),
    "AlexNet": (61.101, [64, 192, 384, 256, 256, 4096, 4096]),
    "VGG-11": (132.869, [64, 128, 256, 256, 512, 512, 512, 512, 4096, 4096]),
    "ResNet-18": (11.690, 5 * [64] + 4 * [128, 256, 512]),
    "MobileNet": (3.505, 2 * ([32, 96] + 2 * [144] + 3 * [192] + 4 * [384] + 3 * [576] + 3 * [960]) + [1280]),
    "ShuffleNet": (2.279, [24] + 9 * [58] + 17 * [116] + 9 * [232] + [1024]),
}
"""Of timm's and torchvision's networks for 224 × 224 pixels and 1000 classes (VGG-11 with batch norm, MobileNet V2,
timm's legacy TNT) and PVT's first version: millions of parameters, and the channels of each activation."""


@matters(
    "dnrt-parameters",
    "In most of ten networks DNRT has 0.008 % to 0.18 % more parameters, which is negligible.",
    "Section 4.1, Appendix A.1, Table 6",
    turned_by=cells("dnrt-quoted", {"quantity": "largest increase of parameters, percent"}, value=0.07),
)
def test_parameters():
    low, high = (
        quoted("Appendix A.1", f"{which} increase of parameters, percent") for which in ("smallest", "largest")
    )
    more, other = {}, []
    for name, (millions, widths) in NETWORKS.items():
        added = (sum(widths) + len(widths)) / 1e6
        before = results.column("dnrt-table-8", "parameters")["ReLU"] / 1e6 if name == VIT else millions
        more[name] = 100 * added / before
        printed = number("dnrt-table-6", "parameters_dnrt", network=name)
        other += [] if agrees(before + added, f"{printed:.2f}") else [f"{name}'s {printed:g} million"]
    inside = [each for each in more.values() if low - 5e-4 <= each <= high]
    return Verdict(
        graded(2 * len(inside) > len(more)),
        f"An activation of d channels gets d + 1 parameters, {min(inside):.3f} % to {max(inside):.2f} % in "
        f"{len(inside)} of {len(more)} networks and at most {max(more.values()):.2f} % ({max(more, key=more.get)}), "
        f"which gives the printed sums except for {enumerated(other)}.",
    )


@matters(
    "dnrt-memory",
    "In most of ten networks the GPU memory that DNRT adds is negligible, in training and in inference.",
    "Appendix A.1, Table 6",
    turned_by=tables(lambda name, rows: [row | {"training_dnrt": row.get("training_original", "")} for row in rows]),
)
def test_memory():
    texts, most = [], []
    for what in ("training", "inference"):
        more = {
            row["network"]: 100 * (float(row[f"{what}_dnrt"]) / float(row[f"{what}_original"]) - 1)
            for row in results.published("dnrt-table-6")
        }
        few, worst = sum(each < NEGLIGIBLE for each in more.values()), max(more, key=more.__getitem__)
        most.append(2 * few > len(more))
        texts.append(f"in {few} of {len(more)} networks in {what} (at most {more[worst]:.1f} %, {worst})")
    return Verdict(
        graded(all(most), any(most)), f"DNRT's memory is less than {NEGLIGIBLE:g} % larger {enumerated(texts)}."
    )


@matters(
    "dnrt-regulariser-free",
    "ARR, a loss on responses in training, adds no parameters and leaves inference as it is.",
    "Section 4.2, Appendix A.1, Table 6",
    turned_by=cells("dnrt-table-6", {"network": VIT}, inference_dnrt=4.2),
)
def test_regulariser_free():
    cases = {
        f"{what} of {row['network']}": row[f"{what}_raa"] == row[f"{what}_dnrt"]
        for row in results.published("dnrt-table-6")
        for what in ("parameters", "inference")
    }
    return count(cases, "numbers of parameters and of GiB in inference are the same with RAA alone and with ARR, too")


@detail(
    "dnrt-image-size",
    "The numbers of parameters in Table 6 are those of networks for images of 224 × 224 pixels.",
    "Appendix A.1, Table 6",
    turned_by=cells("dnrt-table-6", {"network": VIT}, parameters_original=5.72),
)
def test_image_size():
    fits = {
        name: agrees(millions, f"{number('dnrt-table-6', 'parameters_original', network=name):.2f}")
        for name, (millions, _) in NETWORKS.items()
    }
    small = 12 * (12 * 192**2 + 13 * 192) + (2 + 3 * 4**2 + 1 + 65 + 1) * 192 + 193 * 100
    return Verdict(
        graded(all(fits.values()), any(fits.values())),
        f"{sum(fits.values())} of {len(fits)} numbers are those for 224 × 224 pixels and 1000 classes; ViT-Tiny's "
        f"5.38 million are the {small} for 32 × 32 pixels, patches of 4 and 100 classes, instead of "
        f"{NETWORKS[VIT][0]:.2f} million.",
    )


@matters(
    "dnrt-speed",
    "DNRT's impact on the number of operations and the time of inference is minimal.",
    "Section 4.1, Appendix A.1, Table 7",
    turned_by=cells("dnrt-table-7", {"network": TNT}, dnrt_ms=20),
)
def test_speed():
    rows = [{key: float(row[key]) for key in list(row)[1:]} for row in results.published("dnrt-table-7")]
    (vit, vit_time), (tnt, tnt_time) = (
        [100 * (row[f"dnrt_{unit}"] / row[f"relu_{unit}"] - 1) for unit in ("gflops", "ms")] for row in rows
    )
    products = (12 * 197 * 768, 12 * (196 * 16 * 96 + 197 * 1536))
    exact = [agrees(n / 1e9, f"{r['dnrt_gflops'] - r['relu_gflops']:.3f}") for n, r in zip(products, rows, strict=True)]
    return Verdict(
        graded(max(vit, tnt, vit_time, tnt_time) < NEGLIGIBLE, max(vit, tnt) < NEGLIGIBLE),
        f"ViT-Tiny and TNT-Small need {vit:.1f} % and {tnt:.1f} % more operations than with ReLU, "
        f"{'' if all(exact) else 'not '}just those of wᵀx, and {vit_time:.1f} % and {tnt_time:.1f} % more time for one "
        "image; no CNN was timed.",
    )


@detail(
    "dnrt-operations",
    "ViT-Tiny with ReLU needs 1.078 G floating-point operations for an image of 224 × 224 pixels.",
    "Appendix A.1, Table 7",
    turned_by=cells("dnrt-table-7", {"network": VIT}, relu_gflops=1.254),
)
def test_operations():
    d, tokens = 192, 14 * 14 + 1
    weights = (12 * tokens * 12 * d * d + 14 * 14 * 3 * 16**2 * d + d * 100) / 1e9
    norms, attention = 25 * 4 * tokens * d / 1e9, 12 * 2 * tokens**2 * d / 1e9
    whole = 2 * (weights + attention)
    printed = number("dnrt-table-7", "relu_gflops", network=VIT)
    return Verdict(
        graded(
            min(abs(printed / of - 1) for of in (whole, whole / 2)) < 0.02, abs(printed / (weights + norms) - 1) < 0.001
        ),
        "One operation for each multiplication with a weight and 4 for each element of LayerNorm give "
        f"{weights + norms:.3f} G; attention's {attention:.3f} G multiplications, {200 * attention / whole:.0f} % of "
        f"all {whole / 2:.2f} G, are left out, and with additions it is {whole:.2f} G.",
    )


@detail(
    "dnrt-slips",
    "Statements that recur in the paper, and references to its parts, agree with one another.",
    "The whole paper",
    turned_by=tables(lambda name, rows: [row | {"printed": row.get("elsewhere", "")} for row in rows]),
)
def test_slips():
    cases = {
        f"{row['about']} ({row['printed']}, elsewhere {row['elsewhere']})": row["printed"] == row["elsewhere"]
        for row in results.published("dnrt-slips")
    }
    return count(cases, "places looked at agree with the rest of the paper")
