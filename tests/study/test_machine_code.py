"""Machine code as the kernel pages read it: which loop is meant."""

import pytest

from companion.study.machine_code import Code

LINES = ["MOV", "LDG.E.128", "FFMA", "LDG.E.128", "BRA 0x10", "FFMA", "BRA 0x0", "BRA 0x80", "EXIT"]
CODE = Code(32, 0, [(16 * place, text) for place, text in enumerate(LINES)])


def test_the_shortest_loop_with_so_many() -> None:
    assert CODE.loop(r"\.128") == LINES[1:5]
    assert CODE.loop("FFMA", least=2) == LINES[:7]


def test_a_jump_ahead_is_no_loop() -> None:
    with pytest.raises(ValueError, match="pattern is 'EXIT' and least 1: no loop has so many"):
        CODE.loop("EXIT")
