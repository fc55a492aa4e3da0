import ast, re, subprocess
from pathlib import Path
ROOMS = ("apa", "layeract", "dac", "dnrt", "multi_argument")
def sub(file, *pairs):
    p = Path(file); t = p.read_text()
    for old, new in pairs:
        if old not in t: print(f"!! {file}: not found: {old[:90]!r}"); continue
        t = t.replace(old, new)
    p.write_text(t)

for r in ROOMS:
    p = Path(f"companion/{r}/kernel.py"); p.write_text(p.read_text().replace("from companion.proofs.verdict import Operator", "from companion.operators import Operator"))
sub("companion/proofs/trial.py", ("from companion.proofs.verdict import SIMULATOR, Operator, one_line, operators\n", "from companion.proofs.verdict import SIMULATOR, one_line\n"),
    ("from companion.operators import backend\n", "from companion.operators import Operator, backend, operators\n"))
sub("companion/doctor.py", ("in proof.operators()", "in operators()"), ("from companion.proofs import", "from companion.operators import operators\nfrom companion.proofs import"))
sub("companion/rooms.py",
    ('__all__ = ["ROOMS", "modules", "title"]', '__all__ = ["CHAPTERS", "ROOMS", "modules", "studies", "title"]'),
    ('"""The one list of mechanisms, by the names of their folders. Whatever goes through all of them asks here."""',
     '"""The one list of mechanisms and the one of chapters, by folder: what goes through all asks here."""'),
    ('what several mechanisms need, the first one brings."""\n', '''what several mechanisms need, the first one brings."""

CHAPTERS = ("ground",)
"""What belongs to no mechanism: their folders lie in the study."""
'''),
    ('"formulas" or "bench"', '"op" or "costs"'), ('>>> modules("bench")["apa"].__name__', '>>> modules("costs")["apa"].__name__'), ("'companion.apa.study.bench'", "'companion.apa.costs'"),
    ('    found = {room: f"companion.{room}.{name}" for room in ROOMS}\n    return {room: importlib.import_module(path) for room, path in found.items() if importlib.util.find_spec(path)}\n',
     '''    return _imported({room: f"companion.{room}.{name}" for room in ROOMS})


def studies(name: str) -> dict[str, ModuleType]:
    """Import the module of this name in the study of every mechanism, and in every chapter, that has one.

    Parameters
    ----------
    name : str
        Such as "formulas" or "exercises".

    Returns
    -------
    dict
        Module by room or chapter, in the order of `ROOMS`, then of `CHAPTERS`.

    Examples
    --------
    >>> studies("bench")["apa"].__name__
    'companion.apa.study.bench'
    """
    of_rooms = {room: f"companion.{room}.study.{name}" for room in ROOMS}
    return _imported(of_rooms | {chapter: f"companion.study.{chapter}.{name}" for chapter in CHAPTERS})


def _imported(paths: dict[str, str]) -> dict[str, ModuleType]:
    return {name: importlib.import_module(path) for name, path in paths.items() if importlib.util.find_spec(path)}
'''))
for f, what in (("companion/study/bench.py", "bench"), ("companion/study/symbolic.py", "formulas"), ("companion/study/experiments/registry.py", "experiments")):
    sub(f, (f'rooms.modules("{what}")', f'rooms.studies("{what}")'))
sub("companion/study/exercises.py", ('''    modules = [*rooms.modules("exercises").values(), importlib.import_module("companion.study.ground.exercises")]
    return {each.id: each for module in modules for each in module.EXERCISES}''', '''    return {each.id: each for module in rooms.studies("exercises").values() for each in module.EXERCISES}'''),
    ("All exercises of all rooms and of the ground, by their ids.", "All exercises of all rooms and chapters, by their ids."))
