//! The option `--state-dir`.

use clap::Args;
use std::path::PathBuf;

/// Where belay keeps sockets and reports.
#[derive(Clone, Debug, Args)]
pub struct StateDir {
    /// Directory for sockets and crash reports [default: $BELAY_STATE_DIR, else /run/belay for
    /// root, else $XDG_RUNTIME_DIR/belay, or /tmp/belay-UID if that is not set (cron, su)].
    #[arg(long = "state-dir", value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl StateDir {
    /// Whether somebody has named one that is not there. The one that is taken otherwise is made by
    /// the first `belay run`.
    pub fn is_missing(&self) -> bool {
        let by_variable = || std::env::var_os("BELAY_STATE_DIR").is_some_and(|dir| !dir.is_empty());
        let is_gone = |error: std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
        (self.dir.is_some() || by_variable()) && self.path().symlink_metadata().is_err_and(is_gone)
    }

    /// The directory, absolute as far as that can be had.
    pub fn path(&self) -> PathBuf {
        let dir = self.dir.clone().unwrap_or_else(belay_supervisor::instances::default_state_dir);
        std::path::absolute(&dir).unwrap_or(dir)
    }
}
