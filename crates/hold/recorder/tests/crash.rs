//! Death at every store of every change: what is found afterwards is the state before or after.
#![allow(missing_docs)]

mod common;

use belay_memory::Memory;
use belay_recorder::{Capacity, Layout, Store};
use common::model::{Act, Op, Outcome, State, alone, change};
use common::{Sim, fresh};
use proptest::prelude::*;

struct World {
    memory: Sim,
    layout: Layout,
    state: State,
}

type Done = Vec<(Act, Outcome)>;

impl World {
    fn new(capacity: Capacity) -> Self {
        let (memory, store) = fresh(capacity);
        let state = State::fresh(capacity.slots);
        assert_eq!(State::read(&store, 0), state);
        Self { memory, layout: Layout::new(capacity), state }
    }

    /// As a new process sees it.
    fn store(&self) -> Store<Sim> {
        Store::new(self.memory.clone(), self.layout)
    }

    fn read(&self, generation: u32) -> State {
        State::read(&self.store(), generation)
    }

    /// Does `ops` as one change on store and model. Gives what was done and the model after it.
    fn clean(&self, ops: &[Op]) -> (Done, State) {
        let store = self.store();
        let mut state = self.state.clone();
        let mut done = Vec::new();
        let bracket = !ops.iter().any(Op::stands_alone);
        if bracket {
            store.begin();
        }
        for act in ops {
            let Some(act) = act.resolve(&state) else {
                continue;
            };
            let out = act.run(&store, state.generation);
            if !out.ok {
                state.check_full(&store, &act);
            }
            assert_eq!(act.apply(&mut state, &out), out, "{act:?}");
            done.push((act, out));
        }
        if bracket {
            store.commit();
        }
        (done, state)
    }

    fn again(&self, done: &Done, bracket: bool) {
        let store = self.store();
        if bracket {
            store.begin();
        }
        for (act, out) in done {
            assert_eq!(act.run(&store, self.state.generation), *out);
        }
        if bracket {
            store.commit();
        }
    }

    /// Runs `done` in a process that dies at store `at`, and recovers. Where the recovery itself
    /// is to die, it does so at its store `recovery_dies`, and another one follows.
    fn crash(&self, done: &Done, bracket: bool, at: usize, recovery_dies: Option<usize>) {
        let (lived, _) = self.memory.process(at, || self.again(done, bracket));
        assert_eq!(lived, None, "death number {at}");
        self.give_back();
        if let Some(at) = recovery_dies {
            self.memory.process(at, || self.store().recover());
        }
        self.store().recover().expect("changes fit");
        assert_eq!(self.store().recover(), Ok(0), "nothing is left to undo");
    }

    /// What is given back after a death reads as zeros: nothing on record lies there, nor what an
    /// undo needs.
    fn give_back(&self) {
        for at in self.store().spare(true).into_iter().flatten() {
            if self.memory.load(at) != 0 {
                self.memory.store(at, 0);
            }
        }
    }

    /// One change, with all its deaths; in the end it was done, or it died at `die`.
    fn step(&mut self, ops: &[Op], die: Option<u16>) {
        let bracket = !ops.iter().any(Op::stands_alone);
        self.memory.mark();
        let (done, after) = self.clean(ops);
        assert_eq!(self.read(after.generation), after, "{done:?}");
        self.memory.rewind();
        let (lived, stores) = self.memory.process(usize::MAX, || self.again(&done, bracket));
        assert_eq!(lived, Some(()));
        self.memory.rewind();
        let between = done.first().and_then(|(act, _)| act.in_between(&self.state));
        let generation = self.state.generation;
        for at in 0..stores {
            self.crash(&done, bracket, at, at.is_multiple_of(3).then_some(at % 11));
            let found = self.read(generation);
            assert!(
                found == self.state || found == after || Some(&found) == between.as_ref(),
                "death {at} of {stores} in {done:?}\nfound  {found:?}\nbefore {:?}\nafter  {after:?}",
                self.state
            );
            self.memory.rewind();
        }
        match die {
            Some(die) if stores > 0 => {
                self.crash(&done, bracket, usize::from(die) % stores, None);
                self.state = self.read(generation);
            }
            _ => {
                self.again(&done, bracket);
                self.state = after;
            }
        }
    }
}

fn steps(length: usize) -> impl Strategy<Value = Vec<(Vec<Op>, Option<u16>)>> {
    let ops = prop_oneof![
        3 => prop::collection::vec(change(), 1..4),
        2 => alone().prop_map(|op| vec![op]),
    ];
    prop::collection::vec((ops, prop::option::weighted(0.25, any::<u16>())), 1..length)
}

const ROOMY: Capacity = Capacity {
    nodes: 64,
    handles: 16,
    slots: 4,
    heap_words: 1 << 13,
    copy_bytes: 0,
    effect_bytes: 0,
    epoch_bytes: 0,
};
/// Runs out of everything, and its index stops growing.
const TIGHT: Capacity = Capacity {
    nodes: 6,
    handles: 4,
    slots: 2,
    heap_words: 420,
    copy_bytes: 0,
    effect_bytes: 0,
    epoch_bytes: 0,
};

proptest! {
    #![proptest_config(belay_seeds::cases!(192))]

    #[test]
    fn every_death_leaves_before_or_after(steps in steps(24)) {
        let mut world = World::new(ROOMY);
        for (ops, die) in steps {
            world.step(&ops, die);
        }
    }

    #[test]
    fn a_full_store_refuses_and_is_whole(steps in steps(24)) {
        let mut world = World::new(TIGHT);
        for (ops, die) in steps {
            world.step(&ops, die);
        }
    }
}

proptest! {
    #![proptest_config(belay_seeds::cases!(64))]

    #[test]
    fn long_lives_agree_with_the_model(steps in steps(300)) {
        for capacity in [ROOMY, TIGHT] {
            let mut world = World::new(capacity);
            for (ops, _) in &steps {
                let (done, after) = world.clean(ops);
                assert_eq!(world.read(after.generation), after, "{done:?}");
                world.state = after;
            }
        }
    }
}

#[test]
fn formatting_dies_and_is_done_again() {
    let layout = Layout::new(TIGHT);
    let memory = Sim::new(layout.words);
    memory.mark();
    let store = || Store::new(memory.clone(), layout);
    let (_, stores) = memory.process(usize::MAX, || store().format());
    memory.rewind();
    for at in 0..stores {
        let (lived, _) = memory.process(at, || store().format());
        assert_eq!(lived, None);
        store().recover().expect("changes fit");
        if store().is_blank() {
            store().format();
        }
        assert_eq!(State::read(&store(), 0), State::fresh(TIGHT.slots));
        memory.rewind();
    }
}
