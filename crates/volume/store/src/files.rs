//! What can be done with a file: the operations of Loris (II), on physical files.

use crate::blocks;
use crate::error::{Error, Result};
use crate::file_id::FileId;
use crate::inodes::{At, Class};
use crate::layout::{ATTRIBUTES, Inode, InodeFlags, Kind};
use crate::pointer::{Checksum, Pointer};
use crate::store::Store;
use crate::tree::Tree;
use belay_disk::{BLOCK, Block, Disk, ZEROS};
use zerocopy::FromZeros;

/// What is known of a file besides its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its length in bytes. What is behind the data that were written reads as zeros.
    pub size: u64,
    /// What the layer above calls it.
    pub owner: u64,
    /// How its data are kept.
    pub class: Class,
    /// Blocks that it takes on the disk.
    pub blocks: u64,
    /// What the layers above keep with it: at most 184 bytes.
    pub attributes: Vec<u8>,
}

const SIZE: u64 = BLOCK as u64;

impl<D: Disk> Store<D> {
    /// Makes an empty file, which the layer above calls `owner`.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; those of the disk.
    pub fn create(&mut self, owner: u64, class: Class, attributes: &[u8]) -> Result<FileId> {
        check_attributes(attributes)?;
        self.whole(|this| {
            let (file, at) = this.new_inode()?;
            let mut flags = InodeFlags::USED;
            flags.set(InodeFlags::PROTECTED, class == Class::Protected);
            let mut inode = Inode::new_zeroed();
            inode.flags = flags.bits().into();
            inode.generation = file.generation().into();
            inode.owner = owner.into();
            put_attributes(&mut inode, attributes);
            *this.inode_mut(at)? = inode;
            Ok(file)
        })
    }

    /// Removes a file. One whose inode cannot be read is given up.
    ///
    /// # Errors
    /// [`Error::NoFile`]; those of the disk.
    pub fn delete(&mut self, file: FileId) -> Result<()> {
        self.whole(|this| {
            let (at, inode) = match this.inode(file) {
                Err(why) if why.is_unreadable() => return this.give_up(),
                found => found?,
            };
            let tree = tree_of(at, &inode);
            this.cut(tree, 0, u64::MAX, &mut 0)?;
            this.free_inode(file, at)
        })
    }

    /// What is known of a file.
    ///
    /// # Errors
    /// [`Error::NoFile`]; those of the disk.
    pub fn attributes(&mut self, file: FileId) -> Result<Attributes> {
        let (_, inode) = self.inode(file)?;
        let length = inode.attributes_length.get() as usize;
        Ok(Attributes {
            size: inode.size.get(),
            owner: inode.owner.get(),
            class: class_of(&inode),
            blocks: inode.blocks.get(),
            attributes: inode.attributes.get(..length).unwrap_or_default().to_vec(),
        })
    }

    /// Replaces what the layers above keep with a file.
    ///
    /// # Errors
    /// [`Error::NoFile`]; [`Error::TooLarge`]; those of the disk.
    pub fn set_attributes(&mut self, file: FileId, attributes: &[u8]) -> Result<()> {
        check_attributes(attributes)?;
        self.whole(|this| {
            let (at, _) = this.inode(file)?;
            put_attributes(this.inode_mut(at)?, attributes);
            Ok(())
        })
    }

    /// Reads whole blocks of a file, from its block `first` on. Holes and what is behind its end
    /// are zeros.
    ///
    /// # Errors
    /// [`Error::NoFile`]; [`Error::Corrupt`] if a block is not what was written; those of the disk.
    pub fn read(&mut self, file: FileId, first: u64, out: &mut [u8]) -> Result<()> {
        check_range(first, out)?;
        let (at, inode) = self.inode(file)?;
        let tree = tree_of(at, &inode);
        out.fill(0);
        let (blocks, _) = out.as_chunks_mut::<BLOCK>();
        for (number, block) in (first..).zip(blocks) {
            self.read_block(tree, number, block)?;
        }
        self.make_room()
    }

    /// Reads one block; what it holds already stays if there is none.
    fn read_block(&mut self, tree: Tree, number: u64, out: &mut Block) -> Result<()> {
        let Some((key, slot)) = self.place_of(tree, number)? else { return Ok(()) };
        let pointer = self.nodes.pointer(key, slot)?;
        if pointer.is_null() {
            return Ok(());
        }
        if pointer.is_lost() {
            return Err(Error::Lost { what: "data", block: pointer.block() });
        }
        if tree.leaves == Kind::Data {
            if let Some(child) = self.nodes.child(&self.disk, key, slot, Kind::Data)? {
                out.copy_from_slice(self.nodes.bytes(child)?);
            }
            return Ok(());
        }
        let block = pointer.block();
        if let Some(content) = self.resync.pending(block) {
            out.copy_from_slice(content);
            return Ok(());
        }
        let content = blocks::read(&self.disk, block)?;
        if Checksum::of(self.seed, &content) != pointer.checksum() {
            self.resolved()?;
            return Err(Error::Corrupt { what: "data", block });
        }
        *out = content;
        Ok(())
    }

