"""Two doors: git mv, split, rewrite imports. Run in the root of a clean checkout."""
import ast, re, subprocess, sys
from pathlib import Path
ROOMS = ("apa", "layeract", "dac", "dnrt", "multi_argument")
FLOOR = ("analysis", "bench", "claims", "corruptions", "datasets", "exercises", "experiments", "gated", "ground", "models", "page",
         "plotting", "results", "symbolic", "training", "vocabulary")
ROOM = ("formulas", "figures", "exercises", "experiments", "bench", "constructions", "surfaces", "counts", "pretraining")
TESTS = ("analysis", "experiments", "models", "ground")
TEST_FILES = ("bench", "claims", "corruptions", "datasets", "exercises", "page", "plotting", "results", "symbolic", "training", "vocabulary", "moving_figures")
# single files that live in one room only
FURNITURE = {  # old module -> new module
    "companion.surgery.tracing": "companion.dac.tracing",
}
def git(*a): subprocess.run(["git", *a], check=True)
def mv(a, b):
    Path(b).parent.mkdir(parents=True, exist_ok=True)
    if Path(a).exists(): git("mv", a, b)
def path(module):
    p = Path(module.replace(".", "/"))
    return p if p.is_dir() else p.with_suffix(".py")

DOC = {
    "companion/study/__init__.py": '"""What the book and its experiments stand on. The library never imports it."""\n',
    "companion/operators/__init__.py": None,
    "companion/proofs/__init__.py": '"""A kernel proves itself on a GPU before it computes for anybody there."""\n',
    **{f"companion/{r}/study/__init__.py": None for r in ROOMS},
    "tests/study/__init__.py": None,
}

def step_moves():
    Path("companion/study").mkdir(exist_ok=True)
    for old, new in FURNITURE.items():
        mv(path(old), new.replace(".", "/") + ".py")
    for m in FLOOR:
        p = path(f"companion.{m}")
        mv(p, f"companion/study/{p.name}")
    for r in ROOMS:
        for m in ROOM:
            mv(f"companion/{r}/{m}.py", f"companion/{r}/study/{m}.py")
    mv("companion/cuda/proof.py", "companion/proofs/verdict.py")
    mv("companion/cuda/exercise.py", "companion/proofs/trial.py")
    mv("tests/cuda/test_proof.py", "tests/proofs/test_proof.py")
    for t in TESTS: mv(f"tests/{t}", f"tests/study/{t}")
    for t in TEST_FILES: mv(f"tests/test_{t}.py", f"tests/study/test_{t}.py")
    mv("tests/together.py", "tests/cases.py"); mv("tests/test_together.py", "tests/test_cases.py")
    mv("tests/moving.py", "tests/study/moving.py")
    mv("tests/multi_argument/test_units.py", "tests/multi_argument/test_units.py")
    for f, text in DOC.items():
        p = Path(f); p.parent.mkdir(parents=True, exist_ok=True)
        if f.startswith("tests") : continue
        if not p.exists():
            if text is None:
                r = p.parts[1]
                text = f'"""What the book says of it: its mathematics, experiments, exercises and figures."""\n'
            p.write_text(text)

