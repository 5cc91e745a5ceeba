//! The remains: what a crashing daemon leaves of its own state, for the report.
//!
//! They are written by the handler of a deadly signal, in the process that is about to die, into
//! the recorder's area of that name (`Layout::remains`), and read by the supervisor. Writing is a
//! few stores and no more: no allocation, no lock. The stack and the memory map come there by the
//! kernel's hand, at [`stack_room`] and [`maps_room`].
//!
//! Invariant: the head's check value is stored last, over the head and the check of the rest; so
//! remains that are torn, altered afterwards, or of another generation are not taken for true.

use belay_memory::Memory;
use belay_recorder::Layout;

// Words of the head.
const CHECK: usize = 0;
// Eight words from here on: generation | machine, signal | si_code, address, sender | process,
// thread | opcode, unique, address of the stack, bytes of the stack | bytes of the maps.
const GENERATION: usize = 1;
const BODY_CHECK: usize = 9; // over stack, maps and message
const MESSAGE_LENGTH: usize = 10;
const REGISTERS: usize = 16;
const STACK: usize = 64;
const MAPS: usize = STACK + STACK_BYTES / 8;
const MESSAGE: usize = MAPS + MAPS_BYTES / 8;

/// How much of the stack is kept.
pub const STACK_BYTES: usize = 64 << 10;
/// How much of the memory map is kept.
pub const MAPS_BYTES: usize = 128 << 10;
/// How much of its last message is kept.
pub const MESSAGE_BYTES: usize = 1024;
/// How many registers there is room for.
pub const REGISTERS_MAX: usize = STACK - REGISTERS;

const _: () = assert!(MESSAGE + MESSAGE_BYTES / 8 <= belay_recorder::layout::REMAINS_WORDS);

/// The kind of machine that registers are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Machine {
    /// Its registers are those of `gregset_t`, in that order.
    X86_64 = 1,
    /// Its registers are x0 to x30, sp, pc, pstate.
    Aarch64 = 2,
}

/// What is known of a crash but for its stack and memory map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The generation that died.
    pub generation: u32,
    /// The machine.
    pub machine: Machine,
    /// The signal.
    pub signal: i32,
    /// Its `si_code`: above 0 if the kernel sent it for something that the thread did.
    pub code: i32,
    /// Its `si_addr`, of signals that have one.
    pub address: u64,
    /// Who sent it, of signals that somebody sent; else 0.
    pub sender: u32,
    /// The process that it came to.
    pub process: u32,
    /// The thread.
    pub thread: u32,
    /// The request that the thread worked on, 0 for none that is known.
    pub unique: u64,
    /// The opcode of that request.
    pub opcode: u32,
    /// The registers, as far as the machine has them; the rest is 0.
    pub registers: [u64; REGISTERS_MAX],
    /// The address of the first byte of the stack that is kept.
    pub stack_at: u64,
    /// How many bytes of the stack are kept.
    pub stack_bytes: usize,
    /// How many bytes of the memory map are kept.
    pub maps_bytes: usize,
    /// How many bytes of the message are kept.
    pub message_bytes: usize,
}

