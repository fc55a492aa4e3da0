"""The front of the book: what its first page says was found and stands, sentence by sentence; course, data, citation.

A sentence here that a new result makes untrue fails, and has to be written anew.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import nbformat
import pytest
import torch
import yaml

import companion
from companion.dac.study.experiments import changes
from companion.dnrt.study.experiments import comparisons as of_responses
from companion.layeract.study.experiments import comparisons as of_layers
from companion.multi_argument.study.experiments import label
from companion.rooms import ROOMS
from companion.study import claims, datasets, results
from companion.study.analysis import compare, family
from companion.study.together import citations, figures
from companion.study.together import text as text_of
from companion.study.together.composing import compositions
from companion.study.together.disturbed import disturbed
from tests.cuda.machine_code import ARCHITECTURES
from tests.sentences import Said, sentences

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"
PREFACE = (BOOK / "preface.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PREFACE, re.DOTALL | re.MULTILINE))
FOUND = SECTIONS["In short"]
STANDS = SECTIONS["Where it stands"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TRANSFORMERS = ("overfitting", "ablation")
ARGUMENTS = ("multi-argument-mnist", "multi-argument-cifar10", "multi-argument-cnn")

_said = Said()
says = _said.says


def test_every_sentence_about_what_was_found_and_what_stands_is_tested() -> None:
    said = sentences(FOUND) | sentences(STANDS)
    assert said - _said.tested == {
        "{{ shortly }}",
        "Which of them should stand in your network?",
        "With their rivals, in one picture.",
        "Five things to know:",
        ":::{dropdown} Chapter by chapter, what we found so far",
        ":::",
    }
    assert _said.tested - said == set()


def verdict(claim: str) -> claims.Claim:
    (found,) = claims.get(claim)
    return found


def status(claim: str) -> str:
    return verdict(claim).status


def rows(experiment: str) -> list[dict[str, Any]]:
    return results.load(experiment)["rows"]


def page(name: str) -> str:
    """The text of a chapter's Markdown cells, with the words that cells glue left out."""
    cells = nbformat.read(BOOK / "mechanisms" / f"{name}.ipynb", as_version=4).cells
    return " ".join(" ".join(cell.source for cell in cells if cell.cell_type == "markdown").split())


@says(
    "1. {doc}`The curve learns its shape <mechanisms/apa>` (APA, AGLU).",
    "In the paper the derivative with respect to one of its parameters has the wrong sign.",
    "On small images of digits it was not clearly more accurate than any of six other curves; in convolutions on "
    "photographs it led ReLU, as GELU did.",
)
def test_the_curve_was_nowhere_clearly_ahead() -> None:
    assert status("apa-d-lambda") == "does not hold"
    assert "the sign opposite" in verdict("apa-d-lambda").evidence
    assert "0 of 16 clearly above zero" in verdict("apa-aglu-rivals").evidence
    digits = rows("apa-digits")
    for imbalance in {row["imbalance"] for row in digits}:
        of = [row for row in digits if row["imbalance"] == imbalance]
        others = compare(of, factor="activation", reference="aglu", measure="test_accuracy")
        assert len(others) == 6
        assert min(each.sign() for each in others) == 0
    on_photographs = figures.Column("", rows("together-conv"), reference="relu").comparisons()
    assert on_photographs["aglu"].sign() == on_photographs["gelu"].sign() == 1


@says(
    "2. {doc}`A bias for every connection <mechanisms/dac>` (DAC).",
    "A dense layer has nearly twice as many parameters.",
    "In a regression (how long do matrix products take?) the additional biases did what the paper says in a network of "
    "its size, trained as long, where more weights no longer helped, and nothing clear in smaller ones; on photographs "
    "our runs do not decide.",
)
def test_additional_biases_did_what_more_weights_did_not() -> None:
    from companion import DACLinear

    doubled = sum(each.numel() for each in DACLinear(100, 100).parameters()) / (100 * 100 + 100)
    assert 1.9 < doubled < 2
    with_biases = [each for each in changes(rows("dac-sgemm")) if each.key.kind in ("biases", "trade")]
    assert {each.key.kind for each in with_biases} == {"biases", "trade"}
    assert min(each.sign() for each in with_biases) >= 0  # below zero the error is lower
    in_full = {each.key.kind: each.sign() for each in changes(results.load("dac-sgemm", preset="large")["rows"])}
    assert in_full == {"weights": 0, "biases": -1, "trade": -1, "inner": -1}
    assert status("dac-experiment-sgemm-large") == "seen"
    assert status("dac-experiment-cifar-better") == "not decided"
    assert status("dac-experiment-cifar-worse") == "not decided"


