"""Files that nobody else can have changed: what is unpickled is opened here, and users' data is
written here.

A path is walked from the root, one folder after the other, each opened relative to the one before
it. A folder passes if it belongs to this user or to root, and if nobody else may rename or replace
what is in it: no other user may write to it, or its sticky bit is set. A symbolic link passes if
its owner does; its target is walked in the same way. The file itself is checked by the descriptor
that is read. So nobody can win a race between a check and its use: others can change no name on a
path that has passed.

What is made here has mode 0600, and its folders 0700, whatever the umask is. Folders that are there
already keep their mode. Knows no checkpoint. Access control lists that the mode does not show are
not seen. Source: none in Flink, which leaves this to its users; the walk is that of OpenSSH's
`StrictModes` and of `openat2(RESOLVE_NO_SYMLINKS)`, with links followed where they are safe.

A folder of this process among the temporary files. It goes when the process ends, however that ends.

None of this handles signals, which belong to the program. Python removes the folder at an orderly end and after Ctrl-C.
The next process that makes such a folder removes what killed ones have left.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import shlex
import shutil
import stat
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Final, Self

from penstock.engine.model.errors import ConfigurationError

_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_PERMISSIONS: Final = 0o777
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_ROOT_UID: Final = 0
_LINKS_MAX: Final = 40
_NO_FOLLOW: Final = os.O_NOFOLLOW | os.O_CLOEXEC
# O_PATH opens a folder that may be passed through but not listed, such as /home on many machines.
_FOLDER: Final = _NO_FOLLOW | os.O_DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)
_READ: Final = _NO_FOLLOW | os.O_RDONLY | os.O_NONBLOCK  # A named pipe must not block.
_CREATE: Final = _NO_FOLLOW | os.O_WRONLY | os.O_CREAT
_IS_LINK: Final = frozenset({errno.ELOOP, errno.EMLINK, errno.ENOTDIR})
Identity = tuple[int, int, int]
"""Device, inode and owner. The number of an inode is used again, but not for another user's file."""


class NotPrivate(ConfigurationError):
    """Other users could have changed a file that may hold pickled objects, or could change it later."""


def open_checked(path: str) -> int:
    """Open a file that nobody else can have changed. Returns: a descriptor to read from.

    Raises: NotPrivate, naming the part of the path that does not pass, and the command that mends
    it. OSError, such as FileNotFoundError.
    """
    with _Walk(path) as walk:
        while True:
            name = walk.to_last()
            try:
                file = os.open(name, _READ, dir_fd=walk.folder)
                break
            except OSError as error:
                if error.errno not in _IS_LINK or not walk.follow(name):
                    raise
        try:
            _check_file(os.fstat(file), os.path.join(walk.place, name), path)
        except BaseException:
            os.close(file)
            raise
    return file


