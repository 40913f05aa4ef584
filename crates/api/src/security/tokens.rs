//! Tokens of 256 random bits each. Only their SHA-256 is kept, in a text file of lines `name role sha256`.
//!
//! A plain hash is enough because a token is no password: nobody guesses 256 random bits, however fast the hash is.

use super::{Identity, Role};
use konkordia_core::failure::{Exit, Failure};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;
/// Start of every token, by which people and programs that look for leaked secrets recognise it.
const PREFIX: &str = "konkordia_";
/// Longest name of a token.
const NAME_CHARACTERS_MAX: usize = 64;
/// Tokens that a file may have: all of them are compared with each request.
const TOKENS_MAX: usize = 1000;
/// Bytes that a file may have: the longest lines and as much again for comments.
const FILE_BYTES_MAX: u64 = 2 * (TOKENS_MAX * (NAME_CHARACTERS_MAX + 80)) as u64;

const HEADING: &str = "# Tokens of `konkordia serve`: name role sha256. The tokens themselves are not kept anywhere.\n";

/// One line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whose it is, or what it is for.
    pub name: String,
    /// What it may do.
    pub role: Role,
    hash: [u8; 32],
}

/// The tokens of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    entries: Vec<Entry>,
}

impl Tokens {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// If it cannot be read, others may write it, or a line is wrong; says which.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        let file = fs::File::open(path).map_err(|error| Failure::io("cannot read the tokens", path, &error))?;
        let mode = file.metadata().map_err(|error| Failure::io("cannot read the tokens", path, &error))?.permissions().mode();
        if mode & 0o022 != 0 {
            let why = format!("others may write to this file (mode {:o}), so anybody could give himself a token", mode & 0o777);
            return Err(wrong(path, why, format!("chmod 600 {}", path.display())));
        }
        let mut text = String::new();
        let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
        read.map_err(|error| Failure::io("cannot read the tokens", path, &error))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(wrong(path, format!("it has more than {FILE_BYTES_MAX} bytes"), "is this the right file?"));
        }
        Self::parse(&text)
            .map_err(|why| wrong(path, why, "`konkordia token create NAME --role view --file FILE` writes such lines"))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut entries: Vec<Entry> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let at = |why: String| format!("line {}: {why}", index + 1);
            let [name, role, hash] = line.split_whitespace().collect::<Vec<_>>()[..] else {
                return Err(at("it is not `name role sha256`".into()));
            };
            check_name(name).map_err(at)?;
            let role = Role::from_name(role).ok_or_else(|| at("the role is none of view, operate, configure".into()))?;
            let hash = from_hex(hash).ok_or_else(|| at("the hash is not 64 hexadecimal digits".into()))?;
            if entries.iter().any(|entry| entry.name == name) {
                return Err(at(format!("'{name}' has a token already")));
            }
            entries.push(Entry { name: name.into(), role, hash });
            if entries.len() > TOKENS_MAX {
                return Err(at(format!("at most {TOKENS_MAX} tokens are allowed")));
            }
        }
        Ok(Self { entries })
    }

    /// The entries of the file.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whose token this is. Takes as long for a wrong token as for a right one.
    pub fn identify(&self, token: &str) -> Identity {
        let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let mut found = None;
        for entry in &self.entries {
            if same(&entry.hash, &hash) {
                found = Some(entry);
            }
        }
        found.map_or(Identity::BadToken, |entry| Identity::Known { name: entry.name.clone(), role: entry.role })
    }

    /// Makes a token and adds its hash. The token is returned and kept nowhere.
    ///
    /// # Errors
    /// If the name is taken or cannot be a name, or the system gives no random bytes.
    pub fn create(&mut self, name: &str, role: Role) -> Result<String, Failure> {
        let refuse = |why: String, fix: &str| Failure::new(Exit::Usage, format!("cannot make a token for '{name}'"), why, fix);
        check_name(name).map_err(|why| refuse(why, "use another name"))?;
        if self.entries.iter().any(|entry| entry.name == name) {
            return Err(refuse("there is one with this name".into(), "use another name, or `konkordia token remove` it first"));
        }
        if self.entries.len() >= TOKENS_MAX {
            return Err(refuse(format!("a file holds at most {TOKENS_MAX} tokens"), "remove those that nobody uses"));
        }
        self.mint(name, role)
    }

    /// As [`Self::create`], for a name that no file could hold. The entry is never stored.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn mint(&mut self, name: &str, role: Role) -> Result<String, Failure> {
        let random = Path::new("/dev/urandom");
        let mut bytes = [0u8; TOKEN_BYTES];
        let read = fs::File::open(random).and_then(|mut file| file.read_exact(&mut bytes));
        read.map_err(|error| Failure::io("cannot read random bytes from", random, &error))?;
        let token = format!("{PREFIX}{}", hex(&bytes));
        self.entries.push(Entry { name: name.into(), role, hash: Sha256::digest(token.as_bytes()).into() });
        Ok(token)
    }

    /// Removes a token; false if there is none with this name.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.name != name);
        self.entries.len() < before
    }

    /// Replaces the file, readable for its owner only. A reader sees the old file or the new one, whole.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn store(&self, path: &Path) -> Result<(), Failure> {
        let mut text = String::from(HEADING);
        for Entry { name, role, hash } in &self.entries {
            let _ = writeln!(text, "{name} {role} {}", hex(hash));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside);
        let written = file.and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&beside, path)
        });
        written.map_err(|error| {
            let _ = fs::remove_file(&beside);
            Failure::io("cannot write the tokens to", path, &error)
        })
    }
}

