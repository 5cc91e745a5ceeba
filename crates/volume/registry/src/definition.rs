//! What is known of a volume by its name, and how that is written down.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use uuid::Uuid;

/// The version of what is written down.
const VERSION: i64 = 1;
/// Stores that a volume can have.
pub const STORES: usize = 32;

/// What is known of a volume by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Which volume it is.
    pub id: Uuid,
    /// Its stores, in the order of the volume's members.
    pub stores: Vec<Store>,
}

/// A store of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// Which store it is.
    pub id: Uuid,
    /// Where it is: an absolute path.
    pub path: PathBuf,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: i64,
    id: Uuid,
    store: Vec<Store>,
}

impl Definition {
    /// As it is written down.
    ///
    /// # Errors
    /// Why it cannot be: a path is not UTF-8, or not absolute, or there are none or too many.
    pub fn to_text(&self) -> Result<String, String> {
        self.check()?;
        let file = File { version: VERSION, id: self.id, store: self.stores.clone() };
        let text = toml::to_string(&file).map_err(|why| why.to_string())?;
        Ok(format!("# A volume of belay: see `belay volume --help`.\n{text}"))
    }

    /// What was written down.
    ///
    /// # Errors
    /// Why it is none.
    pub fn from_text(text: &str) -> Result<Self, String> {
        let table: toml::Table = text.parse().map_err(|why| told(&why, text))?;
        // One of a later version may have anything else in it.
        match table.get("version").and_then(toml::Value::as_integer) {
            Some(VERSION) => {}
            Some(version) => {
                return Err(format!(
                    "it has version {version}; this belay supports only version {VERSION}"
                ));
            }
            None => return Err("`version` is missing, or no number".to_owned()),
        }
        // Of the text once more, as a table does not know its lines.
        let file: File = toml::from_str(text).map_err(|why| told(&why, text))?;
        let this = Self { id: file.id, stores: file.store };
        this.check()?;
        Ok(this)
    }

    fn check(&self) -> Result<(), String> {
        if self.stores.is_empty() || self.stores.len() > STORES {
            return Err(format!("a volume has 1 to {STORES} stores"));
        }
        for (number, store) in self.stores.iter().enumerate() {
            let path = store.path.display();
            if !store.path.is_absolute() {
                return Err(format!("the path of a store is not absolute: {path}"));
            }
            let mut before = self.stores.iter().take(number);
            if before.any(|other| other.id == store.id || other.path == store.path) {
                return Err(format!("two of its stores are one: {path}"));
            }
        }
        Ok(())
    }
}

/// On one line, with the line that is meant.
fn told(why: &toml::de::Error, text: &str) -> String {
    let message = why.message().replace('\n', " ");
    // What is missing in all of it is missing in no line.
    let is_of_all = |start| start == 0 && message.starts_with("missing field");
    let span = why.span().filter(|span| !is_of_all(span.start));
    let before = span.and_then(|span| text.get(..span.start));
    match before {
        Some(before) => format!("line {}: {message}", before.matches('\n').count() + 1),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Definition {
        let store = |number, path: &str| Store { id: Uuid::from_u128(number), path: path.into() };
        let stores = vec![store(1, "/dev/sdb"), store(2, "/srv/a \"b\".img")];
        Definition { id: Uuid::from_u128(7), stores }
    }

    #[test]
    fn what_is_written_down_is_read_again() {
        let text = two().to_text().unwrap();
        assert_eq!(Definition::from_text(&text).unwrap(), two());
    }

    #[test]
    fn what_is_none_is_refused() {
        let text = two().to_text().unwrap();
        for (from, to, why) in [
            ("version = 1", "version = 2", "it has version 2"),
            ("version = 1", "", "`version` is missing"),
            ("/dev/sdb", "dev/sdb", "not absolute"),
            ("00000001", "00000002", "two of its stores are one"),
            ("[[store]]", "[[shop]]", "unknown field"),
            ("version = 1", "version = 1\nbogus = 1", "line 3: unknown field"),
            ("00000000-0000-0000-0000-000000000007", "seven", "line 3: UUID parsing failed"),
            ("id = ", "id = = ", ""),
        ] {
            let refused = Definition::from_text(&text.replace(from, to)).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        assert!(Definition::from_text("version = 1\nid = \"x\"\nstore = []").is_err());
        assert_eq!(Definition::from_text("version = 1\n").unwrap_err(), "missing field `id`");
        let none = Definition { id: Uuid::nil(), stores: Vec::new() };
        assert!(none.to_text().is_err());
    }
}
