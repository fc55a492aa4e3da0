"""What holds for every kernel of the package; what is special about a mechanism's is in its own tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from companion.cuda import launch
from tests.cuda.machine_code import ARCHITECTURES, machine_code, under_the_locked_compiler, usage
from tests.cuda.parameters import PACKAGE

KERNELS = [kernels for kernels in launch.all_kernels() if PACKAGE in kernels.source.parents]

each_source = pytest.mark.parametrize("kernels", KERNELS, ids=lambda kernels: kernels.source.stem)
each_architecture = pytest.mark.parametrize("arch", ARCHITECTURES)


@each_architecture
@each_source
def test_every_kernel_is_compiled(kernels: launch.Kernels, arch: int) -> None:
    assert set(usage(kernels.source, arch)) == set(kernels.names)


@each_architecture
@each_source
def test_nothing_lies_on_the_stack_or_in_local_memory(kernels: launch.Kernels, arch: int) -> None:
    under_the_locked_compiler()
    assert {name: where for name, (_, *where) in usage(kernels.source, arch).items() if any(where)} == {}


@each_architecture
def test_an_exponent_is_rounded_before_it_is_split(tmp_path: Path, arch: int) -> None:
    # fused, the sums would take the exact product, and `correction` would count its rounding twice
    source = tmp_path / "split.cu"
    source.write_text(
        '#include "gates.cuh"\n'
        'extern "C" __global__ void split(float* n) {\n'
        "    n[0] = companion::Sigmoid<float>::value(n[0]);\n"
        "    n[1] = companion::Normal<float>::value(n[1]);\n"
        "}\n"
    )
    split = machine_code(source, arch)["split"]
    assert split.count(r"\bFADD .* 12582912") == 2
    assert split.count("FFMA .* 12582912") == 0