fn wrong(path: &Path, why: impl Into<String>, fix: impl Into<String>) -> Failure {
    Failure::new(Exit::Configuration, format!("the tokens in {} cannot be used", path.display()), why, fix)
}

fn check_name(name: &str) -> Result<(), String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "._@-".contains(c);
    if name.is_empty() || name.len() > NAME_CHARACTERS_MAX || !name.chars().all(is_good) {
        return Err(format!("a name has 1 to {NAME_CHARACTERS_MAX} of the characters A-Z a-z 0-9 . _ @ -"));
    }
    Ok(())
}

/// Compares all bytes, so that the time does not show where they differ.
fn same(left: &[u8; 32], right: &[u8; 32]) -> bool {
    let different = left.iter().zip(right).fold(0u8, |all, (l, r)| all | (l ^ r));
    std::hint::black_box(different) == 0
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_its_hash_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let mut tokens = Tokens::default();
        let alice = tokens.create("alice", Role::Operate).unwrap();
        let bob = tokens.create("bob@x06sa", Role::View).unwrap();
        assert_ne!(alice, bob);
        assert_eq!(alice.len(), PREFIX.len() + 64);
        tokens.store(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&alice) && !text.contains(&alice[PREFIX.len()..]), "{text}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let mut read = Tokens::load(&path).unwrap();
        assert_eq!(read, tokens);
        assert_eq!(read.identify(&alice), Identity::Known { name: "alice".into(), role: Role::Operate });
        assert_eq!(read.identify(&bob).role(), Some(Role::View));
        for wrong in ["", "konkordia_", &alice[1..], &format!("{alice} "), &alice.to_uppercase()] {
            assert_eq!(read.identify(wrong), Identity::BadToken, "{wrong}");
        }
        assert!(read.create("alice", Role::View).unwrap_err().why.contains("with this name"));
        assert!(read.create("a b", Role::View).is_err() && read.create("", Role::View).is_err());
        assert!(read.remove("alice") && !read.remove("alice"));
        assert_eq!(read.identify(&alice), Identity::BadToken);
    }

    #[test]
    fn wrong_lines_are_refused_with_their_number() {
        let hash = "0".repeat(64);
        let why = |text: &str| Tokens::parse(text).unwrap_err();
        assert!(why("\n# x\nalice operate").contains("line 3"));
        assert!(why(&format!("alice root {hash}")).contains("none of view, operate, configure"));
        assert!(why(&format!("alice view {}", &hash[1..])).contains("64 hexadecimal"));
        assert!(why(&format!("alice view +{}", &hash[1..])).contains("64 hexadecimal"));
        assert!(why(&format!("a view {hash}\na operate {hash}")).contains("line 2: 'a' has a token"));
        assert!(why(&format!("a/b view {hash}")).contains("characters"));
        let many: String = (0..=TOKENS_MAX).map(|n| format!("n{n} view {hash}\n")).collect();
        assert!(why(&many).contains("at most 1000"));
        assert_eq!(Tokens::parse("# nobody\n\n").unwrap(), Tokens::default());
    }

    #[test]
    fn files_that_others_may_write_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
        assert!(Tokens::load(&path).unwrap_err().why.contains("others may write"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(Tokens::load(&path).is_ok());
        assert!(Tokens::load(&folder.path().join("none")).unwrap_err().what.contains("cannot read the tokens"));
        fs::write(&path, vec![b'#'; FILE_BYTES_MAX as usize + 1]).unwrap();
        assert!(Tokens::load(&path).unwrap_err().why.contains("more than"));
    }
}
