//! Holds this repository against its own rules.

use konkordia_architecture::circles::{circles, graph};
use konkordia_architecture::imports::{Imports, beyond_the_handle, breaches, manifests, table};
use konkordia_architecture::seams::{differences, seams};
use konkordia_architecture::{house, read, root, rust_files};

fn assert_none(found: &[String]) {
    assert!(found.is_empty(), "\n  {}\n", found.join("\n  "));
}

#[test]
fn manifests_keep_the_import_rules() {
    let manifests = manifests();
    assert!(manifests.contains_key("core") && manifests.contains_key("konkordia"), "found {:?}", manifests.keys());
    assert_none(&manifests.iter().flat_map(|(name, manifest)| breaches(name, manifest)).collect::<Vec<_>>());
}

/// HTTP, the metrics and the interface of the MAX IV receiver have what any other control server has, and no more.
#[test]
fn servers_see_detectors_through_the_handle_only() {
    let files = rust_files();
    let uses =
        files.iter().filter(|(path, source)| path.starts_with("crates/api/src/") && source.contains("konkordia_acquire::handle"));
    assert!(uses.count() > 5, "the sources were not found");
    assert_none(&files.iter().flat_map(|(path, source)| beyond_the_handle(path, source)).collect::<Vec<_>>());
}

/// With the feature `loom` the rings run in models only, so nothing may switch it on: cargo would do so for the program
/// too.
#[test]
fn no_manifest_switches_the_models_on() {
    let crates = std::fs::read_dir(root().join("crates")).expect("there are crates");
    let folders = crates
        .map(|entry| entry.expect("it can be listed").path())
        .chain([root().join("fuzz"), root().join("tests/architecture")]);
    let naming: Vec<_> = folders.filter(|folder| read(&folder.join("Cargo.toml")).contains("loom")).collect();
    assert_eq!(naming, [root().join("crates/memory")], "manifests that name loom");
    let memory = read(&root().join("crates/memory/Cargo.toml"));
    assert!(memory.contains("[features]") && !memory.contains("default ="), "the models are not a default");
}

#[test]
fn the_table_in_architecture_md_is_what_the_manifests_say() {
    let stated = table(&read(&root().join("ARCHITECTURE.md"))).unwrap_or_else(|why| panic!("ARCHITECTURE.md: {why}"));
    let real: Imports = manifests().into_iter().map(|(name, manifest)| (name, manifest.ours)).collect();
    for (name, imports) in &real {
        assert_eq!(
            stated.get(name),
            Some(imports),
            "ARCHITECTURE.md (left) and crates/{name}/Cargo.toml (right) differ about {name}"
        );
    }
    let unknown: Vec<_> = stated.keys().filter(|name| !real.contains_key(*name)).collect();
    assert!(unknown.is_empty(), "ARCHITECTURE.md has rows for {unknown:?}, which are not in crates/");
}

/// A newcomer who follows a list finds all files, and a list does not grow longer than the example needs.
#[test]
fn the_lists_in_contributing_md_are_what_their_examples_touch() {
    let listed = seams(&read(&root().join("CONTRIBUTING.md"))).unwrap_or_else(|why| panic!("CONTRIBUTING.md: {why}"));
    assert!(listed.iter().any(|seam| seam.name == "packet format"), "found {listed:?}");
    let mut sources = rust_files();
    // These files are about the lists themselves.
    sources.retain(|(path, _)| !path.starts_with("tests/architecture/"));
    let text = |path: &str| std::fs::read_to_string(root().join(path)).ok();
    assert_none(&listed.iter().flat_map(|seam| differences(seam, &sources, text)).collect::<Vec<_>>());
}

#[test]
fn sources_keep_the_house_rules() {
    let files = rust_files();
    assert!(files.iter().any(|(path, _)| path == "crates/core/src/lib.rs"), "the sources were not found");
    assert_none(&files.iter().flat_map(|(path, source)| house::findings(path, source)).collect::<Vec<_>>());
}

#[test]
fn no_files_import_each_other() {
    let mut found = Vec::new();
    for name in manifests().keys() {
        let folder = format!("crates/{name}/src/");
        let files = rust_files().into_iter().filter_map(|(path, source)| Some((path.strip_prefix(&folder)?.to_owned(), source)));
        let is_test = |path: &str| path.ends_with("tests.rs") || path.split('/').any(|part| part == "tests");
        let files: Vec<_> = files.filter(|(path, _)| !is_test(path)).collect();
        assert!(!files.is_empty(), "{folder} has no sources");
        found.extend(circles(&graph(&files)).iter().map(|circle| format!("crates/{name}: {}", circle.join(" <-> "))));
    }
    assert_none(&found);
}
