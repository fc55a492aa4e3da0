"""``make claims``: compute the verdicts on all claims, or on those of the named mechanisms, and write data/claims."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from companion.files import write_atomically
from companion.rooms import ROOMS
from companion.study.claims import Claim
from tests.claims.form import FOLDER, ROOT, Entry, declared, differs, written


def row(entry: Entry, committed: Claim | None) -> Claim:
    """What is to stand in the file: the committed row, where the computed one says the same."""
    found = entry.computed()
    return found if committed is None or differs(found, committed, entry.tolerance) else committed


def main(mechanisms: Sequence[str] = ()) -> None:
    """Write the file of each mechanism that has claims; say what changed."""
    every = [room for room in ROOMS if (FOLDER / room).is_dir()]
    if unknown := {*mechanisms} - {*every}:
        raise SystemExit(f"{', '.join(sorted(unknown))}: no such mechanism; there are {', '.join(every)}")
    for mechanism in mechanisms or every:
        before = {each.id: each for each in written(mechanism)}
        after = {entry.row.id: row(entry, before.get(entry.row.id)) for entry in declared(mechanism)}
        for name in sorted(before.keys() | after.keys()):
            old, new = before.get(name), after.get(name)
            if old != new:
                print(f"{name}: {old.status if old else 'new'} → {new.status if new else 'gone'}")
        text = json.dumps([asdict(each) for each in after.values()], indent=1, ensure_ascii=False)
        write_atomically(ROOT / "data" / "claims" / f"{mechanism}.json", (text + "\n").encode())


if __name__ == "__main__":
    main(sys.argv[1:])