@says(
    "3. {doc}`A gate that sees the layer <mechanisms/layeract>` (LayerAct: LA-SiLU).",
    "On MNIST its mean outputs are nearer to zero than every rival's after one epoch, later not.",
    "Noise that brightens moves its outputs less than most rivals', noise of mean zero more.",
)
def test_the_gate_keeps_what_it_promises_in_part() -> None:
    assert status("layeract-mnist-mean") == status("layeract-mnist-fluctuation") == "seen in part"

    def signs(*measures: str) -> set[int]:
        return {each.sign() for each in of_layers(rows("layeract-mnist"), measures)}

    assert signs("mean_activation_epoch_1") == {-1}
    assert signs("mean_activation_epoch_40") >= {-1, 1}
    assert signs("mean_activation_epoch_80") >= {-1, 1}
    for measure in ("fluctuation_mean", "y_fluctuation_mean"):
        of = {
            noise: [each.sign() for each in of_layers(rows("layeract-mnist"), [f"{measure}_{noise}"])]
            for noise in (1, 2)
        }
        assert 2 * of[2].count(-1) > len(of[2]) > 2 * of[2].count(1)
        assert 2 * of[1].count(1) > len(of[1]) > 2 * of[1].count(-1)


@says(
    "4. {doc}`A threshold that listens to the whole layer <mechanisms/dnrt>` (DNRT: RAA with ARR).",
    "In perceptrons on MNIST it was no more accurate.",
    "Its loss, which draws the responses of a class together (ARR), made a small vision transformer clearly more "
    "accurate than without it in 8 of 9 comparisons, by 2.7 to 5.9 points; its threshold alone in 1 of 3, by 1.0.",
)
def test_the_threshold_added_little_and_its_loss_some_points() -> None:
    assert status("dnrt-experiment-mnist") == "not seen"
    assert all(each.sign() <= 0 for each in of_responses(results.load("dnrt-mnist")))
    trainings = [{each.key: each for each in of_responses(results.load(f"dnrt-{name}"))} for name in TRANSFORMERS]
    halves = ("relu+arr", "relu"), ("gelu+arr", "gelu"), ("dnrt", "raa")
    asked = [each for found in trainings for each in found.values() if each.key in halves]
    met = {row["neuron"] for row in rows("together-vit")}
    for one, other in (("relu_arr", "relu"), ("arr", "gelu"), ("dnrt", "raa")):
        if {one, other} <= met:
            asked.append(figures.Column("", rows("together-vit"), reference=other).comparisons()[one])
    longer = results.load("together-vit", "long")["rows"]
    asked.append(figures.Column("", longer, reference="relu").comparisons()["relu_arr"])
    gains = [100 * each.difference.mean for each in asked if each.sign() > 0]
    printed = re.findall(r"in (\d) of\s+(\d) comparisons, by ([\d.]+) to ([\d.]+) points", FOUND)
    assert printed == [(str(len(gains)), str(len(asked)), f"{min(gains):.1f}", f"{max(gains):.1f}")]
    alone = [found["raa", "gelu"] for found in trainings]
    alone.append(figures.finished()["together-vit"].comparisons()["raa"])
    assert [each.sign() for each in alone] == [0, 0, 1]
    assert re.findall(r"alone in\s+1 of 3, by ([\d.]+)\.", FOUND) == [f"{100 * alone[-1].difference.mean:.1f}"]


