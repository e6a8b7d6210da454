"""Server: the HTTP server around a Router, running in threads of the C++ core.

    with Router(worker_urls=["http://gpu-0:8000"]).serve(port=0) as server:
        requests.post(server.url + "/v1/chat/completions", json=...)
    # leaving the block finishes what is in flight, then closes the port

No Python runs per request.
"""

from __future__ import annotations

import dataclasses
import math
import signal
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from vllm_router import _core
from vllm_router._admission_file import AdmissionFile
from vllm_router._output import printable
from vllm_router._watched_file import Look, WatchedFile, WatchedFileError
from vllm_router.discovery.source import Difference, Follower, Source, stop_all
from vllm_router.errors import RouterError
from vllm_router.reload import Change, ReloadReport, Reloads, SettingsFile
from vllm_router.router_args import RouterArgs
from vllm_router.settings.programs import programs_line, split_lines
from vllm_router.settings.response_cache import check_fleet_is_told, is_shared

if TYPE_CHECKING:
    from vllm_router.router import Router

__all__ = ["Server"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_FOLLOWERS_SECS = 2.0  # sources of workers have this long to stop; one that blocks longer is abandoned
_LOOK_SECS = 1.0  # between two looks at a file of settings that is watched
_FAILED = (
    '{"result": "failed", "message": "the reload failed; the log says why, and GET /admin/config shows what '
    'is in force"}'
)
_LAST_LINES_SECS = 0.1  # that a second signal leaves for messages that wait
_TURN_SECS = 0.1  # Python runs signal handlers between two waits of this length


class Server:
    """A router that is being served. Made by `Router.serve()`; the ports are open when it returns.

    Args:
        router: Makes the decisions; it may go on being used as a library at the same time.
        args: The settings, of which the server takes `server_options()`.
        sources: Sources of workers, followed until the server has stopped. GET /readiness knows of them as
            soon as the ports are open.
        settings_file: The file that the settings are from, for `reload()`.
        set_by: Without one, where settings come from by name; None: from this program.

    Raises:
        OSError: a port cannot be had; the message names it and says what to do.
        ValueError: stored responses are shared, and nothing tells this fleet from others in the same Redis.
    """

    def __init__(
        self,
        router: Router,
        args: RouterArgs,
        sources: Sequence[Source] = (),
        settings_file: SettingsFile | None = None,
        set_by: Mapping[str, str] | None = None,
    ) -> None:
        check_fleet_is_told(args)
        options = args.server_options()
        core_options = {name: options[name] for name in _core.Server.option_names if name in options}
        path = args.admission_config
        self._admission = AdmissionFile(path) if path is not None else None
        core_options |= _admission_options(self._admission, options)
        if core_options["program_admission"] == "off" and _says_of_programs(self._admission):
            _core.log(
                "warn", f"{printable(str(path))} has programs, which are off; add --program-admission on"
            )
        followers: list[Follower] = []
        try:
            for source in sources:
                followers.append(router._announced(source))
            self._core = _core.Server(router, **core_options)
            # Not before: now workers join once they have passed their health check.
            for follower in followers:
                follower.start()
        except BaseException:
            stop_all(followers, _FOLLOWERS_SECS)
            raise
        if is_shared(args):
            prefix = options["response_cache_redis_key_prefix"]
            _core.log("info", f"responses are stored in Redis under {prefix}, for all routers of this fleet")
        self._stop_costs = (
            _write_deletion_costs(self, sources, self._core) if args.pod_deletion_cost else None
        )
        # Once, whichever comes first: the end of the server, of this object, or of the process.
        self._stop_following = weakref.finalize(self, stop_all, followers, _FOLLOWERS_SECS)
        self._metrics_host: str | None = options.get("prometheus_host")
        self._admin_host: str = options["admin_host"]
        self._grace_secs: float = options["shutdown_grace_period_secs"]
        self._startup_secs: float = options["worker_startup_timeout_secs"]
        # An empty fleet waits for its sources.
        self._may_give_up = bool(router.worker_urls) and not router.is_following
        self._reload_lock = threading.Lock()
        self._holds = False  # workers that the settings leave out are held
        self._reloads = Reloads(settings_file, args, set_by)
        configuration = self._core.configuration
        configuration.describe(self._reloads.description())
        watched = None
        if settings_file is not None and args.config_reload == "watch":
            watched = WatchedFile(settings_file.path, "file of settings", "a file of settings")
        reloading = threading.Thread(
            target=_take_calls, args=(configuration, weakref.ref(self), watched), name="reload", daemon=True
        )
        reloading.start()
        self._stop_reloading = weakref.finalize(self, _end_calls, configuration, reloading)

    @property
    def url(self) -> str:
        """Where clients go, such as `http://127.0.0.1:30000`."""
        return _url(self._core.host, self._core.port, self._core.tls)

    def _addresses(self) -> tuple[str, str | None, str | None]:
        """Where clients, metrics and admin endpoints are served, as it was bound: 0.0.0.0 is everywhere."""
        core = self._core
        metrics, admin = core.metrics_port, core.admin_port
        return (
            _bound(core.host, core.port, core.tls),
            None if self._metrics_host is None or metrics is None else _bound(self._metrics_host, metrics),
            None if admin is None else _bound(self._admin_host, admin, core.tls),
        )

    @property
    def port(self) -> int:
        """The port, also when the option was 0."""
        return self._core.port

    @property
    def metrics_url(self) -> str | None:
        """Where Prometheus scrapes; None without `prometheus_port`."""
        if self._metrics_host is None or self._core.metrics_port is None:
            return None
        return _url(self._metrics_host, self._core.metrics_port) + "/metrics"

    @property
    def admin_url(self) -> str | None:
        """Where admin endpoints are; None without `admin_port`, when they are at `url`."""
        return (
            None
            if self._core.admin_port is None
            else _url(self._admin_host, self._core.admin_port, self._core.tls)
        )

    def reload(self, dry_run: bool = False) -> ReloadReport:
        """Read the settings again, as SIGHUP and POST /admin/reload do; the log tells what came of it.

        The files of keys and of TLS are read again, and those of logs are opened again, each by itself:
        whatever becomes of the others. If the command was started with `--config`, that file is read, too,
        and what it changes is in force for requests that begin from now on: all of it or, if there is a
        mistake or a change that needs a restart, nothing. The command line still comes first.

        Args:
            dry_run: Only read and check the file of settings; change nothing.

        Returns:
            What came of the file of settings; `report.ok` if the settings in force are now those of the file,
            or if there is none. A mistake raises nothing.
        """
        if self._core.configuration.closed:
            if not dry_run:
                self._core.reload()
            return ReloadReport(
                "refused", "the router is shutting down; nothing was changed", dry_run=dry_run
            )
        if not dry_run:
            self._core.reload()
        mistakes = self._reload_admission(dry_run)
        report = self._reload_settings(dry_run)
        return dataclasses.replace(report, warnings=(*report.warnings, *mistakes))

    def _reload_admission(self, dry_run: bool = False) -> tuple[str, ...]:
        """Reads the file of priority classes again. Returns its mistake; then nothing has changed."""
        file = self._admission
        return () if file is None else self._follow_admission(file.again, dry_run)

    def _look_at_admission(self) -> None:
        """Reads it if it has changed."""
        file = self._admission
        if file is not None:
            self._follow_admission(file.look)

    def _follow_admission(self, read: Callable[[], str | None], dry_run: bool = False) -> tuple[str, ...]:
        with self._reload_lock:
            file = self._admission
            if file is None:
                return ()
            before = file.lines
            try:
                lines = read()
                if lines is None or lines == before:
                    return ()
                file.lines = lines
                self._apply(self._reloads.args, Change(), dry_run)
            except (ValueError, RouterError) as error:
                file.lines = before
                mistake = f"{error}. The previous priority classes stay in force"
                _core.log("error", mistake)
                return (mistake,)
            if dry_run:
                file.lines = before
            else:
                _core.log("info", f"reloaded the priority classes of {printable(file.path)}")
            return ()

    def _admission_for(self, args: RouterArgs) -> AdmissionFile | None:
        """The file that these settings name, as it was read."""
        path = args.admission_config
        if path is None:
            return None
        known = self._admission
        return known if known is not None and known.path == path else AdmissionFile(path)

    def _reload_settings(self, dry_run: bool = False, content: bytes | None = None) -> ReloadReport:
        with self._reload_lock:  # so that the last one is the last that is counted and described
            return self._reload_settings_alone(dry_run, content)

    def _reload_settings_alone(self, dry_run: bool, content: bytes | None) -> ReloadReport:
        report = self._reloads.reload(self._apply, dry_run, content)
        configuration = self._core.configuration
        if not dry_run and self._reloads.reads_file:
            configuration.count(report.result, report.generation)
            if report.result != "unchanged":
                _core.log("info" if report.ok else "error", report.message)
            for sentence in report.warnings:
                _core.log("warn", sentence)
            configuration.describe(self._reloads.description())
        return report

    def _apply(self, args: RouterArgs, change: Change, dry_run: bool) -> Difference:
        """Puts settings in force, all or none. Returns what becomes of the workers."""
        check_fleet_is_told(args)
        options = args.server_options()
        live = {name: options[name] for name in _core.Server.live_option_names if name in options}
        admission = self._admission_for(args)
        live |= _admission_options(admission, options)
        router_options = args.router_options()
        # Those of two stages need a restart.
        takes_workers = ("worker_urls" in change or self._holds) and not args.vllm_pd_disaggregation
        applied = self._core.apply(
            live,
            router_options["worker_urls"] if takes_workers else None,
            router_options["discovery_guard"],
            router_options["discovery_hold_secs"],
            dry_run,
        )
        workers = Difference(*applied)
        if not dry_run:
            self._admission = admission
            self._holds = bool(workers.held)
            self._grace_secs = options["shutdown_grace_period_secs"]
            self._startup_secs = options["worker_startup_timeout_secs"]
            if "log_level" in change:
                _core.set_log_level(options["log_level"])
        return workers

    def metrics(self) -> str:
        """The metrics as Prometheus text, as `metrics_url` gives them."""
        return self._core.metrics_text()

    def shutdown(self) -> None:
        """Begin to stop, and return.

        There are no new connections; requests in flight go on until the grace period
        (`shutdown_grace_period_secs`) ends. A second call cuts them now.
        """
        self._core.shutdown()

    def wait(self, timeout_secs: float | None = None) -> bool:
        """Wait until the server has stopped. False if that took longer than `timeout_secs` seconds.

        Signal handlers run meanwhile: Ctrl-C raises KeyboardInterrupt within a tenth of a second.
        """
        end = None if timeout_secs is None else time.monotonic() + timeout_secs
        while True:
            rest = _TURN_SECS if end is None else min(_TURN_SECS, max(0.0, end - time.monotonic()))
            if self._core.wait(rest):
                if self._stop_costs is not None:
                    self._stop_costs()
                self._stop_following()
                return True
            if end is not None and time.monotonic() >= end:
                return False

    def stop(self, grace_secs: float | None = None) -> int:
        """Stop, and return how many requests in flight had to be cut.

        They are waited for at most `grace_secs` seconds; None means the server's own grace period.
        """
        self.shutdown()
        if grace_secs is not None and not self.wait(grace_secs):
            self.shutdown()
        self.wait()
        return self._core.exchanges_cut

    def run(self, announcement: str = "") -> int:
        """Serve until SIGTERM or SIGINT, then stop gracefully; a second signal ends the process at once.

        SIGHUP is `reload()` where there are files to read again. Elsewhere it ends the process, as ever.
        SIGUSR1 opens the files of logs again, for log rotation.
        In another thread than the main one no signals are awaited, only the end of the server.

        Args:
            announcement: A line for the log, written when signals are handled.

        Returns:
            The exit status: 0; 3 if requests in flight had to be cut; or 1 if the fleet was not empty, no
            source of workers is followed, and no worker passed its health check within
            `worker_startup_timeout_secs`.
        """
        if threading.current_thread() is not threading.main_thread():
            self._announce(announcement)
            self.wait()
        else:
            former = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
            former[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, self._on_rotation)
            has_file = self._reloads.reads_file or self._admission is not None
            if self._core.has_something_to_reload or has_file:
                former[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._on_hangup)
            try:
                self._announce(announcement)
                started = time.monotonic() if self._may_give_up else math.inf
                while not self.wait(_TURN_SECS):
                    if self._core.any_worker_answered:
                        started = math.inf
                    if time.monotonic() > started + self._startup_secs:
                        return self._end_without_workers()
            finally:
                for number, handler in former.items():
                    signal.signal(number, handler)
        return 3 if self._core.exchanges_cut else 0

    def _end_without_workers(self) -> int:
        _core.log(
            "error",
            f"no worker passed its health check within {self._startup_secs:g} s "
            "(--worker-startup-timeout-secs); start one, or correct --worker-urls",
        )
        self.stop(0)
        return 1

    def _announce(self, announcement: str) -> None:
        if announcement:
            _core.log("info", announcement)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, _end_at_once)
        self.shutdown()
        _core.log(
            "info",
            f"{signal.Signals(number).name}: stopping; requests in flight have {self._grace_secs:g} s to "
            "finish, another signal aborts them",
        )

    def _on_hangup(self, _number: int, _frame: FrameType | None) -> None:
        # In the thread of calls, since this one may be in the middle of another reload.
        if not self._core.configuration.request():
            self._core.reload()

    def _on_rotation(self, _number: int, _frame: FrameType | None) -> None:
        _core.log("info", "SIGUSR1: opening the files of logs again")
        # Likewise; and a disk that hangs must not hold up this thread, which other signals need.
        if not self._core.configuration.request(only_logs=True):
            _core.reopen_log()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Server {self.url}{' stopped' if self._core.wait(0) else ''}>"


