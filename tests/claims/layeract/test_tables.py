"""What the paper on LayerAct says of its own numbers, recomputed from its tables."""

from __future__ import annotations

from collections import Counter
from statistics import fmean

from scipy import stats

from companion.study import results
from companion.study.analysis import holm
from tests.claims.form import Verdict, cells, count, enumerated, graded, not_tested, number, rank, tables
from tests.claims.layeract.facts import claim

ELEMENT_LEVEL = ("ReLU", "LReLU", "PReLU", "Mish", "SiLU", "HardSiLU")
LAYER_LEVEL = ("LA-SiLU", "LA-HardSiLU")
RESNET_44, OTHER_RESNETS, IMAGENET = (2, 3), (8, 9, 10, 11), (4, 12)
DATA = ("cifar10_", "cifar100_")
NUMBERS = "accuracies of LayerAct functions are above those of all element-level functions"


def column(table, of):
    return results.column(f"layeract-table-{table}", of)


def label(name):
    """A column as a reader would call it: "Gaussian 1", "CIFAR10 ResNet20"."""
    for short, long in (("_", " "), ("cifar", "CIFAR"), ("resnet", "ResNet"), ("gauss", "Gauss")):
        name = name.replace(short, long)
    return name


def columns(table):
    """The columns of a table with numbers, by their names."""
    names = [name for name in results.published(f"layeract-table-{table}")[0] if name != "method"]
    return {name: column(table, name) for name in names}


def pairs(numbered, name):
    """Whether a LayerAct function has a higher number than a rival, for every column and rival."""
    return [each[name] > each[rival] for _, _, each in numbered for rival in ELEMENT_LEVEL if rival in each]


def best_of(names, numbers):
    return max(numbers[name] for name in names if name in numbers)


def ahead(numbered, of=LAYER_LEVEL):
    """Whether a LayerAct function has a higher number than all element-level functions, by function and column."""
    cases = {}
    for table, place, numbers in numbered:
        best = best_of(ELEMENT_LEVEL, numbers)
        for name in of:
            tie = ", a tie" if numbers[name] == best else ""
            cases[f"{name} on {label(place)} (Table {table}{tie})"] = numbers[name] > best
    return cases


def numbered(*chosen):
    return [(table, place, numbers) for table in chosen for place, numbers in columns(table).items()]


def clean():
    """All columns of accuracies on clean images."""
    return [*numbered(1), *((table, "clean", column(table, "clean")) for table in IMAGENET)]


def mostly(cases, what):
    """The verdict on "in most cases"."""
    return Verdict(graded(2 * sum(cases.values()) > len(cases)), count(cases, what, listed=2).evidence)


def quoted(quantity):
    return number("layeract-quoted", "value", quantity=quantity)


def fallen(method):
    """Tables in which all numbers of a method are 1."""
    return tables(
        lambda name, rows: [
            {key: text if key == "method" else "1" for key, text in row.items()} if row.get("method") == method else row
            for row in rows
        ]
    )


# --- Clean images -------------------------------------------------------------------------------------------


def entries():
    """Tables 6 and 7: what is printed, by column of Table 1 and rival."""
    return {
        (f"{data}_{row['network'].lower()}", rival): row[rival.lower()]
        for table, data in ((6, "cifar10"), (7, "cifar100"))
        for row in results.published(f"layeract-table-{table}")
        for rival in ELEMENT_LEVEL
    }


@claim(
    "layeract-significant",
    "On clean CIFAR, LA-SiLU is significantly better in 30 of 36 comparisons.",
    "Section 4.2.1, Tables 6 and 7",
    severity="matters",
    turned_by=cells("layeract-table-6", {"network": "ResNet20"}, relu=">0.05"),
)
def test_significant():
    printed = list(entries().values())
    found, said = (printed.count("<0.05"), len(printed)), (quoted("significant"), quoted("comparisons"))
    return Verdict(
        graded(found == said),
        f"Tables 6 and 7 have {found[0]} of {found[1]} entries below 0.05; the text says {said[0]:g} of {said[1]:g}.",
    )