    /// Writes whole blocks of a file, from its block `first` on. Its length stays
    /// ([`Store::set_size`]).
    ///
    /// # Errors
    /// [`Error::NoFile`]; [`Error::NoSpace`], with what has room written; those of the disk.
    pub fn write(&mut self, file: FileId, first: u64, data: &[u8]) -> Result<()> {
        check_range(first, data)?;
        self.whole(|this| {
            let (at, inode) = this.inode(file)?;
            let (mut tree, given_up) = (tree_of(at, &inode), this.root()?.given_up);
            let mut count = 0;
            let done = match tree.leaves {
                Kind::Data => this.write_twins(&mut tree, first, data, &mut count),
                _ => this.write_singles(file, &mut tree, first, data, &mut count),
            };
            let inode = this.inode_mut(at)?;
            inode.blocks = inode.blocks.get().saturating_add(count).into();
            // Where there was no room for the first block, there is no tree.
            inode.depth = if inode.tree.is_null() { 0 } else { tree.depth }.into();
            this.count_anew(at, given_up)?;
            done
        })?;
        self.make_room()
    }

    fn write_twins(
        &mut self,
        tree: &mut Tree,
        first: u64,
        data: &[u8],
        count: &mut u64,
    ) -> Result<()> {
        let (blocks, _) = data.as_chunks::<BLOCK>();
        for (number, block) in (first..).zip(blocks) {
            let (key, slot) = self.make_place(tree, number, count)?;
            let child = match self.nodes.child(&self.disk, key, slot, Kind::Data) {
                Ok(None) | Err(Error::Lost { .. }) => {
                    let left = self.take_twins()?;
                    *count += 1;
                    self.nodes.make(key, slot, Kind::Data, left)?
                }
                // Nothing of what it was stays.
                Err(why) if why.is_unreadable() => self.nodes.renew(key, slot, Kind::Data)?,
                Ok(Some(child)) => child,
                Err(why) => return Err(why),
            };
            self.nodes.change(child)?.copy_from_slice(block);
        }
        Ok(())
    }

    fn write_singles(
        &mut self,
        file: FileId,
        tree: &mut Tree,
        first: u64,
        data: &[u8],
        count: &mut u64,
    ) -> Result<()> {
        let (blocks, _) = data.as_chunks::<BLOCK>();
        // What was taken, and is not used yet.
        let mut taken = (0, 0);
        let mut done = Ok(());
        // Where the first blocks go; what stays in its place is written later.
        let mut places = Vec::with_capacity(blocks.len());
        for (number, block) in (first..).zip(blocks) {
            let rest = blocks.len() - places.len();
            match self.place_single(file, tree, number, block, rest as u64, &mut taken, count) {
                Ok(place) => places.push(place),
                Err(error) => {
                    done = Err(error);
                    break;
                }
            }
        }
        for block in taken.0..taken.0 + taken.1 {
            self.free(block)?;
        }
        self.write_to(&places, blocks)?;
        self.overwrite_if_many()?;
        done
    }

    /// Writes blocks to their places, those at once that follow each other.
    fn write_to(&self, places: &[Option<u64>], blocks: &[Block]) -> Result<()> {
        let mut from = 0;
        while let Some(place) = places.get(from) {
            let mut to = from + 1;
            if let Some(start) = place {
                while places.get(to) == Some(&Some(start + (to - from) as u64)) {
                    to += 1;
                }
                let run = blocks.get(from..to).unwrap_or_default();
                blocks::write(&self.disk, *start, run.as_flattened())?;
            }
            from = to;
        }
        Ok(())
    }

    /// Has the pointer of one block of a file tell of what is written there; gives where on the
    /// disk it goes, or `None` if that is seen to later ([`crate::resync`]).
    #[expect(clippy::too_many_arguments, reason = "one step of the loop above")]
    fn place_single(
        &mut self,
        file: FileId,
        tree: &mut Tree,
        number: u64,
        content: &Block,
        rest: u64,
        taken: &mut (u64, u64),
        count: &mut u64,
    ) -> Result<Option<u64>> {
        let (key, slot) = self.make_place(tree, number, count)?;
        let old = self.nodes.pointer(key, slot)?;
        let old = if old.is_lost() { Pointer::default() } else { old };
        let checksum = Checksum::of(self.seed, content);
        if !old.is_null() && self.nodes.is_modified(key, slot)? {
            // It belongs to no checkpoint yet.
            self.nodes.set(key, slot, Pointer::single(old.block(), checksum))?;
            return Ok(Some(old.block()));
        }
        if !old.is_null() && self.may_overwrite(old.block())? {
            self.resync.add(old.block(), file, number, checksum, content);
            self.nodes.set(key, slot, old.stable().with_checksum(checksum))?;
            return Ok(None);
        }
        if taken.1 == 0 {
            *taken = self.take(rest)?;
        }
        let target = taken.0;
        *taken = (taken.0 + 1, taken.1 - 1);
        if old.is_null() {
            *count += 1;
        } else {
            self.free(old.block())?;
        }
        self.nodes.set(key, slot, Pointer::single(target, checksum))?;
        Ok(Some(target))
    }

