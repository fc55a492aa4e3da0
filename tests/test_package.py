"""The wheel holds everything and works outside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import companion
from companion import simulator

ROOT = Path(companion.__file__).parents[1]

pytestmark = pytest.mark.skipif(
    not (ROOT / "pyproject.toml").is_file(), reason="needs the checkout: there is no pyproject.toml beside companion"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by the backend that pyproject.toml names."""
    folder = tmp_path_factory.mktemp("wheel")
    code = f"from hatchling.build import build_wheel; print(build_wheel({str(folder)!r}))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return folder / result.stdout.split()[-1]


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder into which the wheel was unpacked."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run(unpacked: Path, code: str) -> str:
    """Run code that finds the unpacked package, and not the checkout."""
    elsewhere = unpacked.parent
    # -P: the current folder is not searched; the editable install of the checkout comes after PYTHONPATH.
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    result = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=elsewhere, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def tracked(pattern: str) -> set[str]:
    return {str(path.relative_to(ROOT)) for path in ROOT.glob(pattern) if path.is_file()}


def test_the_wheel_holds_the_sources_of_the_kernels_and_of_the_simulator(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {"companion/py.typed", "companion/study/experiments/result.schema.json"}
    for pattern in ("companion/**/*.cu", "companion/**/*.cuh", "companion/**/*.h", "companion/**/*.cpp"):
        assert tracked(pattern)
        wanted |= tracked(pattern)
    assert wanted <= names
    assert not any("__pycache__" in name or name.startswith(("tests", "book")) for name in names)


@pytest.mark.parametrize("folder", ["published", "results", "claims"])
def test_the_wheel_holds_the_data(wheel: Path, folder: str) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith(f"companion/_data/{folder}/")}
    assert names == {f"companion/_data/{folder}/{Path(name).name}" for name in tracked(f"data/{folder}/*")}
    assert names


def test_the_wheel_says_what_it_needs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    needed = [line for line in lines if line.startswith("Requires-Dist:")]
    always = {line.removeprefix("Requires-Dist: ") for line in needed if "extra ==" not in line}
    assert always == {"torch>=2.4.1", "filelock>=3.13"}
    extras = {line.split(": ")[1] for line in lines if line.startswith("Provides-Extra:")}
    assert extras == {"gpu", "gpu-cuda12", "simulator", "experiments", "scale", "book", "dev"}
    assert f"Version: {companion.__version__}" in lines


def test_unpacked_it_is_found_instead_of_the_checkout(unpacked: Path) -> None:
    assert run(unpacked, "import companion; print(companion.__file__)") == str(unpacked / "companion" / "__init__.py")


def test_unpacked_it_finds_its_data_and_its_source(unpacked: Path) -> None:
    code = (
        "from companion.study import results\n"
        "from companion.apa.kernel import KERNELS\n"
        "print(results.data_path(), len(results.names()), KERNELS.source)"
    )
    data, count, source = run(unpacked, code).split()
    assert data == str(unpacked / "companion" / "_data")
    assert int(count) == len(list((ROOT / "data" / "results").glob("*-laptop.json")))
    assert source == str(unpacked / "companion" / "apa" / "aglu.cu")


@pytest.mark.slow
@pytest.mark.skipif(not simulator.available(), reason=str(simulator.why_not()))
def test_unpacked_its_kernels_run_in_the_simulator(unpacked: Path) -> None:
    code = (
        "import torch, companion\n"
        "from companion.functional import aglu\n"
        "z = torch.linspace(-3, 3, 50, requires_grad=True)\n"
        "with companion.backend('simulator'):\n"
        "    y = aglu(z, 1.0, 1.0)\n"
        "    y.sum().backward()\n"
        "print(torch.allclose(y, torch.nn.functional.silu(z)), z.grad.isfinite().all().item())"
    )
    assert run(unpacked, code) == "True True"
