"""What the paper on APA and AGLU says of its own numbers, recomputed from its tables."""

from __future__ import annotations

import math

from companion.study import results
from companion.study.together import figures
from tests.claims.apa.facts import detail, fatal, matters, quoted_differences, without
from tests.claims.form import (
    Verdict,
    agrees,
    both,
    cells,
    count,
    enumerated,
    graded,
    not_tested,
    number,
    rank,
    share,
    tables,
)

# --- What the abstract says ---------------------------------------------------------------------------------

# Table, column and the group of rows that compete in it.
BENCHMARKS = {
    "ImageNet-LT R50": ("apa-table-2", "average", "R50"),
    "ImageNet-LT X50": ("apa-table-2", "average", "X50"),
    "iNaturalist18": ("apa-table-3a", "inat18", "all"),
    "Places-LT": ("apa-table-3a", "places_lt", "all"),
    "CIFAR100-LT 10": ("apa-table-3b", "imbalance_10", "all"),
    "CIFAR100-LT 100": ("apa-table-3b", "imbalance_100", "all"),
    "LVIS R50": ("apa-table-5", "ap_mask", "R50"),
    "LVIS R101": ("apa-table-5", "ap_mask", "R101"),
}


def competitors(table: str, column: str, group: str) -> dict[str, dict[str, float]]:
    """Numbers by method, for each kind of row: other, baseline, ours."""
    numbers = results.column(table, column)
    kinds: dict[str, dict[str, float]] = {}
    for row in results.published(table):
        if row["group"] == group and row["method"] in numbers:
            kinds.setdefault(row["kind"], {})[row["method"]] = numbers[row["method"]]
    return kinds


@fatal(
    "apa-sota",
    "APA* with AGLU is ahead of the state of the art on ImageNet-LT, iNaturalist18, Places-LT, CIFAR100-LT and LVIS.",
    "Abstract, Tables II, III and V",
    turned_by=cells("apa-table-3a", {"method": "BCL"}, inat18=75.0),
)
def test_sota():
    columns, leads, gains = {}, [], []
    for name, where in BENCHMARKS.items():
        kinds = competitors(*where)
        ours = list(kinds["ours"].values())[-1]  # the others are of APA* alone
        columns[name] = kinds["other"] | kinds["baseline"] | {"APA* with AGLU": ours}
        leads.append(ours - max(kinds["other"].values()))
        gains.append(ours - max(kinds["baseline"].values()))
    return Verdict(
        rank(columns, "APA* with AGLU").status,
        f"In {len(columns)} averages it is {min(leads):.1f} to {max(leads):.1f} points above the best other method and "
        f"{min(gains):.1f} to {max(gains):.1f} above the authors' own baseline, without intervals.",
    )


@fatal(
    "apa-significant",
    "APA* with AGLU significantly outperforms the state of the art on imbalanced benchmarks.",
    "Abstract, Section I",
)
def test_significant():
    return not_tested(
        "The tables have one number for each method, without deviation, number of runs or test, so that nothing can be "
        "said of significance.",
        "Five seeds of the strongest rivals and of APA* with AGLU by one recipe would decide it.",
    )


@matters(
    "apa-baselines",
    "The SE baselines reach the state of the art on ImageNet-LT, iNaturalist18, Places-LT and CIFAR100-LT.",
    "Section V-C, Tables II and III",
    turned_by=both(
        cells("apa-table-2", {"kind": "baseline"}, average=60),
        cells("apa-table-3a", {"kind": "baseline"}, inat18=72, places_lt=41),
    ),
)
def test_baselines():
    behind, alone = [], 0
    for name in list(BENCHMARKS)[:6]:
        kinds = competitors(*BENCHMARKS[name])
        [own] = kinds["baseline"].values()
        single = [value for method, value in kinds["other"].items() if not ("RIDE" in method or "E)" in method)]
        alone += own >= max(single)
        if own < (best := max(kinds["other"].values())):
            behind.append(f"{name} ({own}, {'' if best in single else 'an ensemble '}{best})")
    of = 6
    return Verdict(
        graded(not behind, len(behind) < of),
        f"{of - len(behind)} of {of} are not behind the best other method, {alone} with single models alone; "
        f"behind are {enumerated(behind)}.",
    )