sub("tests/study/test_exercises.py", ('''    from companion.study.ground import exercises as ground

    for room, module in rooms.modules("exercises").items():
        for exercise in module.EXERCISES:
            assert isinstance(exercise, Exercise)
            page = room.replace("_", "-")
            assert re.fullmatch(rf"{page}(?:-derivation|-kernel)?-\\d+", exercise.id)
    for exercise in ground.EXERCISES:
        assert re.fullmatch(r"kernels-\\d+", exercise.id)
    modules = [*rooms.modules("exercises").values(), ground]
    assert len(ALL) == sum(len(module.EXERCISES) for module in modules)''', '''
    modules = rooms.studies("exercises")
    for name, module in modules.items():
        page = rf"{name.replace('_', '-')}(?:-derivation|-kernel)?" if name in rooms.ROOMS else r"[a-z-]+"
        for exercise in module.EXERCISES:
            assert isinstance(exercise, Exercise)
            assert re.fullmatch(rf"{page}-\\d+", exercise.id)
    assert len(ALL) == sum(len(module.EXERCISES) for module in modules.values())'''))
sub("tests/test_rooms.py", ('sorted(path.parent.name for path in PACKAGE.glob("*/formulas.py"))', 'sorted(path.parent.parent.name for path in PACKAGE.glob("*/study/formulas.py"))'),
    ('assert [*rooms.modules("formulas")] == [*rooms.ROOMS]', 'assert [*rooms.studies("formulas")] == [*rooms.ROOMS]\n    assert set(rooms.studies("exercises")) >= {*rooms.ROOMS, "ground"}'),
    ('assert [*rooms.modules("constructions")] == ["dac"]', 'assert [*rooms.studies("constructions")] == ["dac"]'),
    ('assert rooms.modules("nothing") == {}', 'assert rooms.modules("nothing") == rooms.studies("nothing") == {}'))
t = Path("tests/study/test_symbolic.py"); t.write_text(t.read_text().replace('modules("formulas")', 'studies("formulas")').replace("from companion.rooms import ROOMS, modules", "from companion.rooms import ROOMS, studies"))
Path("tests/test_directions.py").write_text(Path("kept/move/directions.py").read_text())
for f in ("tests/cuda/test_parameters.py", "tests/cuda/test_sanitizer.py", "tests/proofs/test_proof.py"):
    p = Path(f); t = p.read_text()
    if "proof.operators()" not in t: continue
    t = t.replace("proof.operators()", "operators()")
    t = re.sub(r"(?m)^(from companion\.(?:proofs|cuda)[^\n]*)$", r"from companion.operators import operators\n\1", t, count=1)
    p.write_text(t)
# the parameter groups get a file
p = Path("companion/study/training.py"); t = p.read_text(); tree = ast.parse(t); L = t.split("\n")
(node,) = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "parameter_groups"]
body = L[node.lineno-1:node.end_lineno]; del L[node.lineno-1:node.end_lineno]
t = "\n".join(L).replace('    "parameter_groups",\n', "").replace("from companion.study.datasets import Part\n", "from companion.study.datasets import Part\nfrom companion.weight_decay import parameter_groups\n")
p.write_text(t)
Path("companion/weight_decay.py").write_text('"""Which parameters an optimiser decays."""\n\nfrom typing import Any, Literal\n\nfrom torch import nn\n\n__all__ = ["parameter_groups"]\n\n\n' + "\n".join(body) + "\n")
sub("companion/__init__.py", ("from companion.study.training import parameter_groups\n", "from companion.weight_decay import parameter_groups\n"))
def files(*patterns):
    for f in subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *patterns], capture_output=True, text=True).stdout.split("\n"):
        p = Path(f)
        if f and p.is_file(): yield p
for p in files("*.py", "*.ipynb", "*.md"):
    t = p.read_text(); n = re.sub(r"from companion\.study\.training import parameter_groups(?=\n|\\n)", "from companion.weight_decay import parameter_groups", t)
    n = n.replace("companion.study.training.parameter_groups", "companion.parameter_groups")
    if n != t: p.write_text(n)
