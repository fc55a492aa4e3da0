"""``python -m companion bench NAME``: time and memory of an operator, or of a network's step, beside what people would
otherwise use. ``all`` measures everything; without a name, the names are listed.

All competitors of one size run interleaved in one process, so that a processor that slows down slows all of them, in
an order drawn anew each round and each after an uncounted call of its own; the median is reported. Memory, of
one of the largest sizes, is on a CPU the high-water mark of a process of its own, above what the inputs need.
Before the first shape and after each a fixed piece of work is timed, the reference; a shape beside which it was slow is
measured again, and a result in which it stays slow is not promoted.
The result goes to the folder of runs; ``python -m companion experiments promote`` copies it to data/results.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import datetime
import functools
import json
import math
import multiprocessing
import operator
import random
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from companion import rooms
from companion.files import write_atomically
from companion.operators import backend
from companion.study.experiments.provenance import environment, git_state
from companion.study.experiments.runner import runs_path
from companion.study.models import resnet20
from companion.study.results import disturbed

__all__ = ["Competitor", "Subject", "main", "measure", "step", "subjects"]


@dataclass(frozen=True)
class Competitor:
    """One row of a comparison.

    Parameters
    ----------
    name : str
        In the table. "published" is what the others are compared with.
    function : callable
        Takes the input and the learnable parameters.
    compiled : bool
        Whether ``torch.compile`` comes first; a graph break is then an error.
    """

    name: str
    function: Callable[..., Tensor]
    compiled: bool = False

    def build(self) -> Callable[..., Tensor]:
        """The function, compiled if it is to be."""
        return torch.compile(self.function, fullgraph=True) if self.compiled else self.function


Shape = tuple[int, ...]


def _elementwise(size: Shape) -> tuple[Shape, ...]:
    return size, size


@dataclass(frozen=True)
class Subject:
    """What is measured.

    Parameters
    ----------
    name : str
        Of the room, and after a hyphen of one of several subjects in it: "dac-linear".
    description : str
        For the table's heading.
    competitors : tuple of Competitor
        Among them "published", and first the package's own function.
    shapes : callable
        Device ("cpu" or "cuda") → sizes. Of an elementwise operator or one of rows, the shape of the input.
    parameters : tuple of float
        Starting values of learnable scalar parameters.
    tensors : callable
        Size → shapes of the input, of learnable tensors and of the output.
    tiny : tuple of int
        A size for the time of the host.
    """

    name: str
    description: str
    competitors: tuple[Competitor, ...]
    shapes: Callable[[str], list[Shape]]
    parameters: tuple[float, ...] = ()
    tensors: Callable[[Shape], tuple[Shape, ...]] = _elementwise
    tiny: Shape = (16, 16)


def subjects() -> dict[str, Subject]:
    """What there is to measure, by name: the ``SUBJECTS`` of every room's module ``bench``."""
    return {what.name: what for module in rooms.studies("bench").values() for what in module.SUBJECTS}


def step(name: str, description: str, **activations: Callable[[], nn.Module]) -> Subject:
    """A subject: forward and backward pass of a ResNet-20 on 32×32 images; what is in bfloat16 is channels-last.

    Parameters
    ----------
    name, description : str
        As of :class:`Subject`.
    **activations : callable
        Factories of the activation by the competitor's name, "companion" first.
    """
    competitors = tuple(Competitor(each, _network(factory)) for each, factory in activations.items())
    return Subject(
        name,
        description,
        competitors,
        lambda device: [(128,)],
        tensors=lambda size: ((*size, 3, 32, 32), (*size, 10)),
        tiny=(2,),
    )


def _network(activation: Callable[[], nn.Module]) -> Callable[[Tensor], Tensor]:
    @functools.cache
    def network(dtype: torch.dtype, device: torch.device) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(0)  # all competitors begin with the same weights
            model = resnet20(3, 10, activation).to(device=device, dtype=dtype)
        return model.to(memory_format=_FORMATS[dtype])

    def logits(images: Tensor) -> Tensor:
        result: Tensor = network(images.dtype, images.device)(images.contiguous(memory_format=_FORMATS[images.dtype]))
        return result

    return logits


