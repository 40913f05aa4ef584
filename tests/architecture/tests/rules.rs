//! Breaks each rule on purpose and checks that this is found: a check that never fails proves nothing.

use konkordia_architecture::circles::{circles, graph};
use konkordia_architecture::house::{COMMENT_COLUMNS_MAX, FILE_LINES_MAX, findings, matches};
use konkordia_architecture::imports::{beyond_the_handle, breaches, manifest, table};
use konkordia_architecture::seams::{differences, seams};
use konkordia_architecture::text::{code_only, sentences};

const ISA: &str = "crates/kernels/src/convert/avx2.rs";

#[track_caller]
fn finds(path: &str, source: &str, part: &str) {
    let found = findings(path, source);
    assert!(found.len() == 1 && found[0].contains(part), "expected one finding with '{part}', got {found:?}");
}

#[test]
fn an_import_against_the_rules_is_found() {
    let breaks = |krate: &str, text: &str| breaches(krate, &manifest(krate, text)).len();
    assert_eq!(breaks("sinks", "[dependencies]\nkonkordia-core.workspace = true\nhdf5.workspace = true"), 0);
    assert_eq!(breaks("sinks", "[dependencies]\nkonkordia-sources.workspace = true"), 1);
    assert_eq!(breaks("sinks", "[build-dependencies]\nkonkordia-wire.workspace = true"), 1);
    assert_eq!(breaks("sinks", "[target.'cfg(unix)'.dependencies]\nkonkordia-wire.workspace = true"), 1);
    assert_eq!(breaks("sim", "[dependencies]\nk = { package = \"konkordia-kernels\", path = \"../kernels\" }"), 1);
    assert_eq!(breaks("engine", "[dev-dependencies]\nkonkordia-sim.workspace = true"), 0);
    assert_eq!(breaks("engine", "[dev-dependencies]\nkonkordia-sources.workspace = true"), 0);
    assert_eq!(breaks("engine", "[dependencies]\nkonkordia-sources.workspace = true"), 1);
    assert_eq!(breaks("sim", "[dev-dependencies]\nkonkordia-engine.workspace = true"), 1);
    assert_eq!(breaks("core", "[dev-dependencies]\nkonkordia-wire.workspace = true"), 1);
    assert_eq!(breaks("novel", ""), 1);
}

#[test]
fn only_the_server_and_the_program_may_have_http() {
    let text = "[dependencies]\ntokio = \"1\"\ntower-http = \"0\"\nhttparse = \"1\"";
    assert_eq!(breaches("engine", &manifest("engine", text)).len(), 2);
    assert_eq!(breaches("acquire", &manifest("acquire", text)).len(), 2);
    assert_eq!(breaches("api", &manifest("api", text)).len(), 0);
    assert_eq!(breaches("konkordia", &manifest("konkordia", text)).len(), 0);
}

#[test]
fn a_server_that_looks_beyond_the_handle_is_found() {
    let path = "crates/api/src/tango.rs";
    let found = |path: &str, source: &str| beyond_the_handle(path, source).len();
    assert_eq!(
        found(path, "use konkordia_acquire::handle::{Detector, Fleet};\nfn a(d: &dyn konkordia_acquire::handle::Detector) {}"),
        0
    );
    assert_eq!(found(path, "use konkordia_acquire::service::Detectors;\nuse konkordia_acquire::{handle, run};"), 2);
    assert_eq!(found(path, "use konkordia_acquire as a;\nuse konkordia_acquire::handles::B;"), 2);
    assert_eq!(found(path, "//! use konkordia_acquire::service::Detectors;\nconst X: &str = \"konkordia_acquire::run\";"), 0);
    assert_eq!(found("crates/konkordia/src/serve/command.rs", "use konkordia_acquire::service::Detectors;"), 0);
}

#[test]
fn the_import_table_is_read_as_people_read_it() {
    let page = |rows: &str| {
        format!("x\n<!-- imports:begin -->\n| crate | may import |\n|---|---|\n{rows}\n<!-- imports:end -->\n| no | row |")
    };
    let read = table(&page("| `wire` | `core` |\n| `core` | nothing |\n| engine | core, `wire` |")).unwrap();
    assert_eq!(read.len(), 3);
    assert!(read["core"].is_empty());
    assert_eq!(read["engine"].iter().collect::<Vec<_>>(), ["core", "wire"]);
    assert!(table(&page("| `wire` | `core` | x |")).unwrap_err().contains("two cells"));
    assert!(table(&page("| a | b |\n| a | c |")).unwrap_err().contains("two rows"));
    assert!(table("no table").unwrap_err().contains("imports:begin"));
}

