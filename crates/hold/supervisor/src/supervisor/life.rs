//! Tells the lifecycle what has happened, and does what it decides.

use super::Supervisor;
use super::lifecycle::{Command, Event, Failure, Worthless};
use crate::clock;
use crate::detection::Detection;
use crate::process::Exit;
use crate::verdict::Next;

impl Supervisor {
    /// Something has happened: does what follows.
    pub(super) fn live(&mut self, event: Event) {
        for command in self.decide(event) {
            self.carry_out(command);
        }
    }

    /// What follows from that. The caller has it carried out, all or none of it, in this order.
    pub(super) fn decide(&mut self, event: Event) -> Vec<Command> {
        self.life.on(&mut self.book, event)
    }

    /// Does that.
    pub(super) fn carry_out(&mut self, command: Command) {
        match command {
            Command::Set(due, at) => self.deadlines.set(due, at),
            Command::Cancel(due) => self.deadlines.cancel(due),
            Command::Launch => self.launch(),
            Command::RejectProgram => {
                let exit = self.book.last_exit.unwrap_or(Exit::Unknown);
                self.falls_back(&format!("it {}", exit.told()));
            }
            Command::FailStart { next, detection, asks } => self.fail_start(next, detection, asks),
            Command::Unstartable { why } => {
                let program = self.config.program.display();
                tracing::error!(
                    "cannot start {program}: {why}; was it built for this architecture?"
                );
            }
            Command::Serve => self.serves(),
            Command::HoldConnections => {
                if self.late.connects() {
                    self.hold_connections();
                }
            }
            Command::Conclude { open_ns } => self.recovered(open_ns),
            Command::Stop => self.request_stop(),
            Command::LookWhetherItStores => {
                let still = self.is_storing();
                self.live(Event::Stores { now: clock::now(), still });
            }
            Command::LetStore { first } => self.let_it_store(first),
            Command::TellDaemon => self.tell_daemon_to_end(),
            Command::Force => self.force_stop(),
            Command::LeaveBehind => self.leave_behind(),
            Command::GiveUp(worthless) => self.give_up(&self.why_given_up(worthless)),
            Command::Finish { code } => self.finish(code),
        }
    }

    fn fail_start(&mut self, next: Next, detection: Detection, asks: bool) {
        let exit = self.book.last_exit.unwrap_or(Exit::Unknown);
        let why = self.why_not(exit, &detection);
        let other = asks && self.falls_back(&why);
        let now = clock::now();
        self.live(Event::StartFailed(Failure { now, next, detection, why, other }));
    }

    fn why_given_up(&self, worthless: Worthless) -> String {
        match worthless {
            Worthless::TooLarge(why) => why,
            Worthless::Impatience => self.impatience(),
            Worthless::Corrupt => {
                "what is on record of it is damaged, so no daemon can go on from that".to_owned()
            }
            Worthless::CrashLoop => match self.book.tries.unproductive.max(self.book.tries.idle) {
                0 => {
                    "daemons were killed for ten minutes before they served one request".to_owned()
                }
                lives => format!("the daemon died {lives} times without serving one request"),
            },
        }
    }
}