_FORMATS = {torch.float32: torch.contiguous_format, torch.bfloat16: torch.channels_last}

#: How often a shape is measured beside which the reference was slow.
_ATTEMPTS = 3

_M_MMAP_THRESHOLD = -3
"""Of glibc's malloc.h."""

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass
class Inputs:
    """One set of tensors; the gradient buffers are dropped before every pass."""

    arguments: tuple[Tensor, ...]
    grad: Tensor

    @classmethod
    def draw(cls, what: Subject, size: Shape, dtype: str, device: str) -> Inputs:
        generator = torch.Generator(device).manual_seed(0)
        *tensors, grad = (
            torch.randn(shape, generator=generator, device=device).to(_DTYPES[dtype]) for shape in what.tensors(size)
        )
        learnable = (torch.tensor(value, device=device, requires_grad=True) for value in what.parameters)
        return cls((*(x.requires_grad_() for x in tensors), *learnable), grad)

    def forward(self, function: Callable[..., Tensor]) -> Tensor:
        """Without a graph."""
        with torch.no_grad():
            return function(*self.arguments)

    def forward_backward(self, function: Callable[..., Tensor]) -> None:
        """With the gradients of all arguments."""
        for argument in self.arguments:
            argument.grad = None
        torch.autograd.backward(function(*self.arguments), self.grad)


def _milliseconds(work: Callable[[], Any], device: str) -> float:
    if device == "cuda":
        start, end = (torch.Event("cuda", enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end))
    begin = time.perf_counter()
    work()
    return (time.perf_counter() - begin) * 1e3


def measure(what: Subject, shape: Shape, dtype: str, device: str, repeats: int) -> list[dict[str, Any]]:
    """Time every competitor at one shape, interleaved.

    Parameters
    ----------
    what : Subject
        With its competitors.
    shape : tuple of int
        The size.
    dtype : {"float32", "bfloat16"}
        Of the input.
    device : {"cpu", "cuda"}
        Where.
    repeats : int
        Counted rounds; three uncounted ones come first. Every round runs every competitor, in an order drawn anew,
        each after an uncounted call of its own.

    Returns
    -------
    list of dict
        A row per competitor: median times in milliseconds, and their ratios to the published expression. On a GPU
        also the share of the bandwidth that a plain copy of the input reaches in the same rounds. NaN: for what was to
        be timed, or compared with, the GPU's memory was too small.
    """
    # Every shape is compiled for itself, and torch.compile gives up after eight of one function.
    torch.compiler.reset()
    # On a GPU several sets take turns, so that no input is still in the cache.
    sets = [Inputs.draw(what, shape, dtype, device) for _ in range(3 if device == "cuda" else 1)]
    built = [(competitor.name, competitor.build()) for competitor in what.competitors]
    works: dict[tuple[str, str], Callable[[Inputs], Any]] = {
        (name, kind): lambda inputs, f=function, r=run: r(inputs, f)  # type: ignore[misc]
        for name, function in built
        for kind, run in (("forward", Inputs.forward), ("forward_backward", Inputs.forward_backward))
    }
    if device == "cuda":
        target = torch.empty_like(sets[0].arguments[0])
        works["copy", "forward"] = lambda inputs: target.copy_(inputs.arguments[0].detach())
    order = random.Random(0)
    times: dict[tuple[str, str], list[float]] = {}
    for round_ in range(-3, repeats):
        for key in order.sample([*works], len(works)):
            work = works[key]
            try:
                # What ran before leaves caches, memory and threads in its own state: an uncounted call takes its place.
                work(sets[(round_ + 1) % len(sets)])
                elapsed = _milliseconds(functools.partial(work, sets[round_ % len(sets)]), device)
            except torch.cuda.OutOfMemoryError as error:
                print(f"{what.name}: {' '.join(key)} has no room: {error}", file=sys.stderr)
                del works[key]
                times.pop(key, None)
                continue
            if round_ >= 0:
                times.setdefault(key, []).append(elapsed)
    median = collections.defaultdict(lambda: math.nan, {key: statistics.median(each) for key, each in times.items()})
    rows = []
    for name, _ in built:
        forward, both = median[name, "forward"], median[name, "forward_backward"]
        row = {
            "competitor": name,
            "dtype": dtype,
            "elements": math.prod(shape),
            "size": " × ".join(map(str, shape)),
            "forward_ms": forward,
            "forward_backward_ms": both,
            "forward_ratio": forward / median["published", "forward"],
            "forward_backward_ratio": both / median["published", "forward_backward"],
        }
        if device == "cuda":
            # copy: read z, write y. forward: the same bytes. backward: read z and g, write the gradient.
            copy = median["copy", "forward"]
            row["forward_bandwidth_share"] = copy / forward
            row["backward_bandwidth_share"] = 1.5 * copy / (both - forward)
        rows.append(row)
    return rows