#[test]
fn rules_with_a_clock_are_found() {
    let source = "use std::time::Instant;\n// The Mutex of a comment is none.\n";
    finds("crates/engine/src/series/rules/taking.rs", source, "taking.rs:1: rules have no clock");
    finds("crates/core/src/order.rs", "fn a() {\n    sleep(1)\n}", "order.rs:2: rules have no clock");
    assert!(findings("crates/engine/src/series/sort.rs", source).is_empty());
    assert!(findings("crates/core/src/order_tests.rs", source).is_empty());
}

#[test]
fn long_files_and_unfinished_work_are_found() {
    finds("crates/core/src/long.rs", &"\n".repeat(FILE_LINES_MAX + 1), "800 lines");
    assert!(findings("crates/core/src/long.rs", &"\n".repeat(FILE_LINES_MAX)).is_empty());
    finds("crates/core/src/a.rs", "fn a() {\n    todo!()\n}", "a.rs:2: todo!");
    finds("crates/core/src/a.rs", "fn a() { unimplemented!() }", "unimplemented!");
    finds("crates/core/tests/a.rs", "#[test]\n#[ignore = \"slow\"]\nfn a() {}", "#[ignore");
    assert!(findings("crates/core/src/a.rs", "// todo! later\nfn a() { say(\"todo!\"); }").is_empty());
}

#[test]
fn wide_comments_are_found() {
    let comment = |start: &str, columns: usize| format!("fn a() {{\n{start}{}\n}}", "é".repeat(columns - start.len()));
    for start in ["    // ", "/// ", "//! "] {
        finds("crates/core/src/a.rs", &comment(start, COMMENT_COLUMNS_MAX + 1), "a.rs:2: a comment has");
        assert!(findings("crates/core/src/a.rs", &comment(start, COMMENT_COLUMNS_MAX)).is_empty());
    }
    assert!(findings("crates/core/src/a.rs", &comment("//! | ", COMMENT_COLUMNS_MAX + 1)).is_empty());
    assert!(findings("crates/core/src/a.rs", &comment("let a = ", COMMENT_COLUMNS_MAX + 1)).is_empty());
}

#[test]
fn unsafe_out_of_place_or_without_a_reason_is_found() {
    let good = "fn a() {\n    // SAFETY: the caller checked the length.\n    let x = unsafe { b() };\n}";
    assert!(findings(ISA, good).is_empty());
    finds("crates/kernels/src/convert/scalar.rs", good, "may live only in");
    finds("crates/core/src/a.rs", good, "may live only in");
    finds(ISA, "fn a() {\n    b();\n    unsafe { c() }\n}", "SAFETY");
    finds(ISA, "fn a() {\n    // SAFETY: far away\n    b();\n    unsafe { c() }\n}", "SAFETY");
    finds(ISA, "struct A;\nunsafe impl Send for A {}", "SAFETY");
    assert!(findings(ISA, "/// # Safety\n/// Needs AVX2.\npub unsafe fn a() {}").is_empty());
    assert!(findings("crates/core/src/a.rs", "#![forbid(unsafe_code)]\n// unsafe\nfn a() { b(\"unsafe {\") }").is_empty());
}

#[test]
fn a_library_without_its_three_sentences_is_found() {
    finds("crates/x/src/lib.rs", "//! One. Two is here.\n\npub mod a;", "three sentences");
    finds("crates/x/src/lib.rs", "pub mod a;", "three sentences");
    assert!(findings("crates/x/src/lib.rs", "//! What it is, e.g. this.\n//! It never sleeps. Read [`A`] first.\n").is_empty());
}

