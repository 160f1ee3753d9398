//! Models of a client: its acquire line (`queue::acquire`, A1 to A5) on its real word, cells and turn, and the rows of the
//! meeting rule that meet there: park x line, park x retirement, one dial at a time.
//!
//! Every model ends with the same questions: was somebody forgotten for whom there is something, and is everything given
//! back once all are gone?
#![cfg(loom)]

use std::sync::Arc;

use latent_capabilities::model::account::client::{ClientWord, Dial};
use latent_capabilities::model::account::scope::Heed;
use latent_capabilities::model::mem::arena::{Anchor, Lease};
use latent_capabilities::model::mem::cells::{Cell, Cells};
use latent_capabilities::model::queue::acquire::{self, AcquireLine, Answer};
use latent_capabilities::model::queue::floor::Floor;
use latent_capabilities::model::queue::model::{self, OperationLease, Session, admit, drop_front, step};
use latent_capabilities::model::queue::operation::{State, Step};
use latent_capabilities::model::queue::wait::enter as enter_line;
use loom::thread;
use loom_tests::{Bound, check, check_few};

/// Two threads, of which the second does one thing: such models are searched to the end.
const BOUND: Bound = Bound::Complete;
/// No model lives that long.
const HOUR_MS: u64 = 3_600_000;

struct Client {
    ground: Anchor<Session, model::Ground>,
    word: ClientWord,
    cells: Cells<u8>,
    line: AcquireLine,
}

impl acquire::Client for Client {
    type Tenure = Lease<Session>;
    type Kept = u8;
    fn floor(&self) -> &Floor<Lease<Session>> {
        &self.ground.shared().floor
    }
    fn line(&self) -> &AcquireLine {
        &self.line
    }
    fn word(&self) -> &ClientWord {
        &self.word
    }
    fn cells(&self) -> &Cells<u8> {
        &self.cells
    }
    fn rests_again(&self, _index: u8) {}
    fn orphaned(&self, cell: Cell<u8>) {
        self.destroy(cell);
    }
}

impl Client {
    /// A client with room for so many connections, and a session of its node.
    fn new(connections: u32) -> (Arc<Client>, Lease<Session>) {
        let ground = model::lay(4, 4, 4);
        let session = model::open(&ground);
        (Client::on(ground, connections), session)
    }
    fn on(ground: Anchor<Session, model::Ground>, connections: u32) -> Arc<Client> {
        let word = ClientWord::default();
        assert!(word.open(connections));
        let cells = Cells::new(connections as usize);
        Arc::new(Client { ground, word, cells, line: AcquireLine::new() })
    }
    fn dial(&self) -> Result<(), Dial> {
        self.word.reserve_dial(0, Heed::Marks)
    }
    /// A connection in use.
    fn connected(&self) -> Cell<u8> {
        self.dial().expect("there is room");
        let mut cell = self.cells.reserve().expect("there is a cell");
        assert!(self.cells.put(&mut cell, 7).is_none());
        self.serve_if(self.word.dial_done());
        cell
    }
    fn serve_if(&self, marked: bool) {
        if marked {
            acquire::serve(self);
        }
    }
    /// As a connection parks.
    fn park(&self, cell: Cell<u8>) {
        match self.cells.park(cell) {
            Ok(()) => self.serve_if(self.word.is_marked()),
            Err(cell) => self.destroy(cell),
        }
    }
    /// As a connection is destroyed.
    fn destroy(&self, cell: Cell<u8>) {
        let _resource = self.cells.remove(cell);
        self.serve_if(self.word.give_connection());
    }
    fn dial_fails(&self) {
        self.serve_if(self.word.dial_failed(0, HOUR_MS, HOUR_MS).marked);
    }
    /// As the registry retires a client.
    fn retire(&self) {
        self.word.close();
        self.cells.close();
        while let Some(cell) = self.cells.take_idle() {
            self.destroy(cell);
        }
        acquire::serve(self);
    }
    fn enter(&self, lease: &OperationLease) {
        assert!(acquire::enter(self, lease));
    }
    /// What the waiter was given; it leaves its seat with it.
    fn answer(&self, lease: &OperationLease) -> Answer {
        assert!(acquire::is_answered(lease), "a waiter was forgotten");
        let answer = acquire::take_answer(lease).expect("an answered waiter has its answer");
        acquire::unseat(lease);
        answer
    }
    /// Takes what was handed over.
    fn receive(&self, answer: Answer) -> Cell<u8> {
        let Answer::Idle(index) = answer else { panic!("a connection was expected, not {answer:?}") };
        self.cells.receive(usize::from(index)).expect("it was handed over")
    }
    /// Nobody is left: neither a mark, nor a connection, nor an operation.
    fn assert_zero(&self) {
        assert!(!self.word.is_marked(), "marked for nobody");
        assert_eq!((self.word.connections(), self.word.view().dialing), (0, false));
        assert_eq!(self.cells.idle_count(), 0);
        model::assert_zero(&self.ground);
    }
}

