"""What the promoted benchmarks say, in the words of a page: whether ours is faster or slower, their numbers decide.

A page says a cost beside what its reader would use instead, ``torch.compile`` of the published formula; times are
those of both passes, forward and backward.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from companion.study import results

__all__ = ["DTYPES", "Speeds", "load", "longer", "percent", "span", "verdict"]

#: The dtypes of a benchmark, and how pages call them.
DTYPES = {"float32": "fp32", "bfloat16": "bf16"}

#: Two times that differ by less are called equal: medians of a quiet machine do so from one run to the next.
EQUAL = 1.05

PUBLISHED = "published, compiled"


def load(name: str, preset: str = "cpu") -> Speeds:
    """The promoted benchmark of one subject.

    Parameters
    ----------
    name : str
        Of the subject: "apa", "dac-linear".
    preset : str
        "cpu" or "gpu".

    Returns
    -------
    Speeds
        Its times.

    Raises
    ------
    FileNotFoundError
        If none has been promoted.
    ValueError
        If the machine was not quiet, or nobody looked whether it was.
    """
    result = results.load(f"bench-{name}", preset)
    if why := results.disturbed(result["settings"].get("reference_ms", [])):
        raise ValueError(f"bench-{name}-{preset} is not a quiet machine's: {why}; measure again with `make bench`")
    return Speeds(name, result)


def verdict(ratios: Iterable[float]) -> str:
    """Ours against the other, in a word or a few: "slower", "slower in 3 of 8 cases by over 5 %, faster in 1".

    Parameters
    ----------
    ratios : iterable of float
        Our time divided by the other's, by case.

    Returns
    -------
    str
        To follow "ours is".

    Examples
    --------
    >>> verdict([1.4, 1.2])
    'slower'
    >>> verdict([1.04, 0.97])
    'as fast, within 5 %'
    >>> verdict([1.4, 1.0, 0.9])
    'slower in 1 of 3 cases by over 5 %, faster in 1'
    >>> verdict([1.4, 1.0])
    'slower in 1 of 2 cases by over 5 %, faster in none'
    """
    found = [*ratios]
    if not found:
        raise ValueError("ratios: got none, allowed is at least one")
    slower, faster = sum(ratio > EQUAL for ratio in found), sum(ratio < 1 / EQUAL for ratio in found)
    if slower == len(found):
        return "slower"
    if faster == len(found):
        return "faster"
    if not slower and not faster:
        return f"as fast, within {EQUAL - 1:.0%}".replace("%", " %")
    first, second = (
        (("slower", slower), ("faster", faster)) if slower >= faster else (("faster", faster), ("slower", slower))
    )
    by = f"{EQUAL - 1:.0%}".replace("%", " %")
    return f"{first[0]} in {first[1]} of {len(found)} cases by over {by}, {second[0]} in {second[1] or 'none'}"


def span(ratios: Iterable[float]) -> str:
    """From the least to the largest, as a page writes it.

    Examples
    --------
    >>> span([1.333]), span([0.42, 1.1]), span([5.3, 12.4])
    ('1.33', '0.42 to 1.10', '5.3 to 12')
    """
    found = [_written(ratio) for ratio in sorted(ratios)]
    return found[0] if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


def _written(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 2 else f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}"


def longer(ratio: float) -> str:
    """A ratio of times in words that "than" follows; what is called equal is no longer.

    Examples
    --------
    >>> longer(1.28), longer(0.9), longer(1.01), longer(0.97)
    ('28 % longer', '10 % shorter', 'no longer', 'no longer')
    """
    if 1 / EQUAL <= ratio <= EQUAL:
        return "no longer"
    more = round(100 * (ratio - 1))
    return f"{more} % longer" if more > 0 else f"{-more} % shorter"


def percent(error: float) -> str:
    """A relative error to one digit: the last digits differ from processor to processor.

    Examples
    --------
    >>> percent(0.0123), percent(6.2e-7), percent(2.4)
    ('1 %', '0.00006 %', '200 %')
    """
    share = float(f"{100 * error:.0e}")
    digits = max(0, -math.floor(math.log10(share))) if share else 0
    return f"{share:.{digits}f} %"


@dataclass(frozen=True)
class Speeds:
    """The times of one subject, both passes unless a method says otherwise.

    Parameters
    ----------
    name : str
        The subject.
    result : dict
        As `companion.study.results.load` gives it.
    """

    name: str
    result: dict[str, Any]

    @cached_property
    def rows(self) -> dict[tuple[str, str, str], dict[str, Any]]:
        """By dtype, size and competitor."""
        return {(row["dtype"], row["size"], row["competitor"]): row for row in self.result["rows"]}

    @property
    def sizes(self) -> list[str]:
        """In the order of the benchmark."""
        return [*dict.fromkeys(size for _, size, _ in self.rows)]

    @property
    def competitors(self) -> list[str]:
        """In the order of the benchmark."""
        return [*dict.fromkeys(competitor for *_, competitor in self.rows)]

    @property
    def machine(self) -> str:
        """Threads and processor: "2 threads of an AMD EPYC"."""
        about = self.result["provenance"]
        name = about["hardware"]["gpu"] or about["hardware"]["cpu"]
        return name if about["hardware"]["gpu"] else f"{about['threads']} threads of an {name}"

    def ms(self, competitor: str, size: str, dtype: str = "float32") -> float:
        """Milliseconds of both passes."""
        return float(self.rows[dtype, size, competitor]["forward_backward_ms"])

    def ratios(
        self,
        competitor: str,
        to: str = PUBLISHED,
        dtypes: Sequence[str] = tuple(DTYPES),
        sizes: Sequence[str] | None = None,
    ) -> list[float]:
        """Time divided by that of `to`, for each dtype and, in it, each size."""
        return [
            self.ms(competitor, size, dtype) / self.ms(to, size, dtype)
            for dtype in dtypes
            for size in sizes or self.sizes
        ]

    def compiled(self, sizes: Sequence[str] | None = None, against: str = " as the published formula compiled") -> str:
        """As `beside`, without the eager times; ``against`` may be empty where it was just said."""
        return f"{self._span('companion, compiled', sizes)} times as long{against} (fp32; {self._narrow(sizes)})"

    def beside(self, sizes: Sequence[str] | None = None) -> str:
        """Our time beside the published formula's, compiled and eager, to follow "compiled, both passes take".

        Parameters
        ----------
        sizes : sequence of str, optional
            Of the benchmark. All, if they are not given.

        Returns
        -------
        str
            In both dtypes, and of several sizes in how many the compiled one is slower or faster.
        """
        eager = self._span("companion", sizes, to="published")
        also = self._span("companion", sizes, "bfloat16", "published")
        return (
            f"{self._span('companion, compiled', sizes)} times as long as the published formula compiled, and eager "
            f"{eager} times as long as it eager (fp32; {self._narrow(sizes, f' and {also}')})"
        )

    def _narrow(self, sizes: Sequence[str] | None, eager: str = "") -> str:
        """What stands in brackets: bf16, and in how many of several cases ours is slower or faster, if not in all."""
        which = verdict(self.ratios("companion, compiled", sizes=sizes))
        said = f"; {'compiled ' if eager else ''}{which}" if len(sizes or self.sizes) > 1 and " of " in which else ""
        return f"bf16 {self._span('companion, compiled', sizes, 'bfloat16')}{eager}{said}"

    def _span(self, competitor: str, sizes: Sequence[str] | None, dtype: str = "float32", to: str = PUBLISHED) -> str:
        return span(self.ratios(competitor, to, [dtype], sizes))
