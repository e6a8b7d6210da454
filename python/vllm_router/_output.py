r"""Standard output of a command: a full disk is an error, and a reader that has gone is none.

return write_out(text, status)     # the exit status of the command
printable("a\nb")                  # r"a\nb"
"""

from __future__ import annotations

import contextlib
import os
import sys


def write_out(text: str, status: int = 0) -> int:
    """Writes the text, and all that was written before. Returns `status`, or 1 where that failed."""
    try:
        if sys.stdout is None:
            raise OSError(0, "it is closed")
        encoding = sys.stdout.encoding or "utf-8"  # such as ASCII, which has no é
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_the_rest()  # whoever read it has gone
    except OSError as error:
        reason = error.strerror or type(error).__name__
        with contextlib.suppress(OSError):  # stderr may be on the same disk
            print(f"vllm-router: error: standard output cannot be written: {reason}", file=sys.stderr)
        _discard_the_rest()
        return 1
    return status


def _discard_the_rest() -> None:
    """What is left in the buffer would fail once more when the interpreter ends."""
    if sys.stdout is not None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def printable(text: str) -> str:
    """The text with escapes in place of control characters and of others that are not printable."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
