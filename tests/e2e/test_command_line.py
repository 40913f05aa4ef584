"""Help, configuration, inspect and check as a person uses them."""

import json
import re
import signal
import subprocess
import time

import pytest
from driving import BINARY, LYSO, ROOT, balanced, lyso_raw, lyso_tables, needs_lyso, program, raw_tables, simulate

VERBS = ["demo", "simulate", "receive", "pedestal", "calibration", "inspect", "check", "repair", "config", "bench", "doctor", "size", "completion", "version"]


def test_help_begins_with_a_sentence_and_examples():
    top = program("--help", check=0).stdout
    assert all(verb in top for verb in VERBS) and "Exit codes: 0 complete" in top
    for verb in VERBS[:-1]:
        text = program("help", verb, check=0).stdout
        sentence, examples = text.split("\n\n")[:2]
        assert sentence and examples.startswith("Examples:\n") and examples.count("\n  konkordia ") == 3, text


def test_the_examples_of_the_first_help_work_one_after_the_other(tmp_path):
    lines = program("--help", check=0).stdout.split("Examples:\n")[1].split("\n\n")[0].split("\n")
    (tmp_path / "konkordia").symlink_to(BINARY)
    for line in lines:
        # A free port, and fewer images to wait for.
        line = line.replace("konkordia demo", "konkordia demo --listen 127.0.0.1:0 --images 20")
        done = subprocess.run(["bash", "-ec", f"PATH=$PWD:$PATH; {line}"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    assert len(lines) == 3 and (tmp_path / "image.png").exists() and (tmp_path / "run.toml").exists()


def test_the_configurations_in_the_documentation_are_valid(tmp_path):
    blocks = [(page, b) for page in [ROOT / "README.md", *ROOT.glob("docs/*.md")] for b in re.findall(r"```toml\n(.*?)```", page.read_text(), re.S)]
    whole = [(page, block) for page, block in blocks if "[detector]" in block and "[source]" in block]
    assert whole, "the README shows a configuration"
    for page, block in whole:
        path = tmp_path / "run.toml"
        path.write_text(re.sub(r'directory = ".*"', f'directory = "{tmp_path}"', block))
        refused = program("config", "check", path).stderr
        # The calibration files that a page names do not exist; every other error is a mistake of the page.
        mistakes = [line for line in refused.splitlines() if line.startswith("error:") and "cannot read the calibration" not in line]
        assert not mistakes, f"{page}: {refused}"


def test_failures_are_json_for_programs(tmp_path):
    def failed(*arguments, code):
        done = program(*arguments, check=code)
        error = json.loads(done.stdout.splitlines()[-1])["error"]
        assert error["exit_code"] == code and error["what"] and error["fix"] and done.stderr == "", done
        return error

    missing = tmp_path / "none_master.h5"
    assert failed("inspect", missing, "--json", code=6)["why"] == "No such file or directory"
    assert "none_master.h5" in failed("check", missing, "--json", code=6)["what"]
    failed("repair", missing, "--json", code=6)
    failed("status", "--json", "--url", "http://127.0.0.1:1", code=4)
    failed("receive", tmp_path / "none.toml", "--json", code=3)
    assert "--frames" in failed("convert", missing, "--json", "--frames", code=2)["what"]
    config = tmp_path / "run.toml"
    config.write_text('[detector]\ntype = "jungfrau"\nmodulse = 1\n[output]\nprefix = "a"\n')
    error = failed("config", "check", config, "--json", code=3)
    assert "run.toml:3:1" in error["why"] and "modules" in error["why"], error
    text = program("config", "check", config, check=3).stderr
    assert "see above" not in text and text.rstrip().endswith("docs/configuration.md explains every key"), text


def test_an_existing_file_is_named_as_such(tmp_path):
    there = tmp_path / "run.toml"
    there.write_text("")
    said = program("config", "init", there, check=6).stderr
    assert "exists" in said.lower() and "another name" in said and "dmesg" not in said, said


def test_usage_errors_exit_with_2():
    for arguments in (["nonsense"], ["receive"], ["simulate", "jungfrau"], ["simulate", "jungfrau", "--to", "x", "--loss", "2"], ["inspect"]):
        program(*arguments, check=2)
    assert "write 0.02" in program("simulate", "jungfrau", "--to", "127.0.0.1:1", "--loss", "2", check=2).stderr
    assert "not an address to send to" in program("simulate", "jungfrau", "--to", "127.0.0.1", check=2).stderr


def test_version_and_completion():
    version = json.loads(program("version", "--json", check=0).stdout)
    assert version["name"] == "konkordia" and program("version", check=0).stdout == f"konkordia {version['version']}\n"
    for shell in ("bash", "zsh", "fish"):
        assert "receive" in program("completion", shell, check=0).stdout


def test_the_example_configuration_is_valid(tmp_path):
    path = tmp_path / "run.toml"
    program("config", "init", path, check=0)
    assert path.read_text().strip() == program("config", "init", check=0).stdout.strip()
    program("config", "init", path, check=6)
    # Its calibration files do not exist. The configuration is valid, but the missing files are reported.
    done = program("config", "check", path, check=3)
    assert "is valid; the plan:" in done.stdout and "cannot read the calibration" in done.stderr
    schema = json.loads(program("config", "schema", check=0).stdout)
    assert schema["properties"]["detector"]["properties"]["energy_kev"]["type"] == "number"


def test_the_plan_is_printed_with_its_memory(bench):
    config = bench.config(streams=16, **raw_tables(modules=8, interfaces=2))
    plan = json.loads(program("config", "check", config, "--json", check=0).stdout)
    assert (plan["image_rows"], plan["image_columns"], plan["streams"], plan["packets_per_image"]) == (4096, 1024, 16, 1024)
    assert plan["memory_bytes_total"] == sum(plan["memory_bytes"].values()) < 400 << 20
    assert "memory" in program("config", "check", config, check=0).stdout


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (("energy_kev = 12.4", "energy_kve = 12.4"), 3, "did you mean 'energy_kev'?"),
        (("energy_kev = 12.4", "energy_kev = 12400"), 3, "it looks like eV"),
        (("[detector]", "[detektor]"), 1, "did you mean [detector]?"),
        (("[run]", "[run]\nimages = -1"), None, "-1 is not between 1 and"),
        (('dtype = "raw"', 'dtype = "int12"'), None, 'did you mean "int16"?'),
        (("[run]", "[[run]]"), None, "write [run]"),
        (("modules = 1", "modules = 2\n[[detector.tile]]\nrow = 0\ncolumn = 0\n[[detector.tile]]\nrow = 5\ncolumn = 0"), None, "overlap"),
        (('type = "jungfrau"', "type = jungfrau"), 2, "not TOML"),
    ],
)
def test_mistakes_are_shown_where_they_are(bench, change, line, said):
    path = bench.config(**raw_tables())
    text = path.read_text().replace('type = "jungfrau"\nmodules = 1\ninterfaces = 1\ndetector_distance_mm = 100.0\nenergy_kev = 12.4', 'type = "jungfrau"\nenergy_kev = 12.4\nmodules = 1')
    assert change[0] in text, text
    path.write_text(text.replace(*change))
    for command in (["receive", path], ["config", "check", path]):
        done = program(*command, check=3)
        assert said in done.stderr and "^" in done.stderr, done.stderr
        assert line is None or f"run.toml:{line}:" in done.stderr, done.stderr
    assert not bench.master.exists()


