import getpass
import itertools
import json
import os
import platform
import subprocess
from pathlib import Path

import pytest
import torch

from companion import rooms
from companion.study.experiments import experiments, get, provenance

TICKS = itertools.count(1)


def write(file, text):
    """Later by a second than what was written before: the file system's clock may be coarse."""
    file.write_text(text)
    os.utime(file, ns=(next(TICKS) * 10**9,) * 2)


ROWS = [
    {
        "activation": "relu",
        "seed": seed,
        "learning_rate": 0.01,
        "first_losses": [2.3, 2.0],
        "lam": [1.0],
        "accuracy": 0.5,
    }
    for seed in (0, 1)
]


@pytest.mark.parametrize(
    "change",
    [
        {"first_losses": [2.3, 2.0001]},
        {"accuracy": 0.5 + 1 / 450},
        {"lam": [1.002]},
    ],
)
def test_what_processors_change_is_no_difference(change):
    assert provenance.differences(get("apa-digits"), ROWS, [ROWS[0] | change, ROWS[1]]) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"first_losses": [2.3, 2.01]}, "first_losses of row 1 was [2.3, 2.0] and is [2.3, 2.01]"),
        ({"first_losses": [2.3]}, "first_losses of row 1 was [2.3, 2.0] and is [2.3]"),
        ({"first_losses": [2.3, None]}, "first_losses of row 1 was [2.3, 2.0] and is [2.3, None]"),
        ({"accuracy": 0.51}, "accuracy of row 1 was 0.5 and is 0.51"),
        ({"accuracy": None}, "accuracy of row 1 was 0.5 and is None"),
        ({"lam": [1.01]}, "lam of row 1 was [1.0] and is [1.01]"),
        ({"activation": "gelu"}, "activation of row 1 was relu and is gelu"),
        ({"seed": 2}, "seed of row 1 was 1 and is 2"),
        ({"learning_rate": 0.011}, "learning_rate of row 1 was 0.01 and is 0.011"),
        ({"rms": 0.0}, "rms of row 1 was None and is 0.0"),
    ],
)
def test_other_numbers_words_counts_and_keys_are_differences(change, words):
    assert provenance.differences(get("apa-digits"), ROWS, [ROWS[0], ROWS[1] | change]) == [words]


def test_missing_rows_and_keys_are_differences():
    assert provenance.differences(get("apa-digits"), ROWS, ROWS[:1]) == ["there were 2 rows and are 1"]
    without = {key: value for key, value in ROWS[1].items() if key != "accuracy"}
    assert provenance.differences(get("apa-digits"), ROWS, [ROWS[0], without]) == [
        "accuracy of row 1 was 0.5 and is None"
    ]


