"""`konkordia links` says what is there and what is not."""

import json

from driving import program


def test_what_is_absent_is_part_of_the_answer():
    found = json.loads(program("links", "--json", check=0).stdout)
    assert set(found) == {"libfabric_version", "libfabric", "verbs"}
    text = program("links", check=0).stdout
    assert text.startswith("tcp: on every host\nshm (memory that two programs share): on every host, with itself\n")
    if found["libfabric_version"] is None:
        assert "apt-get install libfabric1" in found["libfabric"]["absent"]
        assert found["libfabric"]["absent"] in text
    else:
        assert f"libfabric {found['libfabric_version']}:" in text
        for offer in found["libfabric"]:
            assert offer["provider"] in text and offer["domain"] in text
            assert offer["event_bytes"] >= 4
    if isinstance(found["verbs"], dict):
        why = found["verbs"]["absent"]
        assert why in text and ("no RDMA device" in why or "install libibverbs" in why)
    else:
        assert f"verbs: {', '.join(found['verbs'])}" in text