def open_regular(path: str) -> int:
    """Open a file, whoever owns it. Returns: a descriptor to read from. Raises: OSError, also if it is a pipe or a device."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # A named pipe must not block.
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is no regular file", path)
    return file


def create(path: str) -> int:
    """Create a file of mode 0600, and the folders that are missing with mode 0700. Returns: a
    descriptor to write to.

    Raises: NotPrivate: it could not be read back with `open_checked`. FileExistsError. OSError.
    """
    with _Walk(path, makes=True) as walk:
        name = walk.to_last()
        file = os.open(name, _CREATE | os.O_EXCL, _FILE_MODE, dir_fd=walk.folder)
        try:
            _make_mode(file)
            place = os.path.join(walk.place, name)
            _check_file(os.fstat(file), place, path, is_fresh=True)
        except BaseException:
            os.close(file)
            os.unlink(name, dir_fd=walk.folder)
            raise
    return file


def check_folder(path: str) -> None:
    """Check a folder and those above it, as far as they are there.

    Raises: NotPrivate: files in it would be refused. OSError.
    """
    with _Walk(path) as walk, contextlib.suppress(FileNotFoundError):
        walk.to_end()


def make_folder(path: str, *, is_checked: bool = True) -> None:
    """Make a folder of mode 0700, and those above it. One that is there keeps its mode.

    `is_checked` False: what is read there is signed. Raises: NotPrivate: files in it would be
    refused. OSError.
    """
    with _Walk(path, makes=True, is_checked=is_checked) as walk:
        walk.to_end()


def new_file(path: str | Path) -> int:
    """Create a file of mode 0600 in a folder that this process has made. Returns: a descriptor to
    write to and to read from.

    Raises: OSError, such as FileExistsError.
    """
    file = os.open(path, _NO_FOLLOW | os.O_RDWR | os.O_CREAT | os.O_EXCL, _FILE_MODE)
    _make_mode(file)
    return file


def open_to_write(path: str | Path) -> int:
    """Create a file of mode 0600 in a folder of ours, or empty it. Returns: a descriptor to write to.

    Raises: OSError.
    """
    file = os.open(path, _CREATE | os.O_TRUNC, _FILE_MODE)
    _make_mode(file)
    return file


def write_file(path: str | Path, data: bytes, *, is_durable: bool = False) -> None:
    """Write a file of mode 0600 in a folder of ours, or replace its content. Raises: OSError."""
    with os.fdopen(open_to_write(path), "wb") as file:
        file.write(data)
        if is_durable:
            file.flush()
            os.fsync(file.fileno())


def sync_folder(path: str | Path) -> None:
    """Make new names in a folder durable. Raises: OSError: some systems cannot open a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def identity(file: int) -> Identity:
    """Return what `open_again` needs to know of an open file."""
    found = os.fstat(file)
    return found.st_dev, found.st_ino, found.st_uid


def open_again(path: str | Path, known: Identity, *, appends: bool = False) -> int:
    """Open a file that this process has made, to read from it or to append to it. Returns: a
    descriptor.

    Raises: NotPrivate: another file has its name now. OSError.
    """
    file = os.open(path, _NO_FOLLOW | os.O_WRONLY | os.O_APPEND if appends else _READ)
    if identity(file) != known:
        os.close(file)
        raise NotPrivate(
            f"{str(path)!r} is not the file any more that this process has written there: somebody "
            "has replaced it or a folder above it, and it was not read. Use a directory for "
            "temporary files in which other users cannot rename anything (chmod +t)."
        )
    return file


def hold(folder: str) -> int:
    """Open a folder that this process has just made with mode 0700. Returns: a descriptor.

    Raises: OSError, also if somebody has replaced it.
    """
    held = os.open(folder, _NO_FOLLOW | os.O_DIRECTORY | os.O_RDONLY)
    found = os.fstat(held)
    if found.st_uid == os.geteuid() and not found.st_mode & _PERMISSIONS & ~_FOLDER_MODE:
        return held
    os.close(held)
    raise OSError(errno.ESTALE, "somebody has replaced it", folder)


def held_path(held: int, folder: str) -> str:
    """Return a path of a folder that leads there even if somebody renames it, for a library that
    opens files by their paths. It is good for as long as `held` is open, and in this process only.

    Where the system has no such paths, it is `folder`.
    """
    path = f"/proc/self/fd/{held}"
    return path if os.path.isdir(path) else folder


