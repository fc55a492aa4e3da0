"""``python -m companion.bench``: time and memory of an operator beside what people would otherwise use.

All competitors of one size run interleaved in one process, so that a processor that slows down slows all of them, and
the median is reported. Memory on a CPU is the high-water mark of a process of its own, above what the inputs need.
The result goes to the folder of runs; ``python -m companion.experiments promote`` copies it to data/results.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import multiprocessing
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from companion.experiments.provenance import code_stamp, environment, git_state
from companion.experiments.runner import runs_path
from companion.functional import aglu

__all__ = ["COMPETITORS", "main", "measure"]

#: (z, kappa, lam) → y, with learnable scalar parameters.
Activation = Callable[[Tensor, Tensor, Tensor], Tensor]


def published(z: Tensor, kappa: Tensor, lam: Tensor) -> Tensor:
    """AGLU as the paper's Eq. 13 and its published code write it."""
    return z * torch.exp(F.softplus(kappa * z - torch.log(lam), beta=-1.0) / lam)


def published_in_float64(z: Tensor, kappa: Tensor, lam: Tensor) -> Tensor:
    """The published expression, made as accurate as ours in the way that costs least thought."""
    return published(z.double(), kappa.double(), lam.double()).to(z.dtype)


def gelu(z: Tensor, kappa: Tensor, lam: Tensor) -> Tensor:
    """PyTorch's own fixed curve, as a floor."""
    return F.gelu(z)


@dataclass(frozen=True)
class Competitor:
    """One row of the comparison."""

    name: str
    function: Activation
    compiled: bool = False

    def build(self) -> Activation:
        """The function, compiled if it is to be; a graph break is an error."""
        return torch.compile(self.function, fullgraph=True) if self.compiled else self.function


COMPETITORS = (
    Competitor("companion", aglu),
    Competitor("published", published),
    Competitor("companion, compiled", aglu, compiled=True),
    Competitor("published, compiled", published, compiled=True),
    Competitor("published in float64, compiled", published_in_float64, compiled=True),
    Competitor("gelu", gelu),
)

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass
class Inputs:
    """One set of tensors; the gradient buffers are dropped before every pass."""

    z: Tensor
    kappa: Tensor
    lam: Tensor
    grad: Tensor

    @classmethod
    def draw(cls, elements: int, dtype: torch.dtype, device: str) -> Inputs:
        generator = torch.Generator(device).manual_seed(0)
        z = torch.randn(elements, generator=generator, device=device).to(dtype).requires_grad_()
        grad = torch.randn(elements, generator=generator, device=device).to(dtype)
        kappa = torch.tensor(1.1, device=device, requires_grad=True)
        lam = torch.tensor(0.7, device=device, requires_grad=True)
        return cls(z, kappa, lam, grad)

    def forward(self, activation: Activation) -> Tensor:
        """Without a graph."""
        with torch.no_grad():
            return activation(self.z, self.kappa, self.lam)

    def forward_backward(self, activation: Activation) -> None:
        """With the gradients of z, κ and λ."""
        self.z.grad = self.kappa.grad = self.lam.grad = None
        torch.autograd.backward(activation(self.z, self.kappa, self.lam), self.grad)


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


