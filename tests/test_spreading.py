"""Fits in processes of their own: rows of all that have one, and GPUs in turn."""

import multiprocessing

import torch

from livi.experiments.processes import take_gpu
from livi.experiments.spreading import run_all


def odd(number):
    return {"number": number} if number % 2 else None


def test_a_job_without_a_row_is_left_out_in_one_process_and_in_two():
    for count in (1, 2):
        rows = sorted(row["number"] for row in run_all(odd, range(5), count))
        assert rows == [1, 3]


def test_processes_take_gpus_in_turn(monkeypatch):
    taken, begun = [], multiprocessing.get_context("spawn").Value("i", 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    for _ in range(5):
        take_gpu(begun)
    assert taken == [0, 1, 2, 0, 1]


def test_one_gpu_or_none_is_not_chosen(monkeypatch):
    begun = multiprocessing.get_context("spawn").Value("i", 0)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: (_ for _ in ()).throw(AssertionError))
    for count in (0, 1):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        take_gpu(begun)
