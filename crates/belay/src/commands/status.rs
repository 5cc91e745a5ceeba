//! `belay status`.

use super::mounts;
use crate::cli::Status as Options;
use crate::messages::Out;
use anyhow::Result;
use belay_supervisor::status::SCHEMA_VERSION;
use serde_json::json;
use std::io::Write;

/// Runs it.
pub fn run(options: &Options) -> Result<i32> {
    let mut out = Out;
    if let Some(path) = &options.mount {
        let (_, status) = mounts::one(&options.state, path)?;
        if options.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&status)?)?;
        } else {
            write!(out, "{}", status.render())?;
        }
        return Ok(0);
    }
    let (all, more) = mounts::all(&options.state);
    if options.json {
        let all = json!({ "schema_version": SCHEMA_VERSION, "mounts": all });
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
    } else if all.is_empty() && !more {
        writeln!(
            out,
            "belay holds no mount (state directory {}); start one with `belay run -- DAEMON ARGUMENTS...`",
            options.state.path().display()
        )?;
    } else {
        for status in all {
            write!(out, "{}", status.render())?;
        }
    }
    Ok(i32::from(more))
}