@says(
    "5. {doc}`Two arguments <mechanisms/multi-argument>`.",
    "One such unit learns XOR, and so does one with a single sum and a learned curve.",
    "In three small tests of four two arguments, normalised where the tuning preferred it, led plain ReLU by 3.0 to "
    "7.2 points.",
    "They led normalised ReLU, the paper's rival, in one of the four, and one learned argument in none.",
)
def test_two_arguments_lead_relu_and_not_one_learned_argument() -> None:
    leads, normalised = [], []
    for run in (*map(results.load, ARGUMENTS), results.load("multi-argument-cnn", "mnist")):
        by_case: dict[str, dict[int, float]] = {}
        for row in run["rows"]:
            by_case.setdefault(label(row), {})[row["seed"]] = 100 * row["accuracy"]
        one, two = (
            by_case[
                label(max((each for each in run["chosen"] if each["neuron"] == neuron), key=lambda each: each["score"]))
            ]
            for neuron in ("arity 1", "arity 2")
        )
        others = {"plain": by_case["relu"], "normalised": by_case["relu + norm"], "one": one}
        found = {each.key: each for each in family({key: (two, other) for key, other in others.items()})}
        leads += [found["plain"].difference.mean] * (found["plain"].sign() == 1)
        normalised.append(found["normalised"].sign())
        assert found["one"].sign() <= 0
    assert (len(leads), sorted(normalised)) == (3, [0, 0, 0, 1])
    printed = re.findall(r"plain ReLU by\s+([\d.]+) to ([\d.]+) points", FOUND)
    assert printed == [(f"{min(leads):.1f}", f"{max(leads):.1f}")]
    printed_there = nbformat.read(BOOK / "mechanisms" / "multi-argument.ipynb", as_version=4).cells
    streams = "".join(output.get("text", "") for cell in printed_there for output in cell.get("outputs", []))
    assert "two arguments: XOR solved in 5 of 5" in streams
    assert "one learned argument: XOR solved in 5 of 5" in streams


@says(
    "We trained them side by side, in five networks, all of them small and trained on CPUs, with equally many "
    "parameters and the same search for the learning rate.",
    "None is first everywhere.",
    "The table says who is, rivals such as SwiGLU included, and by how much the papers' neurons are clearly ahead of "
    "GELU (+) or behind it (−): in points of accuracy, on text in bits saved for each letter; in brackets, less than "
    "matters.",
    "Plain ReLU is 4.0 points ahead of GELU in the transformer for photographs, and 0.047 bits in that for text.",
    "In convolutions a short trial gave RAA, DNRT and two arguments 0.3 of the others' learning rate: at it GELU "
    "itself loses 1.1 points, and beside that GELU they lose 0.3, 0.7 and 1.2.",
    "In the perceptron LA-HardSiLU and two arguments had ten times GELU's rate: beside GELU at it they lose 0.1 each, "
    "not clearly; at GELU's, 0.2 and 0.3, clearly.",
    "In the transformer for photographs ReLU with ARR keeps its lead on shifted images; under wide noise it is behind "
    "GELU.",
    "What to make of it is the next page: {doc}`together/which-neuron`.",
    "Two of them at once, five pairs in the perceptron: none is better than the better of its two "
    "({doc}`together/composing`).",
    "A line is a 95 % interval, green or orange where it is significant, corrected for all of a column.",
    "Between the dotted lines no difference matters.",
    "What lies in a pale bar our seeds are too few for: more than one such experiment in five would miss it.",
)
def test_all_meet_in_one_network() -> None:
    arenas = figures.finished()
    assert len(arenas) == 5
    for arena in arenas:
        parameters = by_network(rows(arena))
        assert all(max(each) < 1.01 * min(each) for each in parameters)
    transformer, text = arenas["together-vit"], arenas["together-gpt"]
    transformer_rows = rows("together-vit")
    leads = [arena.comparisons()["relu"] for arena in (transformer, text)]
    assert [each.sign() for each in leads] == [1, 1]
    printed = re.findall(r"is ([\d.]+) points ahead of GELU in the tr.*?and ([\d.]+) bits in", FOUND)
    assert printed == [(f"{100 * leads[0].difference.mean:.1f}", f"{leads[1].difference.mean:.3f}")]
    assert text.leads("swiglu")
    assert transformer.comparisons()["relu_arr"].sign() == 1
    assert disturbed()["together-vit"]["shift"].verdicts()["relu_arr"] == "better"
    for width in (0.15, 0.2, 0.3):
        assert figures.Column("", transformer_rows, f"accuracy_std_{width}").comparisons()["relu_arr"].sign() == -1
    photographs = arenas["together-conv"]
    rates = {each["neuron"]: each["learning_rate"] for each in results.load("together-conv")["chosen"]}
    assert {name for name, rate in rates.items() if rate == 0.3} == {"raa", "dnrt", "two_arguments_last"}
    assert {*rates.values()} == {0.3, 1.0}
    slower = [{**row, "neuron": "slower"} for row in results.load("together-conv", "rates")["rows"]]
    lost = figures.Column("", [*slower, *photographs.rows]).comparisons()["slower"]
    assert f"{100 * lost.difference.mean:.1f}" == "-1.1"
    others = [row for row in photographs.rows if row["neuron"] != "gelu"]
    beside = figures.Column("", [*slower, *others], reference="slower").comparisons()
    lost_beside = [f"{100 * beside[name].difference.mean:.1f}" for name in ("raa", "dnrt", "two_arguments_last")]
    assert lost_beside == ["-0.3", "-0.7", "-1.2"]
    of_digits = results.load("together-mlp")["rows"]
    tuned = {row["neuron"]: row["learning_rate"] for row in of_digits}
    of_gelu = results.load("together-mlp", "rates")["rows"]
    fast, slow = (
        family(
            {
                name: (reached(of, name, tuned[whose or name]), reached(of_gelu, "gelu", tuned[whose or name]))
                for name in tuned
                if name != "gelu"
            }
        )
        for of, whose in ((of_digits, ""), ([*of_digits, *results.load("together-mlp", "same-rate")["rows"]], "gelu"))
    )
    for found, losses, sign in ((fast, ["-0.1", "-0.1"], 0), (slow, ["-0.2", "-0.3"], -1)):
        of_both = [each for each in found if each.key in ("la_hardsilu", "two_arguments")]
        assert ([f"{100 * each.difference.mean:.1f}" for each in of_both], {each.sign() for each in of_both}) == (
            losses,
            {sign},
        )
    assert round(tuned["la_hardsilu"] / tuned["gelu"]) == round(tuned["two_arguments"] / tuned["gelu"]) == 10
    pairs = compositions(rows("together-pairs"))
    assert len(pairs) == 5
    assert all(each.verdict != "adds" for each in pairs)


