"""What holds for every kernel of the package; what is special about a mechanism's is in its own tests."""

from __future__ import annotations

import pytest

from companion.cuda import launch
from tests.cuda.machine_code import ARCHITECTURES, under_the_locked_compiler, usage
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
