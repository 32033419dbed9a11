"""Installs a bundle; runs on the other machine by itself, with nothing but Python's standard library.

    PREFIX/releases/VERSION-ID/    one bundle: venv, cache, models, index; `complete` is written last
    PREFIX/current                 link to the release in use, replaced atomically
    PREFIX/index                   link to the index in use; a later bundle leaves it unless told otherwise
    PREFIX/bin/dmnrag              the command, with the release's models

Every file is compared with its checksum before anything of the bundle runs. Killed at any point, what was installed
before works as before; running it again clears away the half-made release. Former releases stay for the way back.
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

MANIFEST, COMPLETE = "manifest.json", "complete"
FORMAT = 1
_IN_FRONT = frozenset({MANIFEST, "install.sh"})
_CHUNK = 1 << 20
_LINES_SHOWN = 8
"""Of what a program says that fails."""


class InstallError(Exception):
    """Why the bundle cannot be installed here, and what to do."""


def main(arguments: list[str] | None = None) -> int:
    """Install; returns the exit code."""
    parser = argparse.ArgumentParser(prog="install.sh", description="Installs a dmnrag bundle without any network.")
    parser.add_argument("--archive", type=Path, required=True, help="the bundle; default: beside install.sh")
    parser.add_argument("--prefix", type=Path, default=Path("dmnrag"), help="folder to install in; default: dmnrag")
    parser.add_argument(
        "--replace-index", action="store_true", help="use the bundle's index in place of the one that is installed"
    )
    given = parser.parse_args(arguments)
    try:
        told = install(given.archive, given.prefix.expanduser().absolute(), replace_index=given.replace_index)
    except InstallError as error:
        say(f"error: {error}")
        return 1
    except OSError as error:
        say(f"error: {error.filename or given.prefix}: {error.strerror or error}")
        return 1
    sys.stdout.write(told + "\n")
    return 0


def install(archive: Path, prefix: Path, *, replace_index: bool = False) -> str:
    """Install the bundle; returns what to tell the person.

    Raises:
        InstallError: another machine's bundle, a damaged one, no room, a foreign folder, or a step that fails.
    """
    manifest, name = read_manifest(archive)
    check_machine(manifest)
    release = prefix / "releases" / name
    with _only_one(prefix):
        if not (release / COMPLETE).is_file():
            clear_leftovers(prefix)
            check_space(manifest, prefix)
            try:
                make_release(archive, manifest, release)
            except BaseException:
                shutil.rmtree(release, ignore_errors=True)
                raise
        index_kept = switch_over(prefix, release, replace_index=replace_index)
    return farewell(manifest, prefix, release, index_kept=index_kept)


def make_release(archive: Path, manifest: dict[str, Any], release: Path) -> None:
    """A release of its own folder, complete at the end."""
    say(f"unpacking and checking {len(manifest['files'])} files")
    unpack(archive, manifest["files"], release)
    say("making the Python environment")
    make_environment(release)
    say("installing the libraries; this can take some minutes")
    install_wheels(manifest, release)
    try_out(release)
    shutil.rmtree(release / "wheels")
    # A bundle is gigabytes in thousands of files: one call for all that is on its way to the disk.
    os.sync()
    (release / COMPLETE).write_text(manifest["created"] + "\n", encoding="utf-8")


def say(message: str) -> None:
    """What goes on, on stderr."""
    sys.stderr.write(message + "\n")


def read_manifest(archive: Path) -> tuple[dict[str, Any], str]:
    """The archive's manifest, and the name of the release that it makes.

    Raises:
        InstallError: no bundle, a damaged one, or one of another format.
    """
    with _opened(archive) as tar:
        for entry in tar:
            stream = tar.extractfile(entry) if entry.name == MANIFEST and entry.isreg() else None
            if stream is None:
                continue
            content = stream.read()
            try:
                manifest: dict[str, Any] = json.loads(content)
                if manifest["format"] != FORMAT:
                    raise InstallError(f"{archive} has format {manifest['format']}, this installer reads {FORMAT}")
                for name in manifest["files"]:
                    _check_name(name)
                return manifest, f"{manifest['version']}-{hashlib.sha256(content).hexdigest()[:12]}"
            except (ValueError, KeyError, TypeError) as error:
                raise InstallError(
                    f"{archive} is damaged: its manifest cannot be read ({error}); copy it again"
                ) from error
    raise InstallError(f"{archive} is no bundle: it has no {MANIFEST}")


def check_machine(manifest: dict[str, Any]) -> None:
    """Compare Python and platform with those that the wheels are for.

    Raises:
        InstallError: names both.
    """
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if manifest["python"] != here:
        raise InstallError(
            f"this bundle is for Python {manifest['python']}, and {sys.executable} is {here}; name another one: "
            f"PYTHON=/path/python{manifest['python']} sh install.sh"
        )
    wanted, found = (manifest["system"], manifest["machine"]), (platform.system(), platform.machine())
    if wanted != found:
        raise InstallError(f"this bundle is for {' '.join(wanted)}, and this machine is {' '.join(found)}")
    if manifest["glibc"] is not None:
        library, version = platform.libc_ver()
        needed = ".".join(map(str, manifest["glibc"]))
        if library != "glibc" or [int(part) for part in version.split(".")[:2]] < manifest["glibc"]:
            raise InstallError(
                f"this bundle needs glibc {needed} or newer, and this machine has {library or 'another C library'} "
                f"{version}".rstrip()
            )


def check_space(manifest: dict[str, Any], prefix: Path) -> None:
    """Compare what the release takes, wheels and what is in them at once, with what is free.

    Raises:
        InstallError: names both.
    """
    needed = sum(part["bytes"] for part in manifest["files"].values()) + manifest["unpacked_bytes"]
    free = shutil.disk_usage(prefix).free
    if needed > free:
        raise InstallError(
            f"installing takes {needed / 1e9:.2f} GB, and {prefix} has {free / 1e9:.2f} GB free; free some space or "
            "name another place with --prefix"
        )


def clear_leftovers(prefix: Path) -> None:
    """Delete releases that were not finished."""
    for release in (prefix / "releases").iterdir():
        if not (release / COMPLETE).is_file():
            shutil.rmtree(release)


def unpack(archive: Path, files: dict[str, dict[str, Any]], release: Path) -> None:
    """Write the files that the manifest names and nothing else, each compared with its checksum.

    Only regular files under their plain names, which is stricter than tarfile's "data" filter and, unlike it, in
    every Python 3.11.

    Raises:
        InstallError: a file is missing, altered, there twice, or not in the manifest.
    """
    missing = set(files)
    with _opened(archive) as tar:
        for entry in tar:
            if entry.name in _IN_FRONT:
                continue
            stream = tar.extractfile(entry) if entry.isreg() and entry.name in missing else None
            if stream is None:
                raise InstallError(f"{archive} holds {entry.name!r}, which its manifest does not name; it was altered")
            missing.discard(entry.name)
            target = release / entry.name
            target.parent.mkdir(parents=True, exist_ok=True)
            digest = hashlib.sha256()
            with target.open("xb") as out:
                while chunk := stream.read(_CHUNK):
                    digest.update(chunk)
                    out.write(chunk)
            if digest.hexdigest() != files[entry.name]["sha256"]:
                raise InstallError(
                    f"{archive} is damaged: {entry.name} does not match its checksum; nothing was installed, copy the "
                    "archive again"
                )
    if missing:
        raise InstallError(
            f"{archive} is damaged: {len(missing)} files are missing, such as {min(missing)}; nothing was installed, "
            "copy the archive again"
        )


def make_environment(release: Path) -> None:
    """A virtual environment without pip: the bundle has its own, and Debian leaves out what would put one in."""
    _run([sys.executable, "-m", "venv", "--without-pip", str(release / "venv")], "the Python environment")


def install_wheels(manifest: dict[str, Any], release: Path) -> None:
    """Install from the bundle's wheels alone, by the bundle's pip, whatever this machine's pip is set to."""
    wheels = release / "wheels"
    pip = next(wheels.glob("pip-*.whl"), None)
    if pip is None:
        raise InstallError("the bundle holds no pip")
    wanted = f"dmnrag[{','.join(manifest['extras'])}]=={manifest['version']}"
    options = ["--quiet", "--no-input", "--disable-pip-version-check", "--no-index", "--no-cache-dir"]
    command = [str(release / "venv/bin/python"), str(pip / "pip"), "install", *options]
    _run([*command, "--find-links", str(wheels), wanted], "the libraries")


