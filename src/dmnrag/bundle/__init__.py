"""The offline bundle: one archive that installs dmnrag, an index and its models on a machine without any network.

    install.sh              verifies and installs the rest; stands first, so that it is found at once
    manifest.json           what it is for, and size and sha256 of every other file
    wheels/                 dmnrag, its libraries and pip
    index/                  the current generation, with the models that belong to it
    cache/, models/         the built-in models converted, and the other models that were named

`install` is the program that runs on the other machine; it knows nothing of the rest of the package.
"""

from dmnrag.bundle.build import BundleReport, make_bundle
from dmnrag.bundle.settings import BundleSettings

__all__ = ["BundleReport", "BundleSettings", "make_bundle"]
