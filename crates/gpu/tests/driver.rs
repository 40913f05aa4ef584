//! A GPU without one: what is said where no driver is, or one that is too old, has no device, is busy, or fails. A
//! library with the functions of the driver (`driver/driver.cpp`) stands in the place of NVIDIA's, with the kernels of
//! the shim. All of `device::cuda` runs on it, except what the
//! persistent kernel does. Where NVRTC is (KONKORDIA_NVRTC), it compiles the kernels.
//!
//! Libraries are found by LD_LIBRARY_PATH, which is read when a program starts: each case is a child process.

#[path = "common/scene.rs"]
mod scene;
#[path = "../../../tests/skip.rs"]
mod skip;

use konkordia_gpu::device::DeviceError;
use konkordia_gpu::device::cuda::{Cuda, compile_for, driver_version};
use konkordia_gpu::pipeline::{LaunchBy, Output, Pipeline, Spec};
use scene::{Came, Scene};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// The folder with the driver of the tests.
fn driver() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| compiled("driver", "libcuda.so.1"))
}

/// The folder with the compiler of the tests.
fn no_compiler() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| compiled("compiler", "libnvrtc.so.12"))
}

/// Compiles a library to a folder of its own.
fn compiled(source: &str, library: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{source}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the library");
    let source = format!("{}/tests/driver/{source}.cpp", env!("CARGO_MANIFEST_DIR"));
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let options = ["-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-o"];
    let status = Command::new(compiler).args(options).arg(folder.join(library)).arg(source).status();
    assert!(status.expect("a C++ compiler").success(), "the library of the test compiles");
    folder
}

/// The folder of libnvrtc, or the test counts as skipped.
fn compiler() -> Option<PathBuf> {
    let folder = std::env::var_os("KONKORDIA_NVRTC").map(PathBuf::from).unwrap_or_default();
    let inside = ["", "lib", "lib64", "nvidia/cuda_nvrtc/lib"].map(|inside| folder.join(inside));
    let found = inside.into_iter().find(|folder| folder.join("libnvrtc.so.12").exists());
    if found.is_none() {
        skip::skipped("no libnvrtc.so.12; KONKORDIA_NVRTC names the folder of the wheel nvidia-cuda-nvrtc-cu12");
    }
    found
}

/// Runs the test `child` in a process of its own; what it printed after `says: `, line by line.
fn in_child(case: &str, libraries: &[&Path], fake: &str) -> Vec<String> {
    let path = std::env::join_paths(libraries).expect("paths without colons");
    let this = std::env::current_exe().expect("a test is a program");
    let output = Command::new(this)
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env("DRIVER_CASE", case)
        .env("FAKE_DRIVER", fake)
        .envs(fake.strip_prefix("refused=").map(|text| ("FAKE_COMPILER", text)))
        .env("LD_LIBRARY_PATH", path)
        .output()
        .expect("the child runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{case}, {fake}: {text}\n{}", String::from_utf8_lossy(&output.stderr));
    text.lines().filter_map(|line| line.split_once("says: ")).map(|(_, said)| said.to_owned()).collect()
}

/// What a child process does. Without a case there is nothing to do.
#[test]
fn child() {
    let Ok(case) = std::env::var("DRIVER_CASE") else { return };
    let say = |error: &DeviceError| println!("\nsays: {:?}: {error}", error.cause);
    match case.as_str() {
        "version" => match driver_version() {
            Ok(version) => println!("\nsays: {version}"),
            Err(why) => say(&why),
        },
        "open" => match Cuda::open(0) {
            Ok(_) => println!("\nsays: opened"),
            Err(why) => say(&why),
        },
        "compile" => match compile_for("sm_90") {
            Ok(bytes) => println!("\nsays: {bytes}"),
            Err(why) => say(&why),
        },
        case => run(case, say),
    }
}