def try_out(release: Path) -> None:
    """Open the index with what was installed, before anything switches over to it."""
    _run([str(release / "venv/bin/dmnrag"), "info", str(release / "index")], "the index")


def switch_over(prefix: Path, release: Path, *, replace_index: bool) -> bool:
    """Point the links at the release; returns whether an index of a former release stays in use."""
    command = prefix / "bin" / "dmnrag"
    command.parent.mkdir(exist_ok=True)
    current = shlex.quote(str(prefix / "current"))
    script = (
        "#!/bin/sh\n# Written by the bundle's installer.\n"
        f"export DMNRAG_CACHE=${{DMNRAG_CACHE:-{current}/cache}} HF_HUB_OFFLINE=${{HF_HUB_OFFLINE:-1}}\n"
        f'exec {current}/venv/bin/dmnrag "$@"\n'
    )
    _replace(command, lambda path: _write_program(path, script))
    _replace(prefix / "current", lambda path: path.symlink_to(Path("releases") / release.name))
    index, target = prefix / "index", Path("releases") / release.name / "index"
    if index.is_dir() and not replace_index:
        return index.resolve() != (prefix / target).resolve()
    if index.exists() and not index.is_symlink():
        raise InstallError(f"{index} is no link that this installer made; move it away, then run this again")
    _replace(index, lambda path: path.symlink_to(target))
    return False


