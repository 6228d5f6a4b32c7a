"""Uses every hostile folder in every way: nothing loaded, nothing written outside, no crash, and readable errors."""
import re

import pytest
from folders import CASES
from place import Place
from ways import complaints, is_command, run

RUNS = [pytest.param(case, way, id=f"{case.name}-{way}") for case in CASES for way in case.ways]


@pytest.mark.parametrize(("case", "way"), RUNS)
def test_folder(case, way, tools, place, tmp_path, record_property):
    case.change(place)
    words, stdin = tools.words(way, case, place)
    ended = run(place, words, stdin) if is_command(way) else run(place, words, stdin, case.seconds)
    harm, wrong = ended.harm(), complaints(way, case, ended)
    theirs = False
    if (harm or wrong) and not is_command(way):
        other = Place(tmp_path / "alone", tools.evil, tools.library)
        case.change(other)
        theirs = is_same(ended, tools.alone(way, case, other))
    record_property("case", case.name)
    record_property("way", way)
    record_property("theirs", int(theirs))
    record_property("harm", "; ".join(harm + wrong))
    record_property("seconds", round(ended.seconds, 1))
    if theirs:
        return
    record_property("loads", int(bool(ended.loads)))
    record_property("writes", int(bool(ended.changes)))
    record_property("aborts", int(ended.code < 0 and not ended.hung))
    record_property("hangs", int(ended.hung))
    if harm or wrong:
        told = f"exit {ended.code} after {ended.seconds:.1f} s\n--- stdout\n{ended.output[-2000:]}\n--- stderr\n{ended.errors[-4000:]}"
        pytest.fail("; ".join(harm + wrong) + "\n" + told, pytrace=False)


def is_same(ended, alone):
    """Whether the same harm happens without our library, and our library adds none."""
    if ended.hung or ended.code < 0:
        if (ended.hung, ended.code) != (alone.hung, alone.code):
            return False
    elif not (alone.loads or alone.changes):
        return False
    return bool(ended.loads) <= bool(alone.loads) and plain(ended.changes) <= plain(alone.changes)


def plain(changes):
    """File names with numbers masked, which are dates and process ids."""
    return {re.sub(r"\d+", "#", name) for name in changes}