def welch():
    """Gain of LA-SiLU over its rivals and p-value, by column and rival, from the printed means and deviations."""
    runs, found = round(quoted("runs")), {}
    for of, means in columns(1).items():
        deviations = column(5, of)
        for rival in deviations.keys() & set(ELEMENT_LEVEL):
            sides = [(means[each], deviations[each], runs) for each in ("LA-SiLU", rival)]
            test = stats.ttest_ind_from_stats(*sides[0], *sides[1], equal_var=False)
            found[of, rival] = means["LA-SiLU"] - means[rival], float(test.pvalue)
    return found


@claim(
    "layeract-significance",
    "The significance tests of LA-SiLU on clean CIFAR agree with the printed accuracies and standard deviations.",
    "Appendix G, Tables 1, 5, 6 and 7",
    severity="matters",
    turned_by=cells("layeract-table-6", {"network": "ResNet20"}, relu=">0.05"),
)
def test_significance():
    found, printed = welch(), entries()
    below = {key: gain > 0 and p < 0.05 for key, (gain, p) in found.items()}
    corrected = sum(p < 0.05 for p in holm([p for _, p in found.values()]))
    cases = {f"{rival} on {label(of)}": below[of, rival] == (printed[of, rival] == "<0.05") for of, rival in found}
    what = "Welch tests from Tables 1 and 5 fall on the printed side of 0.05, "
    return count(
        cases,
        f"{what}{sum(below.values())} below; Holm's correction, which the paper does not make, leaves {corrected}",
        listed=2,
    )


@claim(
    "layeract-missing",
    "ResNet44 with PReLU on CIFAR10 is left out of the comparisons, as one run diverged.",
    "Sections 4.2.1 and 4.2.2, Tables 1, 2, 5 and 6",
    severity="detail",
    turned_by=cells("layeract-table-6", {"network": "ResNet44"}, prelu=""),
)
def test_missing():
    places = {f"Table {table}": "PReLU" in column(table, "cifar10_resnet44") for table in (1, 5)}
    places |= {"Table 2": "PReLU" in column(2, "blur"), "Table 6": bool(entries()["cifar10_resnet44", "PReLU"])}
    verdict = count({name: not there for name, there in places.items()}, "tables leave it out")
    return Verdict(
        verdict.status,
        f"{verdict.evidence[:-1]}, whose entry counts among the {quoted('significant'):g} significant ones.",
    )


@claim(
    "layeract-clean-best",
    "On clean CIFAR, LA-SiLU is similar to or better than the other functions in most cases.",
    "Sections 4.2.1 and 6, Table 1",
    severity="fatal",
    turned_by=fallen("LA-SiLU"),
)
def test_clean_best():
    return mostly(ahead(numbered(1), ("LA-SiLU",)), "columns have LA-SiLU above all element-level functions")


@claim(
    "layeract-clean-superior",
    "On clean data the accuracy of LayerAct functions is superior in most cases.",
    "Abstract, Tables 1, 4 and 12",
    severity="fatal",
    turned_by=fallen("LA-HardSiLU"),
)
def test_clean_superior():
    found = {name: pairs(clean(), name) for name in LAYER_LEVEL}
    every = [so for cases in found.values() for so in cases]
    single = [f"{sum(cases)} of {len(cases)} with {name}" for name, cases in found.items()]
    return Verdict(
        graded(2 * sum(every) > len(every)),
        f"A LayerAct function is ahead of an element-level one in {sum(every)} of {len(every)} comparisons, "
        f"{enumerated(single)}.",
    )


@claim(
    "layeract-best-element",
    "Among element-level functions Mish is best on CIFAR10, and on CIFAR100 ReLU for ResNet20 and LReLU for ResNet32.",
    "Section 4.2.1, Table 1",
    severity="detail",
    turned_by=cells("layeract-table-1", {"method": "SiLU"}, cifar10_resnet20=91.5),
)
def test_best_element():
    said = {f"cifar10_resnet{depth}": "Mish" for depth in (20, 32, 44)}
    said |= {"cifar100_resnet20": "ReLU", "cifar100_resnet32": "LReLU"}
    cases = {}
    for of, name in said.items():
        numbers = {rival: value for rival, value in column(1, of).items() if rival in ELEMENT_LEVEL}
        cases[of] = rank({of: numbers}, name).status == "holds"
    return count({label(of): so for of, so in cases.items()}, "columns of Table 1 agree")


