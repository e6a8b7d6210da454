"""cpp/base/time_units.h: the one place of these numbers."""

import re
from pathlib import Path

CPP = Path(__file__).parents[3] / "cpp"

UNIT = re.compile(
    r"constexpr (?:u?int64_t|double) (k(?:Ms|Us|Seconds?|Nanos|Micros|\w+Per\w+)) = (1'000'000(?:'000)?);"
)


def test_a_unit_has_the_length_that_its_name_says():
    assert dict(UNIT.findall((CPP / "base" / "time_units.h").read_text())) == {
        "kNanosPerMs": "1'000'000",
        "kNanosPerSecond": "1'000'000'000",
        "kMicrosPerSecond": "1'000'000",
    }


def test_no_other_file_has_a_unit_of_its_own():
    own = {
        path.relative_to(CPP).as_posix()
        for path in [*CPP.rglob("*.h"), *CPP.rglob("*.cc")]
        if UNIT.search(path.read_text())
    }
    # The second has tables of buckets, which are read in columns.
    assert own == {"base/time_units.h", "proxy/telemetry/buckets.h"}