# lines that have become too long, in docstrings and comments: the text is filled again
import io, textwrap, tokenize
for p in files("companion/**/*.py", "companion/*.py", "tests/**/*.py", "tests/*.py", "book/_tools/*.py"):
    L = p.read_text().split("\n"); i = 0; changed = False
    if not any(len(l) > 120 for l in L): continue
    inside = set()
    for tok in tokenize.generate_tokens(io.StringIO(p.read_text()).readline):
        if tok.type == tokenize.STRING and tok.end[0] > tok.start[0]: inside |= set(range(tok.start[0], tok.end[0]))
    while i < len(L):
        l = L[i]
        # i counts from 0: the first line of a docstring, which has the quotes, is left alone
        if len(l) > 120 and (i in inside or l.lstrip().startswith("#")) and re.match(r"\s*[A-Za-z`#(*]", l) and not re.search(r"[=(]\S*$|^\s*(from|import|def|assert|return|raise|f?\")", l):
            ind = re.match(r"\s*(#:? )?", l).group(0); j = i
            while j + 1 < len(L) and L[j+1].startswith(ind) and L[j+1].strip() and not re.match(r'\s*("""|-|\*|\d\.)', L[j+1][len(ind)-len(ind.lstrip()) :]) and re.match(r"\s*(#:? )?", L[j+1]).group(0) == ind: j += 1
            para = " ".join(x[len(ind):].strip() for x in L[i:j+1])
            L[i:j+1] = textwrap.wrap(para, 120, initial_indent=ind, subsequent_indent=ind, break_on_hyphens=False, break_long_words=False); changed = True
        i += 1
    if changed: p.write_text("\n".join(L))

sub("tests/test_import.py", ("        \"import companion.study.page; from companion.study.exercises import check; check('dnrt-2', companion.functional.raa)\",\n",
 "        \"import companion.study.page; from companion.study.exercises import check\\n\"\n        \"check('dnrt-2', companion.functional.raa)\",\n"))
sub("book/_tools/glued.py", ("what `companion.study.page.glue` put into the outputs, and where a page uses it.", "what `companion.study.page.glue` put into outputs, and where pages use it."))
sub("companion/study/page.py", ("package = Path(__file__).parent\n", "package = Path(__file__).parents[1]\n"))
sub("companion/study/results.py", ("_PACKAGE = Path(__file__).resolve().parent\n", "_PACKAGE = Path(__file__).resolve().parents[1]\n"), ('_PACKAGE / "experiments" / "result.schema.json"', '_PACKAGE / "study" / "experiments" / "result.schema.json"'))
sub("companion/study/experiments/provenance.py", ("_PACKAGE = Path(__file__).resolve().parents[1]\n", "_PACKAGE = Path(__file__).resolve().parents[2]\n"))
for f in ("tests/test_operator.py", "tests/test_platforms.py", "tests/proofs/test_proof.py"):
    p = Path(f); t = p.read_text()
    t = t.replace('setattr(operator, "COMPILES"', 'setattr(checks, "COMPILES"').replace('setattr(operator, "_launchable"', 'setattr(choice, "_launchable"')
    t = re.sub(r"\boperator\.(_of_context|_selected|_launchable|choose|_default)\b", r"choice.\1", t)
    t = re.sub(r"\boperator\.(differentiable|transformed|OLDEST_COMPILER)\b", r"operators.\1", t)
    used = [n for n in ("checks", "choice") if re.search(rf"\b{n}\b", t)]
    t = re.sub(r"(?m)^(from companion import (?:.*, )?)operator((?:, .*)?)$", lambda m: m.group(1) + ("operators" if "operators." in t.split("import", 5)[-1] and re.search(r"\boperators\.\w", t) else "") + m.group(2), t)
    t = t.replace(", , ", ", ").replace("import , ", "import ").replace(", \n", "\n")
    if used: t = re.sub(r"(?m)^(from companion import .*)$", rf"\1\nfrom companion.operators import {', '.join(used)}", t, count=1)
    p.write_text(t)
