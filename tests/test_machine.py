"""What is said about the machine behind a measurement."""

import getpass
import json
import platform

import torch

from livi.experiments.machine import machine, versions


def test_machine_and_versions_are_json_without_names_of_hosts_or_users():
    facts = machine() | versions()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert not {platform.node(), getpass.getuser()} & set(facts.values())


def test_the_machine_is_this_one():
    found = machine()
    assert found["cpu"]
    assert found["cores"] >= 1
    assert found["threads"] == torch.get_num_threads()
    assert found["memory_gib"] is None or found["memory_gib"] > 0.1
    assert (found["gpu"] is None) == (not torch.cuda.is_available())
    assert versions()["torch"] == torch.__version__