@fatal(
    "apa-many-tasks",
    "APA and AGLU improve networks for images, detection, visual instructions and language across architectures.",
    "Abstract, Tables VI, VIII, IX, X and XII",
    turned_by=cells("apa-table-12", {"method": "GPT2-xl AGLU"}, hellaswag=42.0),
)
def test_many_tasks():
    measures = {"6": "top1", "8": "average", "9": "ap_box", "10": "average", "12": "hellaswag"}
    cases = {}
    for table, column in measures.items():
        numbers = results.column(f"apa-table-{table}", column)
        cases |= {
            f"{name} (Table {table})": numbers[name] > numbers[without(name)]
            for name in numbers
            if without(name) != name
        }
    losses = results.column("apa-table-12", "validation_loss")
    level = [f"{name} ({losses[name]})" for name in losses if losses.get(f"{name} AGLU") == losses[name]]
    tie = f"; the validation loss of {enumerated(level)} is a tie" if level else ""
    return count(cases, f"numbers are better with AGLU or APA* and AGLU, without intervals{tie}")


@matters(
    "apa-alignment",
    "Aligning the activation function with the distribution of the data improves the performance.",
    "Abstract, Section I",
)
def test_alignment():
    return not_tested(
        "No table relates a distance between activation and data to accuracy, and no run has APA at the classifier's "
        "output, whose logits are the evidence.",
        "Fixed activations, fitted or misfitted to each layer's inputs, compared over seeds would decide it.",
    )


@matters(
    "apa-credit",
    "What SE networks gain with APA* and AGLU is due to the activation.",
    "Section VI-A, Table VIII, Appendix C-C, Table XIX",
)
def test_credit():
    steps = results.column("apa-table-19", "top1")
    apa, neuron = steps["APA"] - steps["SE"], steps["AGLU"] - steps["LayerNorm"]
    return not_tested(
        f"APA* adds dropout and LayerNorm as well: in Table XIX APA and AGLU bring {apa + neuron:.1f} of "
        f"{steps['AGLU'] - steps['SE']:.1f} points, without intervals, and no sigmoid gate has both.",
        "SE with dropout, LayerNorm and a sigmoid gate, compared over seeds, would decide it.",
    )


# --- Long-tailed learning -----------------------------------------------------------------------------------


@matters(
    "apa-aglu-published",
    "On ImageNet-LT AGLU is better than ReLU, PReLU, ELU, Mish, GELU and SiLU.",
    "Section V-C, Table IV (f)",
    turned_by=cells("apa-table-4f", {"method": "GELU"}, average=57.9),
)
def test_aglu_published():
    numbers = results.column("apa-table-4f", "average")
    starts = [row["top1"] for row in results.published("apa-table-16")]
    second = max((name for name in numbers if name != "AGLU"), key=numbers.__getitem__)
    return Verdict(
        rank({"average": numbers}, "AGLU").status,
        f"Without intervals AGLU has {numbers['AGLU']}, {second} {numbers[second]}; AGLU's is the best of "
        f"{len(starts)} starts of κ ({enumerated(starts)}).",
    )


@matters(
    "apa-best-gate",
    "Among five gates of channel attention APA performs best on ImageNet-LT.",
    "Section V-C, Table IV (a)",
    turned_by=cells("apa-table-4a", {"method": "Gumbel with temperature"}, average=57.1),
)
def test_best_gate():
    numbers = {of: results.column("apa-table-4a", of) for of in ("average", "few")}
    place = 1 + sum(value > numbers["few"]["APA"] for value in numbers["few"].values())
    best = max(value for name, value in numbers["average"].items() if name != "APA")
    return Verdict(
        rank({"average": numbers["average"]}, "APA").status,
        f"On average it has {numbers['average']['APA']} against {best} of the next, without intervals; "
        f"on few-shot classes it is number {place} of {len(numbers['few'])}.",
    )