class _Walk:
    """The way to a file. `folder`: descriptor of the last folder that has passed; `place`: its path
    without links.
    """

    def __init__(self, path: str, *, makes: bool = False, is_checked: bool = True) -> None:
        """`makes`: folders that are missing are made. `is_checked` False: all owners and modes pass."""
        self._is_checked = is_checked
        self._asked = path
        self._makes = makes
        self._links = 0
        self._left: list[str] = []
        self.place = "/"
        self.folder = os.open("/", _FOLDER)
        # The folder in which this process works may have been removed.
        self._push(path if os.path.isabs(path) else os.path.join(os.getcwd(), path))

    def __enter__(self) -> Self:
        try:
            self._check()
        except BaseException:
            os.close(self.folder)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.folder)

    def to_last(self) -> str:
        """Go to the folder of the last name, and return that name. Raises: NotPrivate; OSError."""
        while len(self._left) > 1:
            self._step(self._left.pop())
        if not self._left or self._left[0] == "..":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self._asked)
        return self._left.pop()

    def to_end(self) -> None:
        """Go to the folder that the whole path names. Raises: NotPrivate; OSError."""
        while self._left:
            self._step(self._left.pop())

    def follow(self, name: str) -> bool:
        """Put the target of a link in the place of its name. False: it is no link."""
        found = os.stat(name, dir_fd=self.folder, follow_symlinks=False)
        if not stat.S_ISLNK(found.st_mode):
            return False
        # In a folder that has passed, nobody else can exchange a link of ours from here on.
        place = os.path.join(self.place, name)
        if self._is_checked and not _is_trusted(found.st_uid):
            raise _foreign(found, place, self._asked)
        self._links += 1
        if self._links > _LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), self._asked)
        target = os.readlink(name, dir_fd=self.folder)
        if os.path.isabs(target):
            self._enter(os.open("/", _FOLDER), "/")
        self._push(target)
        return True

    def _push(self, path: str) -> None:
        self._left.extend(name for name in reversed(path.split("/")) if name not in {"", "."})

    def _step(self, name: str) -> None:
        try:
            folder = self._opened(name)
        except OSError as error:
            if error.errno in _IS_LINK and self.follow(name):
                return
            raise
        # The folder above was walked before: the path to here has no links.
        above = os.path.dirname(self.place)
        self._enter(folder, above if name == ".." else os.path.join(self.place, name))

    def _opened(self, name: str) -> int:
        try:
            return os.open(name, _FOLDER, dir_fd=self.folder)
        except FileNotFoundError:
            if not self._makes:
                raise
        with contextlib.suppress(FileExistsError):  # Another task makes it at the same time.
            os.mkdir(name, _FOLDER_MODE, dir_fd=self.folder)
            mode = os.stat(name, dir_fd=self.folder, follow_symlinks=False).st_mode
            if mode & _PERMISSIONS != _FOLDER_MODE:
                special = stat.S_IMODE(mode) & ~_PERMISSIONS
                os.chmod(name, _FOLDER_MODE | special, dir_fd=self.folder)
        return os.open(name, _FOLDER, dir_fd=self.folder)

    def _enter(self, folder: int, place: str) -> None:
        os.close(self.folder)
        self.folder, self.place = folder, place
        self._check()

    def _check(self) -> None:
        if self._is_checked:
            _check_folder(os.fstat(self.folder), self.place, self._asked)


def _is_trusted(uid: int) -> bool:
    return uid in {_ROOT_UID, os.geteuid()}


def _check_folder(found: os.stat_result, place: str, asked: str) -> None:
    if not _is_trusted(found.st_uid):
        raise _foreign(found, place, asked)
    if found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX:
        quoted = shlex.quote(place)
        why = f"{_mode(found)} lets {_writers(found)} rename and replace what is in it"
        command = f"chmod {_taken(found.st_mode)} {quoted}"
        sticky = f"chmod +t {quoted}"
        raise _refusal(place, why, asked, f"{command} (or, if they need to write there, {sticky})")


def _check_file(found: os.stat_result, place: str, asked: str, *, is_fresh: bool = False) -> None:
    """`is_fresh`: this process has just made it, so that no command can mend it."""
    if not stat.S_ISREG(found.st_mode):
        raise NotPrivate(f"{place!r} is no regular file, so it was not read")
    is_open = bool(found.st_mode & _OTHERS_WRITE)
    if is_fresh and (is_open or not _is_trusted(found.st_uid)):
        raise NotPrivate(
            f"the file system of {place!r} gives files an owner and a mode of its own: a new file "
            f"belongs to {_user(found.st_uid)} with {_mode(found)}, so "
            "nobody could see later whether other users have changed it. Mount it with your user "
            "as owner and without write permission of others, or use another file system."
        )
    if not _is_trusted(found.st_uid):
        raise _foreign(found, place, asked)
    if is_open:
        why = f"{_mode(found)} lets {_writers(found)} change it"
        command = f"chmod -R {_taken(found.st_mode)} {shlex.quote(os.path.dirname(place))}"
        raise _refusal(place, why, asked, command)


def _foreign(found: os.stat_result, place: str, asked: str) -> NotPrivate:
    me = os.geteuid()
    command = f"chown {'-h ' * stat.S_ISLNK(found.st_mode)}{me} {shlex.quote(place)}"
    ours = "root" if me == _ROOT_UID else f"{_user(me)} or root"
    why = f"it belongs to {_user(found.st_uid)}, not to {ours}"
    return _refusal(place, why, asked, command)


