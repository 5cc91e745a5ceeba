//! Which functions had called which.

use super::maps::{self, Mapped};
use super::module::{BUDGET, Left, Program};
use super::{Frame, hex, plain};
use belay_effects::remains::{Machine, Remains};
use framehop::aarch64::{CacheAarch64, PtrAuthMask, UnwindRegsAarch64, UnwinderAarch64};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{FrameAddress, Module, Unwinder};
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Functions that are shown.
pub(super) const FRAMES: usize = 64;
/// No code is below this address.
const NOWHERE: u64 = 1 << 16;
/// Program files that are looked at.
const PROGRAMS: usize = 32;

/// The functions on the stack of the thread that crashed, the innermost first. `None` if nothing
/// can be found out. `files` are those that may be read, with their paths; `tell` gets what is
/// known so far, each time more.
pub(super) fn backtrace(
    remains: &Remains,
    files: Vec<(String, File)>,
    tell: &mut dyn FnMut(&[&Frame]),
) -> Option<Vec<Frame>> {
    // Code of others' on files of others': whatever it makes of them, it ends here.
    catch_unwind(AssertUnwindSafe(|| walk(remains, files, tell))).ok().flatten()
}

fn walk(
    remains: &Remains,
    mut files: Vec<(String, File)>,
    tell: &mut dyn FnMut(&[&Frame]),
) -> Option<Vec<Frame>> {
    let map = maps::parse(&remains.maps);
    let left = Left::new(BUDGET.into());
    let mut seen: Vec<String> = Vec::new();
    let mut programs: Vec<Program> = Vec::new();
    // Only files are read that have a part in this: each walk finds out about one more.
    let addresses = loop {
        let found = addresses(remains, &programs);
        let new = |mapped: &&Mapped| !seen.contains(&mapped.path);
        let of = |address: &FrameAddress| {
            map.iter().find(|mapped| mapped.has(address.address_for_lookup())).filter(new)
        };
        match found.iter().find_map(of) {
            Some(mapped) if seen.len() < PROGRAMS => {
                seen.push(mapped.path.clone());
                if let Some(at) = files.iter().position(|(path, _)| *path == mapped.path) {
                    let (_, file) = files.swap_remove(at);
                    programs.extend(Program::new(file, mapped, &map, &left));
                }
            }
            _ => break found,
        }
    };
    let frame = |address: &FrameAddress| {
        let lookup = address.address_for_lookup();
        let module = map.iter().find(|mapped| mapped.has(lookup));
        let module = module.map(|mapped| plain(&mapped.path));
        (lookup, Frame { address: hex(address.address()), module, ..Frame::default() })
    };
    let mut frames: Vec<(u64, Frame)> = addresses.iter().map(frame).collect();
    let mut said = |frames: &[(u64, Frame)]| {
        tell(&frames.iter().map(|(_, frame)| frame).collect::<Vec<_>>());
    };
    said(&frames);
    programs.iter().for_each(|program| program.name(&mut frames));
    said(&frames);
    programs.iter().for_each(|program| program.locate(&mut frames));
    said(&frames);
    (!frames.is_empty()).then(|| frames.into_iter().map(|(_, frame)| frame).collect())
}

/// The addresses, with what these files tell.
fn addresses(remains: &Remains, programs: &[Program]) -> Vec<FrameAddress> {
    let head = &remains.head;
    let register = |index: usize| head.registers.get(index).copied().unwrap_or(0);
    let modules = || programs.iter().filter_map(Program::unwinding);
    let stack = |address: u64| {
        let at = address.checked_sub(head.stack_at).ok_or(())?;
        let at = usize::try_from(at).map_err(|_| ())?;
        let bytes = remains.stack.get(at..).and_then(|rest| rest.first_chunk::<8>()).ok_or(())?;
        Ok(u64::from_le_bytes(*bytes))
    };
    match head.machine {
        Machine::X86_64 => {
            let (rbp, mut rsp, mut rip) = (register(10), register(15), register(16));
            let mut called = None;
            // A call of nothing: the caller is where the call has put its address.
            if rip < NOWHERE
                && let Ok(caller) = stack(rsp)
            {
                called = Some(FrameAddress::from_instruction_pointer(rip));
                (rip, rsp) = (caller.wrapping_sub(1), rsp.wrapping_add(8));
            }
            let unwinder = UnwinderX86_64::new();
            let cache = CacheX86_64::<_>::new();
            let registers = UnwindRegsX86_64::new(rip, rsp, rbp);
            let callers = collect(unwinder, cache, modules(), rip, registers, stack);
            called.into_iter().chain(callers).collect()
        }
        Machine::Aarch64 => {
            let (fp, lr, sp, mut pc) = (register(29), register(30), register(31), register(32));
            let mut called = None;
            if pc < NOWHERE {
                called = Some(FrameAddress::from_instruction_pointer(pc));
                pc = lr.wrapping_sub(4);
            }
            // Pointers into programs have 48 bits at most.
            let mask = PtrAuthMask(0x0000_ffff_ffff_ffff);
            let registers = UnwindRegsAarch64::new_with_ptr_auth_mask(mask, lr, sp, fp);
            let (unwinder, cache) = (UnwinderAarch64::new(), CacheAarch64::<_>::new());
            let callers = collect(unwinder, cache, modules(), pc, registers, stack);
            called.into_iter().chain(callers).collect()
        }
    }
}