@needs_lyso
def test_a_calibration_that_cannot_be_is_refused_before_anything_is_made(bench):
    wrong = bench.folder / "wrong.f32"
    wrong.write_bytes((LYSO / "pedestal_g1.f32").read_bytes()[:-4])
    tables = lyso_tables(images=1)
    tables["calibration"]["pedestal"][1] = str(wrong)
    done = program("receive", bench.config(**tables), check=3)
    assert "wrong.f32 has the wrong size" in done.stderr and "2097152 bytes" in done.stderr
    tables["calibration"]["pedestal"][1] = str(bench.folder / "none.f32")
    assert "none.f32" in program("receive", bench.config(**tables), check=3).stderr
    tables = lyso_tables(images=1)
    tables["calibration"]["gain"] = [str(LYSO / f"pedestal_g{g}.f32") for g in range(3)]
    assert "not gains of a JUNGFRAU" in program("receive", bench.config(**tables), check=3).stderr
    assert not bench.master.exists()


@needs_lyso
def test_inspect_tells_what_is_in_a_file(bench):
    receiver = bench.receive(bench.config(**lyso_tables(images=3)))
    simulate("jungfrau", "--to", bench.to, "--rate", 50, "--images", 3, "--raw", *lyso_raw())
    code, report = receiver.finish()
    balanced(code, report)
    found = json.loads(program("inspect", bench.master, "--image", 1, "--json", check=0).stdout)
    assert (found["images"], found["rows"], found["columns"], found["dtype"], found["compression"]) == (3, 512, 1024, "int16", "bslz4")
    assert found["calibration_hash"].startswith("sha256:") and found["energy_kev"] == 12.4 and found["ended"] == "finished"
    assert found["ledger"]["placed"] == 384 and found["images_by_status"]["complete"] == 3
    one = found["image"]
    assert one["status"] == "complete" and one["masked"] == 83 and one["missing"] == 0
    assert one["valid"] + one["masked"] + one["saturated"] + one["invalid"] == 512 * 1024
    text = program("inspect", bench.master, "--image", 1, check=0).stdout
    assert "3 of 512 x 1024 pixels" in text and "83 masked" in text and "formula" in text
    assert "there is no image 3" in program("inspect", bench.master, "--image", 3, check=2).stderr
    assert json.loads(program("check", bench.master, "--json", check=0).stdout)["valid"]
    program("repair", bench.master, check=0)
    program("check", bench.master, check=0)


