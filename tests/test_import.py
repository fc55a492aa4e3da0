"""`import companion` brings torch and nothing else that is large."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import companion

ROOT = Path(companion.__file__).parents[1]
HEAVY = [
    *("cupy", "cuda", "sympy", "mpmath", "matplotlib", "torchvision", "scipy", "sklearn", "ray"),
    *("jsonschema", "yaml", "IPython", "tqdm", "nbformat"),
]


def modules_after(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after a statement."""
    code = f"import sys\n{statement}\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert result.stderr == ""
    return set(result.stdout.split())


def test_importing_the_package_imports_torch_and_nothing_heavy() -> None:
    torch_alone = modules_after("import torch")
    for statement in ("import companion", "import companion.functional", "from companion import AGLU, backend"):
        brought = modules_after(statement) - torch_alone
        assert "companion" in brought
        assert not brought.intersection(HEAVY)


def test_computing_on_a_cpu_brings_no_more() -> None:
    use = "import torch; from {place} import {name} as f; f(torch.zeros(2, requires_grad=True){rest}).sum().backward()"
    torch_alone = modules_after(use.format(place="torch.nn.functional", name="silu", rest=""))
    brought = modules_after(use.format(place="companion.functional", name="aglu", rest=", 1.0, 1.0")) - torch_alone
    assert not brought.intersection(HEAVY)


def test_importing_and_computing_needs_no_numpy() -> None:
    code = (
        "import sys, warnings; sys.modules['numpy'] = None; warnings.simplefilter('ignore')\n"
        "import torch, companion\n"
        "z = torch.linspace(-3, 3, 8, requires_grad=True)\n"
        "companion.functional.aglu(z, 1.0, 1.0).sum().backward()\n"
        "companion.backend('simulator')\n"
        "companion.functional.aglu(z, 1.0, 1.0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.stderr.splitlines()[-1].startswith("RuntimeError: kernels, on a GPU and in the simulator, need NumPy")


def test_what_is_exported_exists() -> None:
    assert all(hasattr(companion, name) for name in companion.__all__)
    assert sorted(companion.__all__) == companion.__all__
