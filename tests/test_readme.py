"""The README, sentence by sentence: each stands in a test, or among those that promise nothing that can be computed."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import tomllib
from importlib.metadata import files, requires
from pathlib import Path

import pytest
import torch
import yaml
from packaging.requirements import Requirement

import companion
from companion import simulator
from companion.rooms import ROOMS
from companion.simulator import build
from companion.study import results, speed
from companion.study.claims import ledger
from companion.study.together import figures, vit
from tests import lanes
from tests.cuda.machine_code import ARCHITECTURES
from tests.sentences import Said, sentences

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

#: What only announces the sentence after it, or says what is not there yet.
SAY_NOTHING_TO_COMPUTE = {
    "| folder | holds |",
    "- **One result.**",
    "- **One speed.**",
    "- **Read.**",
    "- **Run.**",
    "- **Import.**",
}

_said = Said()
says = _said.says


def folder_of(row: str) -> Path:
    return ROOT / row.split("`")[1]


def has_everything(room: str) -> bool:
    here = ROOT / "companion" / room
    code = all((here / f"{name}.py").is_file() for name in ("study/formulas", "op", "layers", "study/experiments"))
    code &= (ROOT / "data" / "claims" / f"{room}.json").is_file()
    return code and any(here.glob("*.cu")) and any((ROOT / "data" / "results").glob(f"{room.replace('_', '-')}-*.json"))


def make(*arguments: str) -> str:
    command = ["make", "--dry-run", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_every_sentence_is_tested() -> None:
    assert sentences(README) - _said.tested - SAY_NOTHING_TO_COMPUTE == set()
    assert (_said.tested | SAY_NOTHING_TO_COMPUTE) - sentences(README) == set()


@says(
    "An artificial neuron adds up its inputs, adds a bias, and sends the sum through a curve.",
    "Five papers change one part each; this book derives each change, runs it, writes its CUDA kernel, and tests what "
    "its paper claims.",
    "All five mechanisms stand, end to end: adaptive parametric activation (APA and AGLU), dendrite-activated "
    "connections (DAC), layer-level activation (LayerAct), dynamic neural response tuning (RAA and ARR) and "
    "activations with two arguments.",
    "Five arenas, networks in which the neurons meet, stand.",
    "In one, a small transformer for images, ReLU is 4.0 points above GELU, and 9.9 with ARR; on text eight "
    "neurons have met GELU so far.",
)
def test_of_five_papers_all_have_everything() -> None:
    preface = (ROOT / "book" / "preface.md").read_text(encoding="utf-8")
    introduction = preface.split("\n\n")[1]
    assert len(re.findall(r"\{cite:p\}`\w+`", introduction)) == 5
    assert [room for room in ROOMS if has_everything(room)] == [*ROOMS]
    assert {*figures.finished()} == {"together-conv", "together-mlp", "together-graph", "together-vit", "together-gpt"}
    assert len(figures.finished()["together-gpt"].comparisons()) == 8
    transformer = figures.finished()["together-vit"].comparisons()
    assert len(transformer) + 1 == len(vit.NEURONS)
    assert [f"{100 * transformer[name].difference.mean:.1f}" for name in ("relu", "relu_arr")] == ["4.0", "9.9"]
    chapters = {path.stem for path in (ROOT / "book" / "mechanisms").glob("*.ipynb")}
    mechanisms = {room.replace("_", "-") for room in ROOMS}
    three = {f"{name}{page}" for name in mechanisms for page in ("", "-derivation", "-kernel")}
    assert chapters == three | {"arr-kernel", "dac-conversion", "layeract-noise"}
    assert len(mechanisms) == 5
    x, zeros = torch.randn(3, 5), torch.zeros(5)
    assert torch.allclose(companion.RAA(5)(x), torch.nn.functional.gelu(x), atol=1e-6)
    assert companion.ARR(2, 5)(x, zeros[:3].long()) > 0
    assert companion.MultiArgument()(torch.randn(3, 8)).shape == (3, 4)


@says(
    "In five small networks, with equally many parameters and the same search for the learning rate, no neuron of the "
    "five papers is first everywhere.",
    "In three of them nobody is clearly ahead of GELU; in a transformer for images ReLU with one paper's loss (ARR) is "
    "first, in one for text SwiGLU, which is of none of the five.",
)
def test_the_result_is_the_one_of_the_book() -> None:
    arenas = figures.finished()
    first = {arena: {name for name in column.verdicts() if column.leads(name)} for arena, column in arenas.items()}
    assert {arena: names for arena, names in first.items() if names} == {
        "together-vit": {"relu_arr"},
        "together-gpt": {"swiglu"},
    }
    behind = [arena for arena, column in arenas.items() if "better" not in column.verdicts().values()]
    assert (len(arenas), len(behind)) == (5, 3)


def test_the_help_of_the_package_says_the_result_in_the_same_words() -> None:
    result = [said for said in sentences(README) if said.startswith(("In five small networks", "In three of them"))]
    assert len(result) == 2
    assert all(said in " ".join(str(companion.__doc__).split()) for said in result)


@says(
    "On two cores of an AMD EPYC, under `torch.compile`, a convolution with a bias for every connection takes 0.20 to "
    "0.63 times as long as its published formula, forward and backward, and 4.0 to 11 times as long as a usual one, "
    "eager.",
    "A dense one (200 to 200 on 1,024 rows) takes 7 ms, as its formula does; behind a batch normalisation, as in a "
    "network, it takes 17 ms, its formula 113 ms, and a usual layer, eager, 3 ms (two cores of an Intel Xeon).",
    "A curve such as AGLU needs no code of ours there: the compiled formula is faster.",
)
def test_the_speed_is_measured() -> None:
    def took(name: str, size: str, processor: str = "AMD EPYC") -> tuple[float, float, float]:
        bench = results.load(name, "cpu")
        assert bench["provenance"]["hardware"] == {"cpu": processor, "gpu": None}
        assert bench["provenance"]["threads"] == 2
        at = {row["competitor"]: row for row in bench["rows"] if (row["size"], row["dtype"]) == (size, "float32")}
        ours, theirs = (at[f"{who}, compiled"]["forward_backward_ms"] for who in ("companion", "published"))
        return ours, theirs, at["usual layer"]["forward_backward_ms"] if "usual layer" in at else math.nan

    *dense, _ = took("bench-dac-linear", "1024 × 200 × 200")
    normalised = took("bench-dac-normalised", "1024 × 200 × 200", "Intel(R) Xeon(R) Processor")
    printed = [f"{each:.0f}" for each in (*{round(each) for each in dense}, *normalised)]
    assert re.findall(r"(\d+) ms", README) == printed
    convolution = speed.load("dac-conv2d")
    assert convolution.machine == "2 threads of an AMD EPYC"
    for ratios in (convolution.ratios("companion, compiled"), convolution.ratios("companion, compiled", "usual layer")):
        assert f"{speed.span(ratios)} times as long as" in " ".join(README.split())
    sizes = {row["size"] for row in results.load("bench-apa", "cpu")["rows"]}
    assert all(theirs < ours for ours, theirs, _ in (took("bench-apa", size) for size in sizes))


@says(
    "The recipes are one page of the book, `book/appendix/recipes.ipynb`; which neuron gains what, and where, is "
    "another, `book/together/which-neuron.ipynb`; whole programs are in `examples/`."
)
def test_recipes_and_programs_are_there() -> None:
    for page in ("appendix/recipes.ipynb", "together/which-neuron.ipynb"):
        assert (ROOT / "book" / page).is_file()
    assert list((ROOT / "examples").glob("*.py"))


@says("`CONTRIBUTING.md` says how a mechanism is added, and `CHANGELOG.md` what is new.")
def test_the_newest_change_is_that_of_this_version() -> None:
    newest, *_ = re.findall(r"^## (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest == companion.__version__ == PROJECT["version"]


def test_what_contributing_names_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    files = set(re.findall(r"`((?:\w+/)*\w+\.(?:py|cuh?))`", text))
    assert len(files) > 15
    places = [
        ROOT,
        *(ROOT / "companion" / where for where in ("", "cuda", "dnrt", "dnrt/study", "apa")),
        ROOT / "tests" / "dnrt",
    ]
    assert [name for name in sorted(files) if not any((place / name).is_file() for place in places)] == []


@says("What is printed is tested: formulas, outputs, figures, and the verdicts on the papers' claims.")
def test_the_first_lane_tests_what_is_printed() -> None:
    steps = {step.name: " ".join(step.command) for step in lanes.lanes("test")}
    assert "book._tools.gate" in steps["gate"]
    assert "--nbval" in steps["notebooks"]
    assert "nbval-lax" not in steps["notebooks"]
    assert steps["tests"].endswith(" tests")  # claims among them
    assert (ROOT / "tests" / "claims").is_dir()


@says("On Linux with git, make, g++ and Python ≥ 3.11 (with venv):")
def test_the_oldest_python_is_named() -> None:
    assert PROJECT["requires-python"] == ">=3.11"
    assert "3, 11" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_two_commands_do_what_their_comments_say() -> None:
    (commands,) = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    book, tests = (line.split("#")[0].split()[1] for line in commands.splitlines())
    assert "book._tools.build" in make(book)
    assert "tests/lanes.py test" in make(tests)


@says("The set-up takes about 7 GB in `.venv`.")
def test_the_size_of_the_setup() -> None:
    prefix = Path(sys.prefix)
    if not (prefix / "ready").exists():
        pytest.skip("this Python is not the one that `make setup` makes")
    size = sum(file.lstat().st_size for file in prefix.rglob("*") if not file.is_dir())
    assert 6.5 < size / 1e9 < 7.5


@says("`make` alone lists the other commands.")
def test_make_alone_lists_the_commands() -> None:
    listed = set(re.findall(r"make (\w+)", make()))
    declared = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert declared
    assert listed == set(declared[1].split()) - {"help", "setup"}


@says("`make serve`, or the published pages.")
def test_the_book_is_served() -> None:
    assert "http.server" in make("serve")
    assert (ROOT / ".github" / "workflows" / "pages.yml").is_file()


@says(
    "Each chapter has a Colab button, and its download button gives a copy for Jupyter.",
    "For conda and JupyterHub there is `environment.yml`; the page *Run and import* says how.",
    "On your own machine: `make notebooks`, then `.venv/bin/jupyter lab notebooks`.",
)
def test_there_are_three_places_to_run_it() -> None:
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    assert config["launch_buttons"]["colab_url"]
    assert (ROOT / "environment.yml").is_file()
    page = (ROOT / "book" / "appendix" / "running.md").read_text(encoding="utf-8")
    for steps in ("conda env create -f environment.yml", "python -m book._tools.plain\n  jupyter lab notebooks"):
        assert steps in page
    assert "-m book._tools.plain" in make("notebooks")
    assert any(line.startswith("jupyterlab") for line in PROJECT["optional-dependencies"]["dev"])


@says("`pip install .` needs nothing but PyTorch:")
def test_the_package_needs_nothing_but_torch() -> None:
    needed = {line.partition(">=")[0] for line in PROJECT["dependencies"]}
    assert needed == {"torch", "filelock"}
    assert any(line.startswith("filelock") for line in requires("torch") or []), "then it is nothing new"
    assert [step.name for step in lanes.lanes("wheel")] == ["environment", "build", "install", "example"]


def test_the_three_lines_print_what_stands_below_them(capsys: pytest.CaptureFixture[str]) -> None:
    ((example, said),) = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    assert len([line for line in example.splitlines() if line]) == 3
    exec(example, {})
    assert capsys.readouterr().out == said


@says(
    'The extra `gpu` (`pip install ".[gpu]"`) adds CuPy and with it the book\'s CUDA kernels; with a PyTorch built for '
    "CUDA 12 take `gpu-cuda12`.",
)
def test_the_extra_adds_cupy() -> None:
    extras = PROJECT["optional-dependencies"]
    assert [Requirement(line).name for line in extras["gpu"]] == ["cupy-cuda13x", "cuda-bindings"]
    assert [Requirement(line).name for line in extras["gpu-cuda12"]] == ["cupy-cuda12x", "cuda-bindings"]


@says("The extra `simulator` lets them run without a GPU, where there is g++.")
def test_the_extra_has_the_headers_that_the_simulator_asks_for() -> None:
    packages = {Requirement(line).name for line in PROJECT["optional-dependencies"]["simulator"]}
    assert packages == {"numpy", "nvidia-cuda-runtime", "nvidia-cuda-crt", "nvidia-cuda-cccl"}
    headers = build._toolchain().headers if simulator.available() else ()
    for folder in headers:
        if folder.is_relative_to(sys.prefix):  # and not of CUDA's own installer
            held = {Path(str(file.locate())) for name in packages for file in files(name) or ()}
            names = [name for name in (*build._HEADERS, "nv/target") if (folder / name).exists()]
            assert names
            assert {folder / name for name in names} <= held


@says("What runs on which system is a table on that page.")
def test_that_page_has_the_table() -> None:
    assert "| Linux, x86-64 |" in (ROOT / "book" / "appendix" / "running.md").read_text(encoding="utf-8")


@says(
    "| `book/` | chapters as executed notebooks; `book/_tools` executes, checks and copies them |",
    "| `companion/` | the package: one folder for each mechanism, and what they share |",
    "| `examples/` | three programs to take away |",
    "| `data/` | the papers' numbers, our results, the ledger of claims, and parts of runs that are not finished |",
    "| `tests/` | mirrors `companion/` |",
)
def test_the_folders_hold_what_the_table_says() -> None:
    assert all((ROOT / "book" / "_tools" / f"{name}.py").is_file() for name in ("execute", "gate", "plain"))
    assert all((ROOT / "companion" / room).is_dir() for room in ROOMS)
    held = {path.name for path in (ROOT / "data").iterdir()}
    assert held - {"unfinished"} == {"published", "results", "claims"}  # there is none where every run is finished
    assert len(list((ROOT / "examples").glob("*.py"))) == 3
    rooms = {path.parent.name for path in (ROOT / "companion").glob("*/__init__.py")}
    with_tests = {path.name for path in (ROOT / "tests").iterdir()}
    assert rooms <= with_tests
    assert all(folder_of(row).is_dir() for row in sentences(README) if row.startswith("| `"))


@says("If you have one, `make gpu` ends with a file that we would like to see.")
def test_make_gpu_writes_a_file() -> None:
    assert re.search(r"^gpu: .*\n\t\$\(BIN\)/python -m tests\.gpu$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "gpu.json" in (ROOT / "tests" / "gpu.py").read_text(encoding="utf-8")


@says(
    "No kernel has run on a GPU yet: they are compiled for five architectures and run in a simulator on the CPU.",
)
def test_no_result_comes_from_a_kernel_on_a_gpu() -> None:
    assert len(ARCHITECTURES) == 5
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "data" / "results").glob("*.json")]
    assert not any(re.search(r'"gpu": *"', text) for text in texts)


@says("The code: MIT.", "The book's text and figures: CC BY 4.0 (`LICENSE-prose`).")
def test_the_licences() -> None:
    assert PROJECT["license"] == "MIT"
    assert PROJECT["license-files"] == ["LICENSE"]  # the wheel holds no prose
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith("MIT License")
    prose = (ROOT / "LICENSE-prose").read_text(encoding="utf-8")
    assert "SPDX-License-Identifier: CC-BY-4.0" in prose
    assert PROJECT["authors"][0]["name"] in prose


@says(
    "The papers' sentences and code are not part of this project; facts and numbers from them carry their source.",
)
def test_numbers_of_the_papers_carry_their_source() -> None:
    for path in (ROOT / "data" / "published").glob("*.csv"):
        paper, _, place = path.stem.partition("-")
        assert paper in ROOMS
        assert place
    assert all(claim.source for claim in ledger())
