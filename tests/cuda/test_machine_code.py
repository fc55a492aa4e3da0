"""What the machine code of every kernel of the package must satisfy; each room asserts its own numbers besides."""

from __future__ import annotations

import pytest

from companion.apa import kernel as apa
from companion.cuda.launch import Kernels
from companion.layeract import kernel as layeract
from tests.cuda.machine_code import ARCHITECTURES, machine_code, under_the_locked_compiler

every_source = pytest.mark.parametrize("kernels", [apa.KERNELS, layeract.KERNELS], ids=lambda k: k.source.name)
every_architecture = pytest.mark.parametrize("arch", ARCHITECTURES)


@every_source
@every_architecture
def test_every_kernel_is_compiled_for_every_architecture(kernels: Kernels, arch: int) -> None:
    assert set(machine_code(kernels.source, arch)) == set(kernels.names)


@every_source
@every_architecture
def test_no_kernel_spills_registers(kernels: Kernels, arch: int) -> None:
    under_the_locked_compiler()
    assert [name for name, code in machine_code(kernels.source, arch).items() if code.spills] == []
