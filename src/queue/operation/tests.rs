//! Every step of every word that an operation can have, against the same written out in plain fields.

use super::*;

/// The word in plain fields, with each field's place spelled out here once more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Plain {
    step: u64,
    cause: u64,
    connection: bool,
    front: bool,
    waits: u64,
    inbox: bool,
    linked: bool,
    watched: bool,
    acquiring: bool,
    seated: bool,
    first: bool,
    held: bool,
}

const CAUSES: [Cause; 9] = [
    Cause::None,
    Cause::Dropped,
    Cause::Stopped,
    Cause::Session,
    Cause::Probe,
    Cause::Deadline,
    Cause::QueueAge,
    Cause::Epoch,
    Cause::Retired,
];

const STEPS: [Step; 7] =
    [Step::Free, Step::Staged, Step::Queued, Step::Left, Step::Granted, Step::Started, Step::Returned];

impl Plain {
    fn bits(self) -> Bits {
        let flag = |on: bool, place: u32| u64::from(on) << place;
        let user = self.step
            | self.cause << 3
            | flag(self.connection, 7)
            | flag(self.front, 11)
            | self.waits << 12
            | flag(self.inbox, 18)
            | flag(self.linked, 19)
            | flag(self.watched, 20)
            | flag(self.acquiring, 21)
            | flag(self.seated, 22)
            | flag(self.first, 23);
        Bits::NOTHING.with_user(user).with_held(self.held)
    }

    fn all() -> impl Iterator<Item = Plain> {
        (0..7_u64 * 9 * 3 * 512).map(|number| {
            let (step, rest) = (number % 7, number / 7);
            let (cause, rest) = (rest % 9, rest / 9);
            let (waits, flags) = (rest % 3, rest / 3);
            let flag = |place: u64| flags >> place & 1 == 1;
            Plain {
                step,
                cause,
                connection: flag(0),
                front: flag(1),
                waits: [0, 1, 63][waits as usize],
                inbox: flag(2),
                linked: flag(3),
                watched: flag(4),
                acquiring: flag(5),
                seated: flag(6),
                first: flag(7),
                held: flag(8),
            }
        })
    }

    fn is(self, step: Step) -> bool {
        self.step == step as u64
    }

    fn interrupted(self, cause: Cause) -> Option<Plain> {
        let caused = |step: Step| Plain { step: step as u64, cause: cause as u64, ..self };
        match STEPS[self.step as usize] {
            Step::Staged => Some(caused(Step::Left)),
            Step::Queued => Some(Plain { inbox: true, held: true, ..caused(Step::Left) }),
            Step::Granted if cause != Cause::QueueAge => Some(caused(Step::Returned)),
            Step::Started if cause != Cause::QueueAge && self.cause == 0 => Some(caused(Step::Started)),
            _ => None,
        }
    }
}

#[test]
fn a_word_is_read_as_it_was_written() {
    assert_eq!((State::STAGED, State::GRANTED), (1 | 1 << 11, 4 | 1 << 11));
    assert_eq!((State::ONE_WAIT, State::FRONT_UNIT, State::ONE_CONNECTION), (1 << 12, 1 << 11, 1 << 7));
    for plain in Plain::all() {
        let state = State(plain.bits());
        assert_eq!(state.step(), STEPS[plain.step as usize]);
        assert_eq!(state.cause(), CAUSES[plain.cause as usize]);
        assert_eq!((state.has_front(), state.waits()), (plain.front, plain.waits));
        assert_eq!((state.in_inbox(), state.is_linked()), (plain.inbox, plain.linked));
        assert_eq!((state.is_acquiring(), state.is_seated()), (plain.acquiring, plain.seated));
        assert_eq!((state.is_watched(), state.asks_for_the_front()), (plain.watched, plain.first));
        let held = [Held::Staged, Held::Staged, Held::Staged, Held::Staged, Held::Running, Held::Running];
        assert_eq!(state.held(), held.get(plain.step as usize).copied().unwrap_or(Held::Returned));
    }
}

