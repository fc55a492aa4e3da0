"""What sets the project up agrees with pyproject.toml and names no place on any network."""

import os
import re
import stat
import subprocess
import sys
import tarfile
import tomllib

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement

from book._tools.colab import requirements
from book._tools.places import ROOT, notebooks, owner_and_name, repository, website
from companion.operators import OLDEST_COMPILER
from tests import lanes

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
LOCKS = ["requirements.lock", "requirements-oldest.lock", "requirements-colab.lock"]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def _locked() -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", LOCK, re.MULTILINE))


def test_the_conda_environment_takes_everything_but_python_from_pyproject():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    *conda, pip = environment["dependencies"]
    assert conda == [f"python{PROJECT['requires-python']},<3.15", "pip"]
    assert environment["name"] == PROJECT["name"]
    *extra, project = pip["pip"]
    assert project == "-e .[book,gpu]"
    assert [line for line in PROJECT["optional-dependencies"]["dev"] if line in extra] == extra
    assert {Requirement(line).name for line in extra} == {"jupyterlab", "nbval"}


def test_the_conda_environment_has_a_way_for_cuda_12():
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    other = re.sub(r"^      - -e .*$", "", text, flags=re.MULTILINE)
    other = yaml.safe_load(re.sub(r"^      # (?=- )", "      ", other, flags=re.MULTILINE))
    *_, torch, project = other["dependencies"][-1]["pip"]
    assert project == "-e .[book,gpu-cuda12]"
    (declared,) = (Requirement(line) for line in PROJECT["dependencies"] if line.startswith("torch"))
    assert declared.specifier.contains("2.10.0")
    assert Requirement(torch).specifier.contains("2.10.0")
    assert not Requirement(torch).specifier.contains("2.11.0")


def test_a_colab_copy_installs_the_commit_that_it_was_made_from():
    pages = (ROOT / ".github" / "workflows" / "pages.yml").read_text(encoding="utf-8")
    assert re.findall(r'book\._tools\.colab .*--ref "(.*)"', pages) == ["$GITHUB_SHA"]


def test_each_extra_for_a_gpu_brings_one_cupy_and_the_binding_of_nvrtc_on_linux():
    # torch brings the binding from 2.10 on
    for extra, major in (("gpu", 13), ("gpu-cuda12", 12)):
        cupy, binding = requirements = [Requirement(line) for line in PROJECT["optional-dependencies"][extra]]
        assert (cupy.name, binding.name) == (f"cupy-cuda{major}x", "cuda-bindings")
        assert [binding.specifier.contains(f"{each}.9") for each in (11, 12, 13, 14)] == [
            each == major for each in (11, 12, 13, 14)
        ]
        for requirement in requirements:
            assert requirement.marker.evaluate({"sys_platform": "linux", "python_version": "3.14"})
            assert not requirement.marker.evaluate({"sys_platform": "darwin", "python_version": "3.14"})


def test_the_environment_holds_every_package_that_a_notebook_imports():
    book = {Requirement(line).name for line in PROJECT["dependencies"] + PROJECT["optional-dependencies"]["book"]}
    for path in notebooks():
        assert {name for name, _ in requirements(nbformat.read(path, as_version=4))} <= book


@pytest.mark.parametrize("extra", ["gpu", "experiments", "scale", "book", "dev"])
def test_the_lock_holds_every_declared_package_at_an_allowed_version(extra):
    locked = _locked()
    for line in PROJECT["dependencies"] + PROJECT["optional-dependencies"][extra]:
        requirement = Requirement(line)
        if requirement.name == PROJECT["name"]:
            continue
        assert requirement.specifier.contains(locked[requirement.name.lower()]), line


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_has_a_hash(name):
    entries = re.split(r"\n(?=\S)", (ROOT / name).read_text(encoding="utf-8").strip())
    assert all("--hash=sha256:" in entry for entry in entries)


@pytest.mark.parametrize("group", ["oldest", "colab"])
def test_the_lock_of_a_group_holds_what_the_group_declares(group):
    lock = (ROOT / f"requirements-{group}.lock").read_text(encoding="utf-8")
    locked = re.findall(r"^([\w.-]+)==([^\s;]+)", lock, re.MULTILINE)
    for line in PYPROJECT["dependency-groups"][group]:
        requirement = Requirement(line)
        versions = [version for name, version in locked if name == requirement.name]
        assert versions, line
        assert all(requirement.specifier.contains(version) for version in versions), line


def test_the_oldest_torch_is_the_one_that_is_tested():
    (declared,) = (line for line in PROJECT["dependencies"] if line.startswith("torch"))
    assert declared.replace(">=", "==") in PYPROJECT["dependency-groups"]["oldest"]


def test_the_oldest_compiler_is_that_of_colab():
    (torch,) = (line for line in PYPROJECT["dependency-groups"]["colab"] if line.startswith("torch=="))
    assert torch.startswith(f"torch=={OLDEST_COMPILER[0]}.{OLDEST_COMPILER[1]}.")


def test_the_environment_of_colab_holds_every_package_that_a_notebook_imports():
    held = {Requirement(line).name for line in PYPROJECT["dependency-groups"]["colab"]}
    for path in notebooks():
        assert {name for name, _ in requirements(nbformat.read(path, as_version=4))} <= held


def test_the_lock_and_the_makefile_name_no_address():
    assert not any("://" in (ROOT / name).read_text(encoding="utf-8") for name in LOCKS)
    assert re.findall(r"\w+://\S+", MAKEFILE) == ["http://localhost:8000"]