impl Head {
    /// Whether somebody else sent the signal. `None`: that is not known.
    pub fn is_from_outside(&self) -> Option<bool> {
        match self.code {
            1.. => Some(false),
            // SI_USER, SI_QUEUE, SI_TKILL: those that tell who sent them.
            0 | -1 | -6 => Some(self.sender != self.process),
            _ => None,
        }
    }
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remains {
    /// What is known but for the two below.
    pub head: Head,
    /// The stack from `head.stack_at` on.
    pub stack: Vec<u8>,
    /// The text of `/proc/PID/maps`, from its beginning.
    pub maps: Vec<u8>,
    /// What the C library has said when it gave up: a failed assertion, a heap that is corrupt.
    pub message: Vec<u8>,
}

/// Where the stack goes: byte offset in the memory, and bytes.
pub fn stack_room(layout: &Layout) -> (usize, usize) {
    ((layout.remains + STACK) * 8, STACK_BYTES)
}

/// Where the memory map goes: byte offset in the memory, and bytes.
pub fn maps_room(layout: &Layout) -> (usize, usize) {
    ((layout.remains + MAPS) * 8, MAPS_BYTES)
}

/// Where the message goes: byte offset in the memory, and bytes.
pub fn message_room(layout: &Layout) -> (usize, usize) {
    ((layout.remains + MESSAGE) * 8, MESSAGE_BYTES)
}

/// Declares what lies in the area, if anything, not to be true any more.
pub fn clear<M: Memory>(memory: &M, layout: &Layout) {
    memory.store(layout.remains + CHECK, 0);
}

/// Writes the head, when stack, memory map and message are in their places; they are then true.
pub fn seal<M: Memory>(memory: &M, layout: &Layout, head: &Head) {
    let at = layout.remains;
    clear(memory, layout);
    memory.store_words(at + REGISTERS, head.registers);
    let (stack, maps) = (head.stack_bytes.min(STACK_BYTES), head.maps_bytes.min(MAPS_BYTES));
    memory.store_words(
        at + GENERATION,
        [
            pair(head.generation, head.machine as u32),
            pair(head.signal as u32, head.code as u32),
            head.address,
            pair(head.sender, head.process),
            pair(head.thread, head.opcode),
            head.unique,
            head.stack_at,
            pair(stack as u32, maps as u32),
        ],
    );
    let message = head.message_bytes.min(MESSAGE_BYTES);
    memory.store(at + MESSAGE_LENGTH, message as u64);
    let words = |from: usize, bytes: usize| {
        (0..bytes.div_ceil(8)).map(move |word| memory.load(at + from + word))
    };
    let body = words(STACK, stack).chain(words(MAPS, maps)).chain(words(MESSAGE, message));
    memory.store(at + BODY_CHECK, check(u64::from(head.generation), body));
    let whole = words(GENERATION, (STACK - GENERATION) * 8);
    memory.store(at + CHECK, check(u64::from(head.generation), whole));
}

/// What is known of the crash of `generation`, without its stack and memory map. One look at the
/// memory, as applications may be waiting.
pub fn read_head<M: Memory>(memory: &M, layout: &Layout, generation: u32) -> Option<Head> {
    look(memory, layout, generation).map(|(head, _)| head)
}

fn look<M: Memory>(memory: &M, layout: &Layout, generation: u32) -> Option<(Head, u64)> {
    let mut bytes = [0; STACK * 8];
    memory.load_bytes(layout.remains, &mut bytes);
    let mut words = [0; STACK];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    let [found, rest @ ..] = &words;
    if *found != check(u64::from(generation), rest.iter().copied()) {
        return None;
    }
    let [
        _,
        generation_machine,
        signal,
        address,
        process,
        thread,
        unique,
        stack_at,
        lengths,
        body,
        message,
        ..,
    ] = words;
    let machine = match generation_machine as u32 {
        1 => Machine::X86_64,
        2 => Machine::Aarch64,
        _ => return None,
    };
    let mut registers = [0; REGISTERS_MAX];
    registers.copy_from_slice(words.get(REGISTERS..)?);
    let head = Head {
        generation: high(generation_machine),
        machine,
        signal: high(signal) as i32,
        code: signal as u32 as i32,
        address,
        sender: high(process),
        process: process as u32,
        thread: high(thread),
        opcode: thread as u32,
        unique,
        registers,
        stack_at,
        stack_bytes: (high(lengths) as usize).min(STACK_BYTES),
        maps_bytes: (lengths as u32 as usize).min(MAPS_BYTES),
        message_bytes: usize::try_from(message).unwrap_or(MESSAGE_BYTES).min(MESSAGE_BYTES),
    };
    (head.generation == generation).then_some((head, body))
}

/// What the crash of `generation` has left, if that is whole. A stack or memory map that was
/// altered afterwards is left out.
pub fn read<M: Memory>(memory: &M, layout: &Layout, generation: u32) -> Option<Remains> {
    let (mut head, expected) = look(memory, layout, generation)?;
    let take = |from: usize, len: usize| {
        let mut bytes = vec![0; len.next_multiple_of(8)];
        memory.load_bytes(layout.remains + from, &mut bytes);
        bytes
    };
    let (mut stack, mut maps) = (take(STACK, head.stack_bytes), take(MAPS, head.maps_bytes));
    let mut message = take(MESSAGE, head.message_bytes);
    let words = |bytes: &[u8]| -> Vec<u64> {
        bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
    };
    let all = [words(&stack), words(&maps), words(&message)].into_iter().flatten();
    if check(u64::from(generation), all) != expected {
        (head.stack_bytes, head.maps_bytes, head.message_bytes) = (0, 0, 0);
    }
    stack.truncate(head.stack_bytes);
    maps.truncate(head.maps_bytes);
    message.truncate(head.message_bytes);
    Some(Remains { head, stack, maps, message })
}

/// A number for words, never 0. It has to see accidents, not attacks.
fn check(seed: u64, words: impl Iterator<Item = u64>) -> u64 {
    let fold = |state: u64, word: u64| {
        let wide = u128::from(state ^ word) * 0xd6e8_feb8_6659_fd93_u128 + 0xa076_1d64_78bd_642f;
        (wide as u64) ^ (wide >> 64) as u64
    };
    words.fold(seed ^ 0x5265_6d61_696e_7321, fold) | 1
}

fn pair(high: u32, low: u32) -> u64 {
    (u64::from(high) << 32) | u64::from(low)
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}