@detail(
    "apa-temperature",
    "A sigmoid gate with a learned temperature over-fits the frequent classes.",
    "Section V-C, Table IV (a)",
)
def test_temperature():
    many, few = (
        number("apa-table-4a", of, method="Sigmoid with temperature") - number("apa-table-4a", of, method="Sigmoid")
        for of in ("many", "few")
    )
    return not_tested(
        f"Against the plain sigmoid it has {many:+.1f} points on frequent and {few:+.1f} on rare classes, on test "
        "images, without intervals.",
        "Its accuracy on training images of the frequent classes, over seeds, would decide it.",
    )


@matters(
    "apa-sigmoid-limits",
    "The sigmoid cannot serve balanced and imbalanced learning alike, because it has no parameters.",
    "Section I, Table IV (a)",
)
def test_sigmoid_limits():
    average, few = (
        number("apa-table-4a", of, method="APA") - number("apa-table-4a", of, method="Sigmoid with temperature")
        for of in ("average", "few")
    )
    return not_tested(
        f"Against a sigmoid with one parameter, the temperature, APA has {average:+.1f} points on average and "
        f"{few:+.1f} on rare classes, without intervals.",
        "Sigmoid, sigmoid with temperature and APA on balanced and long-tailed data, over seeds, would decide it.",
    )


@matters(
    "apa-unique",
    "That APA* improves frequent and rare classes alike is an advantage that no previous method has.",
    "Section V-C, Table II",
)
def test_unique():
    return not_tested(
        "Table II has no rival's own baseline, so it does not show which classes a rival improves.",
        "Each rival and its own baseline, trained by one recipe, would decide it.",
    )


@matters(
    "apa-deeper",
    "With ResNet-101 and ResNet-152 APA* improves frequent, medium and rare classes.",
    "Section V-C, Table IV (d)",
    turned_by=cells("apa-table-4d", {"method": "APA*-R152"}, many=67.9),
)
def test_deeper():
    cases = {
        f"{of} with {network}": number("apa-table-4d", of, method=f"APA*-{network}")
        > number("apa-table-4d", of, method=f"SE-{network}")
        for network in ("R101", "R152")
        for of in ("many", "medium", "few", "average")
    }
    return count(cases, "numbers rise, without intervals")


@matters(
    "apa-attentions",
    "APA and then AGLU improve spatial attention and spatial-channel attention.",
    "Section V-C, Table IV (b)",
    turned_by=cells("apa-table-4b", {"method": "Spatial+APA"}, average=54.7),
)
def test_attentions():
    numbers = results.column("apa-table-4b", "average")
    steps = {
        f"{kind}{more}": numbers[f"{kind}{more}"] > numbers[f"{kind}{more.rpartition('+')[0]}"]
        for kind in ("Spatial", "Spatial-Channel")
        for more in ("+APA", "+APA+AGLU")
    }
    return count(steps, "steps raise the accuracy on ImageNet-LT, without intervals")


@matters(
    "apa-lvis",
    "On LVIS APA* with AGLU is best for masks, boxes, and rare, common and frequent classes.",
    "Section V-D, Table V",
    turned_by=cells("apa-table-5", {"method": "GOL R50"}, ap_rare=21.6),
)
def test_lvis():
    columns = {}
    for group in ("R50", "R101"):
        for column in ("ap_mask", "ap_rare", "ap_common", "ap_frequent", "ap_box"):
            kinds = competitors("apa-table-5", column, group)
            columns[f"{column.removeprefix('ap_')} {group}"] = (
                kinds["other"] | kinds["baseline"] | {"APA* with AGLU": kinds["ours"][f"APA*+AGLU {group}"]}
            )
    return rank(columns, "APA* with AGLU")


