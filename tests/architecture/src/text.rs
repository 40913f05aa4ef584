//! Just enough of Rust's grammar to look at code without its comments and its literals.

/// The source with comments, strings and character literals blanked out; line breaks stay, so line numbers do too.
pub fn code_only(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => line_end(bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => block_comment_end(bytes, at),
            b'"' => string_end(bytes, at + 1),
            b'r' if !follows_word(bytes, at) => raw_string_end(bytes, at).unwrap_or(at),
            b'\'' => char_end(bytes, at).unwrap_or(at),
            _ => at,
        };
        if end == at {
            out.push(bytes[at]);
            at += 1;
        } else {
            out.extend(bytes[at..end].iter().map(|&byte| if byte == b'\n' { b'\n' } else { b' ' }));
            at = end;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn line_end(bytes: &[u8], from: usize) -> usize {
    bytes[from..].iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |length| from + length)
}

fn block_comment_end(bytes: &[u8], from: usize) -> usize {
    let (mut depth, mut at) = (0, from);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn follows_word(bytes: &[u8], at: usize) -> bool {
    // The b of br"..." is no word of its own.
    let before = if at > 0 && bytes[at - 1] == b'b' { at - 1 } else { at };
    before > 0 && (bytes[before - 1].is_ascii_alphanumeric() || bytes[before - 1] == b'_')
}

fn raw_string_end(bytes: &[u8], from: usize) -> Option<usize> {
    let hashes = bytes[from + 1..].iter().take_while(|&&byte| byte == b'#').count();
    let open = from + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let length = bytes[open + 1..].windows(close.len()).position(|window| window == close)?;
    Some(open + 1 + length + close.len())
}

/// The end of a character literal; `None` where the quote opens a lifetime.
fn char_end(bytes: &[u8], from: usize) -> Option<usize> {
    if bytes.get(from + 1) == Some(&b'\\') {
        let length = bytes.get(from + 3..)?.iter().position(|&byte| byte == b'\'')?;
        return Some(from + 3 + length + 1);
    }
    let character = std::str::from_utf8(&bytes[from + 1..]).ok()?.chars().next()?;
    let close = from + 1 + character.len_utf8();
    (bytes.get(close) == Some(&b'\'')).then_some(close + 1)
}

/// Byte offsets of `word` in `code` where it stands as a word of its own.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let alone = move |at: usize| {
        let before = at.checked_sub(1).and_then(|before| code.as_bytes().get(before));
        !part(before) && !part(code.as_bytes().get(at + word.len()))
    };
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| alone(at))
}

/// Number of the line (from 1) that holds the byte at `offset`.
pub fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset].iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// Number of sentences in a text. The end of a sentence looks like that of an abbreviation, so an end mark (full stop,
/// question or exclamation mark) counts only before a blank followed by a capital letter, a backtick or a bracket, or
/// at the end of the text.
pub fn sentences(text: &str) -> usize {
    let text: Vec<char> = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().collect();
    let ends = |at: usize| match (text.get(at + 1), text.get(at + 2)) {
        (None, _) => true,
        (Some(' '), Some(next)) => next.is_uppercase() || matches!(next, '`' | '['),
        _ => false,
    };
    (0..text.len()).filter(|&at| matches!(text[at], '.' | '!' | '?') && ends(at)).count()
}