def reached(of: list[dict[str, Any]], neuron: str, rate: float) -> dict[int, float]:
    """A neuron's accuracies at a learning rate, by seed."""
    return {
        row["seed"]: row["accuracy"]
        for row in of
        if row["neuron"] == neuron and row["learning_rate"] == pytest.approx(rate)
    }


def by_network(of: list[dict[str, Any]]) -> list[set[int]]:
    """The numbers of parameters of each network on each problem."""
    found: dict[tuple[str, str], set[int]] = {}
    for row in of:
        found.setdefault((row.get("network", ""), row.get("problem", "")), set()).add(row["parameters"])
    return list(found.values())


def test_the_table_says_who_is_first_and_which_of_the_papers_neurons_are_clearly_ahead_or_behind() -> None:
    *table, nothing, matters = figures.shortly().splitlines()[2:]
    table = [line.strip("| ").split(" | ") for line in table]
    assert (len(table), nothing) == (5, "")
    smallest = [column.unit * column.smallest for column in figures.finished().values()]
    assert [float(number) for number in re.findall(r"[\d.]*\d", matters)] == pytest.approx(smallest)
    for column, (_, first, theirs) in zip(figures.finished().values(), table, strict=True):
        verdicts, found = column.verdicts(), column.comparisons()
        names = {figures.LABELS[name].partition(", z")[0]: name for name in verdicts}
        clear, *rest = re.split(r"(?:^|; )(?:no difference that matters|not decided): ", theirs)
        assert {verdicts[names[name]] for each in rest for name in each.split(", ") if name in names} <= {
            "same",
            "open",
        }
        sizes = re.findall(r"(\()?([^()]+?(?: \(RAA \+ ARR\))?) ([+−])([\d.]+)\)?(?:, |$)", clear)
        assert len(sizes) == clear.count("+") + clear.count("−") - clear.count(" + ")
        for bracket, name, sign, size in sizes:
            mean = column.unit * found[names[name]].difference.mean
            assert verdicts[names[name]] == {"+": "better", "−": "worse"}[sign]
            decimals = len(size.partition(".")[2])
            assert float(size) == pytest.approx(abs(mean), abs=0.51 * 10**-decimals)
            assert 1.9 < column.unit * column.smallest * 10**decimals < 21
            assert bool(bracket) == (abs(mean) < column.unit * column.smallest)
        leader = re.match(r"\*\*(.+) [+][\d.]+\*\*$", first)
        assert [name for name in verdicts if column.leads(name)] == ([names[leader[1]]] if leader else [])


