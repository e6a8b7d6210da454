"""cpp/disaggregation/pd_machine.h and its host: each event is posted there, and each action has an effect."""

import re
from pathlib import Path

from tests.repo.rules import none_of

ROOT = Path(__file__).parents[2]
MACHINE = (ROOT / "cpp/disaggregation/pd_machine.h").read_text(encoding="utf-8")
HOST = {path: path.read_text(encoding="utf-8") for path in (ROOT / "cpp/proxy/disaggregation").glob("*.cc")}

COMMENT = re.compile(r"//[^\n]*")


def members(enum):
    """Those of an `enum class` of the machine."""
    body = re.search(rf"enum class {enum} : uint8_t {{(.*?)}};", MACHINE, re.DOTALL)
    return set(re.findall(r"\bk\w+", COMMENT.sub("", body[1])))


def without_effect(text):
    """Actions whose case in a switch returns at once."""
    case = re.compile(r"((?:case PdAction::k\w+:\s*)+)(?:return|break);")
    return {name for match in case.finditer(COMMENT.sub("", text)) for name in re.findall(r"k\w+", match[1])}


def test_each_event_is_posted():
    given = [value for text in HOST.values() for value in re.findall(r"\btype = ([^;}]*)", text)]
    posted = set(re.findall(r"PdEventType::(k\w+)", " ".join(given)))
    none_of(members("PdEventType") - posted, "no code posts these: take them out of the machine")


def test_each_action_has_an_effect():
    done = {name for text in HOST.values() for name in re.findall(r"case PdAction::(k\w+):", text)}
    none_of(members("PdAction") - done, "the host does not know these actions")
    idle = set.union(*(without_effect(text) for text in HOST.values()))
    none_of(idle, "these actions have no effect: take them out of the machine")


def test_a_case_without_an_effect_is_found():
    text = """
    case PdAction::kCloseP:
      return Close();
    case PdAction::kRelay:  // the exchange does
    case PdAction::kEnd:
      return;
    case PdAction::kRetry:
      ++tasks_;
      return;
    """
    assert without_effect(text) == {"kRelay", "kEnd"}
    assert {"kPlanned", "kKeepOver"} <= members("PdEventType")
    assert {"kPFailed", "kRetry"} <= members("PdAction")
