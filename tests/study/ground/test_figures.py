"""The figure's lanes add up as the kernel's do, before it is moved and after."""

from __future__ import annotations

import re

import pytest

from companion.study.ground.figures import moving_sum
from tests.cases import together
from tests.study.moving import said, svg

NUMBERS = [3, 1, 4, 1, 5, 9, 2, 6]
#: What lane 0's sum is made of, in each row, by the number of exchanges.
MADE_OF = [[{0}], [{0, 4}, {0}], [{0, 2, 4, 6}, {0, 2}, {0}], [set(range(8)), {0, 1, 2, 3}, {0, 1}, {0}]]


def _is_the_sum(page: str, exchanges: int) -> None:
    drawn = svg(page)
    for row in range(4):
        far = 8 >> row
        for lane in range(8):
            # after row exchanges a lane holds the sum of the lanes that lie multiples of so much away
            total = sum(NUMBERS[other] for other in range(8) if (other - lane) % far == 0)
            assert (drawn[f"sum{row}-{lane}"].text or "") == (str(total) if row <= exchanges else "")
            inside = row <= exchanges and lane in MADE_OF[exchanges][row]
            assert drawn[f"at{row}-{lane}"].get("fill-opacity") == ("0.3" if inside else "0")
    # two lines lead to each sum that is made of two
    assert drawn["tree"].get("d").count("M") == 2 * (2**exchanges - 1)
    assert [drawn[f"links{row}"].get("stroke-opacity") for row in range(3)] == [
        "0.6" if row < exchanges else "0.12" for row in range(3)
    ]
    told = re.search(r"lane 0 holds (?:its own number, )?([\d+() ]+)", said(page))[1]
    assert eval(told) == sum(NUMBERS[lane] for lane in MADE_OF[exchanges][0])
    assert len(re.findall(r"\d+", told)) == 2**exchanges


@together("exchanges", range(4))
def test_the_sums_start_as_asked(exchanges):
    _is_the_sum(moving_sum(exchanges).html, exchanges)


@pytest.mark.browser
@together("exchanges", range(4))
def test_the_sums_follow_the_slider(figure, exchanges):
    figure.show(moving_sum())
    figure.move(exchanges=exchanges)
    _is_the_sum(figure.now(), exchanges)


@together("exchanges", [-1, 4])
def test_a_start_outside_its_slider_is_refused(exchanges):
    with pytest.raises(ValueError, match=r"exchanges must lie in \[0, 3\]"):
        moving_sum(exchanges)
