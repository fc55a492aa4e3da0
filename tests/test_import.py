"""`import companion` brings torch and nothing else that is large."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys
from pathlib import Path

import companion

ROOT = Path(companion.__file__).parents[1]
HEAVY = [
    *("cupy", "cuda", "sympy", "mpmath", "matplotlib", "torchvision", "scipy", "sklearn", "ray"),
    *("fastjsonschema", "yaml", "IPython", "tqdm", "nbformat"),
]


def modules_after(*statements: str) -> list[set[str]]:
    """The top-level modules that a fresh interpreter has after each of these statements."""
    say = "print(*{name.partition('.')[0] for name in sys.modules})"
    code = "\n".join(["import sys", *(f"{statement}\n{say}" for statement in statements)])
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert result.stderr == ""
    return [set(line.split()) for line in result.stdout.splitlines()]


def test_importing_the_package_and_computing_bring_torch_and_nothing_heavy() -> None:
    use = "{}(torch.zeros(2, requires_grad=True){}).sum().backward()"
    alone, *imported, with_torchs_own, with_ours = modules_after(
        "import torch",
        *("import companion", "import companion.functional", "from companion import AGLU, backend"),
        "import companion.study.page; from companion.study.exercises import check\n"
        "check('dnrt-2', companion.functional.raa)",
        use.format("torch.nn.functional.silu", ""),
        use.format("companion.functional.aglu", ", 1.0, 1.0"),
    )
    for modules, before in (*((modules, alone) for modules in imported), (with_ours, with_torchs_own)):
        assert "companion" in modules - alone
        assert not (modules - before).intersection(HEAVY)


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
    assert len(set(companion.__all__)) == len(companion.__all__)


def test_examples_of_what_is_public_run_as_they_are_printed() -> None:
    public = {"companion": companion}
    public |= {name: getattr(companion, name) for name in companion.__all__ if name != "functional"}
    public |= {f"functional.{name}": getattr(companion.functional, name) for name in companion.functional.__all__}
    for name, thing in [*public.items()]:
        if inspect.isclass(thing):
            public |= {f"{name}.{own}": what for own, what in vars(thing).items() if not own.startswith("_")}
    runner, parser, said = doctest.DocTestRunner(verbose=False), doctest.DocTestParser(), list[str]()
    for name, thing in public.items():
        runner.run(parser.get_doctest(inspect.getdoc(thing) or "", {}, name, None, 0), out=said.append)
    assert runner.tries > 50
    assert said == []
