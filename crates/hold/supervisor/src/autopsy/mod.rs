//! What a crash looked like: the part of a report that comes from what the dying daemon left behind
//! (see `belay_effects::remains`).
//!
//! Everything here is hostile until proved otherwise: a daemon gone mad may have written the
//! remains, and a daemon names the files that the backtrace is looked up in. Nothing is read
//! without a limit, nothing is opened that could make its reader wait or that has effects of its
//! own, and what foreign code makes of it cannot bring the supervisor down, nor take its memory: it
//! runs in a process of its own, with limits, when applications have long got their answers.
//!
//! | module | answers |
//! | --- | --- |
//! | [`apart`] | how that is done in a process of its own |
//! | `demangle` | what a symbol is called in its language |
//! | [`maps`] | what lay where in the process |
//! | `message` | what the daemon said of why it gave up |
//! | `module` | what a program file says: unwind tables, names, lines |
//! | `open` | whether a file may be looked at |
//! | [`unwind`] | which functions had called which |
//! | [`later`] | when that is done |

pub mod apart;
mod demangle;
pub mod journal;
pub mod later;
pub mod maps;
mod message;
mod module;
pub(crate) mod open;
pub mod unwind;

use crate::process::signal_name;
use belay_effects::remains::{Head, Machine};
use belay_wire::Opcode;
pub use message::message;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a crash looked like in the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The signal's name.
    pub signal: String,
    /// Its `si_code`.
    pub code: i32,
    /// What that means, if it is one of the usual.
    pub meaning: Option<String>,
    /// The address that it is about, in hexadecimal; `null` if somebody sent it.
    pub address: Option<String>,
    /// The process that sent it; `null` if the kernel did.
    pub sender: Option<u32>,
    /// The thread that it came to.
    pub thread: u32,
    /// The request that this thread worked on, where the policy lets that be known.
    pub request: Option<Work>,
    /// The registers, in hexadecimal.
    pub registers: BTreeMap<String, String>,
    /// What the daemon, or its C library, said of why it gave up; `null` if it said nothing.
    #[serde(default)]
    pub message: Option<String>,
    /// Which functions had called which, the innermost first; `null` until it is known, and if it
    /// cannot be found out.
    pub backtrace: Option<Vec<Frame>>,
}

/// A request that was worked on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// The kernel's id of it.
    pub unique: u64,
    /// Its kind.
    pub request: String,
}

/// One function of a backtrace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// The address in the process.
    pub address: String,
    /// The file that was mapped there.
    pub module: Option<String>,
    /// The address as that file counts, for tools such as `addr2line`.
    pub offset: Option<String>,
    /// The function.
    pub function: Option<String>,
    /// The source file.
    pub file: Option<String>,
    /// The line in it.
    pub line: Option<u32>,
}

const X86_64: [&str; 23] = [
    "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rdi", "rsi", "rbp", "rbx", "rdx", "rax",
    "rcx", "rsp", "rip", "eflags", "csgsfs", "err", "trapno", "oldmask", "cr2",
];
const AARCH64: [&str; 34] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14",
    "x15", "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27",
    "x28", "x29", "x30", "sp", "pc", "pstate",
];

impl From<&Head> for Site {
    fn from(head: &Head) -> Self {
        let names = match head.machine {
            Machine::X86_64 => &X86_64[..],
            Machine::Aarch64 => &AARCH64[..],
        };
        let register = |(name, value): (&&str, &u64)| ((*name).to_owned(), hex(*value));
        Self {
            signal: signal_name(head.signal),
            code: head.code,
            meaning: meaning(head.signal, head.code).map(str::to_owned),
            address: (head.code > 0).then(|| hex(head.address)),
            sender: head.is_from_outside().filter(|_| head.code <= 0).map(|_| head.sender),
            thread: head.thread,
            request: (head.unique != 0)
                .then(|| Work { unique: head.unique, request: Opcode(head.opcode).to_string() }),
            registers: names.iter().zip(&head.registers).map(register).collect(),
            message: None,
            backtrace: None,
        }
    }
}

/// What a signal's code means, of those that crashes have.
fn meaning(signal: i32, code: i32) -> Option<&'static str> {
    use signal_hook::consts::{SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
    Some(match (signal, code) {
        (_, 0) => "sent by kill(2)",
        (_, -6) => "sent by tgkill(2): raise(3), abort(3)",
        (_, -1) => "sent by sigqueue(3)",
        (_, 0x80) => "sent by the kernel",
        (SIGSEGV, 1) => "nothing is mapped at the address",
        (SIGSEGV, 2) => "what is mapped at the address does not allow it",
        (SIGBUS, 1) => "the address is not aligned",
        (SIGBUS, 2) => "there is nothing behind the address: was a mapped file truncated?",
        (SIGFPE, 1) => "an integer was divided by zero",
        (SIGFPE, 2) => "an integer overflowed",
        (SIGILL, 1 | 2) => "no such instruction",
        (SIGTRAP, 1) => "a breakpoint",
        (SIGSYS, 1) => "a system call that seccomp forbids",
        _ => return None,
    })
}

fn hex(value: u64) -> String {
    format!("{value:#x}")
}

/// Text that came from elsewhere, without what could play tricks on a terminal, and not too long.
fn plain(text: &str) -> String {
    text.chars().take(512).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

impl Site {
    /// Lines for people.
    pub fn lines(&self) -> Vec<String> {
        let mut first = self.signal.clone();
        if let Some(meaning) = &self.meaning {
            first += &format!(", {meaning}");
        }
        if let Some(address) = &self.address {
            first += &format!(", address {address}");
        }
        if let Some(sender) = self.sender {
            first += &format!(", from process {sender}");
        }
        let mut lines = vec![first];
        lines.push(match &self.request {
            Some(work) => {
                format!("in thread {}, on {} unique {}", self.thread, work.request, work.unique)
            }
            None => format!("in thread {}", self.thread),
        });
        lines.extend(self.message.iter().map(|message| format!("message: {message}")));
        let shown = |(name, value)| format!("{name} {value}");
        let registers: Vec<String> = self.registers.iter().map(shown).collect();
        lines.extend(registers.chunks(4).map(|four| four.join("  ")));
        lines
    }
}

impl Frame {
    /// One line for people.
    pub fn line(&self) -> String {
        let mut out = self.address.clone();
        if let Some(function) = &self.function {
            out += &format!(" {function}");
        }
        if let Some(file) = &self.file {
            out += &format!(" ({file}:{})", self.line.unwrap_or(0));
        }
        if let (Some(module), Some(offset)) = (&self.module, &self.offset) {
            out += &format!(" in {module} at {offset}");
        }
        out
    }
}
