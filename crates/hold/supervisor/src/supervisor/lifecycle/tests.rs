//! The transitions, as tables: from where, what happens, where to, and what is to be done.

use super::*;
use crate::clock::SECOND;
use crate::detection::Detection;
use crate::ledger::{Crash, Stop, Tries, Waiting};

const NOW: u64 = 1_000_000 * SECOND;
const LIMITS: Limits = Limits { max_crashes: 5, retry_for: 60 * SECOND };
const RECOVERING: Phase = Phase::Recovering { open_ns: None };
const SETTLED: Phase = Phase::Recovering { open_ns: Some(7) };
const WAITING: Phase = Phase::Waiting { until: NOW + 9 };
const ENDED: Phase = Phase::Ended { code: 3, served: false };

const SINCE: u64 = NOW - SECOND;
const ASKED: Stop = Stop {
    since_ns: SINCE,
    until_ns: SINCE + 10 * SECOND,
    told: false,
    at_once: false,
    repeated: false,
    killed_ns: None,
};
const INPUT: StopInput =
    StopInput { now: NOW, process: true, may_stop: true, finds_out: false, execs: false };

fn life(phase: Phase) -> Lifecycle {
    Lifecycle { phase, limits: LIMITS }
}

/// A row of failed starts that is under way.
fn row() -> Option<Waiting> {
    Some(Waiting { since_ns: SINCE, tries: 1, next_ns: NOW + 9, ..Waiting::default() })
}

fn crash() -> Option<Crash> {
    Some(Crash {
        generation: 0,
        pid: 1,
        exit: Exit::Signal(11),
        detection: Detection::Death,
        died_ns: SINCE,
        died_wall_ms: 0,
        spawned_ns: 0,
        decision_top: 0,
        counters: Vec::new(),
        in_flight: Vec::new(),
        journals: Vec::new(),
        remains: None,
        stderr: Vec::new(),
        killed: Vec::new(),
        read_only: None,
    })
}

fn recovering() -> Book {
    Book { generation: 1, crash: crash(), ..Book::default() }
}

fn waiting_for(waiting: Option<Waiting>) -> Tries {
    Tries { waiting, ..Tries::default() }
}

fn stopping(stop: Stop) -> Book {
    Book { generation: 1, stop: Some(stop), ..Book::default() }
}

fn death(next: Next) -> Death {
    Death { now: NOW, next, detection: Detection::Death, is_its_own: false, worthless: None }
}

fn failure(next: Next) -> Failure {
    let why = "it exited".to_owned();
    Failure { now: NOW, next, detection: Detection::Death, why, other: false }
}

/// Checks that `event` leads from `phase` to `expected`, and to these commands. Gives the book.
fn check(
    phase: Phase,
    mut book: Book,
    event: Event,
    expected: Phase,
    commands: &[Command],
) -> Book {
    let mut life = life(phase);
    let told = format!("{phase:?}, {event:?}");
    assert_eq!(life.on(&mut book, event), commands, "{told}");
    assert_eq!(life.phase, expected, "{told}");
    book
}

#[test]
fn a_daemon_comes_to_serve() {
    let seen = |ready, open_ns| Event::Seen { now: NOW, ready, open_ns };
    let soon = [Command::Set(Due::Conclusion, NOW + AFTERWARDS), Command::HoldConnections];
    for (phase, event, expected, commands) in [
        (Phase::Starting, seen(false, 0), Phase::Starting, &[][..]),
        (Phase::Starting, seen(true, 0), Phase::Serving, &[Command::Serve]),
        (Phase::Starting, seen(false, 7), Phase::Serving, &[Command::Serve]),
        // A successor serves when all is settled, and not before.
        (RECOVERING, seen(true, 0), RECOVERING, &[]),
        (RECOVERING, seen(true, 7), SETTLED, &soon),
        // It is concluded once, for the first time that was told.
        (SETTLED, seen(true, 8), SETTLED, &[]),
        (Phase::Serving, seen(true, 8), Phase::Serving, &[]),
        (WAITING, seen(true, 8), WAITING, &[]),
        (ENDED, seen(true, 8), ENDED, &[]),
    ] {
        check(phase, recovering(), event, expected, commands);
    }
}

