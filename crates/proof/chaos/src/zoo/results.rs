//! Files of results, to which daemons are added one by one.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Serialize, de::DeserializeOwned};

/// What is known by now; nothing if there is no such file.
pub fn read<T: DeserializeOwned + Default>(path: &Path) -> Result<T> {
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text)
            .with_context(|| format!("{} holds no results of this version", path.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(T::default()),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
}

/// Keeps it.
pub fn write(path: &Path, results: &impl Serialize) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    let text = serde_json::to_string_pretty(results).context("encoding the results")?;
    std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))
}
