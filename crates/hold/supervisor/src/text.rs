//! Operating-system strings in JSON: text where it is text, bytes where it is not.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

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

    /// The bytes of what is not UTF-8.
    pub fn odd_bytes(&self) -> Option<Vec<u8>> {
        self.0.to_str().is_none().then(|| self.0.as_bytes().to_vec())
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

/// Whether a character does something to a terminal instead of being shown: control characters, and
/// those that change the direction of what follows.
fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text that may have come from elsewhere (files, sockets, daemons, mount tables), as it may be
/// shown on a terminal: what is active is escaped, in the way of JSON, so that JSON stays the same.
/// Everything that belay prints goes through this; ends of lines and tabs stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    escape(text, |c| is_active(c) && c != '\n' && c != '\t')
}

/// The same of what is to be one line.
pub fn line(text: &str) -> Cow<'_, str> {
    escape(text, is_active)
}

fn escape(text: &str, active: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&active) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if active(c) { out.push_str(&format!("\\u{:04x}", u32::from(c))) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// A name for people, on one line of a terminal: what is no character of UTF-8, and what is no
/// printable one, is escaped, so that two names never look the same.
pub fn escaped(name: &OsStr) -> String {
    let mut out = String::new();
    for chunk in name.as_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                c if is_active(c) => out.extend(c.escape_default()),
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// A word that only `$'...'` can say to a shell.
fn dollar_quoted(word: &OsStr) -> String {
    let mut out = String::from("$'");
    for chunk in word.as_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' | '\'' => out.extend(['\\', c]),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                c if is_active(c) => {
                    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                        let _ = write!(out, "\\x{byte:02x}");
                    }
                }
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out.push('\'');
    out
}

/// A command line for people: words quoted where a shell would need it, so that it can be given to
/// one again.
pub fn command_line<'a>(words: impl IntoIterator<Item = &'a OsStr>) -> String {
    let mut line = String::new();
    for word in words {
        if !line.is_empty() {
            line.push(' ');
        }
        let Some(text) = word.to_str().filter(|text| !text.contains(is_active)) else {
            line.push_str(&dollar_quoted(word));
            continue;
        };
        let plain = |c: char| c.is_alphanumeric() || "-_=+./:,@%^".contains(c);
        if !text.is_empty() && text.chars().all(plain) {
            line.push_str(text);
        } else {
            line.push('\'');
            for c in text.chars() {
                match c {
                    '\'' => line.push_str("'\\''"),
                    c => line.push(c),
                }
            }
            line.push('\'');
        }
    }
    line
}

/// How many there are, with the word for one or for several.
pub fn counted(number: u64, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

/// The same of things whose word for several ends in `s`.
pub fn count(number: u64, one: &str) -> String {
    counted(number, one, &format!("{one}s"))
}

/// So many operations, and the verb of what has become of them.
pub fn acknowledged_since(operations: u64) -> String {
    let (one, several) = ("operation acknowledged since is", "operations acknowledged since are");
    counted(operations, one, several)
}

/// A span of time for people: `10m`, `8m 59s`, `1.5s`, `20ms`. No more of it is said than matters:
/// from ten seconds on whole seconds, below tenths of one.
pub fn span(time: Duration) -> String {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    match millis {
        0 if time.is_zero() => "0s".to_owned(),
        0 => "less than 1ms".to_owned(),
        1..1000 => format!("{millis}ms"),
        1000..9950 => {
            let tenths = (millis + 50) / 100;
            match tenths % 10 {
                0 => format!("{}s", tenths / 10),
                rest => format!("{}.{rest}s", tenths / 10),
            }
        }
        _ => humantime::format_duration(Duration::from_secs(millis.saturating_add(500) / 1000))
            .to_string(),
    }
}

/// Bytes for people: `512 MiB`, `1.5 GiB`, `20 bytes`.
pub fn bytes(number: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let Some((shift, unit)) = UNITS.into_iter().find(|(shift, _)| number >> shift > 0) else {
        return count(number, "byte");
    };
    let text = format!("{:.1}", number as f64 / (1_u64 << shift) as f64);
    format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
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
    fn what_terminals_obey_is_escaped() {
        assert_eq!(printable("plain ü\n"), "plain ü\n");
        assert_eq!(
            printable("a\u{1b}[2J\r\u{9b}1m\u{202e}x\n"),
            "a\\u001b[2J\\u000d\\u009b1m\\u202ex\n"
        );
        assert_eq!(line("a\nbelay: b"), "a\\u000abelay: b");
        let odd = "\u{9b}\u{7f}\u{1b}";
        let json = serde_json::to_string(odd).expect("json");
        assert!(!printable(&json).contains(is_active), "{json}");
        assert_eq!(serde_json::from_str::<String>(&printable(&json)).expect("parse"), odd);
    }

    #[test]
    fn command_lines_are_readable_and_one_line() {
        let words = ["sshfs", "host:/a b", "it's", "x\ny", ""].map(OsStr::new);
        assert_eq!(command_line(words), r"sshfs 'host:/a b' 'it'\''s' $'x\ny' ''");
        let odd = [b"\xff\x1b'".as_slice(), "ä\u{85}".as_bytes()].map(OsStr::from_bytes);
        assert_eq!(command_line(odd), r"$'\xff\x1b\'' $'ä\xc2\x85'");
    }

    #[test]
    fn spans_and_numbers_are_said_as_people_do() {
        let nanos = |n| span(Duration::from_nanos(n));
        assert_eq!(span(Duration::from_secs(600)), "10m");
        assert_eq!(span(Duration::from_millis(59_700)), "1m");
        assert_eq!(nanos(1_000_000_002), "1s");
        assert_eq!((nanos(1_460_000_000), nanos(9_949_000_000)), ("1.5s".into(), "9.9s".into()));
        assert_eq!((nanos(9_960_000_000), nanos(20_400_000)), ("10s".into(), "20ms".into()));
        assert_eq!((nanos(0), nanos(7)), ("0s".into(), "less than 1ms".into()));
        assert_eq!((count(1, "start"), count(2, "start")), ("1 start".into(), "2 starts".into()));
        assert_eq!((bytes(1), bytes(1023)), ("1 byte".into(), "1023 bytes".into()));
        assert_eq!((bytes(512 << 20), bytes(3 << 29)), ("512 MiB".into(), "1.5 GiB".into()));
        assert!(!span(Duration::MAX).is_empty() && !bytes(u64::MAX).is_empty());
    }

    #[test]
    fn names_are_told_apart_and_stay_on_their_line() {
        let shown = |bytes| escaped(OsStr::from_bytes(bytes));
        assert_eq!(shown(b"/mnt/\xc3\xa4 b"), "/mnt/ä b");
        assert_eq!(shown(b"a\nb\x1b[31m\xff"), r"a\nb\u{1b}[31m\xff");
        assert_eq!(shown(br"a\xff"), r"a\\xff");
    }
}