@claim(
    "layeract-hard-clean",
    "On clean CIFAR10 and CIFAR100, LA-HardSiLU is worse than SiLU or LReLU.",
    "Section 4.2.3, Table 1",
    severity="detail",
    turned_by=cells("layeract-table-1", {"method": "LA-HardSiLU"}, cifar100_resnet20=70),
)
def test_hard_clean():
    numbers = columns(1)
    of = {
        name: [fmean(each[name] for key, each in numbers.items() if key.startswith(data)) for data in DATA]
        for name in ("LA-HardSiLU", "SiLU", "LReLU")
    }
    worse = [mine < max(silu, lrelu) for mine, silu, lrelu in zip(*of.values(), strict=True)]
    listed = [f"{name} {first:.2f} and {second:.2f}" for name, (first, second) in of.items()]
    below = sum(each["LA-HardSiLU"] < max(each["SiLU"], each["LReLU"]) for each in numbers.values())
    return Verdict(
        graded(all(worse), any(worse)),
        f"Averages over networks on CIFAR10 and CIFAR100: {enumerated(listed)}; it is below one of the two in {below} "
        f"of {len(numbers)} columns.",
    )


@claim(
    "layeract-stable",
    "On clean CIFAR, LA-SiLU is as stable as or more stable than the other functions in most cases.",
    "Appendix G, Table 5",
    severity="detail",
    turned_by=cells(
        "layeract-table-5", {"method": "LA-SiLU"}, cifar10_resnet20=0.3, cifar10_resnet32=0.4, cifar100_resnet20=0.5
    ),
)
def test_stable():
    wider = pairs(numbered(5), "LA-SiLU")
    below = wider.count(False)
    return Verdict(
        graded(2 * below > len(wider)),
        f"The standard deviation of LA-SiLU is not above the other's in {below} of {len(wider)} pairs of Table 5.",
    )


# --- Noisy images -------------------------------------------------------------------------------------------


@claim(
    "layeract-noisy-superior",
    "On every noisy CIFAR10 and CIFAR100 data set a LayerAct function is superior to all element-level functions.",
    "Abstract, Section 1, Tables 2, 3 and 8 to 11",
    severity="fatal",
    turned_by=cells("layeract-table-2", {"method": "ReLU"}, gaussian_1=70),
)
def test_noisy_superior():
    # The weakest reading: one of the two, not both. It was chosen when the numbers were known.
    noisy, behind = numbered(*RESNET_44, *OTHER_RESNETS), Counter()
    counts = {name: list(ahead(noisy, (name,)).values()) for name in LAYER_LEVEL}
    for table, place, each in noisy:
        if each["LA-SiLU"] <= best_of(ELEMENT_LEVEL, each):
            behind[table] += 1
            assert place.startswith("gaussian")
    listed = [f"{name} in {each.count(True)} of {len(each)}" for name, each in counts.items()]
    but = [f"{columns} of Table {table}" for table, columns in behind.items()]
    either = [any(each) for each in zip(*counts.values(), strict=True)]
    return Verdict(
        graded(all(either), any(either)),
        f"One of the two leads in {sum(either)} of {len(either)} columns, "
        f"{enumerated(listed)}{f'; LA-SiLU not in {enumerated(but)}, all with Gaussian noise' if but else ''}.",
    )


@claim(
    "layeract-noisy-all",
    "On all noisy CIFAR data sets ResNet44 is better with LA-HardSiLU than with element-level functions.",
    "Section 4.2.2, Tables 2 and 3",
    severity="fatal",
    turned_by=cells("layeract-table-2", {"method": "ReLU"}, gaussian_1=70),
)
def test_noisy_all():
    return count(
        ahead(numbered(*RESNET_44), ("LA-HardSiLU",)), "columns have LA-HardSiLU above all element-level functions"
    )


