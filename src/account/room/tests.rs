use super::*;
use crate::account::scope::Blocked;

/// Two fields at the edges of the word, so that a carry or a borrow would be seen at once.
#[derive(Debug)]
struct Edges;

const LOW: Field = Field::new(0, 3, Dimension::IoOwners);
const HIGH: Field = Field::new(3, 3, Dimension::IoRunning);
const FLAG: u64 = 1 << 6;

impl Layout for Edges {
    const FIELDS: &'static [Field] = &[LOW, HIGH];
}

const LIMIT: u64 = 3;

fn units() -> impl Iterator<Item = u64> {
    (0..=LIMIT).flat_map(|low| (0..=LIMIT).map(move |high| LOW.units(low) | HIGH.units(high)))
}

#[test]
fn taking_and_giving_move_exactly_the_units_asked() {
    let limits = small::limits::<Edges>(LIMIT);
    for word in small::words::<Edges>(LIMIT, FLAG) {
        for units in units() {
            let before = small::counts::<Edges>(word);
            let asked = small::counts::<Edges>(units);
            let enough = before.iter().zip(&asked).all(|(room, asked)| room >= asked);
            match taken::<Edges>(word, units) {
                Ok(left) => {
                    assert!(enough);
                    let after: Vec<_> = before.iter().zip(&asked).map(|(room, asked)| room - asked).collect();
                    assert_eq!(small::counts::<Edges>(left), after);
                    assert_eq!(left & FLAG, word & FLAG);
                    // What was taken can be given back, to the same word.
                    assert_eq!(given::<Edges>(left, units, limits), word);
                    let rooms = Rooms::<Edges>::at(left, limits);
                    assert_eq!(rooms.give(units), left);
                    assert_eq!(rooms.load(), word);
                }
                Err(Blocked::Full(dimension)) => {
                    let field = Edges::FIELDS.iter().find(|field| field.dimension() == dimension).unwrap();
                    assert!(!enough && field.of(word) < field.of(units));
                }
                Err(other) => panic!("{other:?}"),
            }
            let within = before.iter().zip(&asked).all(|(room, asked)| room + asked <= LIMIT);
            assert_eq!(fits::<Edges>(word, units, limits), within);
        }
    }
}

/// The comparison of all fields at once against one field after the other, for every value there is.
#[test]
fn comparing_all_fields_at_once_is_comparing_each() {
    let words = || 0..=Edges::COUNTS;
    for (word, units) in words().flat_map(|word| words().map(move |units| (word, units))) {
        for flag in [0, FLAG, !Edges::COUNTS] {
            let lacks = Edges::FIELDS.iter().any(|field| field.of(word) < field.of(units));
            assert_eq!(taken::<Edges>(word | flag, units).is_err(), lacks);
            for limits in words() {
                let fit = |field: &&Field| field.of(word) + field.of(units) <= field.of(limits);
                assert_eq!(
                    within::<Edges>(word | flag, units, limits),
                    Edges::FIELDS.iter().all(|f| fit(&f))
                );
                // Only a field that gets something can be given too much.
                let mut touched = Edges::FIELDS.iter().filter(|field| field.of(units) > 0);
                assert_eq!(fits::<Edges>(word | flag, units, limits), touched.all(|field| fit(&field)));
            }
        }
    }
}

#[test]
fn lowering_never_goes_below_use() {
    let limits = small::limits::<Edges>(LIMIT);
    for word in small::words::<Edges>(LIMIT, FLAG) {
        for field in Edges::FIELDS {
            for limit in 0..=LIMIT + 1 {
                let rooms = Rooms::<Edges>::at(word, limits);
                let used = LIMIT - field.of(word);
                let lowered = rooms.lower(field.dimension(), limit);
                let (used_after, word_after) = rooms.used();
                assert_eq!(field.of(used_after), used, "lowering changes no use");
                assert_eq!(word_after & !field.mask(), word & !field.mask());
                match lowered {
                    Ok(()) => {
                        assert!(used <= limit && limit <= LIMIT);
                        assert_eq!(field.of(rooms.limits()), limit);
                        assert_eq!(field.of(word_after), limit - used);
                    }
                    Err(why) => {
                        assert_eq!((rooms.load(), rooms.limits()), (word, limits));
                        let dimension = field.dimension();
                        let expected = if limit > LIMIT {
                            NotLowered::Raised { dimension, limit: LIMIT }
                        } else {
                            NotLowered::InUse { dimension, used }
                        };
                        assert_eq!(why, expected);
                    }
                }
            }
        }
    }
    let rooms = Rooms::<Edges>::new(limits);
    let elsewhere = Dimension::PoolsWorkers;
    assert_eq!(rooms.lower(elsewhere, 0), Err(NotLowered::NotHere(elsewhere)));
}

#[test]
fn a_lowering_begun_can_be_undone_or_overtaken() {
    let rooms = Rooms::<Edges>::new(small::limits::<Edges>(LIMIT));
    let lowering = rooms.begin(Dimension::IoOwners, 1).unwrap();
    assert_eq!((LOW.of(rooms.load()), LOW.of(rooms.limits())), (1, LIMIT));
    rooms.undo(lowering);
    assert_eq!(rooms.load(), rooms.limits());

    let late = rooms.begin(Dimension::IoOwners, 2).unwrap();
    rooms.lower(Dimension::IoOwners, 1).unwrap();
    let late = rooms.finish(late).unwrap_err();
    rooms.undo(late);
    assert_eq!((LOW.of(rooms.load()), LOW.of(rooms.limits())), (1, 1));
}

#[test]
fn a_word_opens_once_and_retires_unused() {
    let rooms = Rooms::<Edges>::default();
    assert!(rooms.retire(0), "nothing is in use");
    assert!(rooms.open(LOW.units(2)));
    assert!(rooms.open(HIGH.units(3)));
    assert!(!rooms.open(LOW.units(1)));
    assert_eq!(small::counts::<Edges>(rooms.load()), [2, 3]);
    rooms.step(|word| taken::<Edges>(word, LOW.units(1))).unwrap();
    assert!(!rooms.retire(0), "one is in use");
    rooms.give(LOW.units(1));
    rooms.set(FLAG);
    assert!(!rooms.retire(0), "the flag is set");
    assert!(rooms.retire(FLAG));
    assert_eq!((rooms.load(), rooms.limits()), (0, 0));
}

/// Broken accounting is a flag of the whole process, so it is broken in a child process.
#[test]
fn giving_twice_is_broken_accounting() {
    const CHILD: &str = "LATENT_TEST_BREAKS_ACCOUNTING";
    if std::env::var_os(CHILD).is_none() {
        let test = "account::room::tests::giving_twice_is_broken_accounting";
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
        assert!(String::from_utf8_lossy(&child.stdout).contains("1 passed"));
        return;
    }
    let rooms = Rooms::<Edges>::new(LOW.units(2));
    assert!(!broken::is_broken());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| rooms.give(LOW.units(1))));
    assert!(panicked.is_err());
    assert!(broken::is_broken());
    // While a thread panics the flag is all: a second panic would end the process.
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        struct Gives<'a>(&'a Rooms<Edges>);
        impl Drop for Gives<'_> {
            fn drop(&mut self) {
                self.0.give(LOW.units(1));
            }
        }
        let _gives = Gives(&rooms);
        panic!("the first panic");
    }));
    assert!(panicked.is_err());
}
