"""The tables of the paper on DNRT as a ledger asks them: rows by name, leads, shares."""

from __future__ import annotations

from companion import results
from tests.claims.form import by_severity

fatal, matters, detail = by_severity("mechanisms/dnrt")

RIVALS = {
    "softplus": "Softplus",
    "elu": "ELU",
    "selu": "SELU",
    "silu": "SiLU",
    "relu": "ReLU",
    "gelu": "GELU",
    "gdn": "GDN",
    "lif": "LIF",
    "lif_lt": "LIF-LT",
}


def quoted(place: str, quantity: str) -> float:
    """A number that stands in the text."""
    [row] = [row for row in results.published("dnrt-quoted") if (row["place"], row["quantity"]) == (place, quantity)]
    return float(row["value"])


def accuracies(*tables: int | str) -> dict[str, dict[str, float]]:
    """By row of these tables the printed number of DNRT and of each rival."""
    names = {**RIVALS, "dnrt": "DNRT"}
    found = {}
    for table in tables:
        for row in results.published(f"dnrt-table-{table}"):
            place = " ".join(filter(None, (row.get("data"), row["network"], row.get("imbalance"))))
            found[f"{place} (Table {str(table)[:2].rstrip('ab')})"] = {
                name: float(row[key]) for key, name in names.items() if key in row
            }
    return found
