//! Messages of the kernel and of the daemon, in every way in which they are read.
#![no_main]

use belay_wire::fields::{handle_fields, node_fields};
use belay_wire::rules::{self, Shape};
use belay_wire::{Reply, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&split, rest)) = data.split_first() else { return };
    let (request, reply) = rest.split_at(rest.len().min(usize::from(split)));
    if let Ok(request) = Request::parse(request) {
        let _ = (request.changes(), request.is_resent(), request.describe());
        for ext in [false, true] {
            let _ = (request.names_with(ext), request.xattr_value_with(ext));
        }
        let _ = (request.names(), request.xattr_value(), request.setxattr_is_ext());
        let _ = request.forgets().count();
        let _ = (node_fields(&request).iter().count(), handle_fields(&request).iter().count());
        if let Ok(reply) = Reply::parse(reply) {
            let shape = Shape::of(&request);
            let word = shape.to_word();
            assert_eq!(Shape::from_word(word).to_word(), word);
            let _ = shape.broken(&reply.header, reply.body);
        }
    }
    if let Ok(reply) = Reply::parse(reply) {
        let _ = (reply.unique(), reply.is_notification(), reply.errno());
        let _ = rules::broken_header(&reply.header, rest.len());
        let _ = rules::broken_attr_reply(reply.body, None);
    }
    for plus in [false, true] {
        let _ = rules::broken_listing(rest, plus);
    }
});
