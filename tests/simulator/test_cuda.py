"""The sources that the other tests simulate are CUDA: NVIDIA's own compiler takes them as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from companion.simulator.build import _find_cuda_headers

HERE = Path(__file__).parent


def compile_with_nvrtc(source: Path, arch: str) -> str:
    """Return the compiler's complaints; empty if there are none."""
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    _, program = nvrtc.nvrtcCreateProgram(source.read_bytes(), source.name.encode(), 0, [], [])
    options = [b"--std=c++17", f"--gpu-architecture={arch}".encode()]
    options += [f"--include-path={folder}".encode() for folder in _find_cuda_headers()]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if status == nvrtc.nvrtcResult.NVRTC_SUCCESS:
        return ""
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = b" " * size
    nvrtc.nvrtcGetProgramLog(program, log)
    return log.decode()


@pytest.mark.parametrize("name", ["kernels.cu", "faults.cu", "approximations.cu"])
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_nvrtc_compiles_the_source(name: str, arch: str) -> None:
    assert compile_with_nvrtc(HERE / name, arch) == ""
