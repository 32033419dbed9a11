"""Run by test_dpr_train, alone and under torchrun: trains in as many processes as it is started in."""

import sys
from dataclasses import replace
from pathlib import Path

import torch
from dpr_tiny import random_instances

from dmnrag.training.dpr import train_dpr
from dmnrag.training.settings import DprSettings

SETTINGS = DprSettings(
    epochs=2, batch_size=6, learning_rate=1e-3, dev_questions=4, mini_batch=2, patience=0, evaluate_steps=8
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    train_dpr(random_instances(24), Path(sys.argv[1]), replace(SETTINGS), encoder=sys.argv[2])
