"""The ticket files: one folder that all hosts share.

A file's name is made of order, position, order version and content key, so the
same ticket rendered again is the same file with the same bytes. The version in
the name is what makes removing safe without a lock: once an order has gone on to
another version, or is refunded, no commit of the old version can succeed any
more, so nobody will ever need its files again, however late somebody removes
them. What belongs to the order's current version is never removed here.

Files of one hundred neighbouring orders share a folder, below a folder of the
book's own: two books that were given the same folder do not touch each other.
"""

import contextlib
import errno
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

import attrs

from stagedoor.errors import ConfigurationError, OrderError, Unavailable
from stagedoor.order import Order

__all__ = ["TicketFileMissing", "TicketStore", "TicketStoreUnavailable"]

_NAME = re.compile(r"(\d+)-(\d+)-(\d+)-[A-Za-z0-9_]+\.[A-Za-z0-9.]+", re.ASCII)
_TEMPORARY = re.compile(rf"\.{_NAME.pattern}\.[0-9a-f]{{12}}\.tmp", re.ASCII)
_KEY = re.compile(r"[A-Za-z0-9_]{1,128}")
_SUFFIX = re.compile(r"\.[A-Za-z0-9.]{1,15}")
# A write takes milliseconds; whatever an hour has not renamed was left by a crash.
_LEFTOVER_S = 3600
# A hundred orders each; forgetting them only costs a few syncs.
_ROOTED_FOLDERS = 10_000


_WEATHER = frozenset(
    (
        *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM),
        *(errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.ECONNREFUSED, errno.EHOSTDOWN),
        *(errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EMFILE, errno.ENFILE, errno.ENOMEM),
    )
)
"""What says nothing about the ticket: the disk is full, read-only or away, and somebody will see to it."""


class TicketStoreUnavailable(OrderError, Unavailable):
    """The tickets folder cannot be written to now (full, read-only, away). Every call may be repeated."""


@contextlib.contextmanager
def _mapped_errors() -> Iterator[None]:
    """Turn what is the file system's outage into ours; no order is given up for a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno not in _WEATHER:
            raise
        raise TicketStoreUnavailable(f"the tickets folder cannot serve this call now: {error.strerror}") from error


class TicketFileMissing(OrderError):
    """A ticket's file is not there or is empty; nothing was committed. Write it and commit again."""


@attrs.frozen(kw_only=True)
class _StoredName:
    path: str
    version: int


