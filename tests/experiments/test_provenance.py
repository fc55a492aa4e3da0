import getpass
import json
import platform
import subprocess

import pytest

from companion.experiments import provenance


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A small copy of the house."""
    for name in ("training.py", "datasets.py", "baselines.py", "apa/op.py", "apa/claims.py", "raa/op.py"):
        path = tmp_path / "companion" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'"""Docstring."""\n\n\ndef f():\n    """What it does."""\n    return {name!r}\n')
    monkeypatch.setattr(provenance, "_PACKAGE", tmp_path / "companion")
    return tmp_path / "companion"


def stamp_after(package, name, text):
    (package / name).write_text(text)
    return provenance.code_stamp("apa")


@pytest.mark.parametrize("name", ["training.py", "apa/op.py"])
def test_the_stamp_changes_with_the_code_that_computes(package, name):
    before = provenance.code_stamp("apa")
    assert stamp_after(package, name, "def f():\n    return 2\n") != before


@pytest.mark.parametrize("name", ["apa/claims.py", "raa/op.py"])
def test_the_stamp_ignores_what_computes_nothing_in_it(package, name):
    before = provenance.code_stamp("apa")
    assert stamp_after(package, name, "def f():\n    return 2\n") == before


def test_the_stamp_ignores_docstrings_comments_and_layout(package):
    before = provenance.code_stamp("apa")
    text = '"""Other words."""\ndef f():\n    # why\n    return ("training.py")\n'
    assert stamp_after(package, "training.py", text) == before


def test_a_new_file_of_the_mechanism_changes_the_stamp(package):
    before = provenance.code_stamp("apa")
    assert stamp_after(package, "apa/new.py", "x = 1\n") != before


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