def farewell(manifest: dict[str, Any], prefix: Path, release: Path, *, index_kept: bool) -> str:
    """What to do next."""
    command, index = shlex.quote(str(prefix / "bin" / "dmnrag")), shlex.quote(str(prefix / "index"))
    llm = manifest["llm"]
    if llm is not None and llm.startswith("models/"):
        llm = str(prefix / "current" / llm)
    spec = "LLM" if llm is None else shlex.quote(llm)
    lines = [f"dmnrag {manifest['version']} is installed in {prefix}. Ask it something:"]
    lines.append(f"  {command} ask {index} QUESTION --llm {spec}")
    if "serve" in manifest["extras"]:
        lines += ["or start the service:", f"  {command} serve {index} --llm {spec}"]
    if index_kept:
        lines += [
            f"{prefix / 'index'} is the index that was there before; the bundle's is {release / 'index'}.",
            "To use that one, run this again with --replace-index.",
        ]
    return "\n".join(lines)


@contextlib.contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile]:
    """An uncompressed tar; whatever is wrong with it, in words."""
    try:
        with tarfile.open(archive, "r:") as tar:
            yield tar
    except FileNotFoundError as error:
        raise InstallError(f"there is no file {error.filename}; name the bundle with --archive FILE") from error
    except (tarfile.TarError, EOFError) as error:
        raise InstallError(f"{archive} is damaged or no bundle ({error}); copy it again") from error


@contextlib.contextmanager
def _only_one(prefix: Path) -> Iterator[None]:
    """Make the folder, refuse one that holds something else, and let one installer in at a time."""
    if prefix.exists() and not prefix.is_dir():
        raise InstallError(f"{prefix} is a file; name a folder with --prefix")
    if prefix.is_dir() and not (prefix / "releases").is_dir() and any(prefix.iterdir()):
        raise InstallError(f"{prefix} holds other files; name a new or empty folder with --prefix")
    (prefix / "releases").mkdir(parents=True, exist_ok=True)
    descriptor = os.open(prefix / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InstallError(f"another installer works in {prefix}; wait until it ends") from error
        # Programs that are run hold the lock too: the pip of a killed installer writes on for a while.
        os.set_inheritable(descriptor, True)
        yield
    finally:
        os.close(descriptor)


def _check_name(name: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or path.as_posix() != name or name in _IN_FRONT:
        raise InstallError(f"the manifest names the file {name!r}, which no bundle has; it was altered")


def _write_program(path: Path, script: str) -> None:
    path.write_text(script, encoding="utf-8")
    path.chmod(0o755)


def _replace(path: Path, make: Callable[[Path], None]) -> None:
    """Make something beside its place and rename it: it is the former or the new one at any time."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    make(temporary)
    os.replace(temporary, path)


def _run(command: list[str], what: str) -> None:
    """Run a step without this machine's settings for Python and pip.

    Raises:
        InstallError: it fails; shows the end of what it says.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    environment = {**kept, "PIP_CONFIG_FILE": os.devnull}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, close_fds=False)
    if done.returncode:
        said = "\n  ".join((done.stderr or done.stdout).strip().splitlines()[-_LINES_SHOWN:])
        raise InstallError(f"{what} could not be set up; nothing that was installed before has changed:\n  {said}")


if __name__ == "__main__":
    sys.exit(main())
