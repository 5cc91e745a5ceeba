//! What there is on a mount that can only be read.

use std::path::Path;

use anyhow::{Context, Result};
use walkdir::WalkDir;

/// No more than so many, and no deeper: such a mount may show all of a system.
const MOST: usize = 1000;
const DEEPEST: usize = 6;

/// Paths relative to the mount's root, in order.
#[derive(Clone, Debug, Default)]
pub struct Names {
    pub files: Vec<String>,
    pub dirs: Vec<String>,
    pub links: Vec<String>,
}

impl Names {
    /// Looks what there is.
    pub fn read(root: &Path) -> Result<Self> {
        let mut names = Self::default();
        for entry in WalkDir::new(root).min_depth(1).max_depth(DEEPEST).sort_by_file_name() {
            let entry = entry.with_context(|| format!("walking {}", root.display()))?;
            let path = entry.path().strip_prefix(root).unwrap_or(entry.path());
            let Some(path) = path.to_str() else { continue };
            let list = match entry.file_type() {
                kind if kind.is_dir() => &mut names.dirs,
                kind if kind.is_symlink() => &mut names.links,
                kind if kind.is_file() => &mut names.files,
                _ => continue,
            };
            if list.len() < MOST {
                list.push(path.to_owned());
            }
        }
        Ok(names)
    }
}
