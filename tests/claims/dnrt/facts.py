"""What the paper on DNRT prints, as its ledger asks for it."""

from __future__ import annotations

from companion.study import results
from tests.claims.form import by_severity

fatal, matters, detail = by_severity("mechanisms/dnrt")

_NAMES = ("Softplus", "ELU", "SELU", "SiLU", "ReLU", "GELU", "GDN", "LIF", "LIF-LT", "DNRT")
NAMES = {name.lower().replace("-", "_"): name for name in _NAMES}
"""By column of a table what the paper calls it."""

NEGLIGIBLE = 5.0
"""Per cent below which we call an increase negligible or minimal."""


def quoted(place: str, quantity: str) -> float:
    """A number that stands in the text."""
    [row] = [row for row in results.published("dnrt-quoted") if (row["place"], row["quantity"]) == (place, quantity)]
    return float(row["value"])


def accuracies(*tables: int | str) -> dict[str, dict[str, float]]:
    """By row of these tables the printed number of DNRT and of each rival."""
    found = {}
    for table in tables:
        for row in results.published(f"dnrt-table-{table}"):
            place = " ".join(filter(None, (row.get("data"), row["network"], row.get("imbalance"))))
            found[place] = {name: float(row[key]) for key, name in NAMES.items() if key in row}
    return found