# --- splitting ---
def split(source, parts, docs):
    """parts: {file: [names]}; top-level statements go where their name is; imports go to all, unused ones are removed later."""
    text = Path(source).read_text(); tree = ast.parse(text); lines = text.split("\n")
    where = {n: f for f, ns in parts.items() for n in ns}
    imports, body = [], {f: [] for f in parts}
    defined = {}
    prev_end = 0
    for node in tree.body:
        start = node.lineno
        if getattr(node, "decorator_list", None): start = min(d.lineno for d in node.decorator_list)
        lead = [l for l in lines[prev_end:start-1]]
        # comments directly above belong to the node; section banners are dropped
        comments = []
        for l in reversed(lead):
            if l.startswith("#"):
                if re.match(r"# --- ", l): break
                comments.insert(0, l)
            elif l.strip() == "" and not comments: continue
            else: break
        seg = lines[start-1:node.end_lineno]
        prev_end = node.end_lineno
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node is tree.body[0]: continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imports += seg; continue
        names = []
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)): names = [node.name]
        elif isinstance(node, ast.Assign):
            for t in node.targets: names += [e.id for e in (t.elts if isinstance(t, ast.Tuple) else [t])]
        elif isinstance(node, ast.AnnAssign): names = [node.target.id]
        else: names = [f"@{node.lineno}"]
        target = next((where[n] for n in names if n in where), None)
        if target is None: sys.exit(f"{source}: no place for {names}")
        for n in names: defined[n] = target
        body[target].append((comments, seg, node))
    for f in parts:
        used = {n.id for _, _, node in body[f] for n in ast.walk(node) if isinstance(n, ast.Name)}
        used |= {w for _, seg, _ in body[f] for l in seg for w in re.findall(r"\b[A-Za-z_]\w*\b", l) if w in defined and f'"{w}"' not in l} & used
        need = {}
        for n in used:
            if n in defined and defined[n] != f: need.setdefault(defined[n], set()).add(n)
        cross = [f"from {g[:-3].replace('/', '.')} import {', '.join(sorted(ns))}" for g, ns in sorted(need.items())]
        out = [docs[f], *imports, *cross, ""]
        for comments, seg, _ in body[f]: out += ["", *comments, *seg, ""]
        Path(f).parent.mkdir(parents=True, exist_ok=True)
        Path(f).write_text("\n".join(out) + "\n")
    return defined

