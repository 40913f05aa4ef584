//! Which files of a crate import which, and the circles among them. Tests do not count.

use crate::text::code_only;
use std::collections::{BTreeMap, BTreeSet};

/// A file as a module: the names from the root of its crate to it.
type Module = Vec<String>;

/// The files of one crate, and for each the files that it imports.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

/// The imports among files: `files` are (path below `src`, source).
pub fn graph(files: &[(String, String)]) -> Graph {
    let modules: BTreeMap<Module, &str> = files.iter().map(|(path, _)| (module_of(path), path.as_str())).collect();
    files.iter().map(|(path, source)| (path.clone(), imports(&module_of(path), path, source, &modules))).collect()
}

/// Groups of files that import each other, directly or through others of the group.
pub fn circles(graph: &Graph) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = graph.keys().map(|from| (from, reachable(graph, from))).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for file in graph.keys() {
        let circle: Vec<String> =
            reached[file].iter().filter(|other| reached[*other].contains(file)).map(|other| (*other).clone()).collect();
        if circle.len() > 1 && seen.insert(circle.clone()) {
            found.push(circle);
        }
    }
    found
}

fn reachable<'a>(graph: &'a Graph, from: &'a String) -> BTreeSet<&'a String> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        next.extend(graph[file].iter().filter(|to| reached.insert(*to)));
    }
    reached
}

/// `a/mod.rs` and `a.rs` are `a`; `lib.rs` and `main.rs` are the root.
fn module_of(path: &str) -> Module {
    let mut names: Module = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if names.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        names.pop();
    }
    names
}

fn imports(own: &Module, path: &str, source: &str, modules: &BTreeMap<Module, &str>) -> BTreeSet<String> {
    let code = code_only(source);
    // A test module with a body ends the file (clippy demands it).
    let begins_tests = |at: usize| code[at..].split_once('{').is_some_and(|(head, _)| is_test_module(head));
    let end = code.match_indices("#[cfg(test)]").map(|(at, _)| at).find(|at| begins_tests(*at)).unwrap_or(code.len());
    paths(&code[..end])
        .iter()
        .filter_map(|named| file_of(own, named, modules))
        .filter(|file| *file != path)
        .map(str::to_owned)
        .collect()
}

/// True if the text up to a brace is `#[cfg(test)] mod name`.
fn is_test_module(head: &str) -> bool {
    let mut words = head.trim_start_matches("#[cfg(test)]").split_whitespace();
    words.next() == Some("mod") && words.next().is_some() && words.next().is_none()
}

/// The file that has the item of a path; `None` if it is of another crate.
fn file_of<'a>(own: &Module, named: &[String], modules: &BTreeMap<Module, &'a str>) -> Option<&'a str> {
    let ups = named.iter().take_while(|name| *name == "super").count();
    let mut full: Module = match named.first()?.as_str() {
        "crate" => named[1..].to_vec(),
        "self" => own.iter().chain(&named[1..]).cloned().collect(),
        "super" => own.get(..own.len().checked_sub(ups)?)?.iter().chain(&named[ups..]).cloned().collect(),
        _ => {
            let child: Module = own.iter().chain(&named[..1]).cloned().collect();
            modules.get(&child)?;
            own.iter().chain(named).cloned().collect()
        }
    };
    loop {
        if let Some(file) = modules.get(&full) {
            return Some(file);
        }
        full.pop()?;
    }
}

/// All paths of a file: those of `use`, written out, and those with two or more names in the code.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(start) = rest.find(|c: char| c.is_alphabetic() || c == '_') {
        let text = &rest[start..];
        let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(text.len());
        let (word, after) = text.split_at(end);
        if word == "use" {
            let (tree, behind) = after.split_once(';').unwrap_or((after, ""));
            write_out(&[], tree, &mut found);
            rest = behind;
            continue;
        }
        let names: Vec<String> = word.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        if names.len() > 1 {
            found.push(names);
        }
        rest = after;
    }
    found
}

/// Writes a tree of `use` out, as paths.
fn write_out(before: &[String], tree: &str, found: &mut Vec<Vec<String>>) {
    let (head, group) = match tree.split_once('{') {
        Some((head, group)) => (head, group.trim_end().strip_suffix('}')),
        None => (tree.split(" as ").next().unwrap_or(tree), None),
    };
    let names = head.split("::").map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
    let path: Vec<String> = before.iter().cloned().chain(names).collect();
    let Some(group) = group else { return found.push(path) };
    let (mut depth, mut start) = (0, 0);
    for (at, c) in group.char_indices().chain([(group.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = group[start..at].trim();
                if !part.is_empty() {
                    write_out(&path, part, found);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}
