//! What a volume can be called.

use std::fmt;
use std::str::FromStr;

/// The name of a volume: up to 64 of the characters a to z, 0 to 9, `.`, `_` and `-`; the first is
/// a letter or a digit. So it is the name of a file, too, and no option.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeName(String);

/// The longest name.
const LONGEST: usize = 64;

impl VolumeName {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for VolumeName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_first = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let is_one = |c: char| is_first(c) || matches!(c, '.' | '_' | '-');
        let fits = text.len() <= LONGEST && text.starts_with(is_first) && text.chars().all(is_one);
        match fits {
            true => Ok(Self(text.to_owned())),
            false => Err(format!(
                "a volume's name has up to {LONGEST} of the characters a-z, 0-9, `.`, `_` and `-`, and begins with a letter or \
                 a digit"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_names_of_files() {
        for good in ["a", "0", "photos", "a.b_c-d", &"x".repeat(64)] {
            assert_eq!(good.parse::<VolumeName>().unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "-a", "_a", "A", "a/b", "a b", "ä", "a\0", &"x".repeat(65)] {
            assert!(bad.parse::<VolumeName>().is_err(), "{bad}");
        }
    }
}