def _says_of_programs(file: AdmissionFile | None) -> bool:
    return file is not None and split_lines(file.lines)[1] != ""


def _admission_options(file: AdmissionFile | None, options: Mapping[str, Any]) -> dict[str, str | None]:
    """What the core gets of the file, and of the flags that it completes."""
    classes, programs = split_lines(None if file is None else file.lines)
    return {"admission_config": classes, "program_admission": programs_line(options, programs)}


def _write_deletion_costs(
    server: Server, sources: Sequence[Source], core: _core.Server
) -> Callable[[], object] | None:
    """Begins to write what pods are worth, if there are pods; returns what ends it."""
    kubernetes = import_module("vllm_router.discovery.kubernetes")
    pool = import_module("vllm_router.discovery.inference_pool")
    of_pods = (kubernetes.KubernetesSource, pool.InferencePoolSource)
    found: list[Any] = [source for source in sources if isinstance(source, of_pods)]
    if not found:
        return None
    core_of = weakref.ref(core)

    def uses() -> list[Any] | None:
        alive = core_of()
        if alive is None or not alive.leads_peers:
            return None
        return [kubernetes.Use(*row) for row in alive.host_uses()]

    costs = found[0].deletion_costs(uses)
    costs.start()
    return weakref.finalize(server, costs.stop, _FOLLOWERS_SECS)