@detail(
    "apa-classifiers",
    "APA* improves all of five techniques for the classifier.",
    "Section V-C, Table IV (c)",
    turned_by=cells("apa-table-4c", {"method": "cRT"}, apa_star=55.5),
)
def test_classifiers():
    plain, ours = (results.column("apa-table-4c", of) for of in ("se", "apa_star"))
    return count(
        {name: ours[name] > plain[name] for name in plain}, "techniques have a better number, without intervals"
    )


@detail(
    "apa-collapse-lower",
    "In all networks APA* has a lower neural collapse variability, NC1, than the baseline.",
    "Appendix A, Table XIV",
    turned_by=cells("apa-table-14", {"method": "ResNet-50"}, apa_star_nc1=3.1),
)
def test_collapse_lower():
    plain, ours = (results.column("apa-table-14", of) for of in ("se_nc1", "apa_star_nc1"))
    return count({name: ours[name] < plain[name] for name in plain}, "networks have a lower NC1, without intervals")


@detail(
    "apa-collapse",
    "Less neural collapse variability, NC1, explains why APA* classifies better.",
    "Appendix A, Table XIV",
)
def test_collapse():
    plain = results.column("apa-table-14", "se_nc1")
    return not_tested(
        f"Of {len(plain)} networks without APA* the least accurate, {min(plain, key=plain.__getitem__)}, "
        "has the lowest NC1.",
        "Networks whose NC1 is changed and whose gate is not, over seeds, would decide it.",
    )


@matters(
    "apa-calibration",
    "APA* calibrates a classifier better than SE: confidence lies nearer to accuracy, for all backbones.",
    "Appendix C-E, Fig. 10",
)
def test_calibration():
    return not_tested(
        "Only a figure shows it, one network a bar; SE is called under-confident there through its regularisation, to "
        "which APA* adds dropout.",
        "Calibration errors of SE and APA* with the same dropout, over seeds, would decide it.",
    )


# --- Initialisation and parameters --------------------------------------------------------------------------


@matters(
    "apa-init-near-one",
    "For AGLU it is best to start κ near 1.",
    "Appendix C-A, Table XVI",
)
def test_init_near_one():
    starts = {row["method"]: row["top1"] for row in results.published("apa-table-16")}
    return not_tested(
        f"ImageNet-LT has {enumerated([f'{top1} for {name}' for name, top1 in starts.items()])}, without intervals.",
        "The same starts over several seeds would decide it.",
    )


@matters(
    "apa-init-stated",
    "Appendices B and C-A, which both state how κ and λ start on ImageNet1K, agree.",
    "Appendices B and C-A",
    turned_by=cells(
        "apa-initialisations",
        {"place": "Appendix C-A", "experiment": "ImageNet1K", "parameter": "lambda"},
        low="0",
        high="1",
    ),
)
def test_init_stated():
    names = {"attention kappa": "κ in attention", "AGLU kappa": "κ of AGLU", "lambda": "λ"}
    stated: dict[str, list[str]] = {}
    for row in results.published("apa-initialisations"):
        if row["experiment"] == "ImageNet1K":
            stated.setdefault(names[row["parameter"]], []).append(f"U({row['low']}, {row['high']})")
    alike = [len({*intervals}) == 1 for intervals in stated.values()]
    listed = enumerated([f"{' and '.join(intervals)} for {name}" for name, intervals in stated.items()])
    return Verdict(
        graded(all(alike), any(alike)),
        f"{sum(alike)} of {len(alike)} parameters start alike; Appendices B and C-A, in this order, state {listed}.",
    )


