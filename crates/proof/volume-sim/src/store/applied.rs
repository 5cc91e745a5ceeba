//! What an act does to store and model, and what a power failure may leave of one that writes in
//! place.

use super::{Act, Written, compare, content};
use crate::Random;
use crate::disk::SimDisk;
use crate::model::{Model, ModelFile};
use belay_disk::{BLOCK, Block, ZEROS};
use belay_store::{Error, FileId, Store};
use rand::Rng;
use std::collections::BTreeMap;

/// What is written to blocks by that.
pub(super) fn written_by(model: &Model, act: &Act) -> Vec<(FileId, u64, Box<Block>)> {
    match *act {
        Act::Write(which, first, count, byte) => {
            let file = pick(model, which);
            let each = |number| Some((file?, number, Box::new(content(byte, number))));
            (first..first + count).filter_map(each).collect()
        }
        Act::SetSize(which, size) => {
            // What is behind the new end becomes zeros.
            let Some(file) = pick(model, which) else { return Vec::new() };
            let number = size / BLOCK as u64;
            let mut block = model.files.get(&file).map_or(ZEROS, |known| known.block(number));
            block[(size % BLOCK as u64) as usize..].fill(0);
            vec![(file, number, Box::new(block))]
        }
        _ => Vec::new(),
    }
}

fn pick(model: &Model, which: usize) -> Option<FileId> {
    model.files.keys().nth(which % model.files.len().max(1)).copied()
}

/// Does one thing to store and model; both must say the same of it.
pub(super) fn apply(
    store: &mut Store<&SimDisk>,
    model: &mut Model,
    act: &Act,
    random: &mut Random,
) -> Result<(), String> {
    let pick = |which: usize| pick(model, which);
    let say = |why: Error| why.to_string();
    match *act {
        Act::Create(class) => {
            let owner = random.random_range(1..u64::MAX);
            let file = match store.create(owner, class, b"new") {
                Err(Error::NoSpace) => return Ok(()),
                made => made.map_err(say)?,
            };
            let new = ModelFile {
                owner,
                class,
                size: 0,
                attributes: b"new".to_vec(),
                blocks: BTreeMap::new(),
            };
            if model.files.insert(file, new).is_some() {
                return Err(format!("{file} was there already"));
            }
        }
        Act::Delete(which) => {
            let Some(file) = pick(which) else { return Ok(()) };
            store.delete(file).map_err(say)?;
            model.files.remove(&file);
            if !matches!(store.attributes(file), Err(Error::NoFile(_))) {
                return Err(format!("{file} is still there"));
            }
        }
        Act::Write(which, first, count, byte) => {
            let Some(file) = pick(which) else { return Ok(()) };
            let blocks: Vec<Block> =
                (first..first + count).map(|number| content(byte, number)).collect();
            let room = store.available_blocks().map_err(say)?;
            match store.write(file, first, blocks.as_flattened()) {
                // What was written before stays, so that is read.
                Err(Error::NoSpace) if room < 4 * count + 400 => {
                    return take_over(store, model, file, first, &blocks);
                }
                done => done.map_err(say)?,
            }
            let Some(known) = model.files.get_mut(&file) else { return Ok(()) };
            known.blocks.extend((first..).zip(blocks.into_iter().map(Box::new)));
            let end = (first + count) * BLOCK as u64;
            if known.size < end {
                known.size = end;
                store.set_size(file, end).map_err(say)?;
            }
        }
        Act::SetSize(which, size) => {
            let Some(file) = pick(which) else { return Ok(()) };
            match store.set_size(file, size) {
                Err(Error::NoSpace) => return Ok(()),
                done => done.map_err(say)?,
            }
            model.set_size(file, size);
        }
        Act::SetAttributes(which, byte) => {
            let Some(file) = pick(which) else { return Ok(()) };
            let attributes = vec![byte; usize::from(byte) % 185];
            store.set_attributes(file, &attributes).map_err(say)?;
            if let Some(known) = model.files.get_mut(&file) {
                known.attributes = attributes;
            }
        }
        Act::Punch(which, first, count) => {
            let Some(file) = pick(which) else { return Ok(()) };
            store.punch(file, first, count).map_err(say)?;
            if let Some(known) = model.files.get_mut(&file) {
                known.blocks.retain(|number, _| !(first..first + count).contains(number));
            }
        }
        Act::Checkpoint if random.random_bool(0.5) => {
            store.checkpoint().map_err(say)?;
        }
        // In steps, between which all can be read.
        Act::Checkpoint => {
            store.begin_checkpoint().map_err(say)?;
            compare(store, model)?;
            store.flush().map_err(say)?;
            compare(store, model)?;
            store.seal_checkpoint().map_err(say)?;
            compare(store, model)?;
            store.flush().map_err(say)?;
            compare(store, model)?;
            store.end_checkpoint().map_err(say)?;
        }
    }
    Ok(())
}

/// What was overwritten in place after the checkpoint may be there: as it was written, or, after a
/// power failure, torn, which is an error. It is made zeros then. Gives how many blocks were new,
/// and how many torn.
pub(super) fn take_over_blocks(
    store: &mut Store<&SimDisk>,
    model: &mut Model,
    newer: &[&Written],
    may_be_torn: bool,
) -> Result<(u64, u64), String> {
    let (mut new, mut torn) = (0, 0);
    for (file, known) in &mut model.files {
        let numbers: Vec<u64> = known.blocks.keys().copied().collect();
        for number in numbers {
            let mut found = ZEROS;
            let read = store.read(*file, number, &mut found);
            let mut newer = newer.iter().filter(|one| one.1 == *file && one.2 == number);
            let size = known.size;
            match read {
                Ok(()) if found == known.block(number) => {}
                Ok(()) if newer.any(|one| up_to(size, number, &one.3) == found) => {
                    new += 1;
                    known.blocks.insert(number, Box::new(found));
                }
                Err(Error::Corrupt { .. }) if may_be_torn && newer.next().is_some() => {
                    torn += 1;
                    // For this there is always room.
                    store.punch(*file, number, 1).map_err(|why| why.to_string())?;
                    known.blocks.remove(&number);
                }
                Ok(()) => return Err(format!("block {number} of {file} is neither old nor new")),
                Err(why) => return Err(format!("block {number} of {file}: {why}")),
            }
        }
    }
    Ok((new, torn))
}

/// A block of a file of that length: it may have been longer when it was written, and what is
/// behind its end is zeros.
fn up_to(size: u64, number: u64, block: &Block) -> Block {
    let mut block = *block;
    let within = size.saturating_sub(number * BLOCK as u64).min(BLOCK as u64) as usize;
    block[within..].fill(0);
    block
}

/// A write found no room for all: each block is what it was, or what it was to be.
fn take_over(
    store: &mut Store<&SimDisk>,
    model: &mut Model,
    file: FileId,
    first: u64,
    blocks: &[Block],
) -> Result<(), String> {
    let Some(known) = model.files.get_mut(&file) else { return Ok(()) };
    let mut size = known.size;
    for (number, block) in (first..).zip(blocks) {
        let mut found = ZEROS;
        store.read(file, number, &mut found).map_err(|why| why.to_string())?;
        if found == *block {
            known.blocks.insert(number, Box::new(found));
            size = size.max((number + 1) * BLOCK as u64);
        } else if found != known.block(number) {
            return Err(format!("block {number} of {file} is neither old nor new"));
        }
    }
    known.size = size;
    store.set_size(file, size).map_err(|why| why.to_string())
}
