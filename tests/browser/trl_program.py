"""A program of somebody's own, as docs/trainers/trl.md has it: TRL trains a model on problems that are too hard for it. Its argument is a folder for TRL's output."""

import sys
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

import groupscope
import worker.models

MODEL = str(Path(worker.models.__file__).parent / "tiny_arithmetic")


def right(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    """Whether the answer is the reference's; as slow as a judge, so that a person can read a step."""
    time.sleep(0.5)
    return [float(text.strip() == one) for text, one in zip(completions, answer, strict=True)]


trainer = GRPOTrainer(
    model=AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32),
    processing_class=AutoTokenizer.from_pretrained(MODEL, padding_side="left"),
    reward_funcs=right,
    args=GRPOConfig(
        output_dir=sys.argv[1],
        max_steps=1000,
        num_generations=4,
        per_device_train_batch_size=8,
        max_completion_length=8,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
    ),
    train_dataset=Dataset.from_list(
        [{"prompt": f"Calculate 9 x 9 x {n}", "answer": str(81 * n)} for n in range(20, 30)]
    ),
)
groupscope.watch(trainer, name="somebody's TRL")
trainer.train()