def _peak_mebibytes(name: str, competitor: str, shape: Shape, dtype: str, device: str, answer: Any) -> None:
    """Send the memory that one forward and backward pass needs beyond its inputs."""
    import resource  # there is none on Windows

    torch.set_num_threads(1)
    _choose(device)
    what = subjects()[name]
    (function,) = (c.build() for c in what.competitors if c.name == competitor)
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_M_MMAP_THRESHOLD, 2**16)  # what is freed goes back to the system, and is not there for the next pass
    # Imports and compilation are not the pass's; for another shape torch.compile may compile once more.
    Inputs.draw(what, shape, dtype, device).forward_backward(function)
    inputs = Inputs.draw(what, shape, dtype, device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        inputs.forward_backward(function)
        answer.send((torch.cuda.max_memory_allocated() - before) / 2**20)
        return
    # The high-water mark must be the pass's own: what drawing the inputs took above it is filled up first.
    high = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open("/proc/self/statm") as statm:
        resident = int(statm.read().split()[1]) * resource.getpagesize() // 1024
    ballast = torch.ones(max(high - resident, 0) * 1024 // 4 + 1)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    inputs.forward_backward(function)
    answer.send((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) / 1024)
    del ballast


def peak_mebibytes(name: str, competitor: str, shape: Shape, dtype: str, device: str) -> float:
    """Memory of one forward and backward pass beyond its inputs, in a process of its own; NaN if it ends before."""
    if device == "cuda":
        torch.cuda.empty_cache()  # what this process keeps for itself, the other could not have
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_peak_mebibytes, args=(name, competitor, shape, dtype, device, sender))
    process.start()
    sender.close()
    try:
        return float(receiver.recv())
    except EOFError:
        print(f"{name}: the process that measures the memory of {competitor} has died", file=sys.stderr)
        return math.nan
    finally:
        process.join()


def reference(device: str) -> dict[str, float]:
    """How long a fixed piece of work takes that is none of the package's: the least and the median, in milliseconds."""
    x = torch.linspace(-1, 1, 2**18, device=device).view(512, 512)
    times = [_milliseconds(lambda: torch.tanh(x @ x), device) for _ in range(24)][3:]
    return {"least": min(times), "median": statistics.median(times)}


def host_microseconds(what: Subject, device: str) -> float:
    """Host time of one forward call of the package on a small tensor, not waiting for the device."""
    function = what.competitors[0].function
    inputs = Inputs.draw(what, what.tiny, "float32", device)
    for _ in ("warm", "counted"):
        calls, elapsed, begin = 0, 0.0, time.perf_counter()
        while elapsed < 0.2:
            inputs.forward(function)
            calls, elapsed = calls + 1, time.perf_counter() - begin
    if device == "cuda":
        torch.cuda.synchronize()
    return elapsed / calls * 1e6


def _choose(device: str) -> None:
    """On a GPU the package is its kernels or an error: plain torch must not be measured in their place."""
    backend("kernel" if device == "cuda" else "torch")


def _measured(what: Subject, device: str, dtypes: Sequence[str], most: int, repeats: int) -> dict[str, Any]:
    """Everything about one subject, as a result."""
    _choose(device)
    started = time.perf_counter()
    shapes = [shape for shape in what.shapes(device) if math.prod(shape) <= most]
    largest = max(shapes, key=math.prod)
    rows: list[dict[str, Any]] = []
    references = [reference(device)]
    for dtype in dtypes:
        for shape in shapes:
            print(f"{what.name}: {device}, {dtype}, {' × '.join(map(str, shape))}", file=sys.stderr)
            for _ in range(_ATTEMPTS):
                at_shape = measure(what, shape, dtype, device, repeats)
                after = reference(device)
                if disturbed([*references, after]) is None:
                    break
                # If it was slow before, and not after, the next attempt begins here.
                references[-1] = min(references[-1], after, key=operator.itemgetter("median"))
            references.append(after)
            if shape == largest:
                for row in at_shape:
                    row["peak_mib"] = peak_mebibytes(what.name, row["competitor"], shape, dtype, device)
            rows += at_shape
    return {
        "experiment": f"bench-{what.name}",
        "preset": device if device == "cpu" else "gpu",
        "finished": True,
        "description": what.description,
        "settings": {
            "repeats": repeats,
            "host_microseconds": host_microseconds(what, device),
            "reference_ms": references,
        },
        "seeds": [],
        "rows": [{k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()} for row in rows],
        "tuning": [],
        "chosen": [],
        "smoke": [],
        "provenance": {
            **environment(device),
            "threads": torch.get_num_threads(),
            "duration_seconds": time.perf_counter() - started,
            "date": datetime.date.today().isoformat(),
            "git": git_state(),
        },
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; return the exit status: 1 if a subject failed, after the others were measured."""
    parser = argparse.ArgumentParser("python -m companion bench", description=__doc__)
    known = subjects()
    parser.add_argument("names", nargs="*", metavar="name", help="all, or " + ", ".join(known))
    parser.add_argument("--most", type=int, default=2**40, help="leave out shapes of more elements")
    parser.add_argument("--repeats", type=int, default=31)
    parser.add_argument("--dtype", choices=list(_DTYPES), help="instead of both")
    options = parser.parse_args(arguments)
    if not options.names:
        print("\n".join(f"{name:20} {what.description}" for name, what in known.items()))
        return 0
    names = [*known] if options.names == ["all"] else options.names
    if unknown := set(names) - set(known):
        parser.error(f"name: got {', '.join(sorted(unknown))}, allowed are all, {', '.join(known)}")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and sys.platform != "linux":
        parser.error(f"the memory of a CPU is read from /proc, which Linux has; this is {sys.platform}")
    dtypes = [options.dtype] if options.dtype else [*_DTYPES]
    # Where bfloat16 is emulated, torch.compile refuses it.
    if device == "cuda" and "bfloat16" in dtypes and not torch.cuda.is_bf16_supported(including_emulation=False):
        if options.dtype:
            parser.error("dtype: got bfloat16, which this GPU has not; allowed is float32")
        print("bfloat16 is left out: this GPU has it not, compute capability 8.0 would", file=sys.stderr)
        dtypes.remove("bfloat16")
    failed = []
    for name in names:
        try:
            result = _measured(known[name], device, dtypes, options.most, options.repeats)
        except Exception:
            traceback.print_exc()
            failed.append(name)
            continue
        path = runs_path() / f"bench-{name}-{result['preset']}.json"
        write_atomically(path, json.dumps(result, indent=1).encode())
        for row in result["rows"]:
            print(
                f"{row['dtype']:9}{row['size']:>22}  {row['competitor']:31}"
                f" forward {_shown(row['forward_ms'], '9.3f')} ms ×{_shown(row['forward_ratio'], '5.2f')}"
                f"   both {_shown(row['forward_backward_ms'], '9.3f')} ms"
                f" ×{_shown(row['forward_backward_ratio'], '5.2f')}"
                + (f"   peak {_shown(row['peak_mib'], '.0f')} MiB" if "peak_mib" in row else "")
            )
        print(f"wrote {path}")
    if failed:
        print(f"not measured: {', '.join(failed)}; why stands above", file=sys.stderr)
    return int(bool(failed))


def _shown(number: float | None, form: str) -> str:
    """What a result does not hold is shown as NaN."""
    return format(math.nan if number is None else number, form)


if __name__ == "__main__":
    sys.exit(main())
