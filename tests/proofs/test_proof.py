"""A kernel is trusted once it has proved itself in a process of its own; whatever goes wrong there means plain torch.

The simulator is the device; the faults are planted in a toy kernel.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import companion
from companion import doctor, simulator
from companion.cuda import build, launch
from companion.operators import choice, operators
from companion.proofs import trial, verdicts
from companion.proofs.verdicts import SIMULATOR, Operator, Verdict
from companion.study import bench
from tests.cuda import toy

pytestmark = pytest.mark.skipif(not simulator.available(), reason=str(simulator.why_not()))

VERDICT_PATH = verdicts.verdict_path
ROOMS = [operator for operator in operators() if operator.name != "toy"]


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No verdict is known, and none is kept."""
    monkeypatch.setattr(verdicts, "_known", {})
    monkeypatch.setattr(verdicts, "verdict_path", lambda operator, place: tmp_path / f"{operator.name}.json")


# --- the exercises ---


@pytest.mark.slow
@pytest.mark.parametrize("operator", ROOMS, ids=lambda operator: operator.name)
def test_every_kernel_proves_itself_in_the_simulator(operator: Operator) -> None:
    # a kernel that the exercise does not launch is a fault, too
    assert trial.first_fault(operator, trial.exercise_of(operator.exercise), SIMULATOR) == ""


def test_every_kernel_of_the_package_belongs_to_an_operator() -> None:
    package = Path(companion.__file__).parent
    declared = {kernels.source for kernels in launch.all_kernels() if package in kernels.source.parents}
    assert declared == {kernels.source for operator in ROOMS for kernels in operator.kernels}
    assert {source.name for source in declared} == {path.name for path in package.glob("*/*.cu")}


def test_a_kernel_that_is_not_exercised_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Operator, "names", lambda self, arch: {"scale", "another"})
    assert trial.first_fault(toy.OPERATOR, toy.exercise, SIMULATOR) == "the exercise did not launch another."


def test_bounds_are_near_enough_to_notice_one_element_in_a_hundred(monkeypatch: pytest.MonkeyPatch) -> None:
    original = toy.KERNELS.launch

    def launched(*arguments: object, **options: object) -> None:
        original(*arguments, **options)  # type: ignore[arg-type]
        arguments[3][1][69] *= 1.0001  # type: ignore[index]

    monkeypatch.setattr(toy.KERNELS, "launch", launched)
    fault = trial.first_fault(toy.OPERATOR, toy.exercise, SIMULATOR)
    assert "wrong in 1 of 70 places, first at (69,)" in fault


def test_inputs_are_written_out_exact_in_16_bits_and_away_from_the_kink() -> None:
    for numbers in (trial.inputs(500), trial.offsets(500), trial.signals(500)):
        assert torch.equal(numbers, numbers.half().float())
        assert torch.equal(numbers, numbers.bfloat16().float())
    distances = (trial.inputs(500)[:, None] + trial.offsets(500)).abs()
    assert distances.min() >= 1 / 8


# --- the child process ---

