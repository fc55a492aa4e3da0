"""What the paper on APA and AGLU says of its own numbers, recomputed from its tables."""

from __future__ import annotations

from tests.claims.form import cells, claim, difference, number

PAGE = "mechanisms/apa"


@claim(
    "apa-quoted-table-8",
    "Over seven data sets SE-ResNet50 with APA* and AGLU gains 1.9 points of macro average.",
    "Section VI-A, Table VIII",
    severity="matters",
    chapter=PAGE,
    turned_by=cells("apa-table-8", {"method": "SE-ResNet50 APA*+AGLU"}, average=79.0),
)
def test_gain_over_seven_datasets():
    ours = number("apa-table-8", "average", method="SE-ResNet50 APA*+AGLU")
    return difference("1.9", ours, number("apa-table-8", "average", method="SE-ResNet50"), "Macro averages")
