//! Tables of text: one line for each image, columns between commas, semicolons, tabs or spaces.

/// Columns of a table.
pub const COLUMNS_MAX: usize = 4096;
/// Rows of a table.
pub const ROWS_MAX: usize = 10_000_000;

/// How a text is written in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8, with or without byte order mark.
    #[default]
    Utf8,
    /// ISO 8859-1: each byte is the character of this number.
    Latin1,
}

/// What stands between columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delimiter {
    /// One character; text may stand in double quotes.
    One(char),
    /// Any number of spaces and tabs.
    Spaces,
}

/// How a table is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// Its encoding.
    pub encoding: Encoding,
    /// `None` = found in the first line.
    pub delimiter: Option<Delimiter>,
    /// Lines that begin with it are left out, except the first one, whose mark is ignored: SPEC and others write the
    /// names of the columns there.
    pub comment: String,
    /// The first line has no names; columns are called by their number, from 1.
    pub is_nameless: bool,
}

/// Rows of texts, each with as many as there are columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Names of the columns.
    pub names: Vec<String>,
    /// The rows, and the line from which each came.
    pub rows: Vec<(usize, Vec<String>)>,
}

impl Table {
    /// Reads a table.
    ///
    /// # Errors
    /// Wrong encoding, rows of other lengths, columns with the same name, no row; in words, with the line.
    pub fn parse(bytes: &[u8], form: &Form) -> Result<Self, String> {
        let text = text(bytes, form.encoding)?;
        let mut delimiter = form.delimiter;
        let mut table = Self::default();
        for (n, line) in text.lines().enumerate().map(|(n, line)| (n + 1, line.trim_end_matches('\r'))) {
            let is_comment = !form.comment.is_empty() && line.trim_start().starts_with(&form.comment);
            let is_names = table.names.is_empty() && !form.is_nameless;
            let line = match (is_comment, is_names) {
                (true, true) => line.trim_start().trim_start_matches(&form.comment).trim_start(),
                (true, false) => continue,
                (false, _) => line,
            };
            if line.trim().is_empty() {
                continue;
            }
            let cells = split(line, *delimiter.get_or_insert_with(|| usual_delimiter(line)));
            let cells = cells.map_err(|why| format!("line {n}: {why}"))?;
            if cells.len() > COLUMNS_MAX {
                return Err(format!("line {n} has {} columns; a table may have {COLUMNS_MAX}", cells.len()));
            }
            if table.names.is_empty() {
                table.names = if form.is_nameless { (1..=cells.len()).map(|n| n.to_string()).collect() } else { cells.clone() };
                table.check_names(n)?;
                if !form.is_nameless {
                    continue;
                }
            }
            if cells.len() != table.names.len() {
                return Err(format!("line {n} has {} columns, but there are {}: {line:.60}", cells.len(), table.names.len()));
            }
            if table.rows.len() == ROWS_MAX {
                return Err(format!("it has more than {ROWS_MAX} rows"));
            }
            table.rows.push((n, cells));
        }
        if table.rows.is_empty() { Err("it has no rows".into()) } else { Ok(table) }
    }

    fn check_names(&self, line: usize) -> Result<(), String> {
        let twice = self.names.iter().enumerate().find(|(n, name)| self.names[..*n].contains(name));
        twice.map_or(Ok(()), |(_, name)| Err(format!("line {line} has two columns with the name '{name}'")))
    }

    /// The column with this name.
    ///
    /// # Errors
    /// There is none; in words, with those that there are.
    pub fn column(&self, name: &str) -> Result<usize, String> {
        let found = self.names.iter().position(|known| known == name);
        found.ok_or_else(|| {
            let known: Vec<&str> = self.names.iter().take(20).map(String::as_str).collect();
            format!("there is no column '{name}'; there are {}", known.join(", "))
        })
    }
}

fn text(bytes: &[u8], encoding: Encoding) -> Result<String, String> {
    match encoding {
        Encoding::Latin1 => Ok(bytes.iter().map(|byte| char::from(*byte)).collect()),
        Encoding::Utf8 => {
            if bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]) {
                return Err("it is UTF-16, not UTF-8: save it as UTF-8".into());
            }
            let bytes = bytes.strip_prefix(&[0xEF, 0xBB, 0xBF]).unwrap_or(bytes);
            let text = str::from_utf8(bytes).map_err(|error| {
                let line = 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
                format!("line {line} is not UTF-8: save it as UTF-8, or say encoding = \"latin-1\"")
            })?;
            Ok(text.to_owned())
        }
    }
}

