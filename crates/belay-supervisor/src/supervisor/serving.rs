//! The mount serves for the first time: that is said, and those who wait for it are told.

use super::Supervisor;
use super::clients::Wait;
use crate::protocol::Answer;

impl Supervisor {
    /// The answer to who asks whether the mount serves; none as long as it does not.
    pub(super) fn serving(&self) -> Option<Answer> {
        self.complete.then(|| Answer::Serving { mountpoint: self.mountpoint() })
    }

    /// A daemon has come to serve.
    pub(super) fn tell_serving(&mut self) {
        if !self.book.has_served {
            self.book.has_served = true;
            self.keep_book();
            let place = self.mountpoint();
            let place = if place.is_empty() { "a place that is not known" } else { &place };
            let name = self.config.command.first().map(|name| name.show()).unwrap_or_default();
            let name = name.rsplit('/').next().unwrap_or_default();
            tracing::info!("mounted at {place}: {name} is held");
        }
        let serving = self.serving();
        self.answer_waiting(|wait| if wait == Wait::Serving { serving.clone() } else { None });
    }
}
