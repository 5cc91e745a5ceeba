//! Faults in the code of a running process, put in where its instructions begin or anywhere
//! (namespace transactions, V-B: "swifi").
//!
//! Only this process's own copy of the code is changed: the file is not, so a successor has clean
//! code.

use anyhow::{Context, Result, ensure};
use iced_x86::{Decoder, DecoderOptions, Instruction};
use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The instruction that traps, of one byte.
const TRAP: u8 = 0xcc;

/// Where the functions of a program are that somebody is interested in, and their instructions; the
/// same for each process that runs it.
#[derive(Clone, Debug)]
pub struct Code {
    /// Where instructions begin, from the beginning of the program.
    instructions: Vec<u64>,
    /// Where the bytes of the functions are.
    bytes: Vec<(u64, u64)>,
    functions: usize,
}

impl Code {
    /// The code of those functions of a program in whose symbols one of these words is.
    ///
    /// # Errors
    /// When the program is none that can be read, has no such functions, or is of another machine
    /// than x86-64.
    pub fn of(program: &Path, words: &[&str]) -> Result<Self> {
        let told = || format!("reading {}", program.display());
        let bytes = std::fs::read(program).with_context(told)?;
        let file = object::File::parse(&*bytes).with_context(told)?;
        ensure!(
            file.architecture() == object::Architecture::X86_64,
            "{} is not for x86-64: its instructions are not known",
            program.display()
        );
        let mut ranges = Vec::new();
        for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text) {
            let name = symbol.name().unwrap_or_default();
            if symbol.size() > 0 && words.iter().any(|word| name.contains(word)) {
                ranges.push((symbol.address(), symbol.address() + symbol.size()));
            }
        }
        // Functions with the same code are one, with several names.
        ranges.sort_unstable();
        ranges.dedup_by_key(|(start, _)| *start);
        let mut instructions = Vec::new();
        for section in file.sections().filter(|section| section.kind() == SectionKind::Text) {
            let data = section.data().with_context(told)?;
            let base = section.address();
            let inside = base..base + data.len() as u64;
            for (start, end) in ranges.iter().filter(|(start, _)| inside.contains(start)) {
                let code = data.get((start - base) as usize..(end - base) as usize);
                let code = code
                    .with_context(|| format!("a function of {} is cut off", program.display()))?;
                let mut decoder = Decoder::with_ip(64, code, *start, DecoderOptions::NONE);
                let mut instruction = Instruction::default();
                while decoder.can_decode() {
                    decoder.decode_out(&mut instruction);
                    if !instruction.is_invalid() {
                        instructions.push(instruction.ip());
                    }
                }
            }
        }
        ensure!(!instructions.is_empty(), "{} has none of the functions", program.display());
        Ok(Self { instructions, functions: ranges.len(), bytes: ranges })
    }

    /// How many functions there are.
    pub fn functions(&self) -> usize {
        self.functions
    }

    /// How many instructions they have.
    pub fn instructions(&self) -> usize {
        self.instructions.len()
    }

    /// How many bytes of code they have.
    pub fn size(&self) -> u64 {
        self.bytes.iter().map(|(start, end)| end - start).sum()
    }

    fn place(&self, mut number: u64) -> Option<u64> {
        for (start, end) in &self.bytes {
            let length = end - start;
            if number < length {
                return Some(start + number);
            }
            number -= length;
        }
        None
    }
}

/// The code of a process that runs.
#[derive(Debug)]
pub struct Patient<'a> {
    code: &'a Code,
    memory: File,
    base: u64,
}

impl<'a> Patient<'a> {
    /// Opens a process, which runs this program.
    ///
    /// # Errors
    /// When it has ended, or may not be written to.
    pub fn open(process: u32, code: &'a Code) -> Result<Self> {
        let path = format!("/proc/{process}/maps");
        let maps = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let exe = std::fs::read_link(format!("/proc/{process}/exe"));
        let exe = exe.with_context(|| format!("looking for the program of process {process}"))?;
        let exe = exe.to_string_lossy().into_owned();
        let line = maps.lines().find(|line| line.ends_with(&exe));
        let base = line.and_then(|line| u64::from_str_radix(line.split('-').next()?, 16).ok());
        let base = base.with_context(|| format!("{path} does not name {exe}"))?;
        let path = format!("/proc/{process}/mem");
        let memory = File::options().write(true).open(&path);
        Ok(Self { code, base, memory: memory.with_context(|| format!("opening {path}"))? })
    }

    /// Has the instruction with this number trap. False if the process has ended.
    pub fn trap(&self, instruction: usize) -> bool {
        let at = self.code.instructions.get(instruction);
        at.is_some_and(|at| self.put(*at, &[TRAP]))
    }

    /// Overwrites bytes of the code, from the one with this number on. False if the process has
    /// ended.
    pub fn overwrite(&self, byte: u64, with: &[u8]) -> bool {
        self.code.place(byte).is_some_and(|at| self.put(at, with))
    }

    fn put(&self, at: u64, bytes: &[u8]) -> bool {
        self.memory.write_all_at(bytes, self.base.wrapping_add(at)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    /// A child of this very program reads a line before it calls a function that was made to trap.
    #[test]
    fn a_trapping_instruction_ends_who_runs_into_it() {
        if !cfg!(target_arch = "x86_64") {
            return;
        }
        if std::env::var_os("BELAY_PATIENT").is_some() {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).unwrap();
            std::process::exit(i32::from(poisoned_function(line.len()) == 0));
        }
        let program = std::env::current_exe().unwrap();
        let code = Code::of(&program, &["poisoned_function"]).unwrap();
        assert!(code.functions() > 0 && code.size() >= code.instructions() as u64);
        assert!(Code::of(&program, &["no_such_function"]).is_err());
        for trapped in [false, true] {
            let mut command = Command::new(&program);
            command.args([
                "--exact",
                "study::volumes::code::tests::a_trapping_instruction_ends_who_runs_into_it",
            ]);
            command.env("BELAY_PATIENT", "1").stdin(Stdio::piped()).stdout(Stdio::null());
            let mut child = command.spawn().unwrap();
            let patient = loop {
                // Before its exec it is still this process's copy, of the same program at the same
                // place.
                match Patient::open(child.id(), &code) {
                    Ok(patient) => break patient,
                    Err(why) => assert!(child.try_wait().unwrap().is_none(), "{why:#}"),
                }
            };
            for instruction in 0..if trapped { code.instructions() } else { 0 } {
                assert!(patient.trap(instruction));
            }
            std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"go\n").unwrap();
            let status = child.wait().unwrap();
            let expected = if trapped { Some(signal_hook::consts::SIGTRAP) } else { None };
            assert_eq!(status.signal(), expected, "{status}");
        }
    }

    #[inline(never)]
    fn poisoned_function(x: usize) -> usize {
        std::hint::black_box(x) * 3 + 1
    }
}