@says(
    "- **In a small transformer whose weights begin with 0.02 try a sharper curve.**",
    "In ours, 64 and 128 wide, a SiLU that bends four times as fast is 2.7 points ahead of GELU on photographs, two "
    "thirds of ReLU's lead, and 0.075 bits on text, more than ReLU ({doc}`together/how-sharp`).",
    "In the three other networks ReLU, the sharpest, gains nothing; in convolutions it is 0.5 behind.",
)
def test_a_sharper_silu_is_ahead_in_the_two_transformers() -> None:
    gains = {}
    for preset, arena, width in (("images", "together-vit", 64), ("text", "together-gpt", 128)):
        sharp = results.load("together-sharpness", preset)
        assert {results.load(arena)["settings"]["width"], sharp["settings"]["width"]} == {width}
        met = [row for row in rows(arena) if row["seed"] in sharp["seeds"] and row["neuron"] in ("gelu", "relu")]
        found = replace(figures.finished()[arena], rows=[*met, *sharp["rows"]]).comparisons()
        assert found["sharp_4"].sign() == 1
        gains |= {(preset, name): found[name].difference.mean for name in ("sharp_4", "relu")}
    printed = re.findall(
        r"is ([\d.]+) points ahead of GELU on photographs.*?and ([\d.]+) bits on text", " ".join(FOUND.split())
    )
    assert printed == [(f"{100 * gains['images', 'sharp_4']:.1f}", f"{gains['text', 'sharp_4']:.3f}")]
    assert 0.6 < gains["images", "sharp_4"] / gains["images", "relu"] < 0.73
    assert gains["text", "sharp_4"] > gains["text", "relu"]
    others = figures.finished().keys() - {"together-vit", "together-gpt"}
    assert max(figures.finished()[name].comparisons()["relu"].sign() for name in others) == 0
    in_convolutions = figures.finished()["together-conv"].comparisons()["relu"]
    assert in_convolutions.sign() == -1
    assert f"{-100 * in_convolutions.difference.mean:.1f}" == "0.5"


@says(
    "- **Where contrast may be lost, as in fog, standardise every image by itself.**",
    "In our convolutions GELU gains 24.8 points by that where contrast is lost, and 7.3 in fog (on brighter images "
    "nothing, perhaps 0.6 fewer on clean ones, and 3.7 under weak noise); on the same seeds LA-SiLU in its place, no "
    "image standardised, gains 8.8 and 2.2 ({doc}`together/under-noise`).",
)
def test_standardised_images_bear_more_than_a_neuron() -> None:
    plain, image = results.load("together-conv"), results.load("together-conv", "per-image")
    of_image = [row | {"neuron": "image"} for row in image["rows"] if row["neuron"] == "gelu"]
    met = [row for row in plain["rows"] if row["neuron"] == "gelu" and row["seed"] in image["seeds"]]
    gained = []
    same = [row for row in plain["rows"] if row["seed"] in image["seeds"]]
    assert figures.Column("", plain["rows"], "accuracy_fog").comparisons()["la_silu"].sign() == 1
    for name, measured in (("image", met + of_image), ("la_silu", same)):
        for kind in ("contrast", "fog"):
            found = figures.Column("", measured, f"accuracy_{kind}").comparisons()[name]
            assert found.difference.low > 0
            gained.append(f"{100 * found.difference.mean:.1f}")
    lost = [
        f"{-100 * figures.Column('', met + of_image, measure).comparisons()['image'].difference.mean:.1f}"
        for measure in ("accuracy", "accuracy_std_0.05")
    ]
    printed = re.findall(
        r"GELU gains ([\d.]+) points .*? and ([\d.]+) in fog \(on brighter images nothing, perhaps ([\d.]+) fewer .*? "
        r"and ([\d.]+) under .*? gains ([\d.]+) and ([\d.]+) ",
        " ".join(FOUND.split()),
    )
    assert printed == [(*gained[:2], *lost, *gained[2:])]