def test_the_makefile_takes_uv_from_the_lock():
    entry = re.search(r"^uv==.*?[^\\]\n", LOCK, re.DOTALL | re.MULTILINE)
    assert entry is not None
    assert "--hash=sha256:" in entry[0]
    assert "sed -n '/^uv==/,/[^\\\\]$$/p' requirements.lock" in MAKEFILE


@pytest.mark.parametrize("target", re.findall(r"(\w+)", re.search(r"^.PHONY: (.*)", MAKEFILE, re.MULTILINE)[1])[2:])
def test_make_has_and_lists_the_target(target):
    assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)
    assert re.search(rf'@echo "make {target}\s', MAKEFILE)


def test_continuous_integration_runs_all_lanes():
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & stat.S_IXUSR
    text = script.read_text(encoding="utf-8")
    assert text.rstrip().endswith('exec make "${@:-lanes}"')
    assert "tests/lanes.py test plain oldest wheel colab" in MAKEFILE
    assert "set -eu" in text


@pytest.mark.parametrize("name", ["test", "pages", "release"])
def test_a_workflow_runs_commands_that_exist(name):
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8"))
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    targets = re.findall(r"\bmake (\w+)", "\n".join(commands))
    assert commands
    assert all(re.search(rf"^{target}:", MAKEFILE, re.MULTILINE) for target in targets)
    assert all((ROOT / file).exists() for file in re.findall(r"^\.ci/\w+", "\n".join(commands), re.MULTILINE))


def test_all_workflows_use_one_version_of_an_action():
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    used = {tuple(action.split("@")) for text in texts for action in re.findall(r"uses: (\S+)", text)}
    assert used
    assert len({name for name, _ in used}) == len(used)


def test_a_release_has_the_package_the_sources_the_citation_and_what_is_new(tmp_path):
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    steps = {step.get("name"): step["run"] for step in workflow["jobs"]["release"]["steps"] if "run" in step}
    version = PROJECT["version"]
    script = steps["Make the files"].replace(".venv/bin/python ", f"{sys.executable} ")
    script = re.sub(r"\bdist\b", f"{tmp_path}/dist", script)
    for tag, status in ((f"v{version}", 0), ("v0.0.0", 1)):
        said = steps["The tag is the version"].replace(".venv/bin/python", sys.executable)
        ran = subprocess.run(["bash", "-c", said], cwd=ROOT, env=os.environ | {"GITHUB_REF_NAME": tag}, check=False)
        assert ran.returncode == status
    environment = os.environ | {"GITHUB_REF_NAME": f"v{version}"}
    subprocess.run(["bash", "-ec", script], cwd=ROOT, env=environment, check=True, capture_output=True)
    assert {path.name for path in (tmp_path / "dist").iterdir()} == {
        "CITATION.cff",
        f"book-v{version}.tar.gz",
        f"rethinking_the_neuron-{version}-py3-none-any.whl",
        f"rethinking_the_neuron-{version}.tar.gz",
    }
    notes = (tmp_path / "dist-notes.md").read_text(encoding="utf-8")
    assert re.findall(r"^- ", notes, re.MULTILINE)
    assert "\n## " not in notes
    with tarfile.open(tmp_path / "dist" / f"book-v{version}.tar.gz") as archive:
        assert f"rethinking-the-neuron-v{version}/book/preface.md" in archive.getnames()


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml")), ids=lambda path: path.stem
)
def test_a_form_for_issues_is_one(path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= form.keys()
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields) > 0
    assert all(field["type"] in ("input", "textarea") and field["attributes"]["label"] for field in fields)
    commands = set(re.findall(r"make (\w+)", path.read_text(encoding="utf-8")))
    assert all(re.search(rf"^{command}:", MAKEFILE, re.MULTILINE) for command in commands)


def test_the_workflow_runs_all_lanes_each_on_its_own():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))
    matrix = workflow["jobs"]["lanes"]["strategy"]["matrix"]
    run = {*matrix["lane"], *(job["lane"] for job in matrix["include"])}
    assert run == set(re.search(r"^\t.*tests/lanes.py (test .*)", MAKEFILE, re.MULTILINE)[1].split())
    assert workflow["jobs"]["lanes"]["timeout-minutes"] * 60 > lanes.ALL


def test_the_addresses_of_pages_and_copies_derive_from_the_repository():
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    owner, name = owner_and_name()
    assert repository() == config["repository"]["url"] == f"https://github.com/{owner}/{name}"
    assert website() == f"https://{owner}.github.io/{name}"
    pages = (ROOT / ".github" / "workflows" / "pages.yml").read_text(encoding="utf-8")
    assert f"--initial-branch {config['repository']['branch']}" in pages
    assert config["repository"]["path_to_book"] == "book"


def test_the_metadata_names_the_author_and_the_addresses_of_the_project():
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    assert PROJECT["authors"] == [{"name": config["author"]}]
    assert PROJECT["urls"] == {"Book": website(), "Source": repository(), "Issues": f"{repository()}/issues"}


def test_the_table_of_contents_names_every_page_once():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    chapters = [chapter for part in toc["parts"] for chapter in part["chapters"]]
    named = [toc["root"], *(page["file"] for chapter in chapters for page in (chapter, *chapter.get("sections", ())))]
    present = {
        path.relative_to(ROOT / "book").with_suffix("").as_posix()
        for path in (ROOT / "book").rglob("*")
        if path.suffix in (".md", ".ipynb") and not re.search(r"/[._]", path.relative_to(ROOT).as_posix())
    }
    assert sorted(named) == sorted(present)
