//! The lists of files in CONTRIBUTING.md that a new thing of some kind touches, and the worked example of each.
//!
//! A list stands between `<!-- seam: NAME; example: WORD, WORD -->` and `<!-- /seam -->`, as a table whose first column
//! has the paths. The words are those by which the example is found in the sources.

/// One list.
#[derive(Debug, PartialEq, Eq)]
pub struct Seam {
    /// What is added.
    pub name: String,
    /// Words that only the example has.
    pub words: Vec<String>,
    /// The files that the example touches, relative to the root of the repository.
    pub files: Vec<String>,
}

impl Seam {
    /// True if a file is about the example: its path or its text has one of the words.
    pub fn is_in(&self, path: &str, text: &str) -> bool {
        self.words.iter().any(|word| path.contains(word.as_str()) || text.contains(word.as_str()))
    }
}

/// The lists of a page.
///
/// # Errors
/// A list that has no end, no words or no files.
pub fn seams(page: &str) -> Result<Vec<Seam>, String> {
    let mut found = Vec::new();
    let mut rest = page;
    while let Some((_, after)) = rest.split_once("<!-- seam: ") {
        let (head, after) = after.split_once(" -->").ok_or("a list of a seam begins with a comment that does not end")?;
        let (name, words) = head.split_once("; example: ").ok_or_else(|| format!("'{head}' names no example"))?;
        let (table, after) = after.split_once("<!-- /seam -->").ok_or_else(|| format!("the list of '{name}' has no end"))?;
        let path = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
        let words: Vec<String> = words.split(", ").map(str::to_owned).filter(|word| !word.is_empty()).collect();
        let seam = Seam { name: name.to_owned(), words, files: table.lines().filter_map(path).collect() };
        if seam.words.is_empty() || seam.files.is_empty() {
            return Err(format!("the list of '{name}' has no words or no files"));
        }
        found.push(seam);
        rest = after;
    }
    Ok(found)
}

/// Where a list and the sources differ: listed files that do not exist (`read` gives `None`) or are not about the
/// example, and sources that are and do not stand in the list.
pub fn differences(seam: &Seam, sources: &[(String, String)], read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let Seam { name, files, words } = seam;
    let listed = files.iter().filter_map(|file| match read(file) {
        None => Some(format!("{name}: {file} does not exist")),
        Some(text) if !seam.is_in(file, &text) => Some(format!("{name}: {file} has none of {words:?}, so it need not be listed")),
        Some(_) => None,
    });
    let unlisted = sources.iter().filter(|(path, text)| seam.is_in(path, text) && !files.contains(path));
    listed.chain(unlisted.map(|(path, _)| format!("{name}: {path} has one of {words:?}, but is not listed"))).collect()
}