FAULTS = {
    "does not compile": ("factor", "fctor", r"CompileError|SimulatorError: .*scale\.cu"),
    "does not load": ('extern "C" __global__ void scale', 'extern "C" __global__ void skale', r"scale"),
    "crashes": ("{\n", '{\n    asm volatile("ud2");\n', r"ended with status -?\d+"),
    "hangs": ("{\n", "{\n    for (volatile int i = 0; i < 1;) {}\n", r"did not end within"),
    "computes wrong values": (
        "companion_test::factor *",
        "1.01f * companion_test::factor *",
        r"wrong in 70 of 70 places",
    ),
}


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Plants a fault in the source that the child process reads."""

    def plant(fault: str) -> None:
        old, new, _ = FAULTS[fault]
        for path in (toy.KERNELS.source, toy.KERNELS.source.with_name("scale.cuh")):
            (tmp_path / path.name).write_text(path.read_text())
        source = tmp_path / "scale.cu"
        assert old in source.read_text()
        source.write_text(source.read_text().replace(old, new, 1))
        monkeypatch.setenv("TOY_SOURCE", str(source))
        if fault == "hangs":
            monkeypatch.setattr(verdicts, "LIMIT", 8.0)

    return plant


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_means_plain_torch_and_one_warning(fault: str, planted: Callable[[str], None]) -> None:
    planted(fault)
    with pytest.warns(RuntimeWarning) as caught:
        verdict = verdicts.known(toy.OPERATOR, SIMULATOR, warn=True)
    assert not verdict.holds
    (warning,) = caught
    assert "plain torch computes toy on simulator" in str(warning.message)
    assert "python -m companion.doctor" in str(warning.message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert verdicts.known(toy.OPERATOR, SIMULATOR, warn=True) == verdict
    assert re.search(FAULTS[fault][2], verdict.said), verdict.said
    # what ended the process may be the machine's fault, not the kernel's
    assert (verdicts.kept(toy.OPERATOR, SIMULATOR) is None) == (fault in ("crashes", "hangs"))
    assert not re.search(r"/\w", verdict.said)


def test_a_sound_kernel_is_proved_once_and_the_verdict_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert verdicts.known(toy.OPERATOR, SIMULATOR, warn=True).holds
    assert verdicts.kept(toy.OPERATOR, SIMULATOR) is not None
    monkeypatch.setattr(verdicts, "prove", lambda *_: pytest.fail("proved again"))
    assert verdicts.known(toy.OPERATOR, SIMULATOR).holds  # from this process
    monkeypatch.setattr(verdicts, "_known", {})
    assert verdicts.known(toy.OPERATOR, SIMULATOR).holds  # from the disk


def test_processes_that_begin_together_prove_once(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from companion.proofs import verdicts\nfrom tests.cuda import toy\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "verdicts.verdict_path = lambda operator, place: folder / 'toy.json'\n"
        "def prove(*_):\n"
        "    with (folder / 'proofs').open('a') as file: file.write('x')\n"
        "    time.sleep(1)\n"
        "    return verdicts.Verdict(True, '')\n"
        "verdicts.prove = prove\n"
        "sys.exit(not verdicts.known(toy.OPERATOR, 'simulator').holds)"
    )
    root = Path(companion.__file__).parents[1]
    ranks = [subprocess.Popen([sys.executable, "-c", code], cwd=root) for _ in range(3)]
    assert [rank.wait() for rank in ranks] == [0] * 3
    assert (tmp_path / "proofs").read_text() == "x"


def test_two_threads_prove_once(monkeypatch: pytest.MonkeyPatch) -> None:
    proofs = []

    def prove(operator: Operator, place: str) -> Verdict:
        proofs.append(operator)
        time.sleep(0.2)
        return Verdict(True, "")

    monkeypatch.setattr(verdicts, "prove", prove)
    threads = [threading.Thread(target=verdicts.known, args=(toy.OPERATOR, SIMULATOR)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(proofs) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows does not fork")
def test_a_child_that_is_forked_during_a_proof_need_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()

    def verdict(operator: Operator, place: str) -> Verdict:
        if threading.current_thread() is not threading.main_thread():
            done.wait(60)
        return Verdict(True, "")

    monkeypatch.setattr(verdicts, "_verdict", verdict)
    thread = threading.Thread(target=verdicts.known, args=(toy.OPERATOR, SIMULATOR))
    thread.start()
    while not verdicts._one_at_a_time.locked():
        time.sleep(0.01)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 42 if verdicts.known(toy.OPERATOR, SIMULATOR).holds else 1
        finally:  # whatever is raised: the child must not go on with other tests
            os._exit(status)
    try:
        deadline = time.monotonic() + 20
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                pytest.fail("the child waits for a thread that it does not have")
            time.sleep(0.01)
        assert os.waitstatus_to_exitcode(ended[1]) == 42
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize(
    "spoilt", ["{", "[]", "3", '{"holds": 1, "said": "", "seconds": 0}', '{"holds": true, "said": "", "seconds": []}']
)
def test_a_spoilt_verdict_is_proved_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoilt: str) -> None:
    (tmp_path / "toy.json").write_text(spoilt)
    monkeypatch.setattr(verdicts, "prove", lambda *_: Verdict(True, "", 1.0))
    assert verdicts.known(toy.OPERATOR, SIMULATOR).seconds == 1.0
    assert json.loads((tmp_path / "toy.json").read_text())["operator"] == "toy"


def test_a_gpu_that_is_full_now_may_be_tried_again_by_the_next_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "prove", lambda *_: Verdict(False, "no room.", lasting=False))
    assert not verdicts.known(toy.OPERATOR, SIMULATOR).holds
    assert verdicts.kept(toy.OPERATOR, SIMULATOR) is None


def test_what_is_installed_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    version = verdicts._version("pytest")
    monkeypatch.setattr(importlib.metadata, "packages_distributions", lambda: pytest.fail("looked up again"))
    assert verdicts._version("pytest") == version == f"pytest {pytest.__version__}"


@pytest.mark.parametrize("place", [SIMULATOR, "cuda:0"])
def test_what_launches_and_proves_a_kernel_belongs_to_its_verdict(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "Paper GPU")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(build, "cubin_key", lambda *_: "the same cubin")
    (tmp_path / "mine.cu").write_text("")

    class Mine:
        name, kernels = "mine", (SimpleNamespace(source=tmp_path / "mine.cu"),)

    operator: Any = Mine()
    before = verdicts.identity(operator, place)
    assert verdicts.identity(operator, place) == before
    (tmp_path / "kernel.py").write_text("grid = 1")
    monkeypatch.setattr(verdicts, "_sources", verdicts._sources.__wrapped__)  # another process
    assert verdicts.identity(operator, place) != before


# What torch adds to each error of CUDA.
ADVICE = (
    "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
    "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."
)


@pytest.mark.parametrize(
    ("error", "report"),
    [
        (torch.cuda.OutOfMemoryError("full"), ["the GPU has no room for the proof now (full).", False]),
        (build.CompileError("refused"), ["CompileError: refused.", True]),
        (build.ToolError("no headers"), ["ToolError: no headers.", False]),
        (RuntimeError("the launch timed out\n"), ["RuntimeError: the launch timed out.", False]),
        (RuntimeError("illegal\naddress"), ["RuntimeError: illegal address.", True]),
        (RuntimeError("needs CuPy"), ["RuntimeError: needs CuPy.", False]),
        (RuntimeError("uncorrectable ECC error"), ["RuntimeError: uncorrectable ECC error.", False]),
        (RuntimeError(f"device busy{ADVICE}"), [f"RuntimeError: device busy{' '.join(ADVICE.splitlines())}.", False]),
        (
            RuntimeError("CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
            ["the GPU has no room for the proof now (CUDA_ERROR_OUT_OF_MEMORY: out of memory).", False],
        ),
    ],
)
def test_what_the_child_reports(
    error: Exception, report: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise error

    monkeypatch.setattr(trial, "first_fault", fail)
    assert reported(tmp_path) == report


def reported(folder: Path) -> list[object]:
    """What the child reports, here."""
    try:
        trial.main(toy.OPERATOR.exercise, "toy", SIMULATOR, SIMULATOR, str(folder / "report"))
    finally:
        torch.use_deterministic_algorithms(False)
    report: list[object] = json.loads((folder / "report").read_text())
    return report


def test_memory_that_is_not_written_is_no_number_in_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "first_fault", lambda *_: str(torch.empty(1000).isnan().all().item()))
    assert reported(tmp_path) == ["True", True]


def test_a_proof_on_another_gpu_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "gpu_name", lambda place: "Paper GPU")
    verdict = verdicts.prove(toy.OPERATOR, SIMULATOR)
    assert not verdict.holds
    assert not verdict.lasting
    assert "simulator is Paper GPU here, and simulator in the process of the proof" in verdict.said


def test_an_interrupt_ends_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    children = []

    class Interrupted(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            if timeout == verdicts.LIMIT:
                children.append(self)
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        verdicts.prove(toy.OPERATOR, SIMULATOR)
    assert [child.returncode for child in children] == [-signal.SIGKILL]


def test_cases_take_turns_on_a_stream_that_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, stream = [], ["default"]

    @contextlib.contextmanager
    def on(other: str) -> Iterator[None]:
        stream.append(other)
        yield
        stream.pop()

    def exercise(device: str) -> Iterator[trial.Comparison]:
        for _ in range(3):
            toy.KERNELS.launch("scale", (1,), (32,), [], torch.device(device))
            for _ in range(2):
                yield trial.Comparison("", torch.zeros(1), torch.zeros(1).double(), torch.ones(1).double())

    for name, fake in {
        "Stream": lambda: "side",
        "stream": on,
        "current_stream": lambda: stream[-1],
        "synchronize": lambda: None,
        "set_device": lambda place: None,
        "get_device_capability": lambda: (9, 0),
        "_sleep": lambda cycles: seen.append("late"),
    }.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(launch.Kernels, "launch", lambda *_: seen.append(stream[-1]))
    assert trial.first_fault(toy.OPERATOR, exercise, "cuda:0") == ""
    assert seen == ["default", "late", "side", "default"]


def test_nothing_of_the_callers_is_touched_or_inherited() -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad(), torch.device("meta"):
            assert verdicts.known(toy.OPERATOR, SIMULATOR).holds
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(torch.get_rng_state(), state)


# --- who computes, on a GPU that is not there ---


@pytest.fixture
def gpu_of_paper(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Operators see a GPU, whose verdicts are what the list says; no capture is going on."""
    said: list[str] = [""]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "Paper GPU")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(choice, "_launchable", lambda: True)
    monkeypatch.setattr(verdicts, "prove", lambda *_: Verdict(not said[0], said[0]))
    monkeypatch.setattr(verdicts, "identity", lambda *_: {})
    with companion.backend("auto"):
        yield said