/// The first of tab, semicolon and comma that the line has, else spaces.
fn usual_delimiter(line: &str) -> Delimiter {
    ['\t', ';', ','].into_iter().find(|c| line.contains(*c)).map_or(Delimiter::Spaces, Delimiter::One)
}

fn split(line: &str, delimiter: Delimiter) -> Result<Vec<String>, String> {
    let Delimiter::One(delimiter) = delimiter else {
        return Ok(line.split_whitespace().map(str::to_owned).collect());
    };
    let (mut cells, mut rest) = (Vec::new(), line);
    loop {
        let start = rest.trim_start_matches(' ');
        let (cell, behind) = match start.strip_prefix('"') {
            Some(quoted) => quoted_cell(quoted)?,
            None => {
                let end = start.find(delimiter).unwrap_or(start.len());
                (start[..end].trim().to_owned(), &start[end..])
            }
        };
        cells.push(cell);
        let behind = behind.trim_start_matches(' ');
        match behind.strip_prefix(delimiter) {
            Some(next) => rest = next,
            None if behind.is_empty() => return Ok(cells),
            None => return Err(format!("text follows a closing quote: {behind:.40}")),
        }
        if cells.len() > COLUMNS_MAX {
            return Ok(cells);
        }
    }
}

/// The text up to the closing quote, and what follows it. Two quotes are one in the text.
fn quoted_cell(text: &str) -> Result<(String, &str), String> {
    let (mut cell, mut rest) = (String::new(), text);
    loop {
        let end = rest.find('"').ok_or("a quote is not closed on the same line")?;
        cell.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(more) => {
                cell.push('"');
                rest = more;
            }
            None => return Ok((cell, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Table, String> {
        Table::parse(text.as_bytes(), &Form { comment: "#".into(), ..Form::default() })
    }

    #[test]
    fn tables_of_all_forms_are_read() {
        let wanted = Table {
            names: vec!["n".into(), "omega".into()],
            rows: vec![(2, vec!["1".into(), "0.5".into()]), (4, vec!["2".into(), "1.0".into()])],
        };
        for text in [
            "n,omega\n1,0.5\n# remark\n2,1.0\n",
            "\u{feff}n;omega\r\n1;0.5\r\n\r\n2; 1.0 \r\n",
            "#n\tomega\n1\t0.5\n\n2\t1.0",
            "# n   omega\n  1 0.5\n\n2      1.0",
            "\"n\",\"omega\"\n1,\"0.5\"\n\n2,1.0",
        ] {
            assert_eq!(parse(text).unwrap(), wanted, "{text:?}");
        }
        assert_eq!(parse("a,b\n\"x, \"\"y\"\"\",\n").unwrap().rows[0].1, ["x, \"y\"", ""]);
        let nameless = Form { is_nameless: true, ..Form::default() };
        let table = Table::parse(b"1 2\n3 4", &nameless).unwrap();
        assert_eq!((table.names.len(), table.rows.len(), table.column("2")), (2, 2, Ok(1)));
        let latin = Form { encoding: Encoding::Latin1, ..Form::default() };
        assert_eq!(Table::parse(b"\xb5m\n1", &latin).unwrap().names, ["µm"]);
    }

    #[test]
    fn what_is_wrong_with_a_table_is_said() {
        let why = |bytes: &[u8]| Table::parse(bytes, &Form::default()).unwrap_err();
        assert!(why(b"a,b\n1,2\n3").contains("line 3 has 1 columns, but there are 2"));
        assert!(why(b"a,a\n1,2").contains("two columns with the name 'a'"));
        assert!(why(b"a,b\n").contains("no rows") && why(b"").contains("no rows"));
        assert!(why(b"a\n1\n\xb5").contains("line 3 is not UTF-8"));
        assert!(why(b"\xff\xfea\0").contains("UTF-16"));
        assert!(why(b"a,b\n\"1,2").contains("not closed"));
        assert!(why(b"a,b\n\"1\"x,2").contains("follows a closing quote"));
        assert!(why(&b",".repeat(5000)).contains("columns; a table may have"));
        assert!(parse("a b\n1 2").unwrap().column("c").unwrap_err().contains("there are a, b"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_table_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), latin: bool) {
            let encoding = if latin { Encoding::Latin1 } else { Encoding::Utf8 };
            if let Ok(table) = Table::parse(&bytes, &Form { encoding, comment: "#".into(), ..Form::default() }) {
                prop_assert!(table.rows.iter().all(|(_, row)| row.len() == table.names.len()));
            }
        }
    }
}
