"""`python cluster_kill.py N ARGUMENTS`: the command, which dies by SIGKILL at its Nth step; without, it counts steps.

A step is what comes before and after every request to the cluster and before every change of the disk, so the
points do not depend on how fast the machine is. N is 0 for a run that ends; it prints its number of steps.
"""

import os
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any

from dmnrag import _io
from dmnrag.cli.main import run
from dmnrag.retrieval.elastic.connection import Cluster

_last = int(sys.argv[1])
_steps = count(1)
_ask = Cluster.call


def step(*_: object) -> None:
    if next(_steps) == _last:
        os.kill(os.getpid(), signal.SIGKILL)


def counted(self: Cluster, *arguments: Any, **options: Any) -> Any:
    step()
    answer = _ask(self, *arguments, **options)
    step()
    return answer


def hook(_what: str, _path: Path) -> None:
    step()


_io.FAULT_HOOK = hook
Cluster.call = counted  # type: ignore[method-assign]
sys.argv = ["dmnrag", *sys.argv[2:]]
try:
    run()
finally:
    sys.stdout.write(f"steps {next(_steps) - 1}\n")