class OnPaper:
    """What choose() reads of a tensor."""

    dtype, is_cuda, device = torch.float32, True, torch.device("cuda", 0)


def who() -> str:
    return choice.choose(OnPaper(), toy.OPERATOR)  # type: ignore[arg-type]


@pytest.mark.usefixtures("gpu_of_paper")
def test_a_proved_kernel_computes() -> None:
    assert who() == "kernel"


def test_a_kernel_that_fails_does_not_compute_unless_it_is_asked_by_name(gpu_of_paper: list[str]) -> None:
    gpu_of_paper[0] = "they are wrong."
    with pytest.warns(RuntimeWarning, match=r"on Paper GPU, because the kernels .* they are wrong\."):
        assert who() == "torch"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert who() == "torch"
        with companion.backend("kernel"):
            assert who() == "kernel"


@pytest.mark.usefixtures("gpu_of_paper")
def test_on_a_gpu_that_no_kernel_is_made_for_torch_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 0))
    monkeypatch.setattr(verdicts, "prove", lambda *_: pytest.fail("proved"))
    assert who() == "torch"


@pytest.mark.usefixtures("gpu_of_paper")
def test_a_gpu_that_no_kernel_is_made_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 0))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(launch, "cupy", lambda: None)
    with pytest.warns(RuntimeWarning, match="plain torch computes aglu, .* on Paper GPU: no kernel is made") as caught:
        companion.warmup()
    assert len(caught) == 1
    assert companion.backend() == "torch"
    monkeypatch.setattr(doctor, "operators", lambda: [toy.OPERATOR])
    assert "toy on Paper GPU: NO: no kernel is made for a GPU as old as this." in doctor.report()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_backend_is_torch_where_no_kernel_holds(
    gpu_of_paper: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu_of_paper[0] = "they are wrong."
    for operator in operators():
        assert companion.backend() == "kernel"
        verdicts.known(operator, "cuda:0", warn=True)
    assert companion.backend() == "torch"
    monkeypatch.setattr(verdicts, "_known", {})  # another process
    assert companion.backend() == "torch"
    with monkeypatch.context() as before:
        before.setattr(torch.cuda, "is_initialized", lambda: False)  # who only asks opens no GPU
        before.setattr(torch.cuda, "current_device", lambda: pytest.fail("opened"))
        assert companion.backend() == "kernel"
    (tmp_path / "toy.json").unlink()
    assert companion.backend() == "kernel"


@pytest.mark.usefixtures("gpu_of_paper")
def test_asking_for_the_backend_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "prove", lambda *_: pytest.fail("proved"))
    assert companion.backend() == "kernel"
    with companion.backend("kernel"):
        assert who() == "kernel"


