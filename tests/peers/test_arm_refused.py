"""One cause, and what each system tells its user: the table of docs/arm-refused.md is what the clients say."""

import pytest
from arm_refused import PAGE, SYSTEMS, World, row
from programs import BUILD, PYTHON, needs

pytestmark = [
    needs(PYTHON, "the environment of the peers"),
    needs(BUILD / "bluesky-1.15", "Bluesky"),
    pytest.mark.peer("Bluesky and ophyd-async"),
    pytest.mark.peer("jfjoch-client"),
    pytest.mark.peer("fastcs-eiger"),
]


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.close()


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_refused_arm_says_why_in_each_system(world, name):
    """One cause (a port that another program has), eight systems: reason and remedy in the form of each."""
    for needed in {"Tango (PyTango)": ["tango"], "EPICS (p4p)": ["p4p"]}.get(name, []):
        pytest.importorskip(needed)
    assert row(name, world) in PAGE.read_text(encoding="utf-8").splitlines()
