"""The proof of an operator reaches every line and every branch of its kernels, and finds what is wrong there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from companion import simulator
from companion.apa import kernel as apa
from companion.apa import proof as apa_proof
from companion.cuda import build
from companion.dac import kernel as dac
from companion.dac import proof as dac_proof
from companion.operators import operators
from companion.proofs import trial, verdicts
from tests.cases import of_rooms
from tests.cuda import coverage
from tests.cuda.coverage import Unreachable
from tests.cuda.sources import changed, with_instances

pytestmark = pytest.mark.skipif(not simulator.available(), reason=str(simulator.why_not()))

ROOT = Path(__file__).parents[2]
OPERATORS = {operator.name: operator for operator in operators() if operator.name != "toy"}


UNREACHABLE: dict[str, list[Unreachable]] = of_rooms("UNREACHABLE")


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_every_line_and_branch_of_every_kernel_is_tried(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.cuda.coverage", name, str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "\n"), result.stdout + result.stderr
    expected, used, missed = UNREACHABLE.get(name, []), set(), []
    for kernels in OPERATORS[name].kernels:
        for found in coverage.missed(kernels, tmp_path):
            known = [one for one in expected if one.text in found.text and re.search(one.function, found.function)]
            used.update(known)
            if not known:
                missed.append(found)
    assert missed == []
    assert used == set(expected)


# --- planted faults ----------------------------------------------------------------------------------------------

#: Faults that are only in the paths of whole packs, old → new.
FAULTS = {
    "forward, columns": (
        apa.KERNELS,
        {"gated>(to_float(x.element[j]), c[j])": "gated>(to_float(x.element[j]), c[width > 1 ? 0 : j])"},
    ),
    "backward, columns": (
        apa.KERNELS,
        {"to_float(x.element[j]), c[j], sums[j]": "to_float(x.element[j]), c[j], sums[width > 1 ? 0 : j]"},
    ),
    "rows, a pack that is not stored": (
        apa.KERNELS,
        {"store_pack(out + head + p * size, result);": "if (p != 3) store_pack(out + head + p * size, result);"},
    ),
    "rows, the next pack": (
        apa.KERNELS,
        {"load(next, p + threads);": "load(next, p);"},
    ),
    "dac_linear, four at once": (
        dac.LINEAR,
        {"x[r] = to_float(all.element[r]);": "x[r] = to_float(all.element[count - 1 - r]);"},
    ),
}
#: One instance of the kernels compiles in a fraction of the time.
ONE = {
    apa.KERNELS: "COMPANION_KERNELS(apa, false, f32, float)\nCOMPANION_KERNELS(aglu, true, f32, float)",
    dac.LINEAR: "COMPANION_KERNELS(f32, float)",
}
EXERCISES: dict[object, tuple[verdicts.Operator, Callable[..., object]]] = {
    apa.KERNELS: (apa.OPERATOR, apa_proof.exercise),
    dac.LINEAR: (dac.DENSE, dac_proof.dense),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_path_of_whole_packs_is_found(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels, changes = FAULTS[fault]
    text = with_instances(kernels.source, ONE[kernels])
    names = [name for name in kernels.names if name.endswith("_f32") or name == "aglu_reduce"]
    module = simulator.load(changed(tmp_path, kernels.source, text, changes), names, include=(build.INCLUDE,))
    monkeypatch.setattr(kernels, "_simulator", lambda: module)
    for of_room in (apa_proof, dac_proof):
        monkeypatch.setattr(of_room, "KERNEL_DTYPES", {torch.float32: "f32"})
    found = trial.first_fault(*EXERCISES[kernels], verdicts.SIMULATOR)
    assert "wrong in" in found, found