/// A started operation.
fn started(session: &Lease<Session>) -> OperationLease {
    let lease = admit(session, Some(0), true).expect("there is room to run");
    assert!(lease.word().update(|bits| State(bits).started()).is_ok());
    lease
}

#[test]
fn enter_meets_park() {
    check("acquire::enter_meets_park", BOUND, || {
        let (client, session) = Client::new(1);
        let waiter = started(&session);
        let used = client.connected();
        let other = client.clone();
        let parker = thread::spawn(move || other.park(used));
        client.enter(&waiter);
        parker.join().expect("no panic");
        let cell = client.receive(client.answer(&waiter));
        client.destroy(cell);
        drop_front(waiter);
        client.assert_zero();
    });
}

#[test]
fn enter_meets_destruction() {
    check("acquire::enter_meets_destruction", BOUND, || {
        let (client, session) = Client::new(1);
        let waiter = started(&session);
        let used = client.connected();
        let other = client.clone();
        let destroyer = thread::spawn(move || other.destroy(used));
        client.enter(&waiter);
        destroyer.join().expect("no panic");
        assert_eq!(client.answer(&waiter), Answer::Dial);
        assert!(!client.word.undo_dial());
        drop_front(waiter);
        client.assert_zero();
    });
}

#[test]
fn enter_meets_a_failed_dial() {
    check("acquire::enter_meets_a_failed_dial", BOUND, || {
        let (client, session) = Client::new(2);
        let waiter = started(&session);
        client.dial().expect("there is room");
        let other = client.clone();
        let dialler = thread::spawn(move || other.dial_fails());
        client.enter(&waiter);
        dialler.join().expect("no panic");
        assert_eq!(client.answer(&waiter), Answer::Refused);
        drop_front(waiter);
        client.assert_zero();
    });
}

#[test]
fn enter_meets_a_successful_dial() {
    check("acquire::enter_meets_a_successful_dial", BOUND, || {
        let (client, session) = Client::new(2);
        let waiter = started(&session);
        client.dial().expect("there is room");
        let other = client.clone();
        let dialler = thread::spawn(move || {
            let marked = other.word.dial_done();
            other.serve_if(marked);
        });
        client.enter(&waiter);
        dialler.join().expect("no panic");
        // There is room for a second connection, so it dials.
        assert_eq!(client.answer(&waiter), Answer::Dial);
        assert!(!client.word.undo_dial());
        assert!(!client.word.give_connection());
        drop_front(waiter);
        client.assert_zero();
    });
}

/// A1: one leaves while it is answered; the next one gets it.
#[test]
fn leave_meets_answer_and_the_next_one_gets_it() {
    check("acquire::leave_meets_answer_and_the_next_one_gets_it", Bound::Preemptions(3), || {
        let (client, session) = Client::new(1);
        let (first, second) = (started(&session), started(&session));
        let used = client.connected();
        client.enter(&first);
        client.enter(&second);
        let other = client.clone();
        let leaver = thread::spawn(move || {
            acquire::leave(&*other, &first);
            drop_front(first);
        });
        client.park(used);
        leaver.join().expect("no panic");
        let cell = client.receive(client.answer(&second));
        client.destroy(cell);
        drop_front(second);
        client.assert_zero();
    });
}

/// The same with the turn to dial, and the operation gone at once: its slot may be in the line's inbox.
#[test]
fn leave_meets_the_turn_to_dial() {
    check("acquire::leave_meets_the_turn_to_dial", Bound::Preemptions(3), || {
        let (client, session) = Client::new(1);
        let (first, second) = (started(&session), started(&session));
        let used = client.connected();
        client.enter(&first);
        client.enter(&second);
        let other = client.clone();
        let leaver = thread::spawn(move || {
            acquire::leave(&*other, &first);
            drop_front(first);
        });
        client.destroy(used);
        leaver.join().expect("no panic");
        assert_eq!(client.answer(&second), Answer::Dial);
        assert!(!client.word.undo_dial());
        drop_front(second);
        client.assert_zero();
    });
}