HOUSE = {
    "__init__.py": "from companion.apa.op import apa\n",
    "study/training.py": "from torch import nn\n",
    "unread.py": "",
    "study/analysis/__init__.py": (
        "from companion.study.analysis.activity import f\nfrom companion.study.analysis.other import g\n"
    ),
    "study/analysis/activity.py": "",
    "study/analysis/other.py": "",
    "cuda/launch.py": "from companion import simulator\n",
    "cuda/common.cuh": "",
    "simulator/__init__.py": "",
    "apa/__init__.py": "",
    "apa/op.py": "def choose():\n    from companion.apa.kernel import run\n",
    "apa/kernel.py": "import companion.cuda.launch\n",
    "apa/apa.cu": "",
    "dac/op.py": "",
    "dac/dac.cu": "",
    "apa/study/experiments.py": (
        "from companion.study import training\n"
        "from companion.study.analysis import f\n"
        "from companion.apa.op import choose\n"
    ),
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A small copy of the house."""
    for name, text in HOUSE.items():
        path = tmp_path / "companion" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'"""{name}."""\n\n{text}' if name.endswith("py") else text)
    monkeypatch.setattr(provenance, "_PACKAGE", tmp_path / "companion")
    return tmp_path / "companion"


ON_A_CPU = {"apa/study/experiments.py", "study/training.py", "study/analysis/activity.py", "apa/op.py"}


@pytest.mark.parametrize(
    ("device", "counted"),
    [("cpu", ON_A_CPU), ("cuda", {*ON_A_CPU, "apa/kernel.py", "apa/apa.cu", "cuda/launch.py", "cuda/common.cuh"})],
)
def test_what_an_experiment_imports_counts_and_nothing_else(package, device, counted):
    for name in HOUSE:
        before = provenance.code([package / "apa" / "study" / "experiments.py"], device)
        assert provenance.code([package / "apa" / "study" / "experiments.py"], device) == before
        write(package / name, (package / name).read_text() + "\nx = 1\n")
        changed = provenance.code([package / "apa" / "study" / "experiments.py"], device) != before
        assert changed == (name in counted), name


def test_a_package_counts_where_it_is_imported_itself(package):
    (package / "apa" / "study" / "experiments.py").write_text("from companion.study import analysis\n")
    files = provenance._sources([package / "apa" / "study" / "experiments.py"], "cpu")
    names = {file.relative_to(package).as_posix() for file in files}
    assert names == {
        "apa/study/experiments.py",
        *(f"study/analysis/{name}.py" for name in ("__init__", "activity", "other")),
    }


def test_a_name_is_a_file_where_every_letter_is_the_same(package, monkeypatch):
    """Also on systems to which ``F.py`` is ``f.py``."""
    write(package / "study" / "analysis" / "F.py", "")
    is_file = Path.is_file
    monkeypatch.setattr(
        Path, "is_file", lambda path: is_file(path) or is_file(path.with_name(path.name.upper()[:-2] + "py"))
    )
    assert (package / "study" / "analysis" / "f.py").is_file()
    files = provenance._sources([package / "apa" / "study" / "experiments.py"], "cpu")
    assert {file.relative_to(package).as_posix() for file in files} == ON_A_CPU


SOURCE = '"""A module."""\n\n\ndef f(x):\n    """Double."""\n    return 2 * x  # twice "x"\n\n\ny = "# 1"\n'


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("A module.", "A module,\nwell described.", True),
        ("Double.", "Twice.", True),
        (' # twice "x"', "", True),
        ("\n\n\ndef", "\n\n# Functions.\n\n\ndef", True),
        ("2 * x", "3 * x", False),
        ('"# 1"', '"# 2"', False),
        ("def f", "def g", False),
        ("    return", "    pass\n    return", False),
    ],
)
def test_comments_docstrings_and_empty_lines_do_not_count(package, old, new, same):
    file = package / "study" / "training.py"
    write(file, SOURCE)
    before = provenance.code([file], "cpu")
    assert SOURCE.count(old) == 1
    write(file, SOURCE.replace(old, new))
    assert (provenance.code([file], "cpu") == before) == same


def test_torchs_release_counts_and_what_it_was_built_for_does_not(monkeypatch):
    def code(version):
        monkeypatch.setattr(torch, "__version__", version)
        return provenance.code([], "cpu")

    assert code("2.15.0+cpu") == code("2.15.0+cu132") != code("2.15.1+cpu")


def test_the_homes_of_an_experiment_are_those_of_its_functions_also_of_partial_ones():
    homes = provenance.homes(get("dnrt-cifar10"))
    assert [f"{path.parent.name}/{path.name}" for path in homes] == [
        "study/experiments.py",
        "experiments/classification.py",
    ]


@pytest.mark.parametrize("experiment", experiments(), ids=lambda e: e.name)
def test_every_experiments_code_is_its_own_room_and_the_floor(experiment):
    files = provenance._sources(provenance.homes(experiment), "cpu")
    names = {file.relative_to(provenance._PACKAGE).as_posix() for file in files}
    room = experiment.mechanism
    together = room in rooms.CHAPTERS
    if together:
        # an arena is a module of its chapter, and lets the neurons of all rooms enter
        assert any(name.startswith(f"study/{room}/") for name in names)
        assert {f"{each}/{file}.py" for each in rooms.ROOMS for file in ("neuron", "op")} <= names
    else:
        assert {f"{room}/study/experiments.py", f"{room}/op.py"} <= names
    assert {"study/training.py", "study/datasets.py"} <= names
    strangers = set() if together else set(rooms.ROOMS) - {room}
    others = tuple(f"{each}/" for each in (*strangers, "cuda", "simulator"))
    outside = {
        f"study/{name}.py" for name in ("exercises", "claims", "results", "experiments/runner", "plotting", "symbolic")
    }
    assert not {name for name in names if name in outside or name.startswith(others)}


def test_a_machine_names_its_precision(monkeypatch):
    assert provenance.machine({}) == {**provenance.environment("cpu"), "precision": "float32"}
    assert provenance.machine({"precision": "bfloat16"})["precision"] == "bfloat16 and float32"
    for capability, allowed, words in (((7, 5), True, "float32"), ((9, 0), True, "tf32"), ((9, 0), False, "float32")):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda capability=capability: capability)
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
        assert provenance.precision({"device": "cuda"}) == words
        assert provenance.precision({"device": "cuda", "precision": "bfloat16"}) == f"bfloat16 and {words}"
        assert provenance.precision({"device": "cpu"}) == "float32"


def test_the_environment_names_versions_and_hardware_but_no_host_user_or_path():
    text = json.dumps(provenance.machine({}))
    assert provenance.environment("cpu")["hardware"]["gpu"] is None
    assert provenance.environment("cpu")["hardware"]["cpu"]
    assert "/" not in text
    for private in (platform.node(), getpass.getuser()):
        assert f'"{private}"' not in text


def git(folder, *arguments):
    identity = ("-c", "user.name=n", "-c", "user.email=e@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_git_state_follows_the_repository(package):
    assert provenance.git_state() is None
    git(package.parent, "init")
    assert provenance.git_state() == {"commit": None, "dirty": True}
    git(package.parent, "add", ".")
    git(package.parent, "commit", "-m", "first")
    state = provenance.git_state()
    assert len(state["commit"]) == 40
    assert state["dirty"] is False
    (package / "study" / "training.py").write_text("x = 1\n")
    assert provenance.git_state() == {**state, "dirty": True}