#[test]
fn a_recovery_is_concluded_once() {
    let conclude = [Command::Cancel(Due::Conclusion), Command::Conclude { open_ns: 7 }];
    check(SETTLED, recovering(), Event::Concludes, Phase::Serving, &conclude);
    for phase in [Phase::Starting, RECOVERING, Phase::Serving, WAITING, ENDED] {
        check(phase, recovering(), Event::Concludes, phase, &[]);
    }
}

#[test]
fn a_start_is_a_recovery_if_somebody_has_died() {
    let forget = [Command::Cancel(Due::Launch), Command::Cancel(Due::Conclusion)];
    for phase in [Phase::Starting, RECOVERING, SETTLED, Phase::Serving, WAITING] {
        check(phase, Book::default(), Event::Starts, Phase::Starting, &forget);
        check(phase, recovering(), Event::Starts, RECOVERING, &forget);
    }
    let nothing = [Command::Cancel(Due::StopStep)];
    check(Phase::Starting, Book::default(), Event::Begins, Phase::Starting, &nothing);
    check(Phase::Starting, recovering(), Event::Begins, RECOVERING, &nothing);
    // A wish to stop outlives the supervisor that was told of it.
    let next = [Command::Set(Due::StopStep, ASKED.until_ns)];
    check(Phase::Starting, stopping(ASKED), Event::Begins, Phase::Starting, &next);
}

#[test]
fn after_a_death_the_next_is_started() {
    let fenced = |death| Event::Fenced(death);
    let fails = |next, asks| {
        let detection = Detection::Death;
        [Command::FailStart { next, detection, asks }]
    };
    let check = |unproductive, death, expected, commands: &[Command]| {
        let book = Book { tries: Tries { unproductive, ..Tries::default() }, ..recovering() };
        check(RECOVERING, book, fenced(death), expected, commands)
    };
    check(0, death(Next::Anew), RECOVERING, &[Command::Launch]);
    check(2, death(Next::Anew), RECOVERING, &[Command::Launch]);
    let own = Death { is_its_own: true, ..death(Next::Anew) };
    check(1, own, RECOVERING, &[Command::RejectProgram, Command::Launch]);
    // Those that come to nothing one after another are started more and more slowly.
    for (lives, ms) in [(3, 80), (4, 160), (6, 640), (99, 640)] {
        let until = NOW + ms * SECOND / 1000;
        let wait = [Command::Set(Due::Launch, until)];
        check(lives, death(Next::Anew), Phase::Waiting { until }, &wait);
    }
    check(0, death(Next::Again), RECOVERING, &fails(Next::Again, false));
    check(0, death(Next::Later), RECOVERING, &fails(Next::Later, true));
    for next in [Next::Anew, Next::Again, Next::Later] {
        let death = Death { worthless: Some(Worthless::Corrupt), ..death(next) };
        check(0, death, RECOVERING, &[Command::GiveUp(Worthless::Corrupt)]);
    }
}

#[test]
fn a_death_is_the_end_if_that_is_wanted_at_once() {
    let at_once = Stop { at_once: true, ..ASKED };
    let finish = [Command::Finish { code: 0 }];
    check(Phase::Serving, stopping(at_once), Event::Died, Phase::Serving, &finish);
    check(Phase::Serving, stopping(ASKED), Event::Died, RECOVERING, &[]);
    check(Phase::Serving, Book::default(), Event::Died, RECOVERING, &[]);
}

