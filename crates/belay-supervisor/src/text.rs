//! Operating-system strings in JSON: text where it is text, bytes where it is not.

use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// An argument, path or variable of any bytes, lossless in JSON: a string if it is UTF-8, else an
/// array of byte values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Form", into = "Form")]
pub struct OsText(pub OsString);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Utf8(String),
    Bytes(Vec<u8>),
}

impl From<Form> for OsText {
    fn from(form: Form) -> Self {
        match form {
            Form::Utf8(text) => Self(text.into()),
            Form::Bytes(bytes) => Self(OsString::from_vec(bytes)),
        }
    }
}

impl From<OsText> for Form {
    fn from(text: OsText) -> Self {
        match text.0.into_string() {
            Ok(text) => Self::Utf8(text),
            Err(other) => Self::Bytes(other.into_vec()),
        }
    }
}

impl OsText {
    /// The text of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(OsStr::from_bytes(bytes).to_owned())
    }

    /// As a path.
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// For people: what is not UTF-8 is replaced.
    pub fn show(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }
}

impl From<&Path> for OsText {
    fn from(path: &Path) -> Self {
        Self(path.as_os_str().to_owned())
    }
}

impl From<PathBuf> for OsText {
    fn from(path: PathBuf) -> Self {
        Self(path.into_os_string())
    }
}

/// A command line for people: words quoted where a shell would need it, control characters escaped.
pub fn command_line<'a>(words: impl IntoIterator<Item = &'a OsStr>) -> String {
    let mut line = String::new();
    for word in words {
        if !line.is_empty() {
            line.push(' ');
        }
        let text = word.to_string_lossy();
        let plain = |c: char| c.is_alphanumeric() || "-_=+./:,@%^".contains(c);
        if !text.is_empty() && text.chars().all(plain) {
            line.push_str(&text);
        } else {
            line.push('\'');
            for c in text.chars() {
                match c {
                    '\'' => line.push_str("'\\''"),
                    c if c.is_control() => line.extend(c.escape_default()),
                    c => line.push(c),
                }
            }
            line.push('\'');
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_survive_json() {
        for bytes in [b"plain".as_slice(), b"\xff\x00odd", b""] {
            let text = OsText::from_bytes(bytes);
            let json = serde_json::to_string(&text).expect("json");
            assert_eq!(serde_json::from_str::<OsText>(&json).expect("parse"), text);
        }
    }

    #[test]
    fn command_lines_are_readable_and_one_line() {
        let words = ["sshfs", "host:/a b", "it's", "x\ny", ""].map(OsStr::new);
        assert_eq!(command_line(words), r"sshfs 'host:/a b' 'it'\''s' 'x\ny' ''");
    }
}
