//! Compiles the text of the kernels as C++ for the emulator; without it there is nothing to do.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "emulator")]
    compile();
}

#[cfg(feature = "emulator")]
fn compile() {
    for folder in ["kernels", "shim"] {
        println!("cargo::rerun-if-changed={folder}");
    }
    // Single precision with one rounding per operation, as NVRTC is told by --fmad=false.
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .flag("-ffp-contract=off")
        .file("shim/launch.cpp")
        .file("shim/threads.cpp")
        .compile("konkordia_gpu_shim");
}
