"""From a .cu file to a library (sanitized: a program) that runs its kernels, by way of g++ and a cache."""

from __future__ import annotations

import concurrent.futures
import functools
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from companion.files import cache_directory, keep
from companion.simulator.errors import SimulatorError

RUNTIME = Path(__file__).parent / "runtime"
"""The C++ side."""

OLDEST_COMPILER = 11

#: What brings all that Python's packages can bring.
_INSTALL = 'pip install "rethinking-the-neuron[simulator]"'

_COMMON_FLAGS = (
    "-std=c++20",
    "-g1",  # lines, so that a fault can say where
    "-fPIC",
    "-fvisibility=hidden",  # lets the compiler reach all thread-local variables from one address
    "-fno-extern-tls-init",  # dynamic shared memory is never constructed
    "-fno-strict-aliasing",  # kernels read float4 where floats were written
    "-ffp-contract=off",
    "-DCOMPANION_SIMULATOR",
)
_KERNEL_FLAGS = (
    "-fsanitize=bounds,alignment,null",  # reported by runtime/faults.h, not by a library
    "-fno-sanitize-recover=all",
    "-fstack-clash-protection",  # touches a large frame page by page: no overflow jumps over the guard
)
_PLAIN_FLAGS = ("-O2",)
_SANITIZED_FLAGS = ("-O1", "-fsanitize=address", "-fno-omit-frame-pointer")

_HEADERS = (
    "cuda_fp16.h",
    "cuda_fp16.hpp",
    "cuda_bf16.h",
    "cuda_bf16.hpp",
    "vector_types.h",
    "crt/host_defines.h",
)


@dataclass(frozen=True)
class Toolchain:
    """What compiling needs from the machine."""

    compiler: str
    version: str
    headers: tuple[Path, ...]


def why_not() -> str | None:
    """Say why kernels cannot be simulated on this machine.

    Returns
    -------
    str or None
        A sentence, or None if they can.
    """
    try:
        _toolchain()
    except SimulatorError as error:
        return str(error)
    return None


def available() -> bool:
    """Tell whether kernels can be simulated on this machine: Linux on x86-64, NumPy, g++ and CUDA's headers.

    Returns
    -------
    bool
    """
    return why_not() is None


@functools.cache
def _toolchain() -> Toolchain:
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        here = f"{sys.platform} on {platform.machine()}"
        raise SimulatorError(f"The simulator needs Linux on x86-64; this is {here}.")
    if importlib.util.find_spec("numpy") is None:
        raise SimulatorError(f"The simulator needs NumPy: {_INSTALL}")
    compiler = shutil.which("g++")
    if compiler is None:
        raise SimulatorError("The simulator needs g++, which is not on the PATH; on Debian: apt-get install g++.")
    version = _run([compiler, "-dumpfullversion", "-dumpversion"]).stdout.strip()
    if int(version.split(".")[0] or 0) < OLDEST_COMPILER:
        raise SimulatorError(f"The simulator needs g++ {OLDEST_COMPILER} or newer; this one is {version}.")
    return Toolchain(compiler, version, _find_cuda_headers())


def _find_cuda_headers() -> tuple[Path, ...]:
    for folder in _candidate_header_folders():
        if all((folder / name).exists() for name in _HEADERS):
            # nv/target, which cuda_fp16.h includes, lies in cccl/ in some releases.
            folders = (folder, folder / "cccl")
            if any((f / "nv" / "target").exists() for f in folders):
                return tuple(f for f in folders if f.exists())
    raise SimulatorError(f"The simulator needs CUDA's headers (cuda_fp16.h, crt/host_defines.h, nv/target): {_INSTALL}")


def _candidate_header_folders() -> Iterator[Path]:
    try:
        from cuda.pathfinder import find_nvidia_header_directory
    except ImportError:
        pass
    else:
        found = find_nvidia_header_directory("cudart")
        if found is not None:
            yield Path(found)
    namespace = importlib.util.find_spec("nvidia")
    if namespace is not None:
        for place in namespace.submodule_search_locations or ():
            yield from sorted(Path(place).glob("cu[0-9]*/include"), reverse=True)


