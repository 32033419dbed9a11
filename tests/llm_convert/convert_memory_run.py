"""Run by a test in a process of its own: prints its anonymous memory in bytes, and converts.

The system counts anonymous pages (RssAnon) apart from those of mapped files, which it can drop at any time.
"""

import sys
from pathlib import Path

from dmnrag.llm.convert import convert_checkpoint, folder


def anonymous(process: int | str) -> int:
    """Bytes of anonymous memory; 0 for a process that has ended."""
    for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    # Libraries are loaded and the tokenizer is built before, so that only the weights count.
    folder._check_class(folder.read_recipe(source))
    print(anonymous("self"), flush=True)  # noqa: T201
    convert_checkpoint(source, target)