#[test]
fn starts_that_fail_are_made_again_until_patience_is_over() {
    let waits = |until| (Phase::Waiting { until }, vec![Command::Set(Due::Launch, until)]);
    let launch = || (RECOVERING, vec![Command::Launch]);
    let gives_up = || (RECOVERING, vec![Command::GiveUp(Worthless::Impatience)]);
    let tried = |tries, since_ns| Some(Waiting { tries, since_ns, ..Waiting::default() });
    let other = Failure { other: true, ..failure(Next::Later) };
    let long_ago = NOW - LIMITS.retry_for;
    for (before, failure, (phase, commands)) in [
        (None, failure(Next::Later), waits(NOW + SECOND)),
        (tried(1, SINCE), failure(Next::Later), waits(NOW + 2 * SECOND)),
        // Killed by somebody.
        (None, failure(Next::Again), launch()),
        // One last time when patience ends.
        (tried(9, long_ago + SECOND), failure(Next::Later), waits(NOW + SECOND)),
        (tried(9, long_ago), failure(Next::Later), gives_up()),
        // Another program is there, and has not been tried.
        (tried(9, long_ago), other, launch()),
    ] {
        let tries = before.as_ref().map_or(0, |row: &Waiting| row.tries);
        let book = Book { tries: waiting_for(before), ..recovering() };
        let book = check(RECOVERING, book, Event::StartFailed(failure), phase, &commands);
        let row = book.tries.waiting.expect("a row");
        assert_eq!((row.tries, row.over_ns, &*row.why), (tries + 1, 0, "it exited"));
        let until = life(phase).next_start();
        assert_eq!(row.lasts(), until.is_some() || matches!(commands[0], Command::GiveUp(_)));
    }
}

#[test]
fn trouble_that_comes_back_soon_is_the_same() {
    for (over, tries) in [(NOW - SECOND, 5), (NOW - 3600 * SECOND, 1)] {
        let before = Waiting { tries: 4, since_ns: SINCE, over_ns: over, ..Waiting::default() };
        let book = Book { tries: waiting_for(Some(before)), ..recovering() };
        let mut book = book;
        life(RECOVERING).on(&mut book, Event::StartFailed(failure(Next::Later)));
        assert_eq!(book.tries.waiting.map(|row| row.tries), Some(tries));
    }
}

#[test]
fn what_cannot_be_started_at_first_is_not_tried_again_unless_that_passes() {
    let event = |passes| Event::NotStarted { passes, why: "no".to_owned() };
    let detection = Detection::NotStarted { why: "no".to_owned() };
    let fails =
        [Command::FailStart { next: Next::Later, detection: detection.clone(), asks: true }];
    let refuses = [Command::Unstartable { why: "no".to_owned() }, Command::Finish { code: 1 }];
    check(Phase::Starting, Book::default(), event(false), Phase::Starting, &refuses);
    check(Phase::Starting, Book::default(), event(true), Phase::Starting, &fails);
    let book = check(RECOVERING, recovering(), event(false), RECOVERING, &fails);
    assert_eq!(book.crash.map(|crash| crash.detection), Some(detection));
}

#[test]
fn a_start_that_is_waited_for_can_be_had_now() {
    let waiting = || Book { tries: waiting_for(row()), ..recovering() };
    let now = Event::Hurried { now: NOW };
    let set = [Command::Set(Due::Launch, NOW)];
    check(WAITING, waiting(), now.clone(), Phase::Waiting { until: NOW }, &set);
    // Not one that is put off because daemons come to nothing.
    check(WAITING, recovering(), now.clone(), WAITING, &[]);
    check(RECOVERING, waiting(), now, RECOVERING, &[]);
    check(WAITING, waiting(), Event::StartIsDue, WAITING, &[Command::Launch]);
    for phase in [Phase::Starting, RECOVERING, Phase::Serving] {
        check(phase, waiting(), Event::StartIsDue, phase, &[]);
    }
}

#[test]
fn nobody_waits_for_a_daemon_of_a_mount_that_has_gone() {
    let gone = |keeps_epochs| Event::MountGone { keeps_epochs };
    let exit = Some(Exit::Code(5));
    let waiting = Book { tries: waiting_for(row()), last_exit: exit, ..recovering() };
    let finish = [Command::Cancel(Due::Launch), Command::Finish { code: 5 }];
    check(WAITING, waiting, gone(false), WAITING, &finish);
    check(RECOVERING, recovering(), gone(false), RECOVERING, &[Command::Stop]);
    // What was acknowledged is done again first.
    check(RECOVERING, recovering(), gone(true), RECOVERING, &[]);
    // The first daemon finds that out itself, and so does one that serves.
    check(Phase::Starting, Book::default(), gone(false), Phase::Starting, &[]);
    check(Phase::Serving, recovering(), gone(false), Phase::Serving, &[]);
    check(RECOVERING, stopping(ASKED), gone(false), RECOVERING, &[]);
}

