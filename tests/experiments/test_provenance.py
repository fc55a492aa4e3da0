import getpass
import json
import platform
import subprocess

import pytest

from companion.experiments import get, provenance

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


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A small copy of the house."""
    for name in ("training.py", "apa/op.py", "apa/apa.cu"):
        path = tmp_path / "companion" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 0\n")
    monkeypatch.setattr(provenance, "_PACKAGE", tmp_path / "companion")
    return tmp_path / "companion"


@pytest.mark.parametrize("name", ["training.py", "apa/op.py", "apa/apa.cu", "apa/new.py"])
def test_every_source_file_counts(package, name):
    before = provenance.sources()
    assert provenance.sources() == before
    (package / name).write_text("x = 1\n")
    assert provenance.sources() != before


def test_the_environment_names_versions_and_hardware_but_no_host_user_or_path():
    text = json.dumps(provenance.environment("cpu"))
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
    (package / "training.py").write_text("x = 1\n")
    assert provenance.git_state() == {**state, "dirty": True}