def test_check_gives_reasons(bench):
    receiver = bench.receive(bench.config(**raw_tables(images=3)))
    simulate("jungfrau", "--to", bench.to, "--rate", 50, "--images", 3)
    assert receiver.finish()[0] == 0
    (bench.folder / "run_data_000001.h5").unlink()
    done = program("check", bench.master, check=1)
    assert "error: " in done.stdout and "NOT whole and valid" in done.stdout
    program("check", bench.folder / "nothing.h5", check=6)
    program("inspect", bench.folder / "nothing.h5", check=6)
    (bench.folder / "text_master.h5").write_text("this is no HDF5")
    assert "Traceback" not in program("inspect", bench.folder / "text_master.h5").stderr


def test_the_simulator_writes_what_its_receiver_needs(tmp_path, bench):
    config = tmp_path / "sim.toml"
    bench.config(**raw_tables())
    arguments = ["simulate", "jungfrau", "--to", bench.to, "--images", 5, "--interfaces", 1]
    program(*arguments, "--write-calibration", tmp_path / "cal", "--write-config", config, check=0)
    receiver = bench.receive(config)
    simulate(*arguments[1:], "--rate", 50)
    code, report = receiver.finish()
    balanced(code, report)
    assert code == 0 and (tmp_path / "simulated_master.h5").exists()
    found = json.loads(program("inspect", tmp_path / "simulated_master.h5", "--image", 0, "--json", check=0).stdout)
    assert 1 < found["image"]["mean"] < 3 and found["image"]["masked"] > 10


@pytest.mark.alone
def test_kernels_are_measured_and_verified():
    done = json.loads(program("bench", "kernels", "--seconds", 0.001, "--json", check=0).stdout)
    assert done["verified"] and len(done["rows"]) > 8 and done["machine"]["instruction_set"]


@pytest.mark.alone
def test_the_pipeline_is_measured(tmp_path):
    arguments = ["bench", "pipeline", "--modules", 1, "--rate", 100, "--seconds", 1, "--dir", tmp_path, "--buffer-mib", 64, "--json"]
    done = json.loads(program(*arguments, check=0).stdout)
    (result,) = done["results"]
    attempt = result["attempts"][0]
    assert attempt["lossless"] and 90 < result["best_hz"] < 130 and list(tmp_path.iterdir()) == []
    assert attempt["latency"]["committed_images"] == attempt["images"]
    assert 0 <= attempt["slots_used_max"] <= attempt["slots"]
    woken = {thread["thread"]: thread["with_work"] for thread in attempt["wakeups"]}
    assert {"work-0", "commit", "join"} <= woken.keys() and all(woken.values()), woken


@pytest.mark.alone
def test_receiving_is_measured_without_conversion_beside_a_plain_loop(tmp_path):
    arguments = ["--receive-only", "--modules", 1, "--rate", 50, "--seconds", 1.6, "--dir", tmp_path, "--buffer-mib", 64]
    done = json.loads(program("bench", "pipeline", *arguments, "--repeats", 1, "--json", check=0).stdout)
    (result,) = done["results"]
    assert (done["bench"], done["repeats"], result["rate_hz"], result["packets_per_image"]) == ("receive-only", 1, 50, 128)
    assert done["lossless"] and result["lossless"] and list(tmp_path.iterdir()) == []
    for name in ("receive_only", "plain"):
        found = result[name]
        (attempt,) = found["attempts"]
        assert attempt["frames"] == 80 and attempt["lossless"] and found["searched"] == [] and found["highest_loss_free_hz"] is None
        assert (attempt["packets_sent"], attempt["packets_received"], attempt["packets_lost"]) == (80 * 128, 80 * 128, 0), attempt
        assert (found["packets_received"], found["packets_lost"], attempt["kernel_dropped"]) == (80 * 128, 0, 0), found
        for figure in ("image_us", "cores", "sent_hz"):
            assert found[figure]["lowest"] <= found[figure]["median"] <= found[figure]["highest"] == attempt[figure], found
            assert attempt[figure] > 0, attempt
    counted = [result["receive_only"]["attempts"][0][name] for name in ("frames_skipped", "frames_kept", "packets_missing")]
    assert counted == [70, 10, 0] and result["plain"]["attempts"][0]["frames_skipped"] is None
    assert 0 < result["ratio"]["lowest"] <= result["ratio"]["median"] <= result["ratio"]["highest"]
    for wrong in (["--receive-only", "--delete-finished"], ["--repeats", 2]):
        program("bench", "pipeline", *wrong, check=2)


@pytest.mark.alone
def test_a_measurement_that_is_interrupted_leaves_nothing_behind(tmp_path):
    arguments = [BINARY, "bench", "pipeline", "--modules", "1", "--rate", "50", "--seconds", "60", "--dir", str(tmp_path)]
    bench = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 30
    while not list(tmp_path.glob("konkordia-bench-*/bench_data_*.h5")) and time.monotonic() < end:
        time.sleep(0.05)
    bench.send_signal(signal.SIGINT)
    assert bench.wait(10) == 130 and list(tmp_path.iterdir()) == []