@pytest.mark.usefixtures("gpu_of_paper")
def test_in_a_capture_an_unproved_kernel_raises_and_a_proved_one_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(
        RuntimeError, match=r"toy: its kernels are not proved .* companion\.warmup\(\), before the capture"
    ):
        who()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert who() == "kernel"
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert who() == "kernel"


@pytest.mark.usefixtures("gpu_of_paper")
def test_without_a_compiler_plain_torch_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Path:
        raise build.CompileError("NVRTC could not be loaded")

    monkeypatch.setattr(verdicts, "verdict_path", refuse)
    with pytest.warns(RuntimeWarning, match="NVRTC could not be loaded"):
        assert who() == "torch"


@pytest.mark.usefixtures("gpu_of_paper")
def test_a_cache_that_others_can_write_to_is_named_and_its_verdict_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "verdict_path", VERDICT_PATH)
    monkeypatch.setenv("COMPANION_CACHE", str(tmp_path / "cache"))
    assert who() == "kernel"
    folder = tmp_path / "cache" / "proof"
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    folder.chmod(0o777)
    monkeypatch.setattr(verdicts, "_known", {})
    with pytest.warns(RuntimeWarning, match=f"{folder} can be written to by others .*: run `chmod -R go-w {folder}`"):
        assert who() == "torch"
    monkeypatch.setattr(doctor, "operators", lambda: [toy.OPERATOR])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert "toy: not possible (proof can be written to by others" in doctor.report()