#[test]
fn every_step_in_the_nodes_line_changes_what_it_says_and_nothing_else() {
    for plain in Plain::all() {
        let state = State(plain.bits());
        let step = |from: Step, to: Plain| plain.is(from).then(|| to.bits());
        let at = |step: Step| Plain { step: step as u64, ..plain };
        assert_eq!(state.granted_directly(), step(Step::Staged, at(Step::Granted)));
        assert_eq!(state.left_to_returned(), step(Step::Left, at(Step::Returned)));
        let queued = Plain { held: true, watched: true, ..at(Step::Queued) };
        assert_eq!(state.enqueued(), step(Step::Staged, Plain { inbox: true, ..queued }));
        assert_eq!(state.enqueued_by_turn(), step(Step::Staged, Plain { linked: true, ..queued }));
        let collected = match plain.is(Step::Queued) {
            true => Plain { inbox: false, linked: true, ..plain },
            false => Plain { inbox: false, linked: false, held: false, ..plain },
        };
        assert_eq!(state.collected(), collected.bits());
        let granted = Plain { linked: false, held: false, ..at(Step::Granted) };
        assert_eq!(state.granted(), step(Step::Queued, granted).filter(|_| !plain.inbox));
        let unlinked = Plain { linked: false, held: plain.held && plain.inbox, ..plain };
        assert_eq!(state.unlinked(), unlinked.bits());
        let started = step(Step::Granted, at(Step::Started)).filter(|_| plain.cause == 0);
        assert_eq!(state.started(), started);
        assert_eq!(state.watched(), Plain { watched: true, ..plain }.bits());
        let waits = (plain.waits < 63).then(|| Plain { waits: plain.waits + 1, ..plain }.bits());
        assert_eq!(state.one_wait_more(), waits);
    }
}

#[test]
fn every_interruption_leads_where_it_says() {
    for plain in Plain::all() {
        let state = State(plain.bits());
        for cause in CAUSES {
            assert_eq!(state.interrupted(cause), plain.interrupted(cause).map(Plain::bits), "{plain:?}");
            let left =
                Plain { step: Step::Left as u64, cause: cause as u64, linked: false, held: false, ..plain };
            let by_turn = (plain.is(Step::Queued) && !plain.inbox).then(|| left.bits());
            assert_eq!(state.left_by_turn(cause), by_turn);
        }
        let without = match plain.is(Step::Started) {
            true => plain,
            false => plain.interrupted(Cause::Dropped).unwrap_or(plain),
        };
        assert_eq!(state.without_front(), Plain { front: false, ..without }.bits());
    }
}

#[test]
fn every_step_in_a_clients_line_changes_what_it_says_and_nothing_else() {
    for plain in Plain::all() {
        let state = State(plain.bits());
        let started = plain.is(Step::Started);
        let connected = Plain { connection: true, ..plain };
        assert_eq!(state.with_connection(), (started && !plain.connection).then(|| connected.bits()));
        let enqueued =
            Plain { acquiring: true, seated: true, connection: true, inbox: true, held: true, ..plain };
        let may = started && !(plain.acquiring || plain.seated || plain.connection);
        assert_eq!(state.acquire_enqueued(), may.then(|| enqueued.bits()));
        let answered = plain.seated && !plain.acquiring;
        let again = Plain { acquiring: true, first: true, inbox: true, held: true, ..plain };
        assert_eq!(state.acquire_again(), answered.then(|| again.bits()));
        let collected = match plain.acquiring {
            true => Plain { inbox: false, first: false, linked: true, ..plain },
            false => Plain { inbox: false, first: false, linked: false, held: false, ..plain },
        };
        assert_eq!(state.acquire_collected(), collected.bits());
        let gone = Plain { acquiring: false, linked: false, held: false, ..plain };
        assert_eq!(state.acquire_answered(), (plain.acquiring && !plain.inbox).then(|| gone.bits()));
        let left = Plain {
            acquiring: false,
            seated: false,
            connection: false,
            first: false,
            inbox: true,
            held: true,
            ..plain
        };
        assert_eq!(state.acquire_left(), plain.acquiring.then(|| left.bits()));
        let taken = Plain { seated: false, connection: false, ..plain };
        assert_eq!(state.acquire_taken(), answered.then(|| taken.bits()));
        assert_eq!(state.acquire_received(), answered.then(|| Plain { seated: false, ..plain }.bits()));
    }
}
