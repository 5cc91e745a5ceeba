//! The machine, and where on it the measurement runs.

use std::fs;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, Pid};

use crate::model::{Machine, Placement};

/// Describes this machine. What cannot be read is `unknown`.
pub fn describe() -> Machine {
    let uname = rustix::system::uname();
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let memory_kib = field(&read("/proc/meminfo"), "MemTotal", ':')
        .and_then(|v| v.split_whitespace().next()?.parse::<u64>().ok());
    let unknown = || "unknown".to_owned();
    Machine {
        kernel: uname.release().to_string_lossy().into_owned(),
        architecture: uname.machine().to_string_lossy().into_owned(),
        system: field(&read("/etc/os-release"), "PRETTY_NAME", '=')
            .map_or_else(unknown, |v| v.trim_matches('"').to_owned()),
        cpu_model: field(&read("/proc/cpuinfo"), "model name", ':').unwrap_or_else(unknown),
        cpus: std::thread::available_parallelism().map_or(0, usize::from),
        memory_bytes: memory_kib.unwrap_or(0) * 1024,
        profile: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
    }
}

/// The value of the first line `key<separator>value` in `text`.
pub fn field(text: &str, key: &str, separator: char) -> Option<String> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(separator)?;
        (found.trim() == key).then(|| value.trim().to_owned())
    })
}

/// The present time, RFC 3339, to the second.
pub fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// The load average over the last minute; 0 where it is not known.
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|v| v.parse().ok()).unwrap_or(0.0)
}

/// The CPUs on which a process may run, as the kernel lists them.
pub fn allowed_cpus(pid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    field(&text, "Cpus_allowed_list", ':').unwrap_or_else(|| "unknown".to_owned())
}

/// What `--pin` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// The highest-numbered CPU that this process may use: the lowest ones often serve the
    /// interrupts.
    Last,
    /// This CPU.
    Cpu(usize),
    /// None.
    Free,
}

impl std::str::FromStr for Pin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::Free),
            "last" => Ok(Self::Last),
            cpu => cpu
                .parse()
                .map(Self::Cpu)
                .map_err(|_| format!("`{cpu}` is neither a CPU's number nor last nor none")),
        }
    }
}

impl Pin {
    /// Places the calling thread, and so every thread and process that it starts from now on.
    pub fn apply(self) -> Result<Placement> {
        let allowed = rustix::thread::sched_getaffinity(None).context("read the CPU placement")?;
        let cpu = match self {
            Self::Free => return Ok(Placement::Free),
            Self::Cpu(cpu) => cpu,
            Self::Last => (0..CpuSet::MAX_CPU)
                .rev()
                .find(|cpu| allowed.is_set(*cpu))
                .context("no CPU is allowed")?,
        };
        ensure!(
            cpu < CpuSet::MAX_CPU && allowed.is_set(cpu),
            "CPU {cpu} is not one that this process may use"
        );
        let mut set = CpuSet::new();
        set.set(cpu);
        rustix::thread::sched_setaffinity(None, &set)
            .with_context(|| format!("pin to CPU {cpu}"))?;
        Ok(Placement::Pinned(cpu))
    }
}

/// Lets all threads of a process run on any CPU.
pub fn unpin(pid: u32) -> Result<()> {
    let mut any = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| any.set(cpu));
    let tasks = format!("/proc/{pid}/task");
    for task in fs::read_dir(&tasks).with_context(|| format!("list {tasks}"))? {
        let task = task.with_context(|| format!("list {tasks}"))?.file_name();
        let id = task.to_str().and_then(|id| id.parse().ok()).and_then(Pid::from_raw);
        rustix::thread::sched_setaffinity(Some(id.context("read a thread's number")?), &any)
            .with_context(|| format!("let thread {task:?} of process {pid} run anywhere"))?;
    }
    Ok(())
}

impl std::fmt::Display for Placement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pinned(cpu) => write!(f, "clients, daemons and belay all pinned to CPU {cpu}"),
            Self::Free => f.write_str("not pinned (placed by the scheduler)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_whole() {
        let text = "Cpus_allowed:\t3\nCpus_allowed_list:\t0-1\n";
        assert_eq!(field(text, "Cpus_allowed_list", ':').as_deref(), Some("0-1"));
        assert_eq!(field(text, "Cpus", ':'), None);
    }

    #[test]
    fn a_process_that_was_pinned_is_freed() -> Result<()> {
        // A thread's own affinity is inherited by what it starts.
        let child = std::thread::spawn(|| -> Result<_> {
            let all = allowed_cpus(std::process::id());
            Pin::Last.apply()?;
            Ok((all, std::process::Command::new("sleep").arg("60").spawn()?))
        });
        let (all, mut child) = child.join().expect("the thread ends")?;
        let (before, freed) = (allowed_cpus(child.id()), unpin(child.id()));
        let after = allowed_cpus(child.id());
        child.kill()?;
        child.wait()?;
        freed?;
        assert!(!before.contains(['-', ',']), "{before}");
        assert_eq!(after, all);
        Ok(())
    }

    #[test]
    fn pin_parses() {
        assert_eq!("none".parse(), Ok(Pin::Free));
        assert_eq!("last".parse(), Ok(Pin::Last));
        assert_eq!("1".parse(), Ok(Pin::Cpu(1)));
        assert!("x".parse::<Pin>().is_err());
    }

    #[test]
    fn a_pinned_thread_is_on_that_cpu_only() -> Result<()> {
        // In a thread of its own, so that the other tests stay where they are.
        std::thread::spawn(|| -> Result<()> {
            let placement = Pin::Last.apply()?;
            let after = rustix::thread::sched_getaffinity(None)?;
            assert_eq!(after.count(), 1);
            assert!(matches!(placement, Placement::Pinned(cpu) if after.is_set(cpu)));
            assert!(Pin::Cpu(CpuSet::MAX_CPU).apply().is_err());
            Ok(())
        })
        .join()
        .expect("the thread ends")
    }
}
