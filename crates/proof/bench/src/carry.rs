//! What it costs to carry a message between a relay's two ends: through the relay's memory, or by
//! splice(2) through a pipe.
//!
//! One thread is daemon, relay and kernel in turn, so nothing here is a change of context: what is
//! compared is the way of the data alone. The socket is the one that a relay gives its daemon: each
//! message is one piece of it, which the daemon takes with one read(2). The device is left out on
//! both ways, as it moves each byte once on either: a reply goes to `/dev/null`, and a request
//! comes from the page cache, of whose pages splice(2) passes on references. So splice(2) is shown
//! better than it can be.

pub mod model;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt,
};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use self::model::{CarryCase, CarryRun, Direction, Way};
use crate::begun::{Begun, Common};
use crate::run_file::Results;
use crate::stats::Spread;

/// Samples of each way, in turn.
const ROUNDS: usize = 30;
/// Bytes of data, as READ and WRITE carry them.
const SIZES: [usize; 4] = [4 << 10, 32 << 10, 64 << 10, 128 << 10];
/// The largest message, and some more.
const MOST: usize = 256 << 10;

/// The arguments of `belay-bench carry`.
#[derive(Args)]
pub struct CarryArgs {
    #[command(flatten)]
    common: Common,
    /// Messages in one sample
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
}

/// Measures both ways, in both directions.
pub fn run(args: &CarryArgs) -> Result<bool> {
    let begun = Begun::new(&args.common, "carry")?;
    let mut run = CarryRun { count: args.count, rounds: ROUNDS, cases: Vec::new() };
    println!(
        "{:<8} {:>8} {:>9} {:>9} {:>7} {:>7}",
        "message", "bytes", "copied", "spliced", "ratio", "pieces"
    );
    for direction in [Direction::Reply, Direction::Request] {
        for bytes in SIZES {
            let case = measured(direction, bytes, args.count)?;
            println!(
                "{:<8} {bytes:>8} {:>9.2} {:>9.2} {:>7.2} {:>7}",
                direction.name(),
                case.copied_us.median,
                case.spliced_us.median,
                case.ratio.median,
                case.pieces
            );
            run.cases.push(case);
        }
    }
    begun.write(Results::Carry(run))?;
    println!("results: {}", begun.path().display());
    Ok(true)
}

fn measured(direction: Direction, bytes: usize, count: u32) -> Result<CarryCase> {
    let mut relay = Relay::new(direction, bytes)?;
    let (mut copied, mut spliced, mut ratio) = (Vec::new(), Vec::new(), Vec::new());
    let mut pieces = 0;
    // The first round brings memory to where it stays.
    for round in 0..=ROUNDS {
        let mut sample = |way| -> Result<f64> {
            let start = Instant::now();
            for _ in 0..count {
                pieces = relay.carry(direction, way)?;
            }
            Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(count))
        };
        let (copy, by_splice) = (sample(Way::Copied)?, sample(Way::Spliced)?);
        if round > 0 {
            copied.push(copy);
            spliced.push(by_splice);
            ratio.push(by_splice / copy);
        }
    }
    let spread = |samples: &[f64]| Spread::of(samples).context("no samples");
    Ok(CarryCase {
        direction,
        bytes,
        copied_us: spread(&copied)?,
        spliced_us: spread(&spliced)?,
        ratio: spread(&ratio)?,
        pieces,
    })
}

/// Both ends of a relay.
struct Relay {
    /// The relay's end of the daemon's device, and the daemon's.
    socket: (OwnedFd, OwnedFd),
    /// A pipe: its read end, and its write end.
    pipe: (OwnedFd, OwnedFd),
    /// Where the kernel's requests come from.
    source: File,
    /// Where replies go.
    sink: File,
    message: Vec<u8>,
    buffer: Vec<u8>,
}

