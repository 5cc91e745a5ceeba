//! What the kernel says of a process in `/proc/PID/status`.

use crate::procfs;

/// That text, as it was when it was read.
pub(crate) struct Status(String);

impl Status {
    /// That of process `pid`; `None` if there is no such process, or it cannot be read.
    pub fn of(pid: u32) -> Option<Self> {
        // The process's name may have any bytes in it.
        let text = procfs::read(format!("/proc/{pid}/status")).ok()?;
        Some(Self(String::from_utf8_lossy(&text).into_owned()))
    }

    /// What it says under that name, `TracerPid:`.
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
    }

    /// Whether the process was sent SIGKILL, by whomever, and has not come to act on it. Of one
    /// that is dead it may be said as well.
    pub fn is_killed(&self) -> bool {
        const KILL: u64 = 1 << (9 - 1);
        let pending = ["ShdPnd:", "SigPnd:"].into_iter().filter_map(|name| self.fact(name));
        pending.filter_map(|set| u64::from_str_radix(set, 16).ok()).any(|set| set & KILL != 0)
    }
}

/// What the kernel says of process `pid` under that name now.
pub fn fact(pid: u32, name: &str) -> Option<String> {
    Status::of(pid)?.fact(name).map(str::to_owned)
}

/// Whether process `pid` [is killed](Status::is_killed) now.
pub fn is_killed(pid: u32) -> bool {
    Status::of(pid).is_some_and(|status| status.is_killed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_and_pending_kills_are_found() {
        let status = |shared: &str, own: &str| {
            Status(format!("Name:\tx\nState:\tS (sleeping)\nSigPnd:\t{own}\nShdPnd:\t{shared}\n"))
        };
        assert_eq!(status("0", "0").fact("State:"), Some("S (sleeping)"));
        assert_eq!(status("0", "0").fact("TracerPid:"), None);
        assert!(!status("000000000000feff", "0").is_killed() && !status("", "").is_killed());
        assert!(status("0000000000000100", "0").is_killed());
        assert!(status("0", "0000000000000100").is_killed());
        let me = std::process::id();
        std::thread::scope(|scope| {
            let odd = scope.spawn(|| {
                rustix::thread::set_name(c"\xff\xfe").expect("a name");
                let text = procfs::read("/proc/thread-self/status").expect("status");
                assert!(String::from_utf8(text).is_err());
                Status::of(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs())
            });
            assert!(odd.join().expect("a thread").is_some_and(|odd| odd.fact("Tgid:").is_some()));
        });
        assert_eq!(fact(me, "Tgid:"), Some(me.to_string()));
        assert!(!is_killed(me) && !is_killed(u32::MAX) && fact(u32::MAX, "Tgid:").is_none());
    }
}