/// A5: the only one leaves while it is answered; what it was to get rests, and nobody is marked for.
#[test]
fn the_last_one_leaves_while_it_is_answered() {
    check("acquire::the_last_one_leaves_while_it_is_answered", Bound::Preemptions(4), || {
        let (client, session) = Client::new(1);
        let waiter = started(&session);
        let used = client.connected();
        client.enter(&waiter);
        let other = client.clone();
        let leaver = thread::spawn(move || {
            acquire::leave(&*other, &waiter);
            drop_front(waiter);
        });
        client.park(used);
        leaver.join().expect("no panic");
        let cell = client.cells.take_idle().expect("it rests");
        client.destroy(cell);
        client.assert_zero();
    });
}

/// Who comes while the line gives something back finds it.
#[test]
fn a_newcomer_finds_what_a_leaver_did_not_take() {
    check("acquire::a_newcomer_finds_what_a_leaver_did_not_take", BOUND, || {
        let (client, session) = Client::new(1);
        let (first, second) = (started(&session), started(&session));
        let used = client.connected();
        client.enter(&first);
        client.park(used);
        // The first was answered and does not take it.
        let other = client.clone();
        let leaver = thread::spawn(move || {
            acquire::leave(&*other, &first);
            drop_front(first);
        });
        client.enter(&second);
        leaver.join().expect("no panic");
        let cell = client.receive(client.answer(&second));
        client.destroy(cell);
        drop_front(second);
        client.assert_zero();
    });
}

/// Who was given a dead connection and goes back to the front is served, and so is who comes meanwhile. (A holder of the
/// turn that has looked at its inbox already may give the freed place to the one behind.)
#[test]
fn who_goes_back_to_the_front_is_not_forgotten() {
    check("acquire::who_goes_back_to_the_front_is_not_forgotten", BOUND, || {
        let (client, session) = Client::new(1);
        let (first, second) = (started(&session), started(&session));
        let used = client.connected();
        client.enter(&first);
        client.park(used);
        let other = client.clone();
        let behind = thread::spawn(move || {
            other.enter(&second);
            second
        });
        let answer = acquire::take_answer(&first).expect("it was answered");
        let dead = client.receive(answer);
        acquire::enter_again(&*client, &first);
        client.destroy(dead);
        let second = behind.join().expect("no panic");
        let dials = if acquire::is_answered(&first) { [first, second] } else { [second, first] };
        assert_eq!(client.answer(&dials[0]), Answer::Dial);
        assert!(!acquire::is_answered(&dials[1]), "one dials at a time");
        client.dial_fails();
        assert_eq!(client.answer(&dials[1]), Answer::Refused);
        dials.into_iter().for_each(drop_front);
        client.assert_zero();
    });
}

/// A retirement reaches whoever waits or comes, and whatever is parked meanwhile.
#[test]
fn retirement_meets_enter() {
    check("acquire::retirement_meets_enter", BOUND, || {
        let (client, session) = Client::new(1);
        let waiter = started(&session);
        let used = client.connected();
        let other = client.clone();
        let retirer = thread::spawn(move || other.retire());
        client.enter(&waiter);
        retirer.join().expect("no panic");
        assert_eq!(client.answer(&waiter), Answer::Refused);
        client.park(used);
        assert_eq!(client.dial(), Err(Dial::Closed));
        drop_front(waiter);
        client.assert_zero();
    });
}

#[test]
fn retirement_meets_park() {
    check("acquire::retirement_meets_park", Bound::Preemptions(2), || {
        let (client, session) = Client::new(2);
        let (used, rests) = (client.connected(), client.connected());
        client.park(rests);
        let (other, third) = (client.clone(), client.clone());
        let retirer = thread::spawn(move || other.retire());
        let taker = thread::spawn(move || {
            if let Some(cell) = third.cells.take_idle() {
                third.park(cell);
            }
        });
        client.park(used);
        retirer.join().expect("no panic");
        taker.join().expect("no panic");
        drop(session);
        client.assert_zero();
    });
}