/// A run of a pipeline on the driver of the tests; the case names launch and output.
fn run(case: &str, say: impl Fn(&DeviceError)) {
    let scene = Scene::new(3, 24, 5, 5);
    let (launch, rest) = case.split_once(' ').expect("a launch and an output");
    let (output, in_ring) = rest.split_once(' ').map_or((rest, false), |(output, _)| (output, true));
    let launch = *LaunchBy::ALL.iter().find(|by| by.name() == launch).expect("a launch");
    let output = match output {
        "pixels" => Output::Pixels,
        "chunks" => Output::Chunks,
        _ => Output::Sparse { room: 20 },
    };
    let is_hanging = launch == LaunchBy::Persistent || std::env::var("FAKE_DRIVER").is_ok_and(|fake| fake.contains("hang"));
    let patience = Duration::from_millis(if is_hanging { 300 } else { 20_000 });
    let spec = Spec { patience, first: u32::MAX - 2, ..scene.spec(launch, output, Some(8), 2) };
    let mut pipeline = match Cuda::open(0).and_then(|device| Pipeline::arm(device, spec.clone(), &scene.tables(in_ring))) {
        Ok(pipeline) => pipeline,
        Err(why) => return say(&why),
    };
    let takes_words = pipeline.takes_words();
    if let Some(why) = pipeline.not_taken() {
        say(why);
    }
    let (mut came, mut submitted) = (Vec::new(), 0);
    while came.len() < 16 {
        if submitted < 8 && pipeline.submit(submitted, 2, |given| scene.fill(takes_words, 2 * submitted, given)) {
            submitted += 1;
        }
        let moved = pipeline.poll(|batch| {
            for n in 0..batch.frames {
                came.push(scene.check(&spec, came.len() as u64, (batch, n), case));
            }
        });
        match moved {
            Ok(true) => {}
            Ok(false) => pipeline.pause(),
            Err(why) => {
                say(&why);
                let back: Vec<u64> = pipeline.unfinished().map(|batch| batch.number).collect();
                assert_eq!(back, (came.len() as u64 / 2..submitted).collect::<Vec<_>>());
                println!("\nsays: {} came, {} came back", came.len(), 2 * back.len());
                return;
            }
        }
    }
    let kept = came.iter().filter(|came| matches!(came, Came::Kept(_))).count();
    println!("\nsays: {kept} of {} kept; {}", came.len(), pipeline.account());
}

#[test]
fn without_a_driver_an_error_says_what_to_do() {
    let nowhere = Path::new("/nonexistent");
    if driver_version().is_ok() {
        return skip::skipped("this machine has a driver");
    }
    for case in ["version", "open", "plain pixels"] {
        let said = in_child(case, &[nowhere], "");
        assert_eq!(said.len(), 1, "{said:?}");
        let expected = "NoDriver: opening the driver of NVIDIA (libcuda.so.1): the library of the driver cannot be opened; \
                        install the driver of NVIDIA";
        assert!(said[0].starts_with(expected), "{said:?}");
    }
}

#[test]
fn a_driver_that_is_too_old_or_has_no_device_or_no_memory_is_told_apart() {
    for (fake, expected) in [
        ("version=12020", "DriverTooOld: opening the driver of NVIDIA (libcuda.so.1): the driver is for CUDA 12.2, and 12.4 is"),
        ("init=803", "DriverTooOld: opening the device (GPU 0): "),
        ("init=100", "NoDevice: opening the device (GPU 0): "),
        ("devices=0", "NoDevice: opening the device (GPU 0): there are 0 devices"),
        ("create=46", "Busy: opening the device (GPU 0, driver of the tests): "),
        ("create=2", "OutOfMemory: opening the device (GPU 0, driver of the tests): "),
        ("create=214", "Uncorrectable: opening the device (GPU 0, driver of the tests): "),
        ("create=999", "Operation: opening the device (GPU 0, driver of the tests): "),
    ] {
        let said = in_child("open", &[driver()], fake);
        assert!(said.len() == 1 && said[0].starts_with(expected), "{fake}: {said:?}");
    }
    assert_eq!(in_child("version", &[driver()], ""), ["12090"]);
}

#[test]
fn a_driver_without_a_function_is_too_old() {
    // A library with nothing in it.
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("empty-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the library");
    let source = folder.join("empty.c");
    std::fs::write(&source, "int nothing;\n").expect("a source");
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(folder.join("libcuda.so.1")).arg(source).status();
    assert!(status.expect("a C compiler").success());
    let said = in_child("open", &[&folder], "");
    assert!(said[0].starts_with("DriverTooOld: ") && said[0].contains("it has no function cu"), "{said:?}");
}

