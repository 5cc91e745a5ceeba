//! Ctrl-C and SIGTERM: the first asks for an orderly end, the second ends at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};

/// A flag that is set by the first such signal from now on.
pub fn flag() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag unset and sets it, the second finds it
        // set.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .context("registering a signal handler")?;
    }
    Ok(flag)
}

/// A request to stop that threads can wait for.
#[derive(Debug, Default)]
pub struct Stop {
    asked: Mutex<bool>,
    news: Condvar,
    now: AtomicBool,
}

impl Stop {
    /// Asks for the end.
    pub fn ask(&self) {
        self.now.store(true, Ordering::Release);
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.news.notify_all();
    }

    /// Whether the end was asked for.
    pub fn asked(&self) -> bool {
        self.now.load(Ordering::Acquire)
    }

    /// Waits for the end to be asked for, at most so long; says whether it was.
    pub fn wait(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        while !*asked {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            asked = self.news.wait_timeout(asked, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_the_request() {
        let stop = Stop::default();
        assert!(!stop.wait(Duration::from_millis(1)));
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(stop.wait(Duration::from_secs(60))));
            stop.ask();
        });
        assert!(stop.asked() && stop.wait(Duration::ZERO));
    }
}
