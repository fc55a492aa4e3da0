"""From a .cu source to a cubin, without a GPU or a driver, and cached on disk.

NVRTC is the one that torch's own wheels bring, so the cubin suits the driver that torch runs on.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import torch

from companion.files import cache_directory, keep, kept

#: Where ``common.cuh`` lies; every kernel may include from here.
INCLUDE = Path(__file__).parent

#: No ``-ftz=true`` and no ``--use_fast_math``: a kernel that wants an approximation names it.
OPTIONS = ("-std=c++17", "-ftz=false", "-default-device")

#: Seconds for which one process waits for what another compiles.
LIMIT = 300.0


class CompileError(RuntimeError):
    """NVRTC refused a source; the message is its log."""


class ToolError(CompileError):
    """What compiles is missing, does not fit or broke down: the source may be sound."""


def compiler_version() -> tuple[int, int]:
    """The version of NVRTC."""
    nvrtc = _nvrtc()
    _, major, minor = nvrtc.nvrtcVersion()
    return int(major), int(minor)


def cubin(source: Path, arch: int) -> Path:
    """Compile a source for one architecture, or find it compiled.

    Parameters
    ----------
    source : Path
        A .cu file whose kernels are ``extern "C"``.
    arch : int
        Compute capability times ten: 75, 80, 90, 100, 120.

    Returns
    -------
    Path
        Of the cubin in :func:`companion.files.cache_directory`, its content checked.

    Raises
    ------
    CompileError
        If NVRTC is not installed, refuses the source, or does not know the architecture.
    PermissionError
        If somebody else can change what lies in the cache.
    """

    def make(path: Path) -> None:
        path.write_bytes(compile_to_cubin(source.read_text(encoding="utf-8"), source, arch))

    where = cache_directory("cubin"), cubin_key(source, arch), f"{source.stem}.cubin"
    if (found := kept(*where)) is not None:
        return found
    with _alone(where[0] / f"{where[1]}.lock"):
        return keep(*where, make)


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Of processes that begin together one compiles, and the others find it. Where nothing locks, each compiles."""
    from filelock import FileLock

    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError, NotImplementedError):
            held.enter_context(FileLock(lock, timeout=LIMIT, mode=0o600))
        yield


def cubin_key(source: Path, arch: int) -> str:
    """The name of a source's cubin in the cache, which holds all that its content depends on."""
    text = source.read_text(encoding="utf-8")
    key = hashlib.sha256()
    for part in (text, *_included(text, source.parent).values(), *OPTIONS, str(arch), str(compiler_version())):
        key.update(part.encode() + b"\0")
    return f"{source.stem}-sm{arch}-{key.hexdigest()[:20]}"


def compile_to_cubin(text: str, source: Path, arch: int) -> bytes:
    """Run NVRTC on the text of a source; nothing is cached."""
    nvrtc = _nvrtc()
    name = source.name
    # Headers by name, because NVRTC would look for a file of that name in the working directory first.
    headers = _included(text, source.parent)
    names, texts = ([part.encode() for part in parts] for parts in (headers.keys(), headers.values()))
    _, program = nvrtc.nvrtcCreateProgram(text.encode(), name.encode(), len(headers), texts, names)
    folders = (source.parent, INCLUDE, *_cuda_headers())
    options = [*OPTIONS, f"-arch=sm_{arch}", *(f"-I{folder}" for folder in folders)]
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            _, size = nvrtc.nvrtcGetProgramLogSize(program)
            log = b" " * size
            nvrtc.nvrtcGetProgramLog(program, log)
            reason = log.decode(errors="replace").strip("\0 \n")
            result = nvrtc.nvrtcResult
            refused = status in (result.NVRTC_ERROR_COMPILATION, result.NVRTC_ERROR_INVALID_OPTION)
            raise (CompileError if refused else ToolError)(f"{name} for sm_{arch}: {reason or status.name}")
        _, size = nvrtc.nvrtcGetCUBINSize(program)
        code = b" " * size
        nvrtc.nvrtcGetCUBIN(program, code)
        return bytes(code)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


@functools.cache
def _nvrtc():  # type: ignore[no-untyped-def]
    try:
        from cuda.bindings import nvrtc

        _, major, minor = nvrtc.nvrtcVersion()
    except Exception as error:  # a missing package, a missing library, or one that does not load
        raise ToolError(f"NVRTC could not be loaded ({error}); {what_installs_it()}") from error
    # That of a torch for CUDA 13 may lie beside torch's own. A driver loads what older compilers made.
    known = getattr(torch._C, "_cuda_getDriverVersion", int)() if torch.cuda.is_available() else 0
    if 0 < known // 1000 < major:
        raise ToolError(
            f"NVRTC is of CUDA {major}.{minor}, the driver knows CUDA {known // 1000}.{known % 1000 // 10}, torch is "
            f"for {torchs_platform()}; {what_installs_it()} and pip uninstall nvidia-cuda-nvrtc"
        )
    return nvrtc


def what_installs_it() -> str:
    """The command that installs CuPy, and with it NVRTC's bindings, for torch's version of CUDA."""
    major = (torch.version.cuda or "").partition(".")[0]
    extra = {"12": "gpu-cuda12", "13": "gpu"}.get(major)
    if extra is None:
        return f"kernels need a torch for CUDA 12 or 13, this one is for {torchs_platform()}"
    return f'pip install "rethinking-the-neuron[{extra}]"'


def torchs_platform() -> str:
    """What torch was built for."""
    if torch.version.cuda:
        return f"CUDA {torch.version.cuda}"
    return f"ROCm {torch.version.hip}" if torch.version.hip else "a CPU"


@functools.cache
def _cuda_headers() -> tuple[Path, ...]:
    """The folder of cuda_fp16.h, and the folder beside it in which CUDA 13 keeps its C++ headers."""
    from cuda import pathfinder

    found = pathfinder.find_nvidia_header_directory("cudart")
    if found is None:
        raise ToolError("CUDA's headers were not found; they come with the package nvidia-cuda-runtime")
    folder = Path(found)
    return tuple(d for d in (folder, folder / "cccl") if d.is_dir())


def _included(text: str, beside: Path) -> dict[str, str]:
    """The project's own headers that a source includes, directly or through another: name → text."""
    headers: dict[str, str] = {}
    for name in re.findall(r'#include "([^"]+)"', text):
        for folder in (beside, INCLUDE):
            if (folder / name).exists():
                content = (folder / name).read_text(encoding="utf-8")
                headers |= {name: content, **_included(content, folder)}
                break
    return headers