def _take_calls(
    configuration: _core.Configuration, server_of: weakref.ref[Server], watched: WatchedFile | None
) -> None:
    """The thread of all reloads but those by `Server.reload()`, one at a time, until the server stops."""
    changes = None if watched is None else _Changes(watched)
    looks = True  # at the file of priority classes
    looked = -math.inf
    while not configuration.closed:
        call = configuration.next(_LOOK_SECS if changes is not None or looks else -1)
        server = server_of()
        if server is None:
            return
        try:
            if call is not None:
                number, dry_run, only_logs = call
                if only_logs:
                    server._core.reopen_logs()
                else:
                    report = server.reload(dry_run)
                    configuration.finish(number, 200 if report.ok else 409, report.as_json())
                call = None  # it has its result
            if changes is not None and changes.look(time.monotonic()):
                server._reload_settings(content=changes.content)
            if time.monotonic() - looked >= _LOOK_SECS * 0.9:  # a call may have ended the wait
                looked = time.monotonic()
                server._look_at_admission()
            looks = server._admission is not None
        except Exception as error:  # whatever one reload meets, there is a next one
            _core.log(
                "error", f"a reload of the settings failed: {type(error).__name__}: {printable(str(error))}"
            )
            if call is not None:
                configuration.finish(call[0], 500, _FAILED)
        del server  # it may end while nothing calls


