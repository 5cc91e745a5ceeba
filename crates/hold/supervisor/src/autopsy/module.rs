//! What a program file says: unwind tables, names of functions, lines of sources.

use super::maps::Mapped;
use super::{Frame, demangle, hex, plain};
use addr2line::gimli::{self, EndianSlice, RunTimeEndian, SectionId};
use framehop::{ExplicitModuleSectionInfo, Module};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, ReadCache};
use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::rc::Rc;

/// A section that is longer is not looked at.
const SECTION: u64 = 64 << 20;
/// How much of all files of one backtrace is read in all.
pub(super) const BUDGET: u64 = 512 << 20;
const SYMBOLS: usize = 4 << 20;

/// The bytes of a section.
type Bytes = Vec<u8>;

/// What is left of the budget of one backtrace.
pub(super) type Left = Rc<Cell<u64>>;

/// A file of which no more than so much is read.
struct Limited {
    file: File,
    left: Left,
}

impl Read for Limited {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read(out)?;
        let left = self.left.get().checked_sub(got as u64);
        self.left.set(left.ok_or_else(|| io::Error::other("too much to read"))?);
        Ok(got)
    }
}

impl Seek for Limited {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// A program file of the dead process.
pub(super) struct Program {
    cache: ReadCache<Limited>,
    path: String,
    /// What is to be added to an address as the file counts.
    bias: u64,
    /// Where its parts lay.
    range: Range<u64>,
}

type Elf<'d> = ElfFile64<'d, Endianness, &'d ReadCache<Limited>>;

impl Program {
    /// The file that `mapped` is a part of, whose parts are all in `map`.
    pub(super) fn new(file: File, mapped: &Mapped, map: &[Mapped], left: &Left) -> Option<Self> {
        let cache = ReadCache::new(Limited { file, left: Rc::clone(left) });
        let bias = bias(&elf(&cache)?, mapped)?;
        let parts = || map.iter().filter(|part| part.path == mapped.path);
        let start = parts().map(|part| part.start).min()?;
        let end = parts().map(|part| part.end).max()?;
        Some(Self { cache, path: mapped.path.clone(), bias, range: start..end })
    }

    /// Whether an address was in it.
    pub(super) fn has(&self, address: u64) -> bool {
        self.range.contains(&address)
    }

    /// What is needed for unwinding.
    pub(super) fn unwinding(&self) -> Option<Module<Bytes>> {
        let elf = elf(&self.cache)?;
        let range = |name: &str| {
            let section = elf.section_by_name(name)?;
            Some(section.address()..section.address().checked_add(section.size())?)
        };
        let bytes = |name: &str| bytes(&elf, name);
        let sections = ExplicitModuleSectionInfo {
            text_svma: range(".text"),
            text: bytes(".text"),
            got_svma: range(".got"),
            eh_frame_svma: range(".eh_frame"),
            eh_frame: bytes(".eh_frame"),
            eh_frame_hdr_svma: range(".eh_frame_hdr"),
            eh_frame_hdr: bytes(".eh_frame_hdr"),
            debug_frame: bytes(".debug_frame"),
            ..ExplicitModuleSectionInfo::default()
        };
        Some(Module::new(self.path.clone(), self.range.clone(), self.bias, sections))
    }

    /// Names the frames that are in this file. `lookups` are the addresses to look up: of a return
    /// address, one in the call before it.
    pub(super) fn name(&self, frames: &mut [(u64, Frame)]) {
        let Some(elf) = elf(&self.cache) else { return };
        let mut names: Vec<Option<(u64, String)>> = vec![None; frames.len()];
        let lookups: Vec<Option<u64>> = frames
            .iter()
            .map(|(lookup, _)| self.has(*lookup).then(|| lookup.wrapping_sub(self.bias)))
            .collect();
        for tables in [true, false] {
            if small(&elf, if tables { ".symtab" } else { ".dynsym" }) {
                let wanted = lookups.iter().zip(&mut names);
                find_names(&elf, tables, wanted);
            }
        }
        for (((_, frame), lookup), name) in frames.iter_mut().zip(&lookups).zip(names) {
            let Some(lookup) = lookup else { continue };
            frame.module = Some(plain(&self.path));
            frame.offset = Some(hex(*lookup));
            frame.function = name.map(|(_, name)| plain(&demangle::readable(&name)));
        }
    }

