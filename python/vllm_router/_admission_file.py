"""AdmissionFile: the file of priority classes, read again when it has changed.

    file = AdmissionFile("classes.yaml")      ValueError: it cannot be read, or has a mistake
    file.lines                                what the core gets
    newer = file.again()                      likewise; whatever the file has become
    newer = file.look()                       None: it is the same, or is being written

What `again()` and `look()` find changes nothing by itself. One thread at a time.
"""

from __future__ import annotations

from pathlib import Path

from vllm_router._watched_file import Look, WatchedFile, WatchedFileError, text_of
from vllm_router.settings.admission import admission_of_yaml

__all__ = ["AdmissionFile"]

_WHAT = "file of priority classes"
_MUST = "a YAML file of priority classes"


class AdmissionFile:
    """A file of priority classes as it was read.

    Args:
        path: The file.

    Raises:
        ValueError: it cannot be read, or has a mistake; the message has the line.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._watched = WatchedFile(path, _WHAT, _MUST)
        self._failed = ""  # the last error of look(), which is said once
        try:
            content = self._watched.look()
        except WatchedFileError as error:
            raise ValueError(f"admission_config: {error}") from None
        if isinstance(content, Look):
            raise ValueError(f"admission_config: {path} changed while it was read; read it again")
        self.lines = _lines_of(content, path)

    def again(self) -> str:
        """What the file has now.

        Raises:
            ValueError: as the class.
        """
        return AdmissionFile(self.path).lines

    def look(self) -> str | None:
        """What the file has now, if it has changed and two looks in a row saw the same; None: it has not.

        Raises:
            ValueError: as the class, once for each mistake.
        """
        try:
            content = self._watched.look()
        except WatchedFileError as error:
            if str(error) == self._failed:
                return None
            self._failed = str(error)
            raise ValueError(f"admission_config: {error}") from None
        self._failed = ""
        return None if isinstance(content, Look) else _lines_of(content, self.path)


def _lines_of(content: bytes, path: str) -> str:
    name = Path(path).name
    return admission_of_yaml(text_of(content, name), name)