@matters(
    "apa-shared",
    "On ImageNet-LT one κ and λ for all channels are better than one pair for each channel.",
    "Appendix C-B, Table XVIII",
    turned_by=cells("apa-table-18", {"method": "channel shared"}, top1=57.4),
)
def test_shared():
    shared, specific = (number("apa-table-18", "top1", method=f"channel {kind}") for kind in ("shared", "specific"))
    return Verdict(
        graded(shared > specific), f"Without intervals: {shared} for shared and {specific} for separate parameters."
    )


# --- Numbers that the text quotes ---------------------------------------------------------------------------


@detail(
    "apa-quoted",
    "The differences that text and superscripts quote are those of the tables.",
    "Sections V and VI, Appendix C-C",
    turned_by=both(
        cells("apa-quoted-differences", {"quoted": "2.1", "column": "few"}, quoted=2.3),
        cells("apa-quoted-differences", {"quoted": "1.4", "column": "medium"}, quoted=2.4),
        cells("apa-quoted-differences", {"quoted": "1.9", "table": "8"}, quoted=1.7),
    ),
)
def test_quoted():
    return count(quoted_differences(), "are right up to one of the last digit")


@detail(
    "apa-averages",
    "The averages of Tables VIII and X are the means of their rows.",
    "Tables VIII and X",
    turned_by=cells("apa-table-10", {"method": "Qwen2-7B AGLU"}, average=67.0),
)
def test_averages():
    cases = {}
    for table in ("apa-table-8", "apa-table-10"):
        for row in results.published(table):
            # MME counts to 2000; the others are percentages
            scores = [
                float(text) / (20 if key == "mme" else 1)
                for key, text in row.items()
                if text and key not in ("method", "average")
            ]
            if row["average"]:
                cases[row["method"]] = agrees(math.fsum(scores) / len(scores), row["average"])
    return count(cases, "averages agree, in Table X with MME divided by 20, which the paper does not say")


@detail(
    "apa-share",
    "APA and AGLU contribute 11 % of the whole improvement over the plain network.",
    "Appendix C-C, Table XIX",
    turned_by=cells("apa-table-19", {"method": "APA"}, top1=56.5),
)
def test_share():
    steps = results.column("apa-table-19", "top1")
    ours = steps["APA"] - steps["SE"] + steps["AGLU"] - steps["LayerNorm"]
    return share("11", round(ours, 1), round(steps["AGLU"] - steps["100 epochs"], 1), "Points on ImageNet-LT")


@matters(
    "apa-memory",
    "AGLU needs 17 % more memory in SE-ResNet50.",
    "Section VII-A, Table XIII",
    turned_by=cells("apa-table-13", {"method": "SE-R50 APA*+AGLU"}, memory_mb=7164),
)
def test_memory():
    memory = results.column("apa-table-13", "memory_mb")
    more = memory["SE-R50 APA*+AGLU"] - memory["SE-R50"]
    return share("17", more, memory["SE-R50"], "Additional megabytes, with the LayerNorm of APA*")


@matters(
    "apa-throughput",
    "AGLU lowers the throughput of SE-ResNet50 and of ViT-B by 3 %.",
    "Section VII-A, Table XIII",
    turned_by=cells("apa-table-13", {"method": "ViT-B AGLU"}, images_per_second=250),
)
def test_throughput():
    speed = results.column("apa-table-13", "images_per_second")
    lost = {name: 100 * (1 - speed[name] / speed[without(name)]) for name in ("SE-R50 APA*+AGLU", "ViT-B AGLU")}
    listed = enumerated([f"{less:.1f} % for {name}" for name, less in lost.items()])
    right = [agrees(less, "3") for less in lost.values()]
    return Verdict(graded(all(right), any(right)), f"It is lower by {listed}.")


