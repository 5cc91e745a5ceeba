//! The suites' programs: getting, running and understanding them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use belay_fixtures::process::{Process, run_ok};

const PJDFSTEST: &str = "\
[features]
posix_fallocate = {}
utimensat = {}
utime_now = {}
rename_ctime = {}
[settings]
naptime = 0.02
allow_remount = false
[dummy_auth]
entries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]
";

/// fsx's weights, by the name of the variant. What a daemon does not support fails on both sides.
const FSX: [(&str, &str); 4] = [
    ("plain", ""),
    ("reopening", "close_open = 5.0\nfsync = 2.0\nfdatasync = 2.0\ninvalidate = 1.0\n"),
    (
        "unmapped",
        "mapread = 0.0\nmapwrite = 0.0\nclose_open = 2.0\nsendfile = 5.0\ncopy_file_range = 5.0\n",
    ),
    ("allocating", "posix_fallocate = 5.0\npunch_hole = 5.0\n"),
];

/// The installed programs.
pub struct Tools {
    bin: PathBuf,
}

impl Tools {
    /// Installs what is missing, into `target/tools`.
    pub fn ready() -> Result<Self> {
        let cache = belay_fixtures::cache_dir()?;
        let root = cache.parent().unwrap_or(&cache).join("tools");
        let bin = root.join("bin");
        let missing: Vec<_> =
            ["pjdfstest", "fsx"].into_iter().filter(|name| !bin.join(name).is_file()).collect();
        if !missing.is_empty() {
            eprintln!("installing {} into {}", missing.join(" and "), root.display());
            let mut cargo = Command::new("cargo");
            cargo.args(["install", "--locked", "--root"]).arg(&root).args(&missing);
            run_ok(cargo, Duration::from_secs(1800)).context("installing the suites")?;
        }
        Ok(Self { bin })
    }

    /// Runs pjdfstest (or one of its tests) below a directory: every test and its result.
    pub fn pjdfstest(
        &self,
        root: &Path,
        only: Option<&str>,
        limit: Duration,
    ) -> Result<Vec<(String, String)>> {
        let scratch = tempfile::tempdir().context("making a directory for the configuration")?;
        let config = scratch.path().join("pjdfstest.toml");
        std::fs::write(&config, PJDFSTEST).context("writing the configuration")?;
        let mut command = Command::new(self.bin.join("pjdfstest"));
        command.arg("-c").arg(&config).arg("-p").arg(root).current_dir(scratch.path());
        if let Some(test) = only {
            // Not `--exact`: that knows names without the kind of file at their end.
            command.arg(test);
        }
        let (_, text) = finish(command, scratch.path(), limit)?;
        let mut results: Vec<_> = text.lines().filter_map(pjdfstest_line).collect();
        results.retain(|(name, _)| only.is_none_or(|test| test == name));
        if results.is_empty() {
            bail!("pjdfstest ran no test; it said: {text}");
        }
        Ok(results)
    }

    /// Runs fsx in its variants on a file in a directory: each variant and its result.
    pub fn fsx(
        &self,
        root: &Path,
        seed: u64,
        ops: u64,
        limit: Duration,
    ) -> Result<Vec<(String, String)>> {
        let mut results = Vec::new();
        for (name, weights) in FSX {
            let scratch = tempfile::tempdir().context("making a directory for fsx")?;
            let config = scratch.path().join("fsx.toml");
            std::fs::write(&config, format!("[weights]\n{weights}"))
                .context("writing fsx's configuration")?;
            let file = root.join(format!("fsx-{name}"));
            let mut command = Command::new(self.bin.join("fsx"));
            command.args(["-N", &ops.to_string(), "-S", &seed.to_string(), "-f"]).arg(&config);
            command.arg("-P").arg(scratch.path()).arg(&file).current_dir(scratch.path());
            let (success, text) = finish(command, scratch.path(), limit)?;
            // What failed first is part of the result: it must be the same operation on both sides.
            let first =
                text.lines().find(|line| line.contains("ERROR")).or_else(|| text.lines().last());
            let first = first.unwrap_or_default().replace(&root.display().to_string(), "");
            results.push((
                format!("{name} seed {seed}"),
                if success { "ok".to_owned() } else { first },
            ));
            let _ = std::fs::remove_file(file);
        }
        Ok(results)
    }
}

/// Runs a command that may well fail: whether it succeeded, and what it said.
fn finish(command: Command, scratch: &Path, limit: Duration) -> Result<(bool, String)> {
    let log = scratch.join("log");
    let mut process = Process::start(command, &log)?;
    let status = process.wait(limit);
    let text = std::fs::read(&log).context("reading what the suite said")?;
    let text = String::from_utf8_lossy(&text).into_owned();
    match status? {
        Some(status) => Ok((status.success(), text)),
        None => bail!("it did not end within {limit:?}{}", process.tail()),
    }
}

/// `chmod::change_perm::regular      ok`
fn pjdfstest_line(line: &str) -> Option<(String, String)> {
    let (name, result) = line.split_once(char::is_whitespace)?;
    let result = result.trim();
    let known = ["ok", "FAILED", "skipped", "expected failure"];
    (name.contains("::") && known.iter().any(|k| k.eq_ignore_ascii_case(result)))
        .then(|| (name.to_owned(), result.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_understood() {
        let line = "unlink::remove_type::char                     ok";
        assert_eq!(pjdfstest_line(line), Some(("unlink::remove_type::char".into(), "ok".into())));
        assert_eq!(pjdfstest_line("\tRemounts (allow_remount) are not allowed"), None);
        assert_eq!(pjdfstest_line("Summary: 0 failed, 28 skipped"), None);
    }
}