@says(
    "- **Where classes are rare in training and count alike in use, change the loss first.**",
    "In our convolutions balanced softmax is worth 10.0 points with GELU (the most frequent classes lose), and no "
    "neuron of those that we ran there is clearly ahead of GELU ({doc}`together/rare-classes`).",
)
def test_the_loss_matters_more_than_the_neuron_where_classes_are_rare() -> None:
    tail = rows("together-conv-tail")
    of_gelu = [{**row, "neuron": row["loss"]} for row in tail if row["neuron"] == "gelu"]
    [gain] = figures.Column("", of_gelu, reference="cross-entropy").comparisons().values()
    assert re.findall(r"worth ([\d.]+) points with GELU", FOUND) == [f"{100 * gain.difference.mean:.1f}"]
    [lost] = figures.Column("", of_gelu, "accuracy_frequent", reference="cross-entropy").comparisons().values()
    assert lost.sign() == -1
    for loss in ("cross-entropy", "balanced softmax"):
        column = figures.Column("", [row for row in tail if row["loss"] == loss])
        assert max(each.sign() for each in column.comparisons().values()) == 0


@says(
    "- **An activation that looks at a whole sequence undoes the mask of attention.**",
    "As published, LayerAct does; a row has to end at its token ({doc}`mechanisms/layeract`).",
    "- **One gradient is printed with the wrong sign,** and its authors' code for classifiers uses it.",
    "It is {doc}`AGLU's, by λ; and what else is wrong, and whom it touches <together/what-the-papers-got-wrong>`.",
)
def test_what_is_worth_knowing_whatever_one_trains() -> None:
    tokens = torch.randn(2, 6, 8)
    other = tokens.clone()
    other[:, -1] += 1
    published, by_token = companion.LASiLU(), companion.LASiLU(dims=-1)
    assert not torch.allclose(published(tokens)[:, 0], published(other)[:, 0])
    assert torch.equal(by_token(tokens)[:, :-1], by_token(other)[:, :-1])
    assert status("apa-d-lambda") == "does not hold"
    cells = nbformat.read(BOOK / "together" / "what-the-papers-got-wrong.ipynb", as_version=4).cells
    assert any("which the classifiers call" in cell.source for cell in cells)


@says(
    "Behind each line stand trainings with at least five seeds, or a computation.",
    "The {doc}`ledger <appendix/claims>` has every claim that we tested, with its verdict.",
)
def test_no_line_rests_on_fewer_than_five_seeds() -> None:
    for experiment in (
        "apa-digits",
        "dac-sgemm",
        "layeract-mnist",
        "dnrt-mnist",
        *(f"dnrt-{name}" for name in TRANSFORMERS),
        *ARGUMENTS,
    ):
        assert len({row["seed"] for row in rows(experiment)}) >= 5
    assert {row.id.split("-")[0] for row in claims.ledger()} == {*ROOMS}
    assert {row.status for row in claims.ledger()} <= {*get_args(claims.Status)}


@says(
    "No kernel has run on a GPU yet.",
    "All are compiled for five architectures, and tests run their source in a simulator on the CPU.",
    "If you have one, `make gpu` in a checkout ends with a file that we would like to see.",
    "The trainings of this book ran on CPUs, most of them on a smaller scale than the papers'.",
)
def test_nothing_ran_on_a_gpu() -> None:
    assert len(ARCHITECTURES) == 5
    finished = [results.load(name) for name in results.names() if not name.startswith("bench-")]
    assert finished
    assert {machine["hardware"]["gpu"] for result in finished for machine in results.machines(result)} == {None}
    assert 3 * len(results.names("full")) < len(results.names("laptop"))
    assert "tests.gpu" in (ROOT / "Makefile").read_text(encoding="utf-8")
    for room in ROOMS:
        assert any((ROOT / "companion" / room).glob("*.cu"))
        kernels = (ROOT / "tests" / room / "test_kernel.py").read_text(encoding="utf-8")
        assert "simulator" in kernels


def test_the_picture_leads_to_the_five_chapters_in_the_order_of_the_lines() -> None:
    picture = (BOOK / "_static" / "neuron.svg").read_text(encoding="utf-8")
    links = re.findall(r'href="([\w/-]+)\.html" aria-label="(\d)', picture)
    assert [int(number) for _, number in links] == [1, 2, 3, 4, 5]
    assert [link for link, _ in links] == re.findall(r"^\d\. \{doc\}`[^<]+<([\w/-]+)>`", FOUND, re.MULTILINE)
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    first, mechanisms = toc["parts"][:2]
    assert first["chapters"][0] == {"file": "together/which-neuron"}  # where "next" leads
    assert [chapter["file"] for chapter in mechanisms["chapters"]] == [link for link, _ in links]


