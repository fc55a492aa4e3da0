"""The page on which neuron to use: its first table says what the rule says, and its second one has them all."""

import re

import nbformat

from book._tools.places import ROOT
from companion.study.together.disturbed import advised
from companion.study.together.figures import LABELS

PAGE = nbformat.read(ROOT / "book" / "together" / "which-neuron.ipynb", as_version=4)
TEXT = "\n".join(cell.source for cell in PAGE.cells if cell.cell_type == "markdown")
#: What the page calls the neurons, in its table and in its list.
OF = {
    "GELU": (),
    "ReLU": ("relu",),
    "SiLU": ("silu",),
    "Mish": ("mish",),
    "PReLU": ("prelu",),
    "AGLU": ("aglu",),
    "LA-SiLU": ("la_silu",),
    "LA-HardSiLU": ("la_hardsilu",),
    "RAA": ("raa",),
    "ARR": ("arr",),
    "ReLU with ARR": ("relu_arr",),
    "Centre loss": ("centre",),
    "DNRT": ("dnrt",),
    "DAC": ("dac",),
    "one learned argument": ("one_argument",),
    "two arguments": ("two_arguments", "two_arguments_last"),
    "multi-bias": ("multibias",),
    r"$z_1\,\sigma(z_2)$": ("glu",),
    "SwiGLU": ("swiglu",),
    "maxout": ("maxout",),
    "the rivals": ("multibias", "glu", "maxout"),
}
ROWS = {
    "convolutions, photographs": "together-conv",
    "small transformer whose weights [begin with 0.02](#the-arenas), photographs": "together-vit",
    "such a transformer, text": "together-gpt",
    "perceptron, digits": "together-mlp",
    "graph networks": "together-graph",
}


def neurons(text: str) -> set[str]:
    names = {name.lower(): of for name, of in OF.items()}
    found = re.findall(
        "|".join(map(re.escape, sorted(names, key=len, reverse=True))), re.sub("`.*?`", "", text.lower())
    )
    return {neuron for name in found for neuron in names[name]}


def test_the_first_table_says_what_the_rule_says() -> None:
    said = advised()
    rows = [line.strip("| ").split(" | ") for line in TEXT.splitlines() if line.startswith("| ")]
    found = {ROWS[row[0]]: row[1:] for row in rows if row[0] in ROWS}
    assert found.keys() == {*ROWS.values()}
    for arena, (take, trial) in found.items():
        words = {"use it": neurons(" ".join(re.findall(r"\*\*([^*]+)\*\*", take)))}
        words["try it"] = neurons(" ".join(re.findall(r"\*\*([^*]+)\*\*", trial)))
        for word, names in words.items():
            there = {name for name in names if arena in said[name]}
            assert there == {name for name in said if said[name].get(arena) == word}, (arena, word)
        # Where no other is to be used, GELU is.
        assert ("**GELU**" in take) == (not words["use it"])


def test_the_table_by_neuron_has_a_line_for_each() -> None:
    printed = [
        out.data.get("text/markdown", "") for cell in PAGE.cells for out in cell.get("outputs", ()) if "data" in out
    ]
    (table,) = [text for text in printed if text.startswith("| neuron | convolutions")]
    lines = [line.strip("| ").split(" | ")[0] for line in table.splitlines()[2:]]
    assert lines == [LABELS[name] for name in advised()]
