"""Run as a program: keeps answers and votes without end, and says each id once it is acknowledged."""

import sys
from pathlib import Path

from trust_events import add

from dmnrag.service.store import Store


def main() -> None:
    with Store.open(Path(sys.argv[1])) as store:
        for number in range(int(sys.argv[2]), sys.maxsize):
            answer_id = f"a{number}"
            add(store, answer_id, question="问" * 500)
            sys.stdout.write(f"asked {answer_id}\n")
            sys.stdout.flush()
            store.add_feedback(answer_id, "desk", good=number % 2 == 0, comment=f"comment {number}")
            sys.stdout.write(f"voted {answer_id}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