class TicketStore:
    """Writes, finds and removes ticket files; may be used by many threads and processes at once.

    Args:
        root: the folder that all hosts share; made if it is not there.
        book_id: the order book's id.

    Raises:
        ConfigurationError: the folder cannot be made or written to.
    """

    def __init__(self, root: Path, *, book_id: str) -> None:
        self.root = root.absolute()
        self._book = book_id[:8]
        self._rooted: set[Path] = set()
        self._check_writable()

    def path(self, order_id: int, position_id: int, *, version: int, key: str, suffix: str) -> str:
        """Return the relative name of a ticket's file; the same arguments give the same name for ever.

        Raises:
            ValueError: *key* or *suffix* is not fit for a file name.
        """
        if not _KEY.fullmatch(key):
            raise ValueError(f"content key: expected up to 128 letters and digits, found {key[:40]!a}")
        if not _SUFFIX.fullmatch(suffix) or ".." in suffix:
            raise ValueError(f"suffix: expected a dot and up to 15 letters, digits or dots, found {suffix[:40]!a}")
        return f"{self._folder(order_id)}/{order_id}-{position_id}-{version}-{key}{suffix}"

    def file(self, path: str) -> Path:
        """Return where the file of this relative name lies.

        Raises:
            ValueError: the name leads out of the folder.
        """
        relative = PurePosixPath(path)
        if relative.is_absolute() or ".." in relative.parts:
            raise ValueError(f"expected a name below the tickets folder, found {path[:80]!a}")
        return self.root / relative

    def is_present(self, path: str) -> bool:
        """Return whether the file is there, can be opened, and is not empty.

        It is opened rather than looked up: on a network file system only opening
        asks the server, a look-up may be seconds old.
        """
        try:
            with self.file(path).open("rb") as file:
                return os.fstat(file.fileno()).st_size > 0
        except OSError:
            return False

    def read(self, path: str) -> bytes:
        """Return the file's content.

        Raises:
            OSError: it is not there or cannot be read.
        """
        return self.file(path).read_bytes()

    @_mapped_errors()
    def write(self, path: str, content: bytes) -> None:
        """Put the file in place, whole or not at all, over one of the same name.

        Raises:
            TicketStoreUnavailable: the file system will not now; nothing is left but, after a crash, a temporary file.

        **Durability**: the content is on disk before the name is; the name itself is once
        `make_durable` has returned. Safe to repeat, also by several processes at once.
        """
        target = self.file(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
        try:
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise

    @_mapped_errors()
    def carry(self, path: str, to: str) -> bool:
        """Give a ticket that stays as it is the name of its order's next version, and return whether it was there.

        Both names are one file, until `tidy` removes the earlier one: nothing of a
        ticket file is ever changed in its place.

        Raises:
            TicketStoreUnavailable: the file system will not now.

        **Durability**: as `write`. Safe to repeat, also by several processes at once.
        """
        target = self.file(to)
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
        try:
            temporary.hardlink_to(self.file(path))
        except FileNotFoundError:
            return False
        except OSError:
            # Not every file system has hard links, and some have few of them.
            return self._copy(path, to)
        try:
            temporary.replace(target)
        finally:
            # Where both names were one file already, the move was none and has left the temporary one.
            temporary.unlink(missing_ok=True)
        return True

    def _copy(self, path: str, to: str) -> bool:
        try:
            content = self.read(path)
        except FileNotFoundError:
            return False
        self.write(to, content)
        return True

    @_mapped_errors()
    def make_durable(self, paths: Iterable[str]) -> None:
        """Return once the names of these files are on disk, whoever wrote them.

        Raises:
            TicketStoreUnavailable: the file system will not now.
        """
        for folder in sorted({self.file(path).parent for path in paths}):
            _sync_folder(folder)
            if folder not in self._rooted:
                # Another process may have made it a moment ago and not synced its name yet, so each
                # process does that once for itself. Syncing costs milliseconds, changed or not.
                for parent in folder.parents:
                    if parent.is_relative_to(self.root):
                        _sync_folder(parent)
                self._remember(folder)

    @_mapped_errors()
    def remove(self, path: str) -> bool:
        """Remove a file, and return whether it was there; a folder of that name is none of ours, and stays.

        Nothing stops this from removing what a valid ticket needs: see `tidy`.
        """
        try:
            self.file(path).unlink()
        except (FileNotFoundError, IsADirectoryError):
            return False
        return True

    @_mapped_errors()
    def tidy(self, order: Order) -> list[str]:
        """Remove the files of this order that no valid ticket can need any more, and return their names.

        These are the files of versions before the one in *order*, and of that one
        too if it is refunded: tickets that became void, and what workers left behind
        that crashed or came too late. *order* may be out of date; then less is removed.

        **Durability**: a removed file may be back after a power failure; the next call removes it.
        Safe to repeat.
        """
        gone = [name.path for name in self._names(order.order_id) if _is_over(name.version, order)]
        return [path for path in gone if self.remove(path)]

    def files(self) -> Iterator[str]:
        """Yield the relative name of every ticket file of this book; for checks, it walks all folders."""
        for path in sorted((self.root / self._book).glob("*/*/*")):
            if _NAME.fullmatch(path.name):
                yield path.relative_to(self.root).as_posix()

    def temporaries(self) -> Iterator[str]:
        """Yield the relative name of every file of this book that is being written, or was when a process ended."""
        for path in sorted((self.root / self._book).glob("*/*/.*")):
            if _TEMPORARY.fullmatch(path.name):
                yield path.relative_to(self.root).as_posix()

    def _remember(self, folder: Path) -> None:
        if len(self._rooted) >= _ROOTED_FOLDERS:
            self._rooted.clear()
        self._rooted.add(folder)

    def _folder(self, order_id: int) -> str:
        return f"{self._book}/{order_id // 100_000 % 1000:03d}/{order_id // 100 % 1000:03d}"

    def _names(self, order_id: int) -> list[_StoredName]:
        folder = self._folder(order_id)
        try:
            names = os.listdir(self.root / folder)  # noqa: PTH208 - every job lists a folder, names are enough
        except FileNotFoundError:
            return []
        self._remove_leftovers(folder, [name for name in names if name.startswith(f".{order_id}-")])
        matches = [match for name in names if (match := _NAME.fullmatch(name)) and match[1] == str(order_id)]
        return [_StoredName(path=f"{folder}/{match[0]}", version=int(match[3])) for match in matches]

    def _remove_leftovers(self, folder: str, names: Iterable[str]) -> None:
        """Remove temporary files that a crash left behind."""
        for name in names:
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                file = self.root / folder / name
                if time.time() - file.stat().st_mtime > _LEFTOVER_S:
                    file.unlink()

    def _check_writable(self) -> None:
        probe = self.root / f".probe.{secrets.token_hex(6)}.tmp"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise ConfigurationError(
                f"tickets_dir: cannot write to {self.root} ({error.strerror}); choose a folder that this user may"
                " write to"
            ) from None


def _is_over(version: int, order: Order) -> bool:
    """Decide whether no ticket of this version can be or become valid: true once, true for ever."""
    return version < order.version or (version == order.version and order.status == "refunded")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
