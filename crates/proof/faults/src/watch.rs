//! Follows one request through the system calls of a daemon's threads.
//!
//! The thread that takes the message from the device serves the request, or any other that waits
//! for work there and is the first to have an effect: its effects count. When the one that took it
//! asks for more before it has answered, that may be any thread of the process. The reply is known
//! by its number, whichever thread writes it, so daemons that answer from another thread are
//! followed too.
//!
//! The calls may be system calls or those of a library's functions: both have an entry, an exit and
//! the same arguments.

use std::collections::HashMap;

use belay_wire::{InHeader, Opcode, OutHeader, Unique};
use nix::unistd::Pid;
use zerocopy::FromBytes;

use crate::calls::{access, commits, effect, is_device};
use crate::memory;
use crate::plan::{Effect, Plan, Point, Report, Request, Scope};
use crate::registers::{self, Call};

const IN_HEADER: usize = size_of::<InHeader>();
const OUT_HEADER: usize = size_of::<OutHeader>();
/// The bits of `unique` that tell requests apart; the uppermost is the kernel's mark of one that it
/// sends again.
const NUMBER: u64 = (1 << 63) - 1;

/// What a call at whose exit a thread will stop is to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It may bring a message, to these buffers.
    Message,
    /// It may move a message into a pipe.
    ToPipe,
    /// It makes the effect with this number.
    Effect(u32),
    /// It writes the reply.
    Reply,
}

/// What is known of a thread.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    /// The call that it is in, if it matters.
    inside: Option<(Role, Call)>,
    /// It has moved a message into a pipe, which it will read next.
    piped: bool,
    /// It has asked the device for work, and has taken nothing since that is to be answered.
    free: bool,
}

/// The request while it is served.
#[derive(Clone, Copy, Debug)]
struct Active {
    serving: Pid,
    unique: u64,
    /// A thread is in the write of the reply.
    replying: bool,
    /// That thread asks for more: if it has done nothing yet, it has left the request to whichever
    /// thread works next. (The library that is loaded into held daemons takes all messages that are
    /// there, and each thread is then given one. A thread that is free may be given one before the
    /// thread that took it has asked for more.)
    left: bool,
}

/// Follows one request.
#[derive(Debug)]
pub(crate) struct Watch {
    process: Pid,
    plan: Plan,
    threads: HashMap<Pid, Thread>,
    passed: u32,
    active: Option<Active>,
    pub(crate) report: Report,
}

impl Watch {
    pub(crate) fn new(process: Pid, plan: Plan) -> Self {
        Self {
            process,
            plan,
            threads: HashMap::new(),
            passed: 0,
            active: None,
            report: Report::default(),
        }
    }

    /// Whether the reply is just being written: its end is near, and worth waiting for.
    pub(crate) fn replying(&self) -> bool {
        self.active.is_some_and(|active| active.replying)
    }

    /// A thread is about to make a system call. True if it is to crash here.
    pub(crate) fn enters(&mut self, thread: Pid) -> nix::Result<bool> {
        Ok(self.calls(thread, registers::call(thread)?))
    }

    /// Whether the thread is in a call that matters.
    pub(crate) fn is_inside(&self, thread: Pid) -> bool {
        self.threads.get(&thread).is_some_and(|thread| thread.inside.is_some())
    }

    /// A thread makes a call. True if it is to crash here.
    pub(crate) fn calls(&mut self, thread: Pid, call: Call) -> bool {
        let role = self.role(thread, &call);
        let inside = &mut self.threads.entry(thread).or_default().inside;
        let before = std::mem::replace(inside, role.map(|role| (role, call)));
        if before.is_some_and(|(role, _)| role == Role::Reply) {
            // It has written the reply, unseen: nobody is to wait for that.
            self.answered(true);
        }
        match role {
            Some(Role::Effect(k)) => self.is_at(Point::BeforeEffect(k)),
            Some(Role::Reply) => {
                if let Some(active) = &mut self.active {
                    active.replying = true;
                }
                self.is_at(Point::BeforeReply)
            }
            _ => false,
        }
    }

    /// A thread has made a system call. True if it is to crash here.
    pub(crate) fn leaves(&mut self, thread: Pid) -> nix::Result<bool> {
        self.returns(thread)
    }

