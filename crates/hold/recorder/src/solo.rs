//! What speaks against a request: the deaths in which it was the only one that the daemon had.
//!
//! Invariant: a trial (the daemon has this request alone, now) is on record before the daemon can
//! see anything of the request, and is judged once, by the first generation after that death.

/// What a death says of the request that the daemon had alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Blame {
    /// Little: it may have come from outside.
    #[default]
    Unknown = 0,
    /// It was of the daemon's own making.
    Own = 1,
    /// The daemon lived and did not serve.
    Hang = 2,
    /// Nothing: somebody else ended the daemon, as far as all is known that can be.
    Outside = 3,
}

impl Blame {
    /// Whether it is the daemon's doing beyond doubt.
    pub fn is_its_own(self) -> bool {
        matches!(self, Self::Own | Self::Hang)
    }

    pub(crate) fn from_word(word: u32) -> Self {
        match word {
            1 => Self::Own,
            2 => Self::Hang,
            3 => Self::Outside,
            _ => Self::Unknown,
        }
    }
}

/// Deaths that are asked for beyond the usual number if they may have come from outside.
const DOUBT: u32 = 3;
/// Of a generation's number, as many bits as there is room for.
const GENERATION: u32 = (1 << 13) - 1;
const TRIAL: u32 = 1 << 16;
const LATE: u32 = 1 << 17;
const ASKED: u32 = 1 << 18;

/// The deaths of daemons that had a request alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Solo {
    /// Those of the daemon's own making, when it had the request.
    pub own: u8,
    /// Those that say less: they may have come from outside, or belay was asking for what the
    /// request needs first.
    pub other: u8,
    /// Alone it took so long that the others did not wait any more.
    pub late: bool,
    /// The generation that has, or had, it alone, if that is not judged; its low 13 bits.
    trial: Option<u32>,
    /// It has not got the request itself yet, only what belay asks for its sake.
    asked: bool,
}

impl Solo {
    /// `generation` is about to get the request alone.
    #[must_use]
    pub fn begin(self, generation: u32) -> Self {
        Self { late: false, trial: Some(generation & GENERATION), asked: false, ..self }
    }

    /// `generation` is about to be asked something for the sake of the request, and has nothing
    /// else to do.
    #[must_use]
    pub fn begin_asking(self, generation: u32) -> Self {
        Self { asked: true, ..self.begin(generation) }
    }

    /// Whether what it was given so far is only what belay asks.
    pub fn is_asked_only(&self) -> bool {
        self.asked
    }

    /// The trial is over, and the daemon lives.
    #[must_use]
    pub fn acquitted(self) -> Self {
        Self { trial: None, asked: false, ..self }
    }

    /// Whether `generation` has the request alone, or had it so before others did not wait any
    /// more.
    pub fn is_tried_by(&self, generation: u32) -> bool {
        self.trial == Some(generation & GENERATION)
    }

    /// Judges the trial, if there is one: `dead` died last, and `blame` is what that says. Of a
    /// trial by another generation, nobody knows what its death says. A request that was alone for
    /// too long shared the daemon with others when it died: only if it hung is that due to the
    /// request. While it was only asked for what the request needs (the way to its file), nothing
    /// counts but what is the daemon's own doing, and that not at once: it may have died of
    /// anything, but if it always does, the request must come to an end.
    #[must_use]
    pub fn judged(self, dead: u32, blame: Blame) -> Self {
        let Some(tried) = self.trial else { return self };
        let blame = if tried == dead & GENERATION { blame } else { Blame::Unknown };
        let counts = blame == Blame::Hang || (blame == Blame::Own && !self.late);
        let (own, other) = match self.asked {
            true => (false, counts),
            false => (counts, blame == Blame::Unknown && !self.late),
        };
        Self {
            own: self.own.saturating_add(own.into()),
            other: self.other.saturating_add(other.into()),
            ..self.acquitted()
        }
    }

    /// Whether the request is not to be given to another daemon. `crashes` is the number of crashes
    /// in all: in the first of them it was in flight among others, in the rest alone; 0: never.
    pub fn is_poison(&self, crashes: u32) -> bool {
        let alone = crashes.max(2) - 1;
        let own = u32::from(self.own);
        crashes > 0 && (own >= alone || own + u32::from(self.other) >= alone + DOUBT)
    }

    pub(crate) fn bits(self) -> u32 {
        let late = if self.late { LATE } else { 0 };
        let asked = if self.asked { ASKED } else { 0 };
        let trial = self.trial.map_or(0, |generation| TRIAL | (generation << 19));
        u32::from(self.own) | (u32::from(self.other) << 8) | late | asked | trial
    }

