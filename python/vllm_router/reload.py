"""Settings that change while requests run: what a file changes, whether it may, and what is said of it.

    read file ─▶ with the command line ─▶ check all ─▶ difference(old, new) ─▶ any "restart"? ─▶ apply
                     │ mistake               │ mistake                            │ refused       │ error
                     ▼                       ▼                                    ▼               ▼
                              nothing was changed, and one line of the log says why

`difference()` and `Change` are pure. `Reloads` keeps what is in force, where each setting comes from and
since when; a server tells it how to apply a change. Thread-safe: one reload at a time.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vllm_router._output import printable
from vllm_router._secrets import described, shown_urls, without_query, without_userinfo
from vllm_router.discovery.source import Difference
from vllm_router.errors import RouterError
from vllm_router.router_args import FLAGS, RouterArgs
from vllm_router.settings.flag import Flag
from vllm_router.settings.kinds import RequestPath

__all__ = ["Change", "Loaded", "ReloadReport", "Reloads", "SettingsFile", "difference"]

HIDDEN = "(hidden)"
_MOST_NAMED = 8  # workers in one line of the log
_MOST_LISTED = 10  # items of a list in the body of /admin/reload
_NOTHING = Difference([], [], [], [])
# A change between 0 and another value adds or removes what does the work.
_SWITCHED_BY_ZERO = ("health_check_interval_secs",)


class Changed(NamedTuple):
    """A setting with its value before and after."""

    flag: Flag
    old: Any
    new: Any

    @property
    def needs_restart(self) -> bool:
        """Whether it cannot change while the router runs."""
        if self.flag.live == "restart":
            return True
        return self.flag.field in _SWITCHED_BY_ZERO and bool(self.old) != bool(self.new)

    @property
    def sentence(self) -> str:
        """`retry_max_retries 3 -> 5`; of secrets only that they changed."""
        flag = self.flag
        if flag.secret:
            return f"{flag.field} changed"
        return f"{flag.field} {flag.shown(self.old)} -> {flag.shown(self.new)}"

    def sentence_with(self, workers: Difference) -> str:
        """The same; of `worker_urls` what became of the workers."""
        if self.flag.field != "worker_urls":
            return self.sentence
        same = "in another order" if set(self.old or ()) == set(self.new or ()) else "with the same fleet"
        return f"worker_urls {_said_of(workers) or same}"

    def as_json(self) -> dict[str, Any]:
        """For /admin/reload."""
        flag = self.flag
        return {
            "setting": flag.field,
            "from": _bounded(readable(flag, self.old)),
            "to": _bounded(readable(flag, self.new)),
            "live": "restart" if self.needs_restart else flag.live,
        }


@dataclasses.dataclass(frozen=True)
class Change:
    """What makes other settings of some."""

    settings: tuple[Changed, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.settings)

    def __contains__(self, name: object) -> bool:
        return any(changed.flag.field == name for changed in self.settings)

    @property
    def refused(self) -> tuple[Changed, ...]:
        """Those that need a restart. If there is any, none is applied."""
        return tuple(changed for changed in self.settings if changed.needs_restart)

    def applied_to(self, args: RouterArgs) -> RouterArgs:
        """The settings with these changes."""
        return dataclasses.replace(args, **{changed.flag.field: changed.new for changed in self.settings})

    def sentence_with(self, workers: Difference) -> str:
        """All of it, for the log."""
        return ", ".join(changed.sentence_with(workers) for changed in self.settings)


def _said_of(workers: Difference) -> str:
    """As in `+http://c -http://a (drains) -http://b (held)`."""
    words = [f"+{shown_urls(url)}" for url in workers.joined]
    words += [f"-{shown_urls(url)} (drains)" for url in workers.left]
    words += [f"-{shown_urls(url)} (held)" for url in workers.held]
    more = f" and {len(words) - _MOST_NAMED} more" if len(words) > _MOST_NAMED else ""
    return " ".join(words[:_MOST_NAMED]) + more


def _bounded(value: Any) -> Any:
    """A list of thousands of workers by its first ones, and the number of the others."""
    if not isinstance(value, list) or len(value) <= _MOST_LISTED:
        return value
    return [*value[:_MOST_LISTED], f"and {len(value) - _MOST_LISTED} more"]


def difference(old: RouterArgs, new: RouterArgs) -> Change:
    """What has another value, by flag. Two spellings of one value are equal.

    Raises:
        ValueError: a value does not fit; settings that were checked have none.
    """
    changes = []
    for name, flag in FLAGS.items():
        before, after = getattr(old, name), getattr(new, name)
        if flag.check(before) != flag.check(after):
            changes.append(Changed(flag, before, after))
    return Change(tuple(changes))


def readable(flag: Flag, value: Any) -> Any:
    """A value as JSON has it, without what is secret in it."""
    if value is None or value in ([], {}):
        return value
    if flag.secret:
        return HIDDEN
    if isinstance(flag.kind, RequestPath) and isinstance(value, str):
        return without_query(value)
    if flag.urls:
        return [_open(item) for item in value] if isinstance(value, (list, tuple)) else _open(value)
    return _plain(value)


def _open(item: Any) -> Any:
    if isinstance(item, (list, tuple)):
        return [_open(part) for part in item]
    return (shown_urls(item) or described(item)) if isinstance(item, str) else item


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return without_userinfo(value) if isinstance(value, str) else value


class Loaded(NamedTuple):
    """Settings, and where those come from that are set."""

    args: RouterArgs
    sources: Mapping[str, str]
    """By name: `file`, `environment` or `command line`. The others have their defaults."""
    file: str | None = None
    """The path of the file, as it was given."""


@dataclasses.dataclass(frozen=True)
class SettingsFile:
    """The file of settings that a server was started with."""

    path: str
    load: Callable[[bytes | None], Loaded]
    """Reads it again, with all that stands above it, and checks the whole. Gets what is in the file, if that
    was read already. Raises ValueError."""
    loaded: Loaded
    """What the server begins with."""

    @property
    def name(self) -> str:
        """Its name in messages."""
        return printable(Path(self.path).name)


@dataclasses.dataclass(frozen=True)
class ReloadReport:
    """What came of a reload."""

    result: str
    """`applied`, of a dry run `would_apply`; `unchanged`: there is nothing new; `refused`: a change needs a
    restart, or the router is shutting down; `invalid`: there is a mistake. Of the last two nothing is in
    force."""
    message: str
    """A sentence, as in the log."""
    change: Change = dataclasses.field(default=Change(), repr=False)
    """What the file changes, whether or not it was taken."""
    dry_run: bool = False
    """Nothing was changed, whatever the result."""
    generation: int = 1
    """The number of the settings that are in force now; each change has the next one."""
    workers: Difference = _NOTHING
    """What becomes of the workers of the file, as the fleet says. Those that are `held` stay for now: until
    one of the new ones passes its check or, if the list is empty, until that is confirmed."""
    warnings: tuple[str, ...] = ()
    """Sentences about settings that will not do what their names suggest, and did not say so before."""

    @property
    def ok(self) -> bool:
        """Whether the settings in force are those of the file or, of a dry run, would be."""
        return self.result in ("applied", "would_apply", "unchanged")

    def as_json(self) -> str:
        """The body of POST /admin/reload."""
        report: dict[str, Any] = {
            "result": self.result,
            "dry_run": self.dry_run,
            "generation": self.generation,
            "message": self.message,
            "changes": [changed.as_json() for changed in self.change.settings],
        }
        if self.warnings:
            report["warnings"] = list(self.warnings)
        if (self.ok and "worker_urls" in self.change) or self.workers != _NOTHING:
            urls = {"joined": self.workers.joined, "left": self.workers.left, "held": self.workers.held}
            report["workers"] = {
                name: _bounded([shown_urls(url) for url in some]) for name, some in urls.items()
            }
        return json.dumps(report)


# Gets the new settings, what is new in them, and whether it is a dry run. Changes everything or, if it
# raises, nothing. Returns what becomes of the workers.
Apply = Callable[[RouterArgs, Change, bool], Difference]

_NO_FILE = (
    "the server was not started with --config, so there is no file of settings to read; keys, certificates "
    "and the record log were read again"
)
_TURNED_OFF = (
    "--config-reload is off, so the file of settings is not read again; keys, certificates and the record "
    "log were"
)


class Reloads:
    """The settings in force, and how others take their place.

    Args:
        file: The file of settings; None without one.
        args: The settings of a server without a file.
        sources: Where those come from; None: from a program.
        clock: Unix time in seconds.
    """

    def __init__(
        self,
        file: SettingsFile | None,
        args: RouterArgs,
        sources: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.file = file
        self._args = args if file is None else file.loaded.args
        self._sources = sources if file is None else file.loaded.sources
        self._clock = clock
        self._lock = threading.Lock()
        self._generation = 1
        self._began = clock()
        self._since: dict[str, float] = {}  # of settings that a reload has changed
        self._held = False  # workers, by the last reload

    @property
    def args(self) -> RouterArgs:
        """The settings in force."""
        return self._args

    @property
    def generation(self) -> int:
        """Their number."""
        return self._generation

    @property
    def reads_file(self) -> bool:
        """Whether a reload reads the file."""
        return self.file is not None and self._args.config_reload != "off"

    def reload(self, apply: Apply, dry_run: bool = False, content: bytes | None = None) -> ReloadReport:
        """Read the file, and put what it says in force: all of it or nothing. Never raises for a mistake.

        Args:
            apply: Puts settings in force.
            dry_run: Change nothing.
            content: What is in the file, if that was read already.
        """
        with self._lock:
            return self._reload(apply, dry_run, content)

    def _reload(self, apply: Apply, dry_run: bool, content: bytes | None) -> ReloadReport:
        file = self.file
        if file is None or not self.reads_file:
            return self._report("unchanged", _NO_FILE if file is None else _TURNED_OFF, Change(), dry_run)
        try:
            loaded = file.load(content)
            change = difference(self._args, loaded.args)
        except Exception as error:  # whatever it is, a running router goes on
            return self._report("invalid", _not_taken(file, _said(error), dry_run), Change(), dry_run)
        if change.refused:
            names = _listed([changed.sentence for changed in change.refused])
            needs = "needs" if len(change.refused) == 1 else "need"
            return self._report(
                "refused", _not_taken(file, f"{names} {needs} a restart", dry_run), change, dry_run
            )
        if not change and not self._held:
            self._sources = self._sources if dry_run else loaded.sources
            return self._report("unchanged", f"{file.name} has nothing new", change, dry_run)
        warned = set(self._args.warnings())
        warnings = [sentence for sentence in loaded.args.warnings() if sentence not in warned]
        try:
            workers = apply(loaded.args, change, dry_run)
        except Exception as error:
            return self._report("invalid", _not_taken(file, _said(error), dry_run), change, dry_run)
        if not dry_run:
            now = self._clock()
            self._args = loaded.args
            self._sources = loaded.sources
            self._held = bool(workers.held)
            self._since.update((changed.flag.field, now) for changed in change.settings)
            self._generation += bool(change)
        if not change:
            became = _said_of(workers)
            message = f"{file.name} has nothing new{became and f'; worker_urls {became}'}"
            return self._report("unchanged", message, change, dry_run, workers)
        done = "would reload" if dry_run else "reloaded"
        message = f"{done} {file.name}: {change.sentence_with(workers)}"
        result = "would_apply" if dry_run else "applied"
        report = self._report(result, message, change, dry_run, workers)
        return dataclasses.replace(report, warnings=tuple(warnings))

    def _report(
        self, result: str, message: str, change: Change, dry_run: bool, workers: Difference = _NOTHING
    ) -> ReloadReport:
        return ReloadReport(result, message, change, dry_run, self._generation, workers)

    def description(self) -> str:
        """The body of GET /admin/config: every setting, its source and since when it is in force."""
        with self._lock:
            settings = {}
            for name, flag in FLAGS.items():
                if flag.not_built or flag.no_effect:
                    continue
                reloaded = name in self._since
                settings[name] = {
                    "value": readable(flag, getattr(self._args, name)),
                    "source": self._source_of(name),
                    "reloaded": reloaded,
                    "since": _utc(self._since.get(name, self._began)),
                    "live": flag.live,
                }
            return json.dumps(
                {
                    "file": None if self.file is None else self.file.path,
                    "generation": self._generation,
                    "settings": settings,
                }
            )

    def _source_of(self, name: str) -> str:
        if self._sources is not None:
            return self._sources.get(name, "default")
        return "default" if FLAGS[name].is_default(getattr(self._args, name)) else "program"


def _said(error: Exception) -> str:
    expected = isinstance(error, (ValueError, RouterError))
    return str(error) if expected else f"{type(error).__name__}: {without_userinfo(str(error))}"


def _not_taken(file: SettingsFile, why: str, dry_run: bool) -> str:
    why = " ".join(why.split()).removeprefix("--config ")
    path = printable(file.path)
    if why.startswith((f"{path}: ", f"{path} ")):  # it is named once
        why = why.removeprefix(path).removeprefix(": ")
        why = f"it{why}" if why.startswith(" ") else why
    if dry_run:
        return f"{file.name} would not be taken: {why}"
    return f"{file.name} was not taken: {why}; nothing was changed"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
