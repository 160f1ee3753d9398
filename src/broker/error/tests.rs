use super::*;
use crate::account::charge::Marks;

fn every_kind() -> Vec<Kind> {
    let scopes =
        [Scope::Node, Scope::Tenant(1), Scope::Provider(2), Scope::Client(3), Scope::Session].into_iter();
    let full = scopes.flat_map(|scope| {
        let refusal = Refusal { dimension: Dimension::IoRunning, scope, promised: false };
        [Kind::Full(refusal), Kind::Full(Refusal { promised: true, ..refusal })]
    });
    let mut kinds: Vec<Kind> = full.collect();
    kinds.extend([Kind::TooLarge(Dimension::IoChunkBytes), Kind::Busy, Kind::JobFailed]);
    kinds.push(Kind::Spent(Budget::Effects));
    kinds.push(Kind::Backoff { wait_ms: 250 });
    kinds.extend(What::ALL.iter().copied().map(Kind::Retired));
    kinds.extend(StopCause::ALL.iter().copied().map(Kind::Stopped));
    kinds.extend(Which::ALL.iter().copied().map(Kind::Deadline));
    kinds.extend(Denied::ALL.iter().copied().map(Kind::Denied));
    kinds.extend(Invalid::ALL.iter().copied().map(Kind::Invalid));
    kinds.extend(Terminal::ALL.iter().copied().map(Kind::Ended));
    kinds
}

/// Case S23: each reason has a stable word of its own.
#[test]
fn codes_are_kebab_words_and_kinds_have_their_own() {
    let mut codes = std::collections::HashMap::new();
    for kind in every_kind() {
        let code = Error::from(kind).code();
        assert!(code.chars().all(|each| each.is_ascii_lowercase() || each == '-'), "{code}");
        let first = codes.entry(code).or_insert(kind);
        let same_kind = matches!((*first, kind), (Kind::Full(_), Kind::Full(_)));
        assert!(*first == kind || same_kind, "{first:?} and {kind:?} have the same code");
    }
}

#[test]
fn sentences_name_dimension_and_scope() {
    let full = Error::full(Dimension::PoolsRunningPerTenant, Scope::Tenant(7));
    assert_eq!(full.to_string(), "no room in pools.running_per_tenant of the tenant");
    let scopes = every_kind().into_iter().filter(|kind| matches!(kind, Kind::Full(_)));
    for kind in scopes {
        let error = Error::from(kind);
        assert!(error.to_string().contains("io.running"));
        assert!(error.to_string().contains(error.scope().unwrap().kind()));
    }
    for kind in every_kind() {
        assert!(!Error::from(kind).to_string().is_empty());
    }
}

#[test]
fn refusals_before_the_start_sent_nothing() {
    for kind in every_kind() {
        let error = Error::from(kind);
        let ended = matches!(kind, Kind::Ended(_) | Kind::JobFailed);
        assert_eq!(error.effect() == Effect::NotSent, !ended, "{kind:?}");
        assert_ne!(error.after_start().effect(), Effect::NotSent);
        assert_eq!(error.after_start().kind(), kind);
    }
    assert_eq!(Error::from(Terminal::Uncertain).effect(), Effect::Uncertain);
    assert_eq!(Error::from(Terminal::TooLarge).after_start().effect(), Effect::Sent);
}

#[test]
fn only_a_pause_says_how_long() {
    for kind in every_kind() {
        let wait = Error::from(kind).retry_after();
        assert_eq!(wait.is_some(), matches!(kind, Kind::Backoff { .. }));
    }
    let dial = Error::from_dial(Dial::Backoff(1_250), 3, 1_000);
    assert_eq!(dial.retry_after(), Some(Duration::from_millis(250)));
    let over = Error::from_dial(Dial::Backoff(1_250), 3, 2_000);
    assert_eq!(over.retry_after(), Some(Duration::ZERO));
}

#[test]
fn terminals_fit_four_bits_and_come_back() {
    assert_eq!(Terminal::from_bits(0), None);
    for bits in 0..=u8::MAX {
        if let Some(terminal) = Terminal::from_bits(bits) {
            assert_eq!(terminal.bits(), bits);
            assert!(bits < 16);
        }
    }
    assert!(Terminal::ALL.iter().all(|end| Terminal::from_bits(end.bits()) == Some(*end)));
}

#[test]
fn a_refused_reservation_keeps_its_reason() {
    let of = |blocked, scope| Error::from_refused(Refused { blocked, scope, marks: Marks::NONE });
    let dimension = Dimension::PoolsRunning;
    assert_eq!(of(Blocked::Full(dimension), Scope::Node), Error::full(dimension, Scope::Node));
    let promised = of(Blocked::Promised(dimension), Scope::Node);
    assert_eq!(promised.dimension(), Some(dimension));
    assert_ne!(promised, Error::full(dimension, Scope::Node));
    assert_eq!(of(Blocked::Closed, Scope::Node), Error::retired(What::Io));
    assert_eq!(of(Blocked::Stale, Scope::Provider(1)), Error::retired(What::Epoch));
}