    pub(crate) fn from_bits(bits: u32) -> Self {
        let [own, other, ..] = bits.to_le_bytes();
        let trial = (bits & TRIAL != 0).then_some(bits >> 19);
        Self { own, other, late: bits & LATE != 0, trial, asked: bits & ASKED != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `n` generations from 1 on have it alone, and die so.
    fn deaths(n: u32, blame: Blame) -> Solo {
        (1..=n).fold(Solo::default(), |solo, generation| {
            Solo::from_bits(solo.begin(generation).bits()).judged(generation, blame)
        })
    }

    #[test]
    fn the_daemons_own_deaths_count_at_once() {
        for (crashes, alone) in [(2, 1), (3, 2), (5, 4)] {
            for blame in [Blame::Own, Blame::Hang] {
                assert!(!deaths(alone - 1, blame).is_poison(crashes));
                assert!(deaths(alone, blame).is_poison(crashes));
            }
        }
    }

    #[test]
    fn deaths_that_may_come_from_outside_take_three_more() {
        for crashes in [2, 3, 5] {
            assert!(!deaths(crashes + 1, Blame::Unknown).is_poison(crashes));
            assert!(deaths(crashes + 2, Blame::Unknown).is_poison(crashes));
        }
        let mixed = deaths(2, Blame::Unknown).begin(3).judged(3, Blame::Own);
        assert!(mixed.is_poison(2) && !mixed.is_poison(3));
    }

    #[test]
    fn what_comes_from_outside_never_counts() {
        assert_eq!(deaths(255, Blame::Outside), Solo::default());
    }

    #[test]
    fn a_daemon_that_was_only_asked_counts_by_its_own_doing_and_not_at_once() {
        let asked = |n: u32, blame| {
            (1..=n).fold(Solo::default(), |solo, generation| {
                Solo::from_bits(solo.begin_asking(generation).bits()).judged(generation, blame)
            })
        };
        for blame in [Blame::Unknown, Blame::Outside] {
            assert_eq!(asked(200, blame), Solo::default());
        }
        for blame in [Blame::Own, Blame::Hang] {
            assert!(!asked(3, blame).is_poison(2));
            assert!(asked(4, blame).is_poison(2));
        }
        // The request itself makes it a trial in full.
        let solo = Solo::default().begin_asking(1).begin(1);
        assert!(solo.judged(1, Blame::Own).is_poison(2));
    }

    #[test]
    fn zero_is_never() {
        assert!(!deaths(300, Blame::Own).is_poison(0));
        assert!(deaths(300, Blame::Own).is_poison(200), "counts saturate");
    }

    #[test]
    fn without_a_trial_a_death_says_nothing() {
        assert_eq!(Solo::default().judged(7, Blame::Own), Solo::default());
        // A second judgement (the first successor died after it had judged) changes nothing.
        let once = deaths(1, Blame::Own);
        assert_eq!(once.judged(2, Blame::Own), once);
    }

    #[test]
    fn the_death_of_another_generation_is_not_evidence() {
        let solo = Solo::default().begin(4).judged(5, Blame::Own);
        assert_eq!((solo.own, solo.other), (0, 1));
    }

    #[test]
    fn what_was_late_is_to_blame_for_hangs_only() {
        let late = Solo { late: true, ..Solo::default().begin(1) };
        for (blame, own) in [(Blame::Own, 0), (Blame::Unknown, 0), (Blame::Hang, 1)] {
            let solo = late.judged(1, blame);
            assert_eq!((solo.own, solo.other, solo.late), (own, 0, true), "{blame:?}");
        }
        assert!(!late.judged(1, Blame::Own).begin(2).late);
    }

    #[test]
    fn bits_hold_all_of_it() {
        for generation in [0, 1, 0x1fff, 0x2000, u32::MAX] {
            let solo = Solo { own: 255, other: 3, late: true, ..Solo::default() };
            assert_eq!(Solo::from_bits(solo.bits()), solo);
            let solo = Solo { late: true, ..solo.begin(generation) };
            assert_eq!(Solo::from_bits(solo.bits()), solo);
            assert!(solo.is_tried_by(generation) && !solo.is_tried_by(generation ^ 1));
            let asked = solo.begin_asking(generation);
            assert_eq!(Solo::from_bits(asked.bits()), asked);
            assert!(asked.is_tried_by(generation) && asked.is_asked_only());
        }
    }
}
