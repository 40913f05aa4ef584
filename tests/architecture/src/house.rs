//! The house rules that a machine can check; CONTRIBUTING.md says why each is there.

use crate::text::{code_only, line_of, sentences, words};

/// Lines that a file may have.
pub const FILE_LINES_MAX: usize = 800;

/// Columns that a line of a comment may have. Rows of tables may be longer.
pub const COMMENT_COLUMNS_MAX: usize = 120;

/// Files that may hold `unsafe`. A `*` stands for any text without a slash, `**` for any text.
pub const UNSAFE_MAY_LIVE_IN: &[&str] = &[
    "crates/kernels/src/**avx2.rs",
    "crates/kernels/src/**avx512.rs",
    "crates/kernels/src/lz4.rs",
    "crates/kernels/src/lz4/*.rs",
    "crates/memory/**",
    "crates/*/src/**sys.rs",
    "crates/*/src/**sys/**.rs",
    // Memory that AF_XDP shares with the kernel.
    "crates/sources/src/xdp/rings.rs",
    "crates/sinks/src/hdf5/**.rs",
    // A counting allocator, and the counts of the C library.
    "tests/counting.rs",
    "crates/engine/tests/growth.rs",
    "crates/sinks/tests/growth.rs",
    // Sends frames on a wire.
    "crates/sources/tests/common/wire.rs",
];

/// What no source may contain: half-finished work, and tests that nobody runs.
const FORBIDDEN: &[&str] = &["todo!", "unimplemented!", "#[ignore"];

/// Folders that hold rules: time comes as an argument, and nothing waits.
pub const PURE: &[&str] = &["crates/core/src/**", "crates/engine/src/series/rules/**"];

/// What rules do not name.
const IMPURE: &[&str] =
    &["Instant", "SystemTime", "thread", "sleep", "crossbeam_channel", "mpsc", "Mutex", "RwLock", "Condvar", "atomic"];

/// Violations of the house rules in one file, each as `path:line: what is wrong`. `path` is relative to the root, with
/// slashes.
pub fn findings(path: &str, source: &str) -> Vec<String> {
    let code = code_only(source);
    let mut found = Vec::new();
    let lines = source.lines().count();
    if lines > FILE_LINES_MAX {
        found.push(format!("{path}:{lines}: a file has at most {FILE_LINES_MAX} lines; divide it by what it knows"));
    }
    let is_wide = |line: &str| line.chars().count() > COMMENT_COLUMNS_MAX;
    for (n, _) in source.lines().enumerate().filter(|(_, line)| is_prose(line) && is_wide(line)) {
        found.push(format!("{path}:{}: a comment has at most {COMMENT_COLUMNS_MAX} columns", n + 1));
    }
    for &text in FORBIDDEN {
        for (at, _) in code.match_indices(text) {
            found.push(format!("{path}:{}: {text} has no place in finished work", line_of(&code, at)));
        }
    }
    let is_pure = PURE.iter().any(|pattern| matches(pattern, path)) && !path.ends_with("tests.rs");
    for &word in IMPURE.iter().filter(|_| is_pure) {
        for at in words(&code, word) {
            found.push(format!("{path}:{}: rules have no clock, thread, channel or lock: {word}", line_of(&code, at)));
        }
    }
    let may = UNSAFE_MAY_LIVE_IN.iter().any(|pattern| matches(pattern, path));
    for at in words(&code, "unsafe") {
        let line = line_of(&code, at);
        if !may {
            found.push(format!("{path}:{line}: unsafe may live only in {UNSAFE_MAY_LIVE_IN:?}"));
        } else if needs_reason(&code[at..]) && !has_reason(source, &code, line) {
            found.push(format!("{path}:{line}: write '// SAFETY:' above it, naming the invariant and what establishes it"));
        }
    }
    if path.ends_with("/src/lib.rs") {
        found.extend(opening(path, source));
    }
    found
}

/// True for a line of a comment that is no row of a table.
fn is_prose(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//") && !line.trim_start_matches(['/', '!', ' ']).starts_with('|')
}

/// Blocks and implementations need a reason where they stand; functions and traits state theirs in `# Safety`, which
/// clippy checks.
fn needs_reason(code: &str) -> bool {
    let rest = code["unsafe".len()..].trim_start();
    rest.starts_with('{') || rest.starts_with("impl")
}

/// Is there a `// SAFETY:` on the line (counted from 1) or above it, with no end of a statement or block and no empty
/// line between?
fn has_reason(source: &str, code: &str, line: usize) -> bool {
    let source: Vec<&str> = source.lines().collect();
    let code: Vec<&str> = code.lines().collect();
    for index in (0..line).rev() {
        if source[index].contains("// SAFETY:") {
            return true;
        }
        let own = index + 1 == line;
        if source[index].trim().is_empty() || (!own && code[index].trim_end().ends_with([';', '{', '}'])) {
            return false;
        }
    }
    false
}

/// The first lines of a library: what the crate is, what it never does, which type to read first.
fn opening(path: &str, source: &str) -> Option<String> {
    let text: Vec<&str> = source
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map_while(|line| (!line.trim().is_empty()).then_some(line))
        .collect();
    let count = sentences(&text.join(" "));
    (count < 3).then(|| {
        format!("{path}:1: open with three sentences in '//!' (here {count}): what the crate is, what it never does, which type to read first")
    })
}

/// Does the path match the pattern? See [`UNSAFE_MAY_LIVE_IN`].
pub fn matches(pattern: &str, path: &str) -> bool {
    match pattern.find('*') {
        None => pattern == path,
        Some(star) => {
            let Some(rest) = path.strip_prefix(&pattern[..star]) else { return false };
            let any = pattern[star..].starts_with("**");
            let after = &pattern[star + if any { 2 } else { 1 }..];
            let reach = if any { rest.len() } else { rest.find('/').unwrap_or(rest.len()) };
            (0..=reach).filter(|&at| rest.is_char_boundary(at)).any(|at| matches(after, &rest[at..]))
        }
    }
}