def test_the_course_names_exercises_that_exist() -> None:
    text = (BOOK / "appendix" / "course.md").read_text(encoding="utf-8")
    weeks = re.findall(r"^\| (\d) \| (.*?) \| (.*?) \| (.*?) \|$", text, re.MULTILINE)
    assert [int(week) for week, *_ in weeks] == [1, 2, 3, 4, 5, 6]
    for _, read, together, home in weeks:
        pages = re.findall(r"`\.\./([\w/-]+)`", read)
        for cell in (together, home):
            where = re.findall(r"`\.\./([\w/-]+)`", cell) or pages
            for name in where:
                source = (BOOK / f"{name}.ipynb").read_text(encoding="utf-8")
                numbers = re.findall(r"\d", re.sub(r"\{doc\}`[^`]*`", "", cell))
                assert numbers
                assert all(f"Exercise {number} · " in source for number in numbers), (name, numbers)


def test_the_page_on_data_has_a_row_for_each_set_that_the_package_loads() -> None:
    text = (BOOK / "appendix" / "data.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", text, re.MULTILINE))
    with pytest.raises(ValueError, match="allowed") as refusal:
        datasets.load("nothing")
    images = {*re.findall(r"\w+", str(refusal.value).split("allowed")[1])} - {"are"}
    assert {*listed} == images | {*citations._SHA256} | {"sgemm", text_of.shakespeare.__name__}
    assert all("{cite:p}" in what for what in listed.values())


def test_the_citation_says_what_the_project_says() -> None:
    book = CITATION["preferred-citation"]
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    assert CITATION["cff-version"] == "1.2.0"
    assert {"message", "authors", "title"} <= CITATION.keys()
    assert CITATION["title"] == book["title"] == config["title"]
    assert CITATION["authors"] == book["authors"] == PROJECT["authors"] == [{"name": config["author"]}]
    assert (CITATION["version"], CITATION["abstract"]) == (PROJECT["version"], PROJECT["description"])
    assert CITATION["license"] == PROJECT["license"]
    assert CITATION["url"] == PROJECT["urls"]["Book"]
    assert CITATION["repository-code"] == book["url"] == PROJECT["urls"]["Source"] == config["repository"]["url"]
    assert book["year"] == int(config["copyright"])
    assert f"SPDX-License-Identifier: {book['license']}\n" in (ROOT / "LICENSE-prose").read_text(encoding="utf-8")


def test_the_bibtex_entry_is_the_citation() -> None:
    (entry,) = re.findall(r"```bibtex\n@book\{\w+,\n(.*?)\n\}\n```", PREFACE, re.DOTALL)
    fields = dict(re.findall(r"^  (\w+) *= \{(.*)\},$", entry, re.MULTILINE))
    book = CITATION["preferred-citation"]
    (author,) = book["authors"]
    assert fields == {
        "author": f"{{{author['name']}}}",
        "title": book["title"],
        "year": str(book["year"]),
        "url": "{{ repository }}",
    }


#: Letters that stand in several sections of the page on notation and mean the same there.
THE_SAME = {r"\mu", "b", "z"}


def test_the_page_on_notation_lists_the_letters_that_change_their_meaning() -> None:
    text = (BOOK / "appendix" / "notation.md").read_text(encoding="utf-8")
    opening, *parts = re.split(r"^## .+$", text, flags=re.MULTILINE)
    sections = [
        {letter for row in re.findall(r"^\| (.+?) \|", part, re.MULTILINE) for letter in letters(row)} for part in parts
    ]
    several = {letter for part in sections for letter in part if sum(letter in other for other in sections) > 1}
    listed = opening[opening.index("more than one meaning") : opening.index("On right-hand sides")]
    # and those, too, that a chapter uses otherwise than its table
    assert several - THE_SAME <= {*re.findall(r"\$(.+?)\$", listed)}


def letters(row: str) -> set[str]:
    """The letters that a row of a table explains, without indices, accents and arguments."""
    symbols = re.findall(r"\$(.+?)\$", row)
    return {
        match[0]
        for each in symbols
        if (match := re.match(r"(?!\\(?:operatorname|tilde|hat|mathcal|over))\\?[A-Za-z]+", each))
    }
