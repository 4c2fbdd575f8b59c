"""What listeners share: Unix sockets that nobody can slip in the way of, and certificates.

A socket that a dead process left is removed; one on which another listens is not.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import stat
from pathlib import Path

from gateway.errors import ConfigurationError

PATH_BYTES_MAX = 107
"""The longest address of a Unix socket on Linux."""


class BoundSocket:
    """A socket that listens. `named`: the setting that says where, for errors."""

    def __init__(self, path: Path, named: str, *, mode: int = 0o600) -> None:
        """In a folder that is made with 0700 where there is none. Raises ConfigurationError."""
        self.path = path
        self.bound = _bind_unix(path, named, mode)
        self._inode = path.stat().st_ino

    def remove(self) -> None:
        """The file; not one that a successor has made meanwhile."""
        try:
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()
        except FileNotFoundError:
            pass


def in_words(error: OSError) -> str:
    """What the system says, without what a library adds to it."""
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error.strerror)


def server_tls(named: str, cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """None where no certificate is named. Raises ConfigurationError where it can't be used."""
    if cert is None or key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"{named}.tls_cert: {cert} with {key} can't be used: {error}; both must be PEM, and belong together") from error
    return context


def _bind_unix(path: Path, named: str, mode: int) -> socket.socket:
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise ConfigurationError(f"{named} {path} is longer than the {PATH_BYTES_MAX} bytes that a socket's address may have; choose a shorter path")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_folder(path.parent, named)
        _remove_stale(path, named)
        return _bind(path, mode)
    except OSError as error:
        raise ConfigurationError(f"{named} {path} can't be made: {error.strerror}; choose a folder that this user may write to") from error


def _check_folder(folder: Path, named: str) -> None:
    """Where others may rename what lies in it, the socket could be replaced."""
    mode = folder.stat().st_mode
    if mode & 0o022 and not mode & stat.S_ISVTX:
        raise ConfigurationError(f"{named} lies in {folder}, in which others may write; choose another folder or run: chmod 0700 {folder}")


def _remove_stale(path: Path, named: str) -> None:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ConfigurationError(f"{named} {path} is there and is no socket; move it away or choose another path")
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
    raise ConfigurationError(f"another gateway listens on {named} {path}; stop it, or give this one a path of its own")


def _bind(path: Path, mode: int) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o777 & ~mode)  # from its first moment nobody else can open it
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