O = "companion/operators/"
OPERATOR = {
    O+"declaration.py": [],
    O+"choice.py": ["P0", "BACKENDS", "KERNEL_DTYPES", "OLDEST_COMPILER", "COMPILES", "_default", "_of_context", "_selected", "_Selection", "_in_main_thread", "backend", "_launchable", "choose"],
    O+"observers.py": ["P", "overridable", "refuse_script", "transformed", "exporting", "_PROXY", "_FUNCTIONAL", "_traced", "on_cpu", "batched", "tangent_of", "has_tangent"],
    O+"precision.py": ["compute_dtype", "cast", "_AUTOCAST", "without_autocast", "_exactly"],
    O+"differentiable.py": ["differentiable", "_TENSOR", "_stand_in", "_gradients_through", "_reattached_gradients", "_Reattached", "opaque"],
    O+"memory.py": ["image_format", "memory_order", "in_order_of_memory"],
    O+"checks.py": ["check_floating", "as_float", "as_int", "check_flag", "check_dtype", "check_parameter", "_broadcastable"],
}
DOCS = {
    O+"choice.py": '"""Who computes: plain torch, the CUDA kernel on a GPU, or the same kernel in the CPU simulator.\n\n:func:`backend` chooses; :func:`choose` is how an operator asks.\n"""\n',
    O+"observers.py": '"""Who looks at a call: compilers, function transforms, tracers, forward mode, and what may take the call whole."""\n',
    O+"precision.py": '"""In which dtype an operator computes, whatever autocast says."""\n',
    O+"differentiable.py": '"""Of several implementations of the same mathematics one function, differentiable in every way that torch knows."""\n',
    O+"memory.py": '"""In which order a tensor lies in memory."""\n',
    O+"checks.py": '"""What operators ask of their arguments; every refusal names the argument, what came, and what is allowed."""\n',
}
DECLARATION = '''"""What is trusted or not as a whole: an operator, and the kernels that it launches."""

from __future__ import annotations

from collections.abc import Sequence

from companion.cuda.launch import Kernels

_operators: dict[str, Operator] = {}


%s

def operators() -> list[Operator]:
    """All that prove themselves, by name."""
    return [_operators[name] for name in sorted(_operators)]
'''
def step_split():
    src = "companion/operator.py"
    text = Path(src).read_text()
    OPERATOR.pop(O+"declaration.py", None)
    defined = split(src, OPERATOR, DOCS)
    git("rm", "-q", "--cached", src); Path(src).unlink()
    # Operator and operators() come from the proof
    v = Path("companion/proofs/verdict.py"); t = v.read_text(); tree = ast.parse(t); L = t.split("\n")
    cut = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Operator":
            klass = "\n".join(L[node.lineno-1:node.end_lineno]) + "\n"; cut.append((node.lineno-1, node.end_lineno))
        if isinstance(node, ast.FunctionDef) and node.name == "operators": cut.append((node.lineno-1, node.end_lineno))
        if isinstance(node, ast.AnnAssign) and node.target.id == "_operators": cut.append((node.lineno-1, node.end_lineno))
    for a, b in sorted(cut, reverse=True): del L[a:b]
    t = "\n".join(L)
    t = t.replace("from companion.cuda.launch import Kernels\n", "")
    t = t.replace("from companion.cuda import build, launch\n", "from companion.cuda import build, launch\nfrom companion.operators import Operator, choice, operators\n")
    t = t.rstrip("\n") + "\n\n\nchoice.trusts = holds\n"
    v.write_text(t)
    Path(O+"declaration.py").write_text(DECLARATION % klass)
    c = Path(O+"choice.py"); t = c.read_text()
    t = t.replace("from companion.cuda import proof\n", "from companion.operators.declaration import Operator\n")
    t = t.replace("proof.Operator", "Operator").replace("proof.holds(operator, z.device)", "trusts(operator, z.device)")
    t = t.replace("companion.cuda.proof", "companion.proofs.verdict")
    t = t.replace("def choose(", '''def _trusts_none(operator: Operator, device: torch.device) -> bool:
    return False


#: Whether the kernels of an operator may compute on a device: what stands above it, :mod:`companion.proofs`, knows.
trusts: Callable[[Operator, torch.device], bool] = _trusts_none


def choose(''', 1)
    c.write_text(t)
    public = {}
    for n, f in defined.items():
        if not n.startswith("_") and n not in ("P", "BACKENDS"): public.setdefault(f, []).append(n)
    public[O+"declaration.py"] = ["Operator", "operators"]
    init = ['"""What every operator shares: who computes, what is checked before, and how it is differentiated.',
            "", "An operator has up to three implementations of the same mathematics: plain torch, the CUDA kernel on a GPU, and the",
            "same kernel in the CPU simulator. :func:`backend` chooses; :func:`choose` is how an operator asks.",
            ":func:`differentiable` makes of them one function that can be differentiated in every way that torch knows.", '"""', ""]
    for f, ns in sorted(public.items()): init.append(f"from {f[:-3].replace('/', '.')} import ({', '.join(sorted(ns))},)")
    allnames = sorted(n for ns in public.values() for n in ns)
    init += ["", "__all__ = [", *[f'    "{n}",' for n in allnames], "]", ""]
    Path(O+"__init__.py").write_text("\n".join(init))
    for f in list(OPERATOR)+[O+"declaration.py"]:
        p = Path(f); p.write_text(p.read_text().replace("companion.cuda.exercise", "companion.proofs.trial").replace("companion.cuda.proof", "companion.proofs.verdict"))

# --- rewriting ---
floor = "|".join(FLOOR); room = "|".join(ROOM); rooms = "|".join(ROOMS)
def target_of(name):
    if name in FLOOR: return "companion.study"
    return "companion"
