"""Where the control plane is heard: a Unix socket that its owner alone can open, and a TCP listener that only tells metrics and health.

A socket that a dead gateway left is removed; one on which another gateway listens is not.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path

from aiohttp import web

from gateway.errors import ConfigurationError

SHUTDOWN_S = 5.0
"""How long an answer that is under way may take when the gateway stops."""
PATH_BYTES_MAX = 107
"""The longest address of a Unix socket on Linux."""


class ControlListener:
    """The application on its Unix socket."""

    def __init__(self, app: web.Application, path: Path) -> None:
        self.path = path
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
        self._inode = 0

    async def start(self) -> None:
        """Raises ConfigurationError where the socket can't be made or another gateway listens there."""
        bound = bind_unix(self.path)
        self._inode = self.path.stat().st_ino
        try:
            await self._runner.setup()
            await web.SockSite(self._runner, bound).start()
        except BaseException:
            bound.close()
            await self.stop()
            raise

    async def stop(self) -> None:
        await self._runner.cleanup()
        try:
            if self.path.stat().st_ino == self._inode:  # not one that a successor has made meanwhile
                self.path.unlink()
        except FileNotFoundError:
            pass


class MetricsListener:
    """The metrics application on TCP."""

    def __init__(self, app: web.Application, host: str, port: int) -> None:
        self.host = host
        self.port = port
        """Once it is started: the one it got, where 0 was asked for."""
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)

    @property
    def address(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    async def start(self) -> None:
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self.host, self.port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise ConfigurationError(
                f"the metrics listener can't listen on {self.host}:{self.port}: {error.strerror}; choose another control.metrics_listen"
            ) from error
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self._runner.cleanup()


def bind_unix(path: Path) -> socket.socket:
    """A bound socket of mode 0600, in a folder that is made with 0700 where there is none. Raises ConfigurationError."""
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise ConfigurationError(f"control.socket {path} is longer than the {PATH_BYTES_MAX} bytes that a socket's address may have; choose a shorter path")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_folder(path.parent)
        _remove_stale(path)
        return _bind(path)
    except OSError as error:
        raise ConfigurationError(f"control.socket {path} can't be made: {error.strerror}; choose a folder that this user may write to") from error


def _check_folder(folder: Path) -> None:
    """Where others may rename what lies in it, the socket could be replaced."""
    mode = folder.stat().st_mode
    if mode & 0o022 and not mode & stat.S_ISVTX:
        raise ConfigurationError(f"control.socket lies in {folder}, in which others may write; choose another folder or run: chmod 0700 {folder}")


def _remove_stale(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ConfigurationError(f"control.socket {path} is there and is no socket; move it away or choose another path")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ETIMEDOUT):  # a full backlog: somebody listens
                raise
    raise ConfigurationError(f"another gateway listens on control.socket {path}; stop it, or give this one a path of its own")


def _bind(path: Path) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # from its first moment nobody else can open it
    try:
        bound.bind(str(path))
        bound.listen(128)
        bound.setblocking(False)
    except BaseException:
        bound.close()
        raise
    finally:
        os.umask(before)
    return bound