def test_a_benchmark_on_a_gpu_measures_kernels_or_nothing() -> None:
    with companion.backend("auto"):
        bench._choose("cuda")
        assert companion.backend() == "kernel"


# --- the doctor ---


def test_the_doctor_names_what_is_missing_and_one_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setattr(launch, "cupy", launch.cupy.__wrapped__)  # without their memory
    monkeypatch.setattr(build, "_nvrtc", build._nvrtc.__wrapped__)
    remedies = {
        "12.8": 'pip install "rethinking-the-neuron[gpu-cuda12]"',
        None: "kernels need a torch for CUDA 12 or 13, this one is for a CPU",
    }
    for cuda, remedy in remedies.items():
        monkeypatch.setattr(torch.version, "cuda", cuda)
        lines = doctor.report().splitlines()
        for what in ("CuPy", "NVRTC"):
            (line,) = (line for line in lines if line.startswith(f"  {what}: not usable ("))
            assert line.endswith(f"); {remedy}")
            assert line.count("install") == remedy.count("install")


@pytest.mark.usefixtures("gpu_of_paper")
def test_the_doctor_says_what_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(doctor, "operators", lambda: [toy.OPERATOR])
    assert "toy on Paper GPU: not yet; python -c" in doctor.report()
    assert who() == "kernel"
    assert "toy on Paper GPU: yes, in 0 s" in doctor.report()


def test_the_doctors_words_can_be_published() -> None:
    from book._tools import gate

    text = doctor.report()
    assert gate.text_faults(text, names=gate.machine_names()) == []
    assert str(Path.home()) not in text
    assert str(Path(companion.__file__).parents[1]) not in text