    /// A call has returned. True if the thread is to crash here.
    pub(crate) fn returns(&mut self, thread: Pid) -> nix::Result<bool> {
        let Some((role, call)) = self.threads.entry(thread).or_default().inside.take() else {
            return Ok(false);
        };
        let result = registers::result(thread)?;
        Ok(match role {
            Role::ToPipe => {
                self.threads.entry(thread).or_default().piped = result > 0;
                false
            }
            Role::Message => {
                self.threads.entry(thread).or_default().piped = false;
                self.took(thread, &call, result) && self.is_at(Point::Received)
            }
            Role::Effect(k) => {
                let index = usize::try_from(k).unwrap_or(0).wrapping_sub(1);
                let effects = self.report.request.as_mut().map(|request| &mut request.effects);
                if let Some(effect) = effects.and_then(|list| list.get_mut(index)) {
                    effect.result = Some(result);
                }
                self.is_at(Point::AfterEffect(k))
            }
            Role::Reply => {
                self.answered(result >= 0);
                self.is_at(Point::AfterReply)
            }
        })
    }

    /// The reply was written, or refused.
    fn answered(&mut self, taken: bool) {
        if let Some(request) = &mut self.report.request {
            request.replied = taken;
        }
        self.active = None;
    }

    pub(crate) fn ended(&mut self, thread: Pid) {
        self.threads.remove(&thread);
    }

    fn is_at(&self, point: Point) -> bool {
        !self.report.crashed && self.plan.fault.is_some_and(|fault| fault.point == point)
    }

    /// What a call that a thread enters is to the request, if anything.
    fn role(&mut self, thread: Pid, call: &Call) -> Option<Role> {
        if let Scope::Files(files) = &self.plan.target.scope {
            let name = commits(self.process, thread, call, files);
            let over = name.is_none() && is_write(call) && is_device(self.process, call.args[0]);
            return self.step(thread, name, over);
        }
        match call.number {
            libc::SYS_read | libc::SYS_readv => {
                let piped = self.threads.get(&thread).is_some_and(|t| t.piped);
                if piped || is_device(self.process, call.args[0]) {
                    if let Some(active) = self.active.as_mut().filter(|one| one.serving == thread) {
                        active.left = true;
                    }
                    self.threads.entry(thread).or_default().free = true;
                    return Some(Role::Message);
                }
            }
            libc::SYS_splice if is_device(self.process, call.args[0]) => return Some(Role::ToPipe),
            _ => {}
        }
        let active = self.active?;
        let begun = self.report.request.as_ref().is_some_and(|one| !one.effects.is_empty());
        let free = self.threads.get(&thread).is_some_and(|one| one.free);
        let ours = thread == active.serving || !begun && (active.left || free);
        match call.number {
            // Through a pipe the reply's number is out of sight: then it must be the thread's own.
            libc::SYS_splice if ours && is_device(self.process, call.args[2]) => {
                return Some(Role::Reply);
            }
            _ if is_write(call) && is_device(self.process, call.args[0]) => {
                let answered = replied_to(thread, call)?;
                return (answered & NUMBER == active.unique & NUMBER).then_some(Role::Reply);
            }
            _ => {}
        }
        if !ours {
            return None;
        }
        let found = effect(self.process, thread, call);
        let name = match self.plan.target.scope {
            Scope::Library { .. } => found.or_else(|| access(self.process, call)),
            Scope::Calls | Scope::Files(_) => found,
        }?;
        if let Some(active) = self.active.as_mut() {
            (active.serving, active.left) = (thread, false);
        }
        self.effect(name)
    }

    /// A further effect.
    fn effect(&mut self, name: &'static str) -> Option<Role> {
        let request = self.report.request.as_mut()?;
        request.effects.push(Effect { call: name.into(), result: None });
        u32::try_from(request.effects.len()).ok().map(Role::Effect)
    }

    /// What a call is to the work on some files: a step of it, its end, or nothing.
    fn step(&mut self, thread: Pid, name: Option<&'static str>, over: bool) -> Option<Role> {
        // Whichever thread tells the daemon: that write may block, so it is another's than the one
        // that works on the files.
        if over && self.active.is_some() {
            return Some(Role::Reply);
        }
        let name = name?;
        if self.report.request.is_none() {
            // Until the end, the tracer waits for it.
            self.active = Some(Active { serving: thread, unique: 0, replying: true, left: false });
            self.report.request = Some(Request {
                opcode: "commit".to_owned(),
                unique: 0,
                node: 0,
                effects: Vec::new(),
                replied: false,
            });
        }
        self.active?;
        self.effect(name)
    }

