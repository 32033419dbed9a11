"""The wheels of a bundle: this package as it runs here, and its libraries in the versions that are installed here.

pip does the work, with its own configuration (PIP_* and pip.conf) and whatever options the user adds. So the bundle
holds what was tried on this machine, for this Python and platform; what is not installed here comes in the newest
version that fits.
"""

import json
import re
import subprocess
import sys
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from email.parser import HeaderParser
from hashlib import sha256
from importlib.metadata import Distribution, distribution, distributions
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname
from zipfile import ZIP_DEFLATED, ZipFile

from dmnrag.errors import ConfigError

PACKAGE = "dmnrag"

_LINES_SHOWN = 8
"""Of what pip says when it fails: its reason stands at the end."""

_ABOUT_AN_INSTALLATION = frozenset({"INSTALLER", "REQUESTED", "RECORD", "direct_url.json"})
"""Files beside a package's metadata that its wheel does not have."""

_OLD_TAGS = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
"""glibc that these platform tags stand for (PEP 600)."""


def gather_wheels(folder: Path, extras: Sequence[str], pip_options: Sequence[str]) -> list[Path]:
    """All wheels that a fresh machine needs, pip among them, in `folder/wheels`.

    Raises:
        ConfigError: this Python has no pip, an extra is unknown, or pip cannot get a wheel; shows what it says.
    """
    if find_spec("pip") is None:
        raise ConfigError(f"{sys.executable} has no pip, which gathers the wheels; add it: python -m ensurepip")
    own, wheels, constraints = folder / "own", folder / "wheels", folder / "constraints.txt"
    wheel = own_wheel(distribution(PACKAGE), own, pip_options)
    known = provided_extras(wheel)
    if unknown := [extra for extra in extras if extra not in known]:
        raise ConfigError(f"there is no extra {', '.join(unknown)}: allowed are {', '.join(sorted(known))}")
    constraints.write_text("".join(installed_versions()), encoding="utf-8")
    wanted = f"{PACKAGE}[{','.join(extras)}] @ {wheel.as_uri()}"
    run_pip("wheel", "--wheel-dir", str(wheels), "--constraint", str(constraints), *pip_options, wanted, "pip")
    return sorted(wheels.glob("*.whl"))


def run_pip(*arguments: str) -> None:
    """Run pip of this Python.

    Raises:
        ConfigError: it fails; shows the end of what it says.
    """
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n  ".join((done.stderr or done.stdout).strip().splitlines()[-_LINES_SHOWN:])
        raise ConfigError(
            f"pip cannot gather the wheels:\n  {said}\nIt takes its options from its configuration and --pip-args, "
            "such as --pip-args '--extra-index-url URL' for the CPU build of torch"
        )


def own_wheel(package: Distribution, folder: Path, pip_options: Sequence[str] = ()) -> Path:
    """This package as a wheel: from its source tree where it runs from one, else from its installed files."""
    folder.mkdir(parents=True)
    source = source_tree(package)
    if source is None:
        return repack(package, folder)
    run_pip("wheel", "--no-deps", "--wheel-dir", str(folder), *pip_options, str(source))
    return next(folder.glob("*.whl"))


def source_tree(package: Distribution) -> Path | None:
    """The folder that an editable installation runs from (PEP 610); None for any other installation."""
    content = json.loads(package.read_text("direct_url.json") or "{}")
    if not content.get("dir_info", {}).get("editable"):
        return None
    return Path(url2pathname(urlsplit(content["url"]).path))


def repack(package: Distribution, folder: Path) -> Path:
    """A wheel of the files of an installed pure-Python package (binary distribution format 1.0)."""
    name, version = package.metadata["Name"].replace("-", "_"), package.version
    target = folder / f"{name}-{version}-py3-none-any.whl"
    record = f"{name}-{version}.dist-info/RECORD"
    rows = []
    with ZipFile(target, "w", ZIP_DEFLATED) as wheel:
        for file in sorted(package.files or ()):
            foreign = ".." in file.parts or "__pycache__" in file.parts or file.name in _ABOUT_AN_INSTALLATION
            if foreign:
                continue
            content = Path(str(file.locate())).read_bytes()
            digest = urlsafe_b64encode(sha256(content).digest()).rstrip(b"=").decode()
            wheel.writestr(file.as_posix(), content)
            rows.append(f"{file.as_posix()},sha256={digest},{len(content)}\n")
        wheel.writestr(record, "".join([*rows, f"{record},,\n"]))
    return target


def provided_extras(wheel: Path) -> frozenset[str]:
    """Extras that a wheel's metadata name."""
    with ZipFile(wheel) as content:
        name = next(n for n in content.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(content.read(name).decode())
    return frozenset(metadata.get_all("Provides-Extra") or ())


def installed_versions() -> list[str]:
    """A line of pip's constraints for every package that is installed here, this one left out."""
    found = {p.metadata["Name"]: p.version for p in distributions() if p.metadata["Name"]}
    return sorted(f"{name}=={version}\n" for name, version in found.items() if name != PACKAGE)


def unpacked_bytes(wheels: Iterable[Path]) -> int:
    """Size of what the wheels hold, on disk once installed."""
    total = 0
    for path in wheels:
        with ZipFile(path) as wheel:
            total += sum(entry.file_size for entry in wheel.infolist())
    return total


def needed_glibc(names: Iterable[str]) -> tuple[int, int] | None:
    """Oldest C library that wheels of these file names run on; None where none of them says."""
    found = [versions for name in names if (versions := _glibc_tags(name))]
    return max((min(versions) for versions in found), default=None)


def _glibc_tags(name: str) -> list[tuple[int, int]]:
    tag = name.removesuffix(".whl").rpartition("-")[2]
    versions = [(int(major), int(minor)) for major, minor in re.findall(r"manylinux_(\d+)_(\d+)_", tag)]
    return versions + [version for old, version in _OLD_TAGS.items() if f"{old}_" in tag]