    /// Changes the length of a file. A file that becomes longer has zeros there.
    ///
    /// # Errors
    /// [`Error::NoFile`]; [`Error::NoSpace`], if the last block is written anew; those of the disk.
    pub fn set_size(&mut self, file: FileId, size: u64) -> Result<()> {
        self.whole(|this| {
            let (at, inode) = this.inode(file)?;
            let (old, given_up) = (inode.size.get(), this.root()?.given_up);
            let tree = tree_of(at, &inode);
            let within = (size % SIZE) as usize;
            if size < old && within != 0 {
                let mut last = ZEROS;
                match this.read_block(tree, size / SIZE, &mut last) {
                    // Behind the end it must not come back, should it be readable again.
                    Err(why) if why.is_unreadable() => {
                        let gone = this.lose(tree, size / SIZE)?;
                        let inode = this.inode_mut(at)?;
                        inode.blocks = inode.blocks.get().saturating_sub(gone).into();
                    }
                    read => read?,
                }
                let tail = last.get_mut(within..).unwrap_or_default();
                if tail.iter().any(|byte| *byte != 0) {
                    tail.fill(0);
                    this.write(file, size / SIZE, &last)?;
                }
            }
            this.cut_off(file, size.div_ceil(SIZE), u64::MAX)?.size = size.into();
            this.count_anew(at, given_up)?;
            Ok(())
        })
    }

    /// Makes zeros of `count` blocks of a file from `first` on. They take no room then.
    ///
    /// # Errors
    /// [`Error::NoFile`]; those of the disk.
    pub fn punch(&mut self, file: FileId, first: u64, count: u64) -> Result<()> {
        self.whole(|this| this.cut_off(file, first, first.saturating_add(count)).map(|_| ()))
    }

    /// Cuts blocks off a file, and counts them; gives its inode.
    fn cut_off(&mut self, file: FileId, from: u64, to: u64) -> Result<&mut Inode> {
        let (at, inode) = self.inode(file)?;
        let (mut count, given_up) = (0, self.root()?.given_up);
        self.cut(tree_of(at, &inode), from, to, &mut count)?;
        let inode = self.inode_mut(at)?;
        inode.blocks = inode.blocks.get().saturating_sub(count).into();
        if inode.tree.is_null() {
            inode.depth = 0.into();
        }
        self.count_anew(at, given_up)?;
        self.inode_mut(at)
    }

    /// The blocks of a file that hold something, from `from` on, at most `most` of them.
    ///
    /// # Errors
    /// [`Error::NoFile`]; those of the disk.
    pub fn written(&mut self, file: FileId, from: u64, most: usize) -> Result<Vec<u64>> {
        let (at, inode) = self.inode(file)?;
        let found = self.leaves(tree_of(at, &inode), from, most)?;
        Ok(found.into_iter().map(|(number, _)| number).collect())
    }

    /// At most `most` of the blocks of a file that hold something, each with what points to it.
    ///
    /// # Errors
    /// [`Error::NoFile`]; those of the disk.
    pub fn places(&mut self, file: FileId, most: usize) -> Result<Vec<(u64, Pointer)>> {
        let (at, inode) = self.inode(file)?;
        let found = self.leaves(tree_of(at, &inode), 0, most)?;
        let pointer = |(number, (key, slot))| Ok((number, self.nodes.pointer(key, slot)?));
        found.into_iter().map(pointer).collect()
    }
}

pub(crate) fn class_of(inode: &Inode) -> Class {
    match inode.flags().contains(InodeFlags::PROTECTED) {
        true => Class::Protected,
        false => Class::Data,
    }
}

/// The tree of a file. Its leaves are blocks of metadata if they have twins; else they are none,
/// and never looked at as such.
pub(crate) fn tree_of(at: At, inode: &Inode) -> Tree {
    let leaves = match class_of(inode) {
        Class::Protected => Kind::Data,
        Class::Data => Kind::Bitmap,
    };
    let slot = at.offset + std::mem::offset_of!(Inode, tree);
    let end = inode.size.get().div_ceil(SIZE);
    Tree { key: at.key, slot, depth: inode.depth.get(), leaves, end }
}

/// Says whether there can be so many bytes from a block on.
fn check_range(first: u64, bytes: &[u8]) -> Result<()> {
    let end = first.checked_add((bytes.len() / BLOCK) as u64);
    // Beyond what a file can have there are zeros, and nothing is written.
    end.filter(|end| *end < u64::MAX).map(|_| ()).ok_or(Error::TooLarge)
}

/// Says whether a file can have these attributes, before anything is changed.
fn check_attributes(attributes: &[u8]) -> Result<()> {
    if attributes.len() > ATTRIBUTES { Err(Error::TooLarge) } else { Ok(()) }
}

fn put_attributes(inode: &mut Inode, attributes: &[u8]) {
    inode.attributes = [0; ATTRIBUTES];
    if let Some(room) = inode.attributes.get_mut(..attributes.len()) {
        room.copy_from_slice(attributes);
    }
    inode.attributes_length = (attributes.len() as u32).into();
}