impl Relay {
    fn new(direction: Direction, bytes: usize) -> Result<Self> {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let socket = socketpair(AddressFamily::UNIX, kind, flags, None)?;
        for end in [&socket.0, &socket.1] {
            if sockopt::set_socket_send_buffer_size_force(end, 4 * MOST).is_err() {
                sockopt::set_socket_send_buffer_size(end, 4 * MOST)?;
            }
        }
        let pipe = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setpipe_size(&pipe.1, MOST).context("no pipe holds a message")?;
        let message = vec![7; direction.head() + bytes];
        let mut source = File::from(memfd_create("requests", MemfdFlags::CLOEXEC)?);
        source.write_all(&message)?;
        let sink = File::options().write(true).open("/dev/null")?;
        Ok(Self { socket, pipe, source, sink, message, buffer: vec![0; MOST] })
    }

    /// Carries one message; gives in how many pieces it has arrived.
    fn carry(&mut self, direction: Direction, way: Way) -> Result<usize> {
        match (direction, way) {
            (Direction::Reply, Way::Copied) => self.reply_copied(),
            (Direction::Reply, Way::Spliced) => self.reply_spliced(),
            (Direction::Request, Way::Copied) => self.request_copied(),
            (Direction::Request, Way::Spliced) => self.request_spliced(),
        }
    }

    fn reply_copied(&mut self) -> Result<usize> {
        send(&self.socket.1, &self.message, SendFlags::NOSIGNAL)?;
        let (got, _) = recv(&self.socket.0, &mut self.buffer[..], RecvFlags::empty())?;
        self.sink.write_all(self.buffer.get(..got).context("a message that is too long")?)?;
        Ok(1)
    }

    /// The head must be seen, and stay for the kernel.
    fn reply_spliced(&mut self) -> Result<usize> {
        send(&self.socket.1, &self.message, SendFlags::NOSIGNAL)?;
        let mut head = [0; Direction::Reply.head()];
        recv(&self.socket.0, &mut head[..], RecvFlags::PEEK)?;
        // As long as the head says: for more there would be more pages, which are given back.
        let length = self.message.len();
        let got = splice(&self.socket.0, None, &self.pipe.1, None, length, SpliceFlags::MOVE)?;
        ensure!(got == length, "a pipe took {got} bytes of a message");
        let put = splice(&self.pipe.0, None, &self.sink, None, got, SpliceFlags::MOVE)?;
        ensure!(put == got, "{put} bytes of {got} left the pipe");
        Ok(1)
    }

    fn request_copied(&mut self) -> Result<usize> {
        self.source.seek(SeekFrom::Start(0))?;
        let message = self.buffer.get_mut(..self.message.len()).context("too long")?;
        self.source.read_exact(message)?;
        send(&self.socket.0, message, SendFlags::NOSIGNAL)?;
        self.take()
    }

    /// Here nobody even looks at the head.
    fn request_spliced(&mut self) -> Result<usize> {
        let mut at = 0;
        let length = self.message.len();
        while at < length as u64 {
            splice(&self.source, Some(&mut at), &self.pipe.1, None, length, SpliceFlags::MOVE)?;
        }
        let mut left = length;
        while left > 0 {
            left -= splice(&self.pipe.0, None, &self.socket.0, None, left, SpliceFlags::MOVE)?;
        }
        self.take()
    }

    /// The daemon takes a request; gives in how many pieces.
    fn take(&mut self) -> Result<usize> {
        let (mut taken, mut pieces) = (0, 0);
        while taken < self.message.len() {
            taken += recv(&self.socket.1, &mut self.buffer[..], RecvFlags::empty())?.0;
            pieces += 1;
        }
        Ok(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(direction: Direction, way: Way, bytes: usize) -> usize {
        let mut relay = Relay::new(direction, bytes).expect("a relay");
        relay.carry(direction, way).expect("a message")
    }

    #[test]
    fn messages_arrive_whole_but_for_long_ones_that_are_spliced_into_a_socket() {
        for direction in [Direction::Reply, Direction::Request] {
            for bytes in SIZES {
                assert_eq!(pieces(direction, Way::Copied, bytes), 1, "{direction:?} {bytes}");
            }
        }
        assert_eq!(pieces(Direction::Reply, Way::Spliced, 128 << 10), 1);
        assert_eq!(pieces(Direction::Request, Way::Spliced, 32 << 10), 1);
        // splice_to_socket of the kernel sends sixteen pages at a time, each time a message.
        assert!(pieces(Direction::Request, Way::Spliced, 64 << 10) > 1);
    }
}