def _refusal(place: str, why: str, asked: str, command: str) -> NotPrivate:
    where = "" if place == asked else f" on the way to {asked!r}"
    return NotPrivate(
        f"other users may write to {place!r}{where}: {why}. What Penstock reads there is "
        "unpickled, which can run any code. If you trust its content, make it yours alone: "
        f"{command}"
    )


def _taken(mode: int) -> str:
    """The change of mode that takes write permission away from those who have it."""
    group, other = "g" * bool(mode & stat.S_IWGRP), "o" * bool(mode & stat.S_IWOTH)
    return f"{group}{other}-w"


def _mode(found: os.stat_result) -> str:
    return f"mode {stat.S_IMODE(found.st_mode):04o}"


def _writers(found: os.stat_result) -> str:
    return "all users" if found.st_mode & stat.S_IWOTH else f"the group {_group(found.st_gid)}"


def _user(uid: int) -> str:
    with contextlib.suppress(ImportError, KeyError):
        import pwd

        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    return f"uid {uid}"


def _group(gid: int) -> str:
    with contextlib.suppress(ImportError, KeyError):
        import grp

        return f"{grp.getgrgid(gid).gr_name} (gid {gid})"
    return f"gid {gid}"


def _make_mode(file: int) -> None:
    """Give a file the mode 0600, where the umask has taken more away than that."""
    if os.fstat(file).st_mode & _PERMISSIONS != _FILE_MODE:
        with contextlib.suppress(OSError):  # The file system has no modes.
            os.fchmod(file, _FILE_MODE)


_CLAIM: Final = "in-use"
_BEING_MADE: Final = "being-made"


class OwnFolder:
    """Any thread. `folder`: None before the first use."""

    def __init__(self, prefix: str) -> None:
        """`prefix`: of its name; folders of one prefix are swept together."""
        self.folder: Path | None = None
        self._prefix = prefix
        self._claim: IO[bytes] | None = None
        self._pid = 0
        self._lock = threading.Lock()

    def made(self) -> Path:
        """Return the folder; it is made on first use, and anew in a forked process."""
        with self._lock:
            known = self.folder
            if known is None or self._pid != os.getpid() or not known.is_dir():
                known = self._make()
            return known

    def _make(self) -> Path:
        self._sweep_leftovers()
        made = Path(tempfile.mkdtemp(prefix=self._prefix))
        if self._claim is not None:  # Of a folder that has gone, or of a process that has forked.
            self._claim.close()
        self._claim = os.fdopen(new_file(made / _BEING_MADE), "wb")
        try_lock(self._claim)
        # Nobody sees a claim that is not locked yet, and takes the folder for a leftover.
        (made / _BEING_MADE).rename(made / _CLAIM)
        if self.folder is None:
            atexit.register(self._remove)
        self.folder, self._pid = made, os.getpid()
        return made

    def _remove(self) -> None:
        """Remove the folder, unless it is that of a process from which this one was forked."""
        if self._claim is not None:
            self._claim.close()
        if self.folder is not None and self._pid == os.getpid():
            shutil.rmtree(self.folder, ignore_errors=True)

    def _sweep_leftovers(self) -> None:
        """Remove this user's folders that no process claims any more."""
        with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
            for entry in entries:
                if entry.name.startswith(self._prefix) and _is_leftover(entry):
                    shutil.rmtree(entry.path, ignore_errors=True)


def _is_leftover(entry: os.DirEntry[str]) -> bool:
    """A folder without a claim may have been made just now, so it is none."""
    with contextlib.suppress(OSError):
        if not entry.is_dir(follow_symlinks=False):
            return False
        if sys.platform != "win32" and entry.stat(follow_symlinks=False).st_uid != os.getuid():
            return False
        with (Path(entry.path) / _CLAIM).open("rb+") as claim:
            return try_lock(claim)
    return False


def try_lock(file: IO[bytes] | int) -> bool:
    """Lock a file while it is open here. Returns: whether nobody else has it; False where files cannot be locked.

    The lock is seen in other containers too.
    """
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