#[test]
fn without_a_compiler_an_error_says_what_to_do() {
    if compile_for("sm_90").is_ok() {
        return skip::skipped("this machine has NVRTC where libraries are");
    }
    let said = in_child("open", &[driver()], "");
    let expected =
        "NoCompiler: compiling the kernels (libnvrtc.so.12): the library of the compiler cannot be opened; install NVRTC";
    assert!(said.len() == 1 && said[0].starts_with(expected), "{said:?}");
}

#[test]
fn the_calls_of_the_driver_make_the_images_of_the_cpu() {
    let libraries = [driver(), no_compiler()];
    for launch in [LaunchBy::Plain, LaunchBy::WaitValue, LaunchBy::Graph] {
        for output in ["pixels", "chunks", "sparse", "pixels ring", "chunks ring", "sparse ring"] {
            let said = in_child(&format!("{} {output}", launch.name()), &libraries, "");
            assert!(said.len() == 1 && said[0].contains("8 batches of 16 images: "), "{launch:?} {output}: {said:?}");
            assert!(!said[0].starts_with("0 of") && !said[0].contains(" 0 rejected"), "{launch:?} {output}: {said:?}");
        }
    }
}

/// The words are brought then.
#[test]
fn a_driver_that_registers_no_memory_is_told_and_the_images_are_the_same() {
    let said = in_child("plain chunks ring", &[driver(), no_compiler()], "register=801");
    assert!(said[0].starts_with("Unsupported: registering ") && said[0].contains(" bytes of received frames"), "{said:?}");
    assert!(said.len() == 2 && said[1].contains("8 batches of 16 images: "), "{said:?}");
}

#[test]
fn a_device_that_fails_in_the_run_hands_its_batches_back() {
    let libraries = [driver(), no_compiler()];
    for launch in ["plain", "wait-value", "graph"] {
        for (fake, cause) in [("launch=11:214", "Uncorrectable"), ("launch=17:700", "Operation"), ("memory=2500", "OutOfMemory")]
        {
            let input = if cause == "Operation" { " ring" } else { "" };
            let said = in_child(&format!("{launch} pixels{input}"), &libraries, fake);
            assert!(said[0].starts_with(&format!("{cause}: ")), "{launch} {fake}: {said:?}");
            let is_at_arm = cause == "OutOfMemory";
            assert!(is_at_arm || said[1].ends_with(" came back"), "{launch} {fake}: {said:?}");
        }
    }
}

/// The driver of the tests does not run the persistent kernel, so nothing moves.
#[test]
fn a_kernel_that_hangs_is_seen_by_the_watchdog() {
    let libraries = [driver(), no_compiler()];
    for output in ["pixels", "chunks", "sparse"] {
        check_persistent(output, &libraries);
    }
    let said = in_child("plain pixels", &libraries, "hang=5");
    assert!(said[0].starts_with("Hang: ") && said[1].ends_with(" came back"), "{said:?}");
}

fn check_persistent(output: &str, libraries: &[&Path]) {
    let said = in_child(&format!("persistent {output}"), libraries, "");
    assert!(said[0].starts_with("Hang: working on frames (GPU 0, driver of the tests): nothing moved for "), "{said:?}");
    assert_eq!(said[1], "0 came, 8 came back", "{output}");
}

/// NVRTC takes the kernels of streams and graphs, and the persistent kernel with each output.
#[test]
fn nvrtc_compiles_what_a_pipeline_asks_for() {
    let Some(compiler) = compiler() else { return };
    let libraries = [driver(), &compiler];
    let machine_code = in_child("compile", &libraries, "");
    assert!(machine_code[0].parse::<usize>().expect("bytes") > 10_000, "{machine_code:?}");
    for output in ["pixels", "chunks", "sparse", "chunks ring"] {
        check_persistent(output, &libraries);
    }
}

#[test]
fn a_text_that_the_compiler_refuses_is_told() {
    let said = in_child("compile", &[no_compiler()], "refused=a mistake");
    assert!(
        said[0].starts_with("NoCompiler: compiling the kernels (libnvrtc.so.12): NVRTC_ERROR_COMPILATION: a mistake;"),
        "{said:?}"
    );
}
