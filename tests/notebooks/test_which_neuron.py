"""The page on which neuron to use: its sentences say what the rule says."""

import re

import nbformat

from book._tools.places import ROOT
from companion.study.together.disturbed import advised

PAGE = nbformat.read(ROOT / "book" / "together" / "which-neuron.ipynb", as_version=4)
#: What a sentence begins with, and the neurons that it speaks of.
OF = {
    "ReLU": ("relu",),
    "SiLU": ("silu",),
    "Mish": ("mish",),
    "PReLU": ("prelu",),
    "AGLU and APA": ("aglu",),
    "LA-SiLU": ("la_silu",),
    "LA-HardSiLU": ("la_hardsilu",),
    "RAA": ("raa",),
    "ARR": ("arr",),
    "ReLU with ARR": ("relu_arr",),
    "Centre loss": ("centre",),
    "DNRT": ("dnrt",),
    "DAC": ("dac",),
    "One learned argument": ("one_argument",),
    "Two arguments": ("two_arguments", "two_arguments_last"),
    "maxout": ("multibias", "glu", "maxout"),
}


def test_every_neuron_has_a_sentence_and_it_says_what_the_rule_says() -> None:
    text = "\n".join(cell.source for cell in PAGE.cells if cell.cell_type == "markdown")
    said = dict(re.findall(r"\*\*([^*]+):\*\* (no reason to|use it there|use it|try it|leave it)", text))
    assert said.keys() == OF.keys()
    assert {name: said[words] for words, names in OF.items() for name in names} == advised()
