"""Sources are compiled once, wherever there is a place to keep the result."""

from __future__ import annotations

import multiprocessing
import os
import shlex
import shutil
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from packaging.requirements import Requirement

from companion import files, simulator
from companion.simulator import build

SOURCE = """
#include "factor.cuh"
extern "C" __global__ void grow(float* x) { x[threadIdx.x] *= FACTOR; }
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "headers").mkdir()
    (tmp_path / "headers" / "factor.cuh").write_text("#define FACTOR 3\n")
    file = tmp_path / "grow.cu"
    file.write_text(SOURCE)
    return file


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by a name whenever g++ compiles or links."""
    calls: list[str] = []
    original = build._compile

    def counted(command: list[str], what: str) -> None:
        calls.append(what)
        original(command, what)

    monkeypatch.setattr(build, "_compile", counted)
    return calls


def load(source: Path) -> simulator.Module:
    return simulator.load(source, ["grow"], include=[source.parent / "headers"])


def grown(module: simulator.Module) -> float:
    x = torch.ones(1)
    module.launch("grow", (1,), (1,), [x])
    return x.item()


def test_what_is_compiled_is_not_compiled_again(source: Path, compilations: list[str]) -> None:
    load(source)
    assert "grow.cu" in compilations
    compilations.clear()
    assert grown(load(source)) == 3
    assert compilations == []


def test_what_every_kernel_begins_with_is_compiled_once(
    source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(source)
    headers = [*(cache / "simulator").glob("header-*/simulator.h.gch")]  # one for each set of flags
    reports: list[str] = []
    original = build._run

    def run(command: list[str]) -> object:
        result = original([*command, "-H"])  # says what is included: ! for a header that is compiled
        reports.append(result.stderr)
        return result

    monkeypatch.setattr(build, "_run", run)
    source.write_text(SOURCE.replace("*=", "+="))
    load(source)
    assert [header for header in headers if f"! {header}" in reports[0]]


def test_a_change_of_an_included_file_is_noticed(source: Path) -> None:
    assert grown(load(source)) == 3
    (source.parent / "headers" / "factor.cuh").write_text("#define FACTOR 5\n")
    assert grown(load(source)) == 5


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that is empty and that a test may spoil."""
    monkeypatch.setenv("COMPANION_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_nothing_but_finished_files_is_left_in_the_cache(source: Path, own_cache: Path) -> None:
    load(source)
    names = {file.name for file in (own_cache / "simulator").rglob("*") if file.is_file()}
    assert names == {"grow.so", "scheduler.o", "simulator.h.gch"}


def test_nothing_is_loaded_that_is_not_what_was_compiled(
    source: Path, own_cache: Path, compilations: list[str]
) -> None:
    load(source)
    for spoilt in (["grow.so"], ["grow.so", "scheduler.o", "simulator.h.gch"]):
        compilations.clear()
        for name in spoilt:
            (file,) = own_cache.rglob(name)
            # another file, as somebody else would put it there: the library that was loaded stays as it is
            file.unlink()
            file.write_bytes(b"planted")
        assert grown(load(source)) == 3
        assert len(compilations) == 1 + len(spoilt)  # the kernel is compiled and linked


def test_nothing_is_loaded_from_a_cache_that_others_can_write_to(source: Path, own_cache: Path) -> None:
    load(source)
    for folder in (own_cache, own_cache / "simulator", *(own_cache / "simulator").glob("grow-*")):
        folder.chmod(0o777)
        with pytest.raises(PermissionError, match=f"{folder.name} can be written to by others"):
            load(source)
        folder.chmod(0o700)


def test_a_cache_that_cannot_be_written_is_replaced_by_a_temporary_one(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_folder = tmp_path / "file"
    no_folder.write_text("")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("COMPANION_CACHE", str(no_folder))
    monkeypatch.setattr(files.tempfile, "gettempdir", lambda: str(temporary))
    files.temporary_directory.cache_clear()
    assert grown(load(source)) == 3
    files.temporary_directory.cache_clear()
    folder = temporary / f"companion-{os.getuid()}"
    assert list((folder / "simulator").glob("grow-*/grow.so"))
    assert folder.stat().st_mode & 0o077 == 0


def test_a_source_that_does_not_compile_is_an_error_with_the_compilers_words(tmp_path: Path) -> None:
    file = tmp_path / "bad.cu"
    file.write_text('extern "C" __global__ void bad(float* x) { y[0] = 1; }')
    with pytest.raises(simulator.SimulatorError, match=r"(?s)could not compile bad.cu.*'y' was not declared"):
        simulator.load(file, ["bad"])


def test_a_missing_file_and_a_wrong_name_are_errors(source: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"source: got .*nothing\.cu"):
        simulator.load(source.parent / "nothing.cu", ["grow"])
    with pytest.raises(ValueError, match="kernels: got 'grow<float>'"):
        simulator.load(source, ["grow<float>"])
    with pytest.raises(TypeError, match="kernels: got 'grow'"):
        simulator.load(source, "grow")


def test_a_machine_without_a_compiler_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    build._toolchain.cache_clear()
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    try:
        assert not simulator.available()
        assert "needs g++" in str(simulator.why_not())
    finally:
        build._toolchain.cache_clear()


def test_a_machine_without_cudas_headers_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    build._toolchain.cache_clear()
    monkeypatch.setattr(build, "_candidate_header_folders", lambda: iter([Path("nowhere")]))
    try:
        assert "needs CUDA's headers" in str(simulator.why_not())
        assert_it_ends_in_a_command(str(simulator.why_not()))
    finally:
        build._toolchain.cache_clear()


def test_a_machine_without_numpy_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    build._toolchain.cache_clear()
    monkeypatch.setitem(sys.modules, "numpy", None)
    try:
        assert str(simulator.why_not()).startswith("The simulator needs NumPy: ")
        assert_it_ends_in_a_command(str(simulator.why_not()))
    finally:
        build._toolchain.cache_clear()


def assert_it_ends_in_a_command(message: str) -> None:
    """What is copied from the message, pip understands, and the extra is there."""
    *command, what = shlex.split(message.rpartition(": ")[2])
    assert command == ["pip", "install"]
    wanted = Requirement(what)
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert wanted.name == project["name"]
    assert wanted.extras <= project["optional-dependencies"].keys()


def test_processes_may_compile_the_same_source_at_the_same_time(source: Path) -> None:
    processes = [
        multiprocessing.get_context("fork").Process(target=load, args=(source,), daemon=True) for _ in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert grown(load(source)) == 3


def test_the_simulator_says_that_it_simulates(tmp_path: Path) -> None:
    file = tmp_path / "who.cu"
    file.write_text(
        """
        #ifdef COMPANION_SIMULATOR
        extern "C" __global__ void who(int* out, int n) { out[0] = n; }
        #endif
        """
    )
    out = torch.zeros(1, dtype=torch.int32)
    simulator.load(file, ["who"]).launch("who", (1,), (1,), [out, np.int32(7)])
    assert out.item() == 7