    /// A thread has taken a message, perhaps. True if it is the request that is meant.
    fn took(&mut self, thread: Pid, call: &Call, result: i64) -> bool {
        let Some(len) = usize::try_from(result).ok().filter(|len| *len >= IN_HEADER) else {
            return false;
        };
        let message = if call.number == libc::SYS_readv {
            memory::gathered(thread, call.args[1], call.args[2], len)
        } else {
            memory::bytes(thread, call.args[1], len)
        };
        let Ok((header, body)) = InHeader::read_from_prefix(&message) else { return false };
        let opcode = Opcode(header.opcode);
        self.report.opcodes.push(opcode.to_string());
        if opcode.expects_reply() {
            self.threads.entry(thread).or_default().free = false;
        }
        // Whoever takes the next message has given up the one before, or left it to others.
        if let Some(active) = self.active.as_mut().filter(|active| active.serving == thread) {
            active.serving = Pid::from_raw(0);
        }
        let target = &self.plan.target;
        let injected = matches!(target.scope, Scope::Library { injected: true, .. });
        let contains = |needle: &[u8]| body.windows(needle.len().max(1)).any(|w| w == needle);
        if self.report.request.is_some()
            || !target.opcodes.contains(&opcode)
            || injected != Unique::new(header.unique).is_own()
            || !target.contains.as_deref().is_none_or(contains)
        {
            return false;
        }
        self.passed += 1;
        if self.passed <= target.skip {
            return false;
        }
        self.active =
            Some(Active { serving: thread, unique: header.unique, replying: false, left: false });
        self.report.request = Some(Request {
            opcode: opcode.to_string(),
            unique: header.unique,
            node: header.nodeid,
            effects: Vec::new(),
            replied: false,
        });
        true
    }
}

fn is_write(call: &Call) -> bool {
    matches!(call.number, libc::SYS_write | libc::SYS_writev)
}

/// The number of the request that a write to the device answers; 0 for notifications.
fn replied_to(thread: Pid, call: &Call) -> Option<u64> {
    let head = if call.number == libc::SYS_writev {
        memory::gathered(thread, call.args[1], call.args[2], OUT_HEADER)
    } else {
        memory::bytes(thread, call.args[1], OUT_HEADER)
    };
    OutHeader::read_from_bytes(&head).ok().map(|header| header.unique)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Target;

    #[test]
    fn a_reply_whose_return_was_missed_is_not_waited_for() {
        let this = Pid::this();
        let scope = Scope::Library { name: "x".to_owned(), injected: false };
        let target = Target { opcodes: vec![Opcode::LINK], scope, ..Target::default() };
        let mut watch = Watch::new(this, Plan { target, fault: None });
        let call = Call { number: libc::SYS_writev, args: [0; 6] };
        let replying = Thread { inside: Some((Role::Reply, call)), ..Thread::default() };
        watch.threads.insert(this, replying);
        watch.active = Some(Active { serving: this, unique: 2, replying: true, left: false });
        assert!(watch.replying());
        // The same thread is back for more.
        assert!(!watch.calls(this, Call { number: libc::SYS_readv, args: [u64::MAX; 6] }));
        assert!(!watch.replying());
    }

    /// The number of effects that count when a thread that did not take the request has one.
    fn effects_of_another(thread: Thread, begun: bool, left: bool) -> usize {
        let this = Pid::this();
        let target = Target { opcodes: vec![Opcode::MKDIR], ..Target::default() };
        let mut watch = Watch::new(this, Plan { target, fault: None });
        watch.threads.insert(this, thread);
        let taker = Pid::from_raw(1);
        watch.active = Some(Active { serving: taker, unique: 2, replying: false, left });
        let done = Effect { call: "mknodat".into(), result: Some(0) };
        watch.report.request = Some(Request {
            opcode: "MKDIR".to_owned(),
            unique: 2,
            node: 1,
            effects: if begun { vec![done] } else { Vec::new() },
            replied: false,
        });
        watch.calls(this, Call { number: libc::SYS_mkdirat, args: [0; 6] });
        watch.report.request.map_or(0, |request| request.effects.len())
    }

    #[test]
    fn who_has_nothing_in_hand_may_be_given_what_another_took() {
        let free = Thread { free: true, ..Thread::default() };
        let busy = Thread::default();
        assert_eq!(effects_of_another(free, false, false), 1);
        assert_eq!(effects_of_another(busy, false, false), 0);
        assert_eq!(effects_of_another(busy, false, true), 1);
        // It is another's already.
        assert_eq!(effects_of_another(free, true, true), 1);
    }
}