@matters(
    "apa-costs-kept",
    "AGLU keeps the number of parameters and of FLOPs in SE-ResNet50 and ViT-B, and the memory of ViT-B.",
    "Section VII-A, Table XIII",
    turned_by=cells("apa-table-13", {"method": "ViT-B AGLU"}, gflops=33.6),
)
def test_costs_kept():
    kept = [("parameters_millions", "SE-R50 APA*+AGLU"), ("gflops", "SE-R50 APA*+AGLU")]
    kept += [(column, "ViT-B AGLU") for column in ("parameters_millions", "gflops", "memory_mb")]
    cases = {
        f"{column} of {name}": number("apa-table-13", column, method=name)
        == number("apa-table-13", column, method=without(name))
        for column, name in kept
    }
    return count(cases, "numbers are the same to the printed digit")


# --- Other tasks --------------------------------------------------------------------------------------------


@matters(
    "apa-seven-data-sets",
    "Pretrained on ImageNet21K, SE-ResNet50 with APA* and AGLU and ViT-B with AGLU are better on seven data sets.",
    "Section VI-A, Table VIII",
    turned_by=cells("apa-table-8", {"method": "ViT-B AGLU"}, cifar10=99.1),
)
def test_seven_data_sets():
    table = {row["method"]: row for row in results.published("apa-table-8")}
    cases = {
        f"{name} on {column}": float(row[column]) > float(table[without(name)][column])
        for name, row in table.items()
        if without(name) != name
        for column in row
        if column not in ("method", "average")
    }
    return count(cases, "accuracies rise, without intervals")


@detail(
    "apa-sizes",
    "AGLU is robust for any size of the model.",
    "Section VI-A, Table VI (a)",
)
def test_sizes():
    top1 = results.column("apa-table-6", "top1")
    names = [name for name in top1 if name.startswith("SE-") and without(name) != name]
    gains = [f"{top1[name] - top1[without(name)]:.1f}" for name in names]
    return not_tested(
        f"Three sizes of SE-ResNet, from the smallest, gain {enumerated(gains)} points with APA* and AGLU, "
        "without intervals.",
        "More sizes, with AGLU alone and over seeds, would decide it.",
    )


@detail(
    "apa-gpt-depth",
    "AGLU is a good alternative for language models, especially for deeper ones.",
    "Section VI-E, Table XII",
)
def test_gpt_depth():
    scores = results.column("apa-table-12", "hellaswag")
    gains = [f"{scores[name] - scores[without(name)]:.1f}" for name in scores if without(name) != name]
    more = -figures.finished()["together-gpt"].comparisons()["aglu"].difference.mean
    assert more > 0
    return not_tested(
        f"From GPT2-small to GPT2-xl the gains on HellaSwag are {enumerated(gains)} points, without intervals; our far "
        f"smaller transformer needs, after two million characters, {more:.3f} bits a character more with AGLU.",
        "Several seeds of the smaller models, trained to their end, would say how much runs differ.",
    )


@matters(
    "apa-vlm",
    "With AGLU the 7B vision-language models surpass LLaVA-Next-7B and DeepSeek-Janus-Pro-7B.",
    "Section VI-C, Table X",
    turned_by=cells("apa-table-10", {"method": "DeepSeek-Janus-Pro-7B"}, gqa=70, mmmu=60, pope=95),
)
def test_vlm():
    scores = {row["method"]: row for row in results.published("apa-table-10")}

    def ahead(name: str, rival: str) -> tuple[int, int]:
        keys = [key for key, text in scores[rival].items() if text and key not in ("method", "average")]
        return sum(float(scores[name][key]) > float(scores[rival][key]) for key in keys), len(keys)

    pairs = [
        (own, rival) for own in ("Deepstack-7B", "Qwen2-7B") for rival in ("LLaVA-Next-7B", "DeepSeek-Janus-Pro-7B")
    ]
    found = [ahead(f"{own} AGLU", rival) for own, rival in pairs]
    plain = sum(ahead(*pair)[0] for pair in pairs)
    won, of = (sum(column) for column in zip(*found, strict=True))
    return Verdict(
        graded(all(2 * wins > total for wins, total in found), won),
        f"In {len(pairs)} comparisons they lead in {won} of {of} columns that both have, and without AGLU in {plain}.",
    )