@claim(
    "layeract-noisy-significant",
    "On noisy CIFAR data sets ResNet44 is significantly better with LA-HardSiLU, except than with ReLU and LReLU under "
    "Gaussian noise 1 and 2 on CIFAR10.",
    "Section 4.2.2, Tables 2 and 3",
    severity="matters",
)
def test_noisy_significant():
    leads: dict[bool, list[float]] = {True: [], False: []}
    for table, noise, numbers in numbered(*RESNET_44):
        for rival in numbers.keys() & set(ELEMENT_LEVEL):
            excepted = table == 2 and noise in ("gaussian_1", "gaussian_2") and rival in ("ReLU", "LReLU")
            leads[excepted].append(numbers["LA-HardSiLU"] - numbers[rival])
    return not_tested(
        f"The excepted leads are {min(leads[True]):.2f} to {max(leads[True]):.2f} points, all others at least "
        f"{min(leads[False]):.2f}, and no deviations are printed.",
        "The 30 accuracies of each network under each noise would decide it.",
    )


@claim(
    "layeract-noisy-most",
    "On noisy CIFAR data sets ResNet20 and ResNet32 are better with LayerAct functions in most cases.",
    "Appendix G, Tables 8 to 11",
    severity="matters",
    turned_by=fallen("LA-SiLU"),
)
def test_noisy_most():
    cases = ahead(numbered(*OTHER_RESNETS))
    return mostly(cases, NUMBERS)


@claim(
    "layeract-noisy-conclusion",
    "LA-HardSiLU is better than the other functions in most experiments on noisy images.",
    "Section 6, Tables 2 to 4 and 8 to 12",
    severity="matters",
    turned_by=fallen("LA-HardSiLU"),
)
def test_noisy_conclusion():
    places = [each for each in numbered(*RESNET_44, *OTHER_RESNETS, *IMAGENET) if each[1] != "clean"]
    return mostly(ahead(places, ("LA-HardSiLU",)), "columns have LA-HardSiLU above all element-level functions")


@claim(
    "layeract-large-variance",
    "Where the variance of the noise is large, no activation is noticeably better than another.",
    "Appendix G, Figs. 9 and 10",
    severity="detail",
)
def test_large_variance():
    cases = ahead([each for each in numbered(*RESNET_44) if each[1] in ("gaussian_3", "gaussian_4")], ("LA-HardSiLU",))
    return not_tested(
        f"At the largest deviation of the tables, 0.1, LA-HardSiLU leads in {sum(cases.values())} of {len(cases)} "
        "columns of ResNet44, which Section 4.2.2 calls more robust to intense noise.",
        "The numbers behind Figures 9 and 10 with their intervals would decide it.",
    )


@claim(
    "layeract-imagenet",
    "On ImageNet both LayerAct functions are better than all others on the clean and on all noisy data sets.",
    "Section 4.2.3, Table 4",
    severity="matters",
    turned_by=cells("layeract-table-4", {"method": "ReLU"}, blur=67.9),
)
def test_imagenet():
    return count(ahead(numbered(4)), NUMBERS)


@claim(
    "layeract-imagenet-second",
    "On clean and noisy ImageNet, ResNet50 is better with a LayerAct function than with any other.",
    "Section 1, Table 4",
    severity="matters",
    turned_by=cells("layeract-table-4", {"method": "ReLU"}, blur=70),
)
def test_imagenet_second():
    # Judged by the table of which the text says it; that the second trial has an exception was known before.
    def in_front(table):
        return {
            label(place): best_of(LAYER_LEVEL, each) > best_of(ELEMENT_LEVEL, each)
            for _, place, each in numbered(table)
        }

    found, second = count(in_front(4), "columns have a LayerAct function in front"), in_front(12)
    not_there = enumerated([name for name, so in second.items() if not so])
    return Verdict(
        found.status,
        f"{found.evidence[:-1]}; in the second trial, Table 12, of which the text claims nothing, "
        f"{sum(second.values())} of {len(second)}, not {not_there}.",
    )


# --- Slips --------------------------------------------------------------------------------------------------


@claim(
    "layeract-slips",
    "Statements that recur in the paper, and references to its figures and tables, agree with one another.",
    "The whole paper",
    severity="detail",
    turned_by=tables(lambda name, rows: [row | {"printed": row.get("elsewhere", "")} for row in rows]),
)
def test_slips():
    cases = {
        f"{row['printed']} ({row['place']})": row["printed"] == row["elsewhere"]
        for row in results.published("layeract-slips")
    }
    return count(cases, "places agree with the rest of the paper", listed=5)