fn collect<U: Unwinder<Module = Module<Vec<u8>>>>(
    mut unwinder: U,
    mut cache: U::Cache,
    modules: impl Iterator<Item = U::Module>,
    pc: u64,
    registers: U::UnwindRegs,
    mut stack: impl FnMut(u64) -> Result<u64, ()>,
) -> Vec<FrameAddress> {
    modules.for_each(|module| unwinder.add_module(module));
    let mut walk = unwinder.iter_frames(pc, registers, &mut cache, &mut stack);
    let mut found = Vec::new();
    while let Ok(Some(address)) = walk.next() {
        found.push(address);
        if found.len() >= FRAMES {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autopsy::apart;
    use belay_effects::remains::{Head, REGISTERS_MAX};
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    /// A crash at `offset` of a file that was mapped as a whole at [`BASE`].
    fn remains(file: &Path, offset: u64, machine: Machine, stack: Vec<u8>) -> Remains {
        let meta = std::fs::metadata(file).expect("stat");
        let mut registers = [0; REGISTERS_MAX];
        for (register, value) in
            [(15, STACK), (16, BASE + offset), (10, STACK + 64), (31, STACK), (32, BASE + offset)]
        {
            registers[register] = value;
        }
        let maps = format!(
            "{BASE:x}-{:x} r-xp 00000000 08:01 {} {}\n",
            BASE + meta.len().next_multiple_of(4096),
            meta.ino(),
            file.display()
        );
        let head = Head {
            generation: 0,
            machine,
            signal: 11,
            code: 1,
            address: 0,
            sender: 0,
            process: 1,
            thread: 1,
            unique: 0,
            opcode: 0,
            registers,
            stack_at: STACK,
            stack_bytes: stack.len(),
            maps_bytes: maps.len(),
            message_bytes: 0,
        };
        Remains { head, stack, maps: maps.into_bytes(), message: Vec::new() }
    }

    fn backtrace(remains: &Remains) -> Option<Vec<Frame>> {
        let mut last = None;
        let tell = &mut |frames: &[&Frame]| last = Some(serde_json::to_vec(frames).expect("JSON"));
        let frames = super::backtrace(remains, apart::files(remains), tell);
        if frames.is_some() {
            assert_eq!(apart::read_answer(&last.expect("an answer")), frames);
        }
        frames
    }

    const BASE: u64 = 0x5555_0000_0000;
    const STACK: u64 = 0x7fff_0000_0000;

    /// A stack of addresses in that file.
    fn stack() -> Vec<u8> {
        (0..512).flat_map(|word: u64| (BASE + word * 97 % 0x8000).to_le_bytes()).collect()
    }

    fn program() -> Vec<u8> {
        std::fs::read("/bin/true").expect("a program")
    }

    #[test]
    fn a_file_that_is_gone_or_replaced_gives_addresses_only() {
        let dir = tempfile::tempdir().expect("tempdir");
        let file = dir.path().canonicalize().expect("path").join("program");
        std::fs::write(&file, program()).expect("write");
        let whole = remains(&file, 0x2000, Machine::X86_64, stack());
        let frames = backtrace(&whole).expect("frames");
        assert_eq!(frames[0].address, format!("{:#x}", BASE + 0x2000));
        assert!(frames[0].offset.is_some(), "{frames:?}");
        std::fs::remove_file(&file).expect("remove");
        let frames = backtrace(&whole).expect("frames");
        assert_eq!(frames[0].module.as_deref(), file.to_str());
        assert_eq!(frames[0].offset, None);
    }

    #[test]
    fn nothing_on_record_gives_nothing_and_a_call_of_nothing_its_caller() {
        let dir = tempfile::tempdir().expect("tempdir");
        let file = dir.path().canonicalize().expect("path").join("program");
        std::fs::write(&file, program()).expect("write");
        let mut none = remains(&file, 0, Machine::X86_64, Vec::new());
        none.head.registers = [0; REGISTERS_MAX];
        none.maps.clear();
        assert_eq!(backtrace(&none).map_or(0, |frames| frames.len()), 1);
        let mut called = remains(&file, 0, Machine::X86_64, stack());
        called.head.registers[16] = 0;
        called.stack[..8].copy_from_slice(&(BASE + 0x2345).to_le_bytes());
        let frames = backtrace(&called).expect("frames");
        assert_eq!((&*frames[0].address, frames[0].offset.as_deref()), ("0x0", None));
        assert!(frames[1].offset.is_some());
    }

    /// Whatever is in the files, the end is soon and in order.
    #[test]
    fn files_that_are_corrupt_do_no_harm() {
        let dir = tempfile::tempdir().expect("tempdir");
        let file = dir.path().canonicalize().expect("path").join("program");
        let good = program();
        let mut seed = 1_u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (seed >> 33) as usize % below
        };
        for round in 0..150 {
            let mut bad = good.clone();
            for _ in 0..1 + round % 40 {
                // The head of the file, and its tables at the end, are hit more often than the
                // rest.
                let at = match random(3) {
                    0 => random(1024.min(bad.len())),
                    1 => bad.len() - 1 - random(2048.min(bad.len() - 1)),
                    _ => random(bad.len()),
                };
                bad[at] = random(256) as u8;
            }
            bad.truncate(if round % 10 == 0 { random(bad.len()).max(1) } else { bad.len() });
            std::fs::write(&file, &bad).expect("write");
            let machine = if round % 2 == 0 { Machine::X86_64 } else { Machine::Aarch64 };
            let found = backtrace(&remains(&file, random(0x8000) as u64, machine, stack()));
            assert!(found.is_none_or(|frames| frames.len() <= FRAMES + 1));
        }
    }
}
