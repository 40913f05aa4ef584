"""`konkordia demo --scenario`, each as a user starts it: the account of the receiver is what the link did."""

import json

import pytest

from driving import program


@pytest.mark.alone
@pytest.mark.parametrize("scenario", ["roce", "bridge", "trains"])
def test_every_packet_of_the_scenario_is_accounted_for(tmp_path, scenario):
    done = program("demo", "--scenario", scenario, "--dir", tmp_path / "out", "--seed", "5", "--json", timeout=120, check=None)
    report = json.loads(done.stdout)
    numbers = report["link_and_receiver"]
    assert done.returncode == 0 and report["agrees"], (numbers, done.stderr)
    assert all(link == receiver for link, receiver in numbers.values()) and len(numbers) == 4
    # The link has lost and doubled packets, and the receiver knows how many.
    assert numbers["packets lost"][0] > 20 and numbers["packets twice"][0] > 10, numbers
    assert done.stderr.count("       konkordia ") == 2, "both commands are shown"


def test_options_of_the_service_are_refused(tmp_path):
    done = program("demo", "--scenario", "roce", "--images", "7", "--dir", tmp_path, check=2)
    assert "--images" in done.stderr
