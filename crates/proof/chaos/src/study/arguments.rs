//! Arguments that the studies of single operations share.

use std::path::PathBuf;
use std::time::Duration;

use super::column::Column;

/// How experiments are made, and where the results go.
#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    /// How to run the daemons
    #[arg(long, value_enum, value_delimiter = ',', default_value = "bare,restart,belay")]
    pub columns: Vec<Column>,
    /// Where to write the results, as JSON and as a page in Markdown [default: target/study,
    /// nowhere with --only]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How long an operation may take before it counts as hanging
    #[arg(long, value_parser = humantime::parse_duration, default_value = "30s")]
    pub op_timeout: Duration,
    /// Where to make the fixtures [default: /dev/shm]
    #[arg(long)]
    pub workdir: Option<PathBuf>,
    /// Succeed whatever is found
    #[arg(long)]
    pub no_verdict: bool,
}
