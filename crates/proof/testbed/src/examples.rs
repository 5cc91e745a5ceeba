//! libfuse's example daemons, compiled from the sources that its development package ships.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::run_ok;

const SOURCES: &str = "/usr/share/doc/libfuse3-dev/examples";

/// What the Debian sources expect from a `config.h` that they do not ship; without these the examples lack calls.
const FEATURES: [&str; 6] = [
    "-DHAVE_SETXATTR",
    "-DHAVE_UTIMENSAT",
    "-DHAVE_POSIX_FALLOCATE",
    "-DHAVE_COPY_FILE_RANGE",
    "-DHAVE_FDATASYNC",
    "-DHAVE_STRUCT_STAT_ST_ATIM",
];

/// Where things are kept that are expensive to make: `target/testbed` of the workspace whose program this is, or a
/// directory below the system's temporary one.
///
/// # Errors
/// When the directory cannot be made.
pub fn cache_dir() -> Result<PathBuf> {
    let exe = std::env::current_exe().context("finding this program's own path")?;
    let target = exe.ancestors().find(|dir| dir.join("CACHEDIR.TAG").is_file());
    let dir = target
        .map_or_else(|| std::env::temp_dir().join("belay-testbed"), |dir| dir.join("testbed"));
    std::fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    Ok(dir)
}

/// The path of a compiled example, which is compiled first if need be.
pub(crate) fn example(name: &str) -> Result<PathBuf> {
    compiled(name, name, &[])
}

/// The same, linked statically: no library can be preloaded into it.
///
/// # Errors
/// When it cannot be compiled.
pub fn static_example(name: &str) -> Result<PathBuf> {
    compiled(name, &format!("{name}-static"), &["-static"])
}

/// The example `source`, under the name `program`, compiled with `options`.
fn compiled(name: &str, program: &str, options: &[&str]) -> Result<PathBuf> {
    let source = Path::new(SOURCES).join(name).with_extension("c");
    if !source.is_file() {
        bail!("{} is missing: install libfuse3-dev (with its documentation)", source.display());
    }
    let cache = cache_dir()?;
    let binary = cache.join(program);
    if newer(&binary, &source) {
        return Ok(binary);
    }
    let mut pkg_config = Command::new("pkg-config");
    if !options.is_empty() {
        pkg_config.arg("--static");
    }
    pkg_config.args(["--cflags", "--libs", "fuse3"]);
    let flags = run_ok(pkg_config, Duration::from_secs(30))
        .context("install pkg-config and libfuse3-dev")?;
    let flags = String::from_utf8_lossy(&flags.stdout).into_owned();
    // Compiled beside its place and moved there, so that two test processes may do this at once.
    let scratch = tempfile::tempdir_in(&cache).context("making a directory to compile in")?;
    let fresh = scratch.path().join(program);
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-g"])
        .args(FEATURES)
        .args(options)
        .arg(&source)
        .arg("-o")
        .arg(&fresh)
        .args(flags.split_whitespace());
    run_ok(cc, Duration::from_secs(120))
        .with_context(|| format!("compiling {}", source.display()))?;
    std::fs::rename(&fresh, &binary)
        .with_context(|| format!("moving {program} to {}", binary.display()))?;
    Ok(binary)
}

fn newer(binary: &Path, source: &Path) -> bool {
    let time = |path: &Path| path.metadata().and_then(|m| m.modified()).ok();
    matches!((time(binary), time(source)), (Some(b), Some(s)) if b >= s)
}