#[test]
fn a_second_wish_to_stop_ends_all_patience() {
    let asked = |now| Event::StopAsked { now };
    let phase = Phase::Serving;
    let first = [Command::Set(Due::StopStep, NOW + 10 * SECOND)];
    let book = check(phase, Book::default(), asked(NOW), phase, &first);
    let stop = book.stop.expect("a wish");
    assert!(!stop.told && !stop.at_once);
    // All processes of a group get Ctrl-C at once.
    let same = check(phase, book, asked(NOW + SECOND / 4), phase, &first);
    assert_eq!(same.stop, Some(stop));
    let second = [Command::Cancel(Due::StopStep)];
    let book = check(phase, same, asked(NOW + SECOND), phase, &second);
    assert!(book.stop.is_some_and(|stop| stop.at_once && stop.repeated));
    let forced = [Command::Set(Due::StopStep, NOW + 10 * SECOND), Command::Force];
    check(phase, book, Event::StopPursued(INPUT), phase, &forced);
}

#[test]
fn the_daemon_is_told_once_and_when_it_may_end() {
    let phase = Phase::Serving;
    let pursue = Event::StopPursued;
    check(phase, stopping(ASKED), pursue(INPUT), phase, &[Command::TellDaemon]);
    let next = [Command::Set(Due::StopStep, ASKED.until_ns)];
    let book = check(phase, stopping(ASKED), Event::DaemonTold, phase, &next);
    check(phase, book, pursue(INPUT), phase, &[]);
    for input in [
        StopInput { process: false, ..INPUT },
        StopInput { may_stop: false, ..INPUT },
        StopInput { finds_out: true, ..INPUT },
    ] {
        check(phase, stopping(ASKED), pursue(input), phase, &[]);
    }
    check(phase, Book::default(), pursue(INPUT), phase, &[]);
}

#[test]
fn a_daemon_in_an_exec_is_not_waited_for() {
    let phase = Phase::Serving;
    let input = StopInput { execs: true, ..INPUT };
    let killed = NOW + 10 * SECOND;
    let forced = [Command::Set(Due::StopStep, killed), Command::Force];
    check(phase, stopping(ASKED), Event::StopPursued(input), phase, &forced);
    check(phase, Book::default(), Event::StopPursued(input), phase, &[]);
}

#[test]
fn nobody_is_told_where_a_start_is_waited_for() {
    let waiting = Book { tries: waiting_for(row()), crash: crash(), ..stopping(ASKED) };
    let force = [Command::Cancel(Due::Launch), Command::Force];
    check(WAITING, waiting, Event::StopPursued(INPUT), RECOVERING, &force);
    // A start that is put off for some milliseconds comes, and is told.
    let input = StopInput { process: false, ..INPUT };
    check(WAITING, stopping(ASKED), Event::StopPursued(input), WAITING, &[]);
}

#[test]
fn a_daemon_that_had_its_time_gets_more_while_it_stores() {
    let phase = Phase::Serving;
    let late = ASKED.until_ns;
    let due = Event::StopIsDue(StopInput { now: late, ..INPUT });
    check(phase, stopping(ASKED), due.clone(), phase, &[Command::LookWhetherItStores]);
    let more = late + 10 * SECOND;
    let still = |still| Event::Stores { now: late, still };
    let lets = |first| [Command::Set(Due::StopStep, more), Command::LetStore { first }];
    let book = check(phase, stopping(ASKED), still(true), phase, &lets(true));
    check(phase, book, still(true), phase, &lets(false));
    let force = [Command::Set(Due::StopStep, more), Command::Force];
    check(phase, stopping(ASKED), still(false), phase, &force);
    // Asked a second time, nobody looks.
    let repeated = Stop { repeated: true, ..ASKED };
    check(phase, stopping(repeated), due, phase, &force);
}

