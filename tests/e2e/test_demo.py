"""The first thing that a new user tries."""

import json

from driving import Master, program


def test_the_demonstration_proves_itself(tmp_path):
    done = program("demo", "--dir", tmp_path / "demo", "--images", 120, "--json", check=0)
    result = json.loads(done.stdout)
    assert result["pixels_different"] == 0 and result["pixels_compared"] == 120 * 512 * 1024
    assert result["pixels_equal_to_true_photons"] > 0.99 and result["seconds"] < 20
    report = result["report"]
    assert report["balances"] and report["images"]["complete"] == 120 and report["total"]["placed"] == 120 * 128
    assert Master(tmp_path / "demo" / "demo_master.h5").images.shape == (120, 512, 1024)
    program("check", tmp_path / "demo" / "demo_master.h5", check=0)
    # What it leaves behind is all that a run of one's own needs.
    program("config", "check", tmp_path / "demo" / "demo.toml", check=0)


def test_it_can_be_repeated_and_speaks_to_people(tmp_path):
    for _ in range(2):
        done = program("demo", "--images", 20, check=0, cwd=tmp_path)
    for part in ["ledger    balances", "20 complete", "0 different", "nothing lost", "konkordia inspect demo-out/demo_master.h5"]:
        assert part in done.stdout, done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    done = program("demo", "--dir", tmp_path / "file", check=6)
    assert done.stderr.startswith("error: cannot make the folder") and "fix: " in done.stderr
