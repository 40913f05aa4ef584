//! Texts of the files in which the kernel describes the host, read once below a root folder.

use konkordia_core::failure::reason;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::str::FromStr;

/// Most bytes that are read of one file.
const TEXT_BYTES_MAX: u64 = 4 << 20;

/// Texts by their path below the root, without the slash at the beginning. A file that is there and cannot be read is
/// kept with the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    texts: BTreeMap<String, Result<String, String>>,
}

impl Files {
    /// Reads what the patterns name: a `*` at the end of a part of a path stands for any end of this part.
    pub fn read(&mut self, root: &Path, patterns: &[&str]) {
        for pattern in patterns {
            expand(root, "", pattern, &mut |path| self.add(root, path));
        }
    }

    /// As [`Files::read`], but takes only note of the names: these texts are empty.
    pub fn list(&mut self, root: &Path, patterns: &[&str]) {
        for pattern in patterns {
            expand(root, "", pattern, &mut |path| {
                if std::fs::symlink_metadata(root.join(path)).is_ok() {
                    self.texts.insert(path.to_owned(), Ok(String::new()));
                }
            });
        }
    }

    /// Reads one file.
    pub fn add(&mut self, root: &Path, path: &str) {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(root.join(path));
        match file.and_then(|file| file.take(TEXT_BYTES_MAX).read_to_end(&mut bytes)) {
            Ok(_) => drop(self.texts.insert(path.to_owned(), Ok(String::from_utf8_lossy(&bytes).into_owned()))),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(error) => drop(self.texts.insert(path.to_owned(), Err(reason(&error)))),
        }
    }

    /// The text of a file.
    ///
    /// # Errors
    /// The file is not there or cannot be read; the reason in words.
    pub fn text(&self, path: &str) -> Result<&str, String> {
        match self.texts.get(path) {
            Some(Ok(text)) => Ok(text),
            Some(Err(why)) => Err(format!("/{path}: {why}")),
            None => Err(format!("there is no /{path}")),
        }
    }

    /// The number that is all of a file.
    ///
    /// # Errors
    /// As [`Files::text`], or the text is no such number.
    pub fn number<T: FromStr>(&self, path: &str) -> Result<T, String> {
        let text = self.text(path)?.trim();
        text.parse().map_err(|_| format!("/{path} is not a number: {text:.40}"))
    }

    /// True if there is such a file.
    pub fn has(&self, path: &str) -> bool {
        self.texts.contains_key(path)
    }

    /// Names of what was found directly below a folder, sorted.
    pub fn below(&self, folder: &str) -> Vec<&str> {
        let begin = format!("{folder}/");
        let found = self.texts.range(begin.clone()..).map(|(path, _)| path.as_str());
        let mut names: Vec<&str> = found
            .map_while(|path| path.strip_prefix(begin.as_str()))
            .map(|rest| rest.split('/').next().unwrap_or(rest))
            .collect();
        names.dedup();
        names
    }
}

#[cfg(test)]
impl Files {
    /// These texts by their paths.
    pub(crate) fn of(texts: &[(&str, &str)]) -> Self {
        Self { texts: texts.iter().map(|(path, text)| ((*path).to_owned(), Ok((*text).to_owned()))).collect() }
    }
}

/// Calls `take` with every path that fits `pattern`; parts without a `*` are not looked up.
fn expand(root: &Path, done: &str, pattern: &str, take: &mut dyn FnMut(&str)) {
    let (part, rest) = pattern.split_once('/').map_or((pattern, None), |(part, rest)| (part, Some(rest)));
    let names = match part.strip_suffix('*') {
        None => vec![part.to_owned()],
        Some(begin) => {
            let entries = std::fs::read_dir(root.join(done)).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            names.filter(|name| name.starts_with(begin)).collect()
        }
    };
    for name in names {
        let path = if done.is_empty() { name } else { format!("{done}/{name}") };
        match rest {
            Some(rest) => expand(root, &path, rest, take),
            None => take(&path),
        }
    }
}