def measure(
    elements: int, dtype: str, device: str, repeats: int, competitors: Sequence[Competitor] = COMPETITORS
) -> list[dict[str, Any]]:
    """Time every competitor at one size, interleaved.

    Parameters
    ----------
    elements : int
        Of z.
    dtype : {"float32", "bfloat16"}
        Of z.
    device : {"cpu", "cuda"}
        Where.
    repeats : int
        Counted rounds; three uncounted ones come first. Every round runs every competitor once.
    competitors : sequence of Competitor
        Whom.

    Returns
    -------
    list of dict
        A row per competitor: median times in milliseconds, and their ratios to the published expression. On a GPU
        also the share of the bandwidth that a plain copy of z reaches in the same rounds.
    """
    # On a GPU several sets take turns, so that no input is still in the cache.
    sets = [Inputs.draw(elements, _DTYPES[dtype], device) for _ in range(3 if device == "cuda" else 1)]
    built = [(competitor.name, competitor.build()) for competitor in competitors]
    times: dict[tuple[str, str], list[float]] = {}
    for round_ in range(-3, repeats):
        inputs = sets[round_ % len(sets)]
        works: list[tuple[str, str, Callable[[], Any]]] = [
            (name, kind, lambda a=activation, r=run: r(a))  # type: ignore[misc]
            for name, activation in built
            for kind, run in (("forward", inputs.forward), ("forward_backward", inputs.forward_backward))
        ]
        if device == "cuda":
            target = torch.empty_like(inputs.z)
            works.append(("copy", "forward", lambda t=target, z=inputs.z: t.copy_(z.detach())))  # type: ignore[misc]
        for name, kind, work in works:
            elapsed = _milliseconds(work, device)
            if round_ >= 0:
                times.setdefault((name, kind), []).append(elapsed)
    median = {key: statistics.median(values) for key, values in times.items()}
    rows = []
    for name, _ in built:
        forward, both = median[name, "forward"], median[name, "forward_backward"]
        row = {
            "competitor": name,
            "dtype": dtype,
            "elements": elements,
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


def _peak_mebibytes(name: str, elements: int, dtype: str, device: str, answer: Any) -> None:
    """Send the memory that one forward and backward pass needs beyond its inputs."""
    torch.set_num_threads(1)
    (activation,) = (c.build() for c in COMPETITORS if c.name == name)
    small = Inputs.draw(1024, _DTYPES[dtype], device)
    small.forward_backward(activation)  # imports, compilation
    inputs = Inputs.draw(elements, _DTYPES[dtype], device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        inputs.forward_backward(activation)
        answer.send((torch.cuda.max_memory_allocated() - before) / 2**20)
        return
    # The high-water mark must be the pass's own: what drawing the inputs took above it is filled up first.
    high = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open("/proc/self/statm") as statm:
        resident = int(statm.read().split()[1]) * resource.getpagesize() // 1024
    ballast = torch.ones(max(high - resident, 0) * 1024 // 4 + 1)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    inputs.forward_backward(activation)
    answer.send((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) / 1024)
    del ballast


def peak_mebibytes(name: str, elements: int, dtype: str, device: str) -> float:
    """Memory of one forward and backward pass beyond its inputs, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_peak_mebibytes, args=(name, elements, dtype, device, sender))
    process.start()
    sender.close()
    try:
        return float(receiver.recv())
    finally:
        process.join()


def host_microseconds(device: str) -> float:
    """Host time of one forward call on a small tensor, not waiting for the device."""
    inputs = Inputs.draw(256, torch.float32, device)
    for _ in range(100):
        inputs.forward(aglu)
    calls = 2000
    begin = time.perf_counter()
    for _ in range(calls):
        inputs.forward(aglu)
    elapsed = time.perf_counter() - begin
    if device == "cuda":
        torch.cuda.synchronize()
    return elapsed / calls * 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; return the exit status."""
    parser = argparse.ArgumentParser("python -m companion.bench", description=__doc__)
    parser.add_argument("--elements", type=int, nargs="+", help="sizes; default: 64 K to 4 M, on a GPU to 512 M bytes")
    parser.add_argument("--repeats", type=int, default=31)
    options = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes = options.elements or ([2**16, 2**20, 2**22, 2**25, 2**27] if device == "cuda" else [2**16, 2**20, 2**22])
    started = time.perf_counter()
    rows: list[dict[str, Any]] = []
    for dtype in _DTYPES:
        for elements in sizes:
            print(f"{device}, {dtype}, {elements} elements", file=sys.stderr)
            at_size = measure(elements, dtype, device, options.repeats)
            if elements == max(sizes):
                for row in at_size:
                    row["peak_mib"] = peak_mebibytes(row["competitor"], elements, dtype, device)
            rows += at_size
    settings: dict[str, Any] = {"repeats": options.repeats, "host_microseconds": host_microseconds(device)}
    result = {
        "experiment": "bench-apa",
        "preset": device if device == "cpu" else "gpu",
        "finished": True,
        "description": "AGLU with learnable scalar κ and λ, forward and backward",
        "settings": settings,
        "seeds": [],
        "rows": [{k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()} for row in rows],
        "tuning": [],
        "chosen": [],
        "provenance": {
            **environment(device),
            "threads": torch.get_num_threads(),
            "duration_seconds": time.perf_counter() - started,
            "date": datetime.date.today().isoformat(),
            "code": code_stamp("apa"),
            "git": git_state(),
        },
    }
    folder = runs_path()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"bench-apa-{result['preset']}.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(result, indent=1), encoding="utf-8")
    os.replace(temporary, path)
    for row in rows:
        print(
            f"{row['dtype']:9}{row['elements']:>11}  {row['competitor']:31}"
            f" forward {row['forward_ms']:9.3f} ms ×{row['forward_ratio']:5.2f}"
            f"   both {row['forward_backward_ms']:9.3f} ms ×{row['forward_backward_ratio']:5.2f}"
            + (f"   peak {row['peak_mib']:.0f} MiB" if "peak_mib" in row else "")
        )
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