def split_from(m):
    indent, module, names, tail = m.group("indent"), m.group("module"), m.group("names"), m.group("tail")
    names = [n.strip() for n in names.replace("\n", " ").strip("() ").rstrip(",").split(",")]
    groups = {}
    for n in names:
        bare = n.split(" as ")[0]
        if module == "companion" and bare in FLOOR: groups.setdefault("companion.study", []).append(n)
        elif module.split(".")[-1] in ROOMS and bare in ROOM: groups.setdefault(module + ".study", []).append(n)
        elif module == "companion.cuda" and bare == "proof": groups.setdefault("companion.proofs", []).append("verdict as proof" if n == "proof" else n)
        elif module == "companion.cuda" and bare == "exercise": groups.setdefault("companion.proofs", []).append("trial as exercise")
        else: groups.setdefault(module, []).append(n)
    if list(groups) == [module]: return m.group(0)
    nl = m.group("nl") or ""
    out = [f"{indent}from {g} import {', '.join(ns)}" for g, ns in sorted(groups.items())]
    if '"' in indent:  # a line of a notebook
        return f'\\n",\n'.join(out) + tail
    return "\n".join(out) + tail
FROM = re.compile(r'(?P<indent>(?m:^)[ ]*"?[ ]*)from (?P<module>companion(?:\.\w+)*) import (?P<names>\([^)]*\)|[\w, ]+?)(?P<tail>\\n",?|"|(?=\n|$|\s*#))(?P<nl>)')
def rewrite(text, py):
    text = FROM.sub(split_from, text)
    for old, new in FURNITURE.items(): text = re.sub(re.escape(old) + r"\b", new, text)
    text = re.sub(rf"\bcompanion\.({rooms})\.({room})\b(?!_)", r"companion.\1.study.\2", text)
    text = re.sub(rf"\bcompanion\.({floor})\b(?!_)", r"companion.study.\1", text)
    text = re.sub(r"\bcompanion\.operator\b", "companion.operators", text)
    text = re.sub(r"\bcompanion\.cuda\.proof\b", "companion.proofs.verdict", text)
    text = re.sub(r"\bcompanion\.cuda\.exercise\b", "companion.proofs.trial", text)
    text = text.replace("python -m companion.study.experiments", "python -m companion experiments").replace("python -m companion.study.bench", "python -m companion bench")
    text = text.replace("from companion.operators import operator\n", "")
    # paths
    text = re.sub(rf"\bcompanion/({rooms})/({room})\.py", r"companion/\1/study/\2.py", text)
    text = re.sub(rf"\bcompanion/({floor})(\.py|/)", r"companion/study/\1\2", text)
    text = text.replace("companion/operator.py", "companion/operators/choice.py").replace("companion/cuda/proof.py", "companion/proofs/verdict.py")
    # tests
    text = text.replace("tests.together", "tests.cases").replace("tests/together.py", "tests/cases.py").replace("tests/test_together.py", "tests/test_cases.py")
    text = re.sub(rf"\btests\.({'|'.join(TESTS)})\b", r"tests.study.\1", text)
    text = re.sub(rf"\btests/({'|'.join(TESTS)})/", r"tests/study/\1/", text)
    text = re.sub(rf"\btests/test_({'|'.join(TEST_FILES)})\.py", r"tests/study/test_\1.py", text)
    text = re.sub(rf"\btests\.test_({'|'.join(TEST_FILES)})\b", r"tests.study.test_\1", text)
    text = re.sub(r"\btests\.moving\b", "tests.study.moving", text)
    text = text.replace("tests/cuda/test_proof.py", "tests/proofs/test_proof.py")
    return text
def step_rewrite():
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True).stdout.split("\n")
    for f in files:
        p = Path(f)
        if not f or not p.is_file() or p.is_symlink(): continue
        if p.suffix in (".py", ".ipynb", ".md", ".toml", ".yml", ".yaml", ".cfg", ".cu", ".cuh", ".cpp", ".h", ".json", ".sh", ".js") or p.name in ("Makefile", "run"):
            if f.startswith("data/") and not f.endswith(".md"): continue
            old = p.read_text(); new = rewrite(old, p.suffix == ".py")
            if f.startswith("tests/study/"):
                deeper = lambda m: f"parents[{int(m.group(1)) + 1}]"
                new = re.sub(r"(?<=__file__\)\.resolve\(\)\.)parents\[(\d)\]", deeper, new)
            if new != old: p.write_text(new)

if __name__ == "__main__":
    step_moves(); step_split(); step_rewrite()