def _end_calls(configuration: _core.Configuration, thread: threading.Thread) -> None:
    """Ends that thread: coming back from the core while the interpreter ends would abort the process."""
    configuration.close()
    if thread is not threading.current_thread():
        thread.join(_FOLLOWERS_SECS)


class _Changes:
    """Of a file of settings: whether it is another one, or cannot be read any more."""

    def __init__(self, file: WatchedFile) -> None:
        self._file = file
        self._looked = -math.inf
        self._failed = ("", 0)  # the last error, and how often in a row
        self.content: bytes | None = None  # what the last look has read; None: nothing

    def look(self, now: float) -> bool:
        """True once for each change; the second look at an error counts, as the second at a new file."""
        if now - self._looked < _LOOK_SECS * 0.9:  # a call has ended the wait
            return False
        self._looked = now
        self.content = None
        try:
            found = self._file.look()
        except WatchedFileError as error:
            message, times = self._failed
            self._failed = (str(error), times + 1 if message == str(error) else 1)
            return self._failed[1] == 2
        self._failed = ("", 0)
        if isinstance(found, Look):
            return False
        self.content = found
        return True


def _end_at_once(number: int, _frame: FrameType | None) -> None:
    _core.flush_log(_LAST_LINES_SECS)
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def _url(host: str, port: int, tls: bool = False) -> str:
    any_address = {"0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1"}
    return _bound(any_address.get(host, host), port, tls)


def _bound(name: str, port: int, tls: bool = False) -> str:
    name = name.removeprefix("[").removesuffix("]")
    scheme = "https" if tls else "http"
    return f"{scheme}://[{name}]:{port}" if ":" in name else f"{scheme}://{name}:{port}"