/// One dial at a time, whether it was had in line or past it.
#[test]
fn one_dials_at_a_time() {
    check("acquire::one_dials_at_a_time", BOUND, || {
        let (client, session) = Client::new(2);
        let waiter = started(&session);
        let other = client.clone();
        let rival = thread::spawn(move || {
            let dials = other.dial();
            if dials.is_ok() {
                other.dial_fails();
            }
            dials
        });
        client.enter(&waiter);
        let rival = rival.join().expect("no panic");
        match client.answer(&waiter) {
            Answer::Dial => {
                assert!(matches!(rival, Err(Dial::Busy | Dial::Marked)), "two dialled at a time: {rival:?}");
                client.dial_fails();
            }
            answer => assert_eq!((answer, rival), (Answer::Refused, Ok(()))),
        }
        drop_front(waiter);
        client.assert_zero();
    });
}

/// A4: who leaves one client's line and is over gives its slot to somebody who stands in another client's line at once. Each
/// line keeps to its own.
#[test]
fn a_slot_goes_from_one_line_to_another() {
    check("acquire::a_slot_goes_from_one_line_to_another", Bound::Preemptions(3), || {
        let (client, session) = Client::new(1);
        let neighbour = Client::on(client.ground.clone(), 1);
        let (first, second) = (started(&session), started(&session));
        let (used, theirs) = (client.connected(), neighbour.connected());
        client.enter(&first);
        client.enter(&second);
        let (other, there, opened) = (client.clone(), neighbour.clone(), model::open(&client.ground));
        let mover = thread::spawn(move || {
            acquire::leave(&*other, &first);
            drop_front(first);
            let next = started(&opened);
            there.enter(&next);
            next
        });
        client.park(used);
        let next = mover.join().expect("no panic");
        let cell = client.receive(client.answer(&second));
        client.destroy(cell);
        neighbour.park(theirs);
        let cell = neighbour.receive(neighbour.answer(&next));
        neighbour.destroy(cell);
        drop_front(second);
        drop_front(next);
        drop(session);
        client.assert_zero();
        neighbour.assert_zero();
    });
}

/// The node's turn mends its links after the step that grants. By then the granted operation may stand in a client's line:
/// the two keep apart, and whoever waits behind it is not forgotten.
#[test]
fn a_granted_operation_stands_in_another_line_at_once() {
    let why = "the two lines share nothing but the operation's word, which is the point";
    check_few("acquire::a_granted_operation_stands_in_another_line_at_once", why, BOUND, || {
        let ground = model::lay(1, 4, 4);
        let session = model::open(&ground);
        let client = Client::on(ground.clone(), 1);
        let used = client.connected();
        let running = admit(&session, Some(0), true).expect("there is room to run");
        let [first, second] =
            [(); 2].map(|()| admit(&session, Some(0), false).expect("there is room to wait"));
        enter_line(&ground.shared().floor, &first);
        enter_line(&ground.shared().floor, &second);
        let releaser = thread::spawn(move || drop_front(running));
        // Polled for whatever reason, just when it was granted.
        let early = first.word().update(|bits| State(bits).started()).is_ok();
        if early {
            client.enter(&first);
        }
        releaser.join().expect("no panic");
        if early {
            acquire::leave(&*client, &first);
        }
        drop_front(first);
        assert_eq!(step(&second), Step::Granted, "a waiter was forgotten");
        client.destroy(used);
        drop_front(second);
        drop(session);
        client.assert_zero();
    });
}

/// O6: of two that ask for the one connection that an operation may have, one straight and one by way of the line, exactly one
/// gets it; once that one is done with it, the next attempt goes through.
#[test]
fn an_operation_has_one_connection() {
    check("acquire::an_operation_has_one_connection", BOUND, || {
        let (client, session) = Client::new(1);
        let lease = Arc::new(started(&session));
        let straight = {
            let lease = lease.clone();
            thread::spawn(move || {
                let claim = lease.duplicate_if(|bits| State(bits).with_connection());
                claim.map(|held| held.release_with(State::ONE_CONNECTION)).is_ok()
            })
        };
        let entered = acquire::enter(&*client, &lease);
        if entered {
            let second = lease.duplicate_if(|bits| State(bits).with_connection());
            assert!(second.is_err(), "who sits in the line asks for no other");
            acquire::leave(&*client, &lease);
        }
        assert!(straight.join().unwrap() || entered, "nobody got it");
        let again = lease.duplicate_if(|bits| State(bits).with_connection()).expect("it is free again");
        again.release_with(State::ONE_CONNECTION);
        drop_front(Arc::try_unwrap(lease).expect("the other thread is over"));
        drop(session);
        client.assert_zero();
    });
}