#[test]
fn a_daemon_that_was_killed_and_does_not_end_is_left() {
    let phase = Phase::Serving;
    let killed = |ago: u64| Stop { at_once: true, killed_ns: Some(NOW - ago), ..ASKED };
    let due = |input| Event::StopIsDue(input);
    let step = |ago: u64, step| [Command::Set(Due::StopStep, NOW - ago + 10 * SECOND), step];
    check(phase, stopping(killed(SECOND)), due(INPUT), phase, &step(SECOND, Command::Force));
    let long = 10 * SECOND;
    check(phase, stopping(killed(long)), due(INPUT), phase, &step(long, Command::LeaveBehind));
    // Where none is, the next start brings one.
    let none = StopInput { process: false, ..INPUT };
    let later = [Command::Set(Due::StopStep, NOW + SECOND)];
    check(phase, stopping(killed(long)), due(none), phase, &later);
}

#[test]
fn an_unmount_is_a_wish_that_the_daemon_knows_of() {
    let phase = Phase::Serving;
    let next = [Command::Set(Due::StopStep, NOW + 10 * SECOND)];
    let unmounted = Event::Unmounted { now: NOW };
    let book = check(phase, Book::default(), unmounted.clone(), phase, &next);
    assert!(book.stop.is_some_and(|stop| stop.told));
    // An earlier wish stays as it is.
    let book = check(phase, stopping(ASKED), unmounted, phase, &[]);
    assert_eq!(book.stop, Some(ASKED));
}

#[test]
fn a_daemon_that_is_started_once_more_gets_as_much_time() {
    let once_more = Event::StartsOnceMore { now: NOW };
    let late = Stop { at_once: true, told: true, killed_ns: Some(SINCE), ..ASKED };
    let next = [Command::Set(Due::StopStep, NOW + 10 * SECOND)];
    let book = check(Phase::Serving, stopping(late), once_more.clone(), Phase::Serving, &next);
    assert!(book.stop.is_some_and(|stop| !stop.told && !stop.at_once && stop.killed_ns.is_none()));
    check(Phase::Serving, Book::default(), once_more, Phase::Serving, &[]);
}

#[test]
fn nothing_comes_after_the_end() {
    let finish = Event::Ends { code: 3 };
    let served = Phase::Ended { code: 3, served: true };
    check(Phase::Serving, Book::default(), finish.clone(), served, &[]);
    check(RECOVERING, recovering(), finish, ENDED, &[]);
    // The code may become worse.
    check(
        served,
        Book::default(),
        Event::Ends { code: 4 },
        Phase::Ended { code: 4, served: true },
        &[],
    );
    for event in [
        Event::Starts,
        Event::Died,
        Event::Fenced(death(Next::Anew)),
        Event::StartFailed(failure(Next::Later)),
        Event::StartIsDue,
        Event::Hurried { now: NOW },
        Event::MountGone { keeps_epochs: false },
        Event::StopAsked { now: NOW },
        Event::StopIsDue(INPUT),
        Event::StopPursued(INPUT),
        Event::Stores { now: NOW, still: false },
    ] {
        let book = Book { tries: waiting_for(row()), ..stopping(Stop { at_once: true, ..ASKED }) };
        let after = check(ENDED, book.clone(), event, ENDED, &[]);
        assert_eq!(after, book);
    }
}

#[test]
fn a_crash_loop_has_limits_of_three_kinds() {
    let book = |unproductive, idle, outside_since| Book {
        tries: Tries { unproductive, idle, outside_since, ..Tries::default() },
        ..Book::default()
    };
    let is_loop = |limits, book| Lifecycle { phase: RECOVERING, limits }.is_crash_loop(&book, NOW);
    for (unproductive, idle, outside, expected) in [
        (4, 99, Some(NOW - 600 * SECOND), false),
        (5, 0, None, true),
        (0, 100, None, true),
        (0, 0, Some(NOW - 600 * SECOND - 1), true),
    ] {
        assert_eq!(is_loop(LIMITS, book(unproductive, idle, outside)), expected);
        // Zero is no limit.
        let none = Limits { max_crashes: 0, ..LIMITS };
        assert!(!is_loop(none, book(unproductive, idle, outside)));
    }
}
