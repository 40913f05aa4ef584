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


@pytest.mark.alone
def test_every_packet_and_byte_of_rashpa_is_accounted_for(tmp_path):
    arguments = ["--scenario", "rashpa", "--dir", tmp_path / "out", "--seed", "5", "--json"]
    done = program("demo", *arguments, timeout=180, check=None)
    report = json.loads(done.stdout)
    numbers = report["link_and_receiver"]
    assert done.returncode == 0 and report["agrees"], (numbers, done.stderr)
    assert all(link == receiver for link, receiver in numbers.values()) and len(numbers) == 6
    assert numbers["packets lost"][0] > 50 and numbers["packets twice"][0] > 10, numbers
    pulled = [flow["lost_by_pull"] for module in report["modules"] for flow in module["receivers"]]
    assert sum(pulled) > 0 and len(report["modules"]) == 6 and len(report["receivers"]) == 4
    for module in report["modules"]:
        assert [(change["link"], change["state"]) for change in module["link_changes"]] == [(1, "down"), (1, "up")]
    transfers = [transfer for receiver in report["receivers"] for transfer in receiver["transfers"]]
    assert all(transfer["whole"] > 10 and transfer["bytes_equal"] > 0 for transfer in transfers), transfers
    assert any(transfer["partial"] > 0 for transfer in transfers), "packets were lost"
    assert done.stderr.count("       konkordia ") == 3, "the commands are shown"


def test_options_of_the_service_are_refused(tmp_path):
    done = program("demo", "--scenario", "roce", "--images", "7", "--dir", tmp_path, check=2)
    assert "--images" in done.stderr