#[test]
fn patterns_match_as_documented() {
    assert!(matches("crates/*/src/**sys/**.rs", "crates/sources/src/udp/sys/linux.rs"));
    assert!(matches("crates/*/src/**sys/**.rs", "crates/sources/src/sys/mod.rs"));
    assert!(!matches("crates/*/src/**sys/**.rs", "crates/sources/src/system.rs"));
    assert!(!matches("crates/kernels/src/lz4.rs", "crates/kernels/src/lz4_encode.rs"));
    assert!(!matches("crates/*/a.rs", "crates/b/c/a.rs"));
}

#[test]
fn literals_and_comments_are_not_code() {
    let code = code_only("a /* b /* c */ d */ e 'f' 'g r\"h\" br#\"i\"j\"# '\\'' \"k\\\"l\" // m\nn");
    assert_eq!(code.split_whitespace().collect::<Vec<_>>(), ["a", "e", "'g", "b", "n"]);
    assert_eq!(sentences("It is 1.5 long, i.e. short. Is it? `Yes` it is!"), 3);
}

#[test]
fn files_that_import_each_other_are_found() {
    let found = |files: &[(&str, &str)]| {
        let files: Vec<_> = files.iter().map(|(path, source)| (path.to_string(), source.to_string())).collect();
        circles(&graph(&files))
    };
    let lib = ("lib.rs", "mod a;\npub mod b;\npub use b::B;");
    assert_eq!(found(&[lib, ("a.rs", "use crate::b::B;"), ("b/mod.rs", "pub struct B;")]), Vec::<Vec<String>>::new());
    assert_eq!(
        found(&[lib, ("a.rs", "use crate::b::{self, c::{D, E}};"), ("b/mod.rs", "use super::a::A;")]),
        [["a.rs", "b/mod.rs"]]
    );
    // The child uses what its parent has, and the parent what the child has.
    assert_eq!(found(&[lib, ("a.rs", ""), ("b/mod.rs", "use super::B;")]), [["b/mod.rs", "lib.rs"]]);
    let three = [
        ("b/mod.rs", "mod c;"),
        ("b/c.rs", "fn f() { super::d::g() }"),
        ("b/d.rs", "use super::e;"),
        ("b/e.rs", "use crate::b::c::f as g;"),
    ];
    assert_eq!(found(&three), [["b/c.rs", "b/d.rs", "b/e.rs"]]);
    // Not in comments, texts and tests.
    let free = "// use crate::b::B;\nconst X: &str = \"crate::b::B\";\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}";
    assert!(found(&[lib, ("a.rs", free), ("b/mod.rs", "use crate::a::X;")]).is_empty());
}

#[test]
fn a_list_of_a_seam_that_is_wrong_is_found() {
    let page = "x\n<!-- seam: format; example: abc, Abc -->\n| file | what |\n|---|---|\n| `a.rs` | all |\n| `b.md` | text |\n<!-- /seam -->\n";
    let listed = seams(page).unwrap();
    assert_eq!((listed[0].name.as_str(), listed[0].files.as_slice()), ("format", &["a.rs".to_owned(), "b.md".to_owned()][..]));
    let texts = [("a.rs", "enum Abc"), ("b.md", "about abc"), ("c.rs", "nothing")];
    let of = |texts: &[(&str, &str)]| {
        let read = |path: &str| texts.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned());
        let sources: Vec<_> =
            texts.iter().filter(|(name, _)| name.ends_with(".rs")).map(|(n, t)| ((*n).into(), (*t).into())).collect();
        differences(&listed[0], &sources, read)
    };
    assert_eq!(of(&texts), [""; 0]);
    let found = |texts: &[(&str, &str)], part: &str| {
        let found = of(texts);
        assert!(found.len() == 1 && found[0].contains(part), "expected '{part}', got {found:?}");
    };
    found(&[texts[0], texts[2]], "b.md does not exist");
    found(&[texts[0], ("b.md", "about nothing"), texts[2]], "b.md has none of");
    found(&[texts[0], texts[1], ("c.rs", "use abc;")], "c.rs has one of");
    found(&[texts[0], texts[1], ("abc.rs", "nothing")], "abc.rs has one of");
    for wrong in
        ["<!-- seam: a; example: b -->", "<!-- seam: a -->\n<!-- /seam -->", "<!-- seam: a; example: b -->\n<!-- /seam -->"]
    {
        assert!(seams(wrong).is_err(), "{wrong}");
    }
}