def build(
    source: Path, kernels: Sequence[str], include: Sequence[Path], sanitize: bool
) -> tuple[Path, tuple[Path, ...]]:
    """Compile a .cu file, or find it compiled.

    Parameters
    ----------
    source
        The .cu file.
    kernels
        Names of its ``extern "C" __global__`` functions.
    include
        Directories in which ``#include`` looks.
    sanitize
        Whether to make a program with the address sanitizer instead of a library.

    Returns
    -------
    Path
        The library or program, its content checked.
    tuple of Path
        The .cu file and all files that it includes, as far as they are not the compiler's or CUDA's own.

    Raises
    ------
    SimulatorError
        If the tools are missing or the compiler refuses the source.
    PermissionError
        If somebody else can change what lies in the cache.
    """
    tools = _toolchain()
    files = _closure(source, include)
    flags = (*_COMMON_FLAGS, *(_SANITIZED_FLAGS if sanitize else _PLAIN_FLAGS))
    runtime = sorted(RUNTIME.iterdir())
    headers = [folder / name for folder in tools.headers for name in _HEADERS if (folder / name).exists()]
    foundation = _digest([*runtime, *headers], tools.compiler, tools.version, *flags)
    key = _digest(files, foundation, source.name, *kernels, *_KERNEL_FLAGS)

    cache = cache_directory("simulator")
    compile_ = [tools.compiler, *flags]
    include_runtime = [f"-I{RUNTIME}", *(f"-isystem{f}" for f in tools.headers)]

    def make_scheduler(target: Path) -> None:
        source = str(RUNTIME / "scheduler.cpp")
        _compile([*compile_, *include_runtime, "-c", source, "-o", str(target)], "scheduler.cpp")

    def make_header(target: Path) -> None:
        command = [*compile_, *_KERNEL_FLAGS, *include_runtime, "-x", "c++-header", str(RUNTIME / "simulator.h")]
        _compile([*command, "-o", str(target)], "simulator.h")

    def make_result(target: Path) -> None:
        main_file, kernels_object = target.with_suffix(".cpp"), target.with_suffix(".o")
        main_file.write_text(_main_file(source, kernels, _dynamic_shared_names(files)))
        with concurrent.futures.ThreadPoolExecutor() as pool:
            scheduler = pool.submit(keep, cache, f"scheduler-{foundation}", "scheduler.o", make_scheduler)
            # What every kernel begins with is compiled once: it takes longer than most kernels.
            header = keep(cache, f"header-{_digest([], foundation, *_KERNEL_FLAGS)}", "simulator.h.gch", make_header)
            search = [f"-I{header.parent}", *include_runtime, *(f"-I{f}" for f in include)]
            command = [*compile_, *_KERNEL_FLAGS, *search, "-c", str(main_file), "-o", str(kernels_object)]
            _compile(command, source.name)
            objects = [str(kernels_object), str(scheduler.result())]
        kind = ["-fsanitize=address"] if sanitize else ["-shared"]
        _compile([tools.compiler, *kind, *objects, "-o", str(target), "-pthread", "-ldl"], source.name)

    name = source.stem + ("" if sanitize else ".so")
    binary = keep(cache, f"{source.stem}-{key}", name, make_result, mode=0o700 if sanitize else 0o600)
    return binary, files


_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)
_DYNAMIC_SHARED = re.compile(r"\bextern\s+__shared__\b[^;]*?(\w+)\s*\[\s*\]\s*;")


def _closure(source: Path, include: Sequence[Path]) -> tuple[Path, ...]:
    """Return a file and what it includes, at any depth, where it lies beside its includer or in `include`."""
    found: dict[Path, None] = {}
    waiting = [source.resolve()]
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        found[file] = None
        for name in _INCLUDE.findall(file.read_text(encoding="utf-8")):
            places = ((folder / name).resolve() for folder in (file.parent, *include))
            waiting.extend([place for place in places if place.is_file()][:1])
    return tuple(found)


def _dynamic_shared_names(files: Sequence[Path]) -> list[str]:
    names = {name for file in files for name in _DYNAMIC_SHARED.findall(file.read_text(encoding="utf-8"))}
    return sorted(names)


def _main_file(source: Path, kernels: Sequence[str], dynamic_shared: Sequence[str]) -> str:
    lines = ['#include "simulator.h"', f'#include "{source.resolve()}"']
    lines.append("SIMULATOR_DYNAMIC_SHARED" if dynamic_shared else "SIMULATOR_NO_DYNAMIC_SHARED")
    lines += [f"SIMULATOR_DYNAMIC_SHARED_NAME({name})" for name in dynamic_shared]
    lines += [f"SIMULATOR_KERNEL({name})" for name in kernels]
    return "\n".join(lines) + "\n"


def _digest(files: Sequence[Path], *words: str) -> str:
    digest = hashlib.sha256()
    for part in (*(file.read_bytes() for file in files), *(word.encode() for word in words)):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()[:24]


def _compile(command: Sequence[str], what: str) -> None:
    result = _run(command)
    if result.returncode != 0:
        raise SimulatorError(f"g++ could not compile {what} for the simulator:\n{result.stderr.strip()}")


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LC_ALL": "C"}  # messages in English
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def locate(library: Path, instruction: int, files: Sequence[Path]) -> str | None:
    """Find the line of a kernel's source that an instruction belongs to.

    Parameters
    ----------
    library
        The library.
    instruction
        Address, counted from the start of the library.
    files
        The kernel's sources. Functions of the simulator that were inlined into them are passed over.

    Returns
    -------
    str or None
        ``"aglu.cu:17"``; None where binutils' addr2line is missing or knows no line.
    """
    tool = shutil.which("addr2line")
    if tool is None:
        return None
    lines = _run([tool, "--inlines", "--exe", str(library), hex(instruction)]).stdout
    return first_line_in(files, lines)


def first_line_in(files: Sequence[Path], report: str) -> str | None:
    """Find the first place in a report (of addr2line or the address sanitizer) that is in one of these files.

    Parameters
    ----------
    files
        Where to look for.
    report
        Text with places such as ``/path/aglu.cu:17``.

    Returns
    -------
    str or None
        ``"aglu.cu:17"``.
    """
    # By name: what was compiled in another place, with the same contents, is not compiled again here.
    names = {file.name for file in files}
    places = ((Path(path).name, line) for path, line in re.findall(r"(/[^\s:]+):(\d+)", report))
    return next((f"{name}:{line}" for name, line in places if name in names), None)