    /// Says where in its sources the frames are that are in this file.
    pub(super) fn locate(&self, frames: &mut [(u64, Frame)]) {
        let Some(elf) = elf(&self.cache) else { return };
        let lines = Lines::new(&elf);
        let Some(lines) = lines.as_ref().and_then(Lines::context) else { return };
        for (lookup, frame) in frames.iter_mut().filter(|(lookup, _)| self.has(*lookup)) {
            let found = lines.find_location(lookup.wrapping_sub(self.bias)).ok().flatten();
            if let Some(location) = found {
                frame.file = location.file.map(plain);
                frame.line = location.line;
            }
        }
    }
}

fn elf(cache: &ReadCache<Limited>) -> Option<Elf<'_>> {
    Elf::parse(cache).ok()
}

/// What lies between the addresses of a file and those in the process.
fn bias(elf: &Elf<'_>, mapped: &Mapped) -> Option<u64> {
    let endian = elf.endian();
    let of = |header: &object::elf::ProgramHeader64<Endianness>| {
        let (offset, length) = (header.p_offset(endian), header.p_filesz(endian));
        // Mappings begin at whole pages, segments need not.
        let first = offset & !0xfff;
        let load = header.p_type(endian) == object::elf::PT_LOAD;
        let inside = (first..offset.checked_add(length)?).contains(&mapped.offset);
        (load && inside).then(|| {
            let address = header.p_vaddr(endian).wrapping_sub(offset).wrapping_add(mapped.offset);
            mapped.start.wrapping_sub(address)
        })
    };
    elf.elf_program_headers().iter().find_map(of)
}

fn small(elf: &Elf<'_>, name: &str) -> bool {
    elf.section_by_name(name).is_some_and(|section| section.size() <= SECTION)
}

/// The bytes of a section that is neither too long nor compressed.
fn bytes(elf: &Elf<'_>, name: &str) -> Option<Bytes> {
    let section = elf.section_by_name(name)?;
    let plain = section.size() <= SECTION
        && section
            .compressed_file_range()
            .is_ok_and(|range| range.format == object::CompressionFormat::None);
    plain.then(|| section.data().ok().map(<[u8]>::to_vec))?
}

/// Finds the functions that addresses are in.
fn find_names<'a>(
    elf: &Elf<'_>,
    full: bool,
    wanted: impl Iterator<Item = (&'a Option<u64>, &'a mut Option<(u64, String)>)>,
) {
    let mut wanted: Vec<(u64, &mut Option<(u64, String)>)> = wanted
        .filter(|(_, name)| name.is_none())
        .filter_map(|(address, name)| Some(((*address)?, name)))
        .collect();
    let symbols = if full { elf.symbols() } else { elf.dynamic_symbols() };
    for symbol in symbols.take(SYMBOLS) {
        if !symbol.is_definition() || symbol.kind() != object::SymbolKind::Text {
            continue;
        }
        let (start, size) = (symbol.address(), symbol.size());
        for (address, name) in &mut wanted {
            let inside = address.checked_sub(start).is_some_and(|into| into < size);
            let nearer = name.as_ref().is_none_or(|(found, _)| start > *found);
            if inside
                && nearer
                && let Ok(text) = symbol.name()
            {
                **name = Some((start, text.to_owned()));
            }
        }
    }
}

/// The debug information of a file, as far as it has some.
struct Lines {
    sections: HashMap<SectionId, Bytes>,
    endian: RunTimeEndian,
}

type Context<'l> = addr2line::Context<EndianSlice<'l, RunTimeEndian>>;

impl Lines {
    fn new(elf: &Elf<'_>) -> Option<Self> {
        const WANTED: [SectionId; 9] = [
            SectionId::DebugAbbrev,
            SectionId::DebugAddr,
            SectionId::DebugAranges,
            SectionId::DebugInfo,
            SectionId::DebugLine,
            SectionId::DebugLineStr,
            SectionId::DebugRngLists,
            SectionId::DebugRanges,
            SectionId::DebugStr,
        ];
        elf.section_by_name(".debug_line")?;
        let load = |id: SectionId| Some((id, bytes(elf, id.name())?));
        let endian = match elf.endian() {
            Endianness::Little => RunTimeEndian::Little,
            Endianness::Big => RunTimeEndian::Big,
        };
        Some(Self { sections: WANTED.into_iter().filter_map(load).collect(), endian })
    }

    /// Lines only, no functions: those come from the symbols.
    fn context(&self) -> Option<Context<'_>> {
        let load = |id: SectionId| {
            let bytes = self.sections.get(&id).map_or(&[][..], Vec::as_slice);
            Ok::<_, gimli::Error>(EndianSlice::new(bytes, self.endian))
        };
        addr2line::Context::from_dwarf(gimli::Dwarf::load(load).ok()?).ok()
    }
}
