//! Time: the monotonic clock that shim and supervisor share, and the wall clock for people.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, SystemTime};

/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;

/// CLOCK_MONOTONIC in nanoseconds, never 0.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(SECOND).saturating_add(nanoseconds).max(1)
}

/// Microseconds from `from` to `to`, both of [`now`]; 0 if they are the wrong way round.
pub fn micros(from: u64, to: u64) -> u64 {
    to.saturating_sub(from) / 1000
}

/// Wall-clock time in milliseconds since 1970.
pub fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A wall-clock time for people and JSON: RFC 3339 with milliseconds, in UTC.
pub fn rfc3339(ms: u64) -> String {
    // The formatter cannot show years beyond 9999.
    let ms = ms.min(253_402_300_799_000);
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
    humantime::format_rfc3339_millis(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_time_can_be_shown() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert!(rfc3339(u64::MAX).starts_with("9999-12-31"));
        assert!(now() > 0);
        assert_eq!(micros(5000, 2000), 0);
    }
}
