//! The thread that traces, for whoever has started it.

use anyhow::{Context, Result, anyhow};
use nix::unistd::Pid;
use std::process::ChildStdin;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

/// A thread that traces. Dropping it lets what it traces run on, if that still does.
#[derive(Debug)]
pub(crate) struct Tracing<T> {
    /// Closing it rings the bell.
    bell: Option<ChildStdin>,
    thread: Option<JoinHandle<Result<T>>>,
}

impl<T: Send + 'static> Tracing<T> {
    /// Starts it, and waits until it tells of its bell: then it has attached. `Err` is what it came
    /// to if it ended before.
    ///
    /// # Errors
    /// Its own; if it cannot be started.
    pub fn start(
        name: &str,
        trace: impl FnOnce(&Sender<ChildStdin>) -> Result<T> + Send + 'static,
    ) -> Result<std::result::Result<Self, T>> {
        let (tell, ready) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || trace(&tell))
            .context("starting the tracer's thread")?;
        match ready.recv() {
            Ok(bell) => Ok(Ok(Self { bell: Some(bell), thread: Some(thread) })),
            Err(_) => joined(thread).map(Err),
        }
    }

    /// Rings its bell, and waits for what it comes to.
    ///
    /// # Errors
    /// Its own.
    pub fn finish(mut self) -> Result<T> {
        self.bell = None;
        joined(self.thread.take().context("a tracer has a thread")?)
    }
}

impl<T> Drop for Tracing<T> {
    fn drop(&mut self) {
        self.bell = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn joined<T>(thread: JoinHandle<Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("the tracer's thread panicked"))?
}

/// The process or thread with that number.
pub(crate) fn pid(number: u32) -> Result<Pid> {
    let pid = i32::try_from(number).ok().filter(|pid| *pid > 0).map(Pid::from_raw);
    pid.with_context(|| format!("{number} is no process id"))
}
