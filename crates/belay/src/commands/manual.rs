//! Shell completions and manual pages, made from the command line's own definition.

use crate::cli::Cli;
use crate::messages::Out;
use anyhow::{Context, Result};
use clap::CommandFactory;
use std::io::Write;
use std::path::Path;

/// Prints completions for `shell`.
pub fn completions(shell: clap_complete::Shell) -> Result<i32> {
    // What it cannot write it panics about.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "belay", &mut text);
    Out.write_all(&text)?;
    Ok(0)
}

/// Prints the main page, or writes all pages into `dir`.
pub fn pages(dir: Option<&Path>) -> Result<i32> {
    match dir {
        None => clap_mangen::Man::new(Cli::command()).render(&mut Out)?,
        Some(dir) => {
            std::fs::create_dir_all(dir)
                .with_context(|| format!("cannot create {}", dir.display()))?;
            clap_mangen::generate_to(Cli::command(), dir)
                .with_context(|| format!("cannot write manual pages into {}", dir.display()))?;
        }
    }
    Ok(0)
}
