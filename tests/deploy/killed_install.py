"""python -I -S killed_install.py INSTALL.PY N ARCHIVE PREFIX: installs, and is killed before change N of the disk.

The steps that run other programs are left out: what they write lies in a release that is not complete yet.
"""

import os
import runpy
import signal
import sys

CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.chmod", "shutil.rmtree"}


def main(program: str, at: int, archive: str, prefix: str) -> int:
    count = 0
    installer = runpy.run_path(program)
    own = installer["main"].__globals__
    for step in ("make_environment", "install_wheels", "try_out"):
        own[step] = lambda *_: None
    os.sync = lambda: None  # it waits for every other program's files

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count
        flags = arguments[2] if event == "open" else 0
        if event in CHANGES or (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)):
            count += 1
            if count == at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    return own["main"](["--archive", archive, "--prefix", prefix, "--replace-index"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]))