@matters(
    "apa-vlm-gap",
    "AGLU is particularly useful in vision-language training because it bridges the gap between language and images.",
    "Section VI-C, Table X",
)
def test_vlm_gap():
    scores = {row["method"]: row for row in results.published("apa-table-10")}
    rise = []
    for name in ("Qwen2-1.5B", "Deepstack-7B", "Qwen2-7B"):
        keys = [key for key in scores[name] if key not in ("method", "average")]
        rise.append(str(sum(float(scores[f"{name} AGLU"][key]) > float(scores[name][key]) for key in keys)))
    return not_tested(
        f"{enumerated(rise)} of {len(keys)} benchmarks rise for the three models, "
        "without intervals; no gap is measured.",
        "Several seeds, and a measure of the two distributions before and after the connector, would decide it.",
    )


@detail(
    "apa-generation",
    "In image generation AGLU lowers FID by 0.1 and raises recall by 0.8 points.",
    "Section VI-D, Table XI",
    turned_by=cells("apa-table-11", {"method": "LightningDiT-XL AGLU"}, recall=58.0),
)
def test_generation():
    [plain, ours] = (
        {key: float(text) for key, text in row.items() if key != "method"} for row in results.published("apa-table-11")
    )
    gain = {key: round(ours[key] - plain[key], 6) for key in plain}
    right = [agrees(gain["fid"], "-0.1", 1), agrees(gain["recall"], "0.8", 1)]
    return Verdict(
        graded(all(right), any(right)),
        f"FID changes by {gain['fid']:+g}, recall by {gain['recall']:+g}; what the text does not name gets worse, the "
        f"inception score by {gain['inception_score']:+g} and precision by {gain['precision']:+g}.",
    )


@detail(
    "apa-transformers",
    "AGLU adds 0.3 points to ViT and GPT models.",
    "Section VIII, Tables VI, VIII and XII",
    turned_by=cells("apa-table-12", {"method": "GPT2-xl AGLU"}, hellaswag=45.0),
)
def test_transformers():
    gains = []
    for table, column in (("6", "top1"), ("8", "average"), ("12", "hellaswag")):
        numbers = results.column(f"apa-table-{table}", column)
        names = [name for name in numbers if name.startswith(("ViT", "GPT")) and without(name) != name]
        gains += [numbers[name] - numbers[without(name)] for name in names]
    mean = math.fsum(gains) / len(gains)
    return Verdict(
        graded(agrees(mean, "0.3")),
        f"{len(gains)} gains from {min(gains):.1f} to {max(gains):.1f} points have the mean {mean:.2f}, "
        "without intervals.",
    )


# --- Places that say the same thing twice -------------------------------------------------------------------


@detail(
    "apa-entropy-reported",
    "The attention entropies that the paper reports for single images are values of its formula.",
    "Section V-E, Eq. 4",
    turned_by=cells("apa-entropies", {"image": "warthog", "method": "APA*"}, entropy=1.1),
)
def test_entropy_reported():
    values = [float(row["entropy"]) for row in results.published("apa-entropies")]
    return Verdict(
        graded(all(0 <= value <= 1 for value in values)),
        f"They reach {max(values)}: with the binary logarithm, which the formula does not name, the largest is 1, "
        f"with the natural one {math.log(2):.2f}.",
    )


@detail(
    "apa-slips",
    "Where the paper says a thing twice it says the same.",
    "The whole paper",
    turned_by=tables(lambda name, rows: [row | {"there": row["says"]} for row in rows]),
)
def test_slips():
    rows = results.published("apa-twice")
    slips = [f"{row['what']} ({row['says']} or {row['there']})" for row in rows if row["says"] != row["there"]]
    return Verdict(graded(not slips, len(slips) < len(rows)), f"Slips: {enumerated(slips) or 'none'}.")
