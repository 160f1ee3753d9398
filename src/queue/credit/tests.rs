use super::label::ANY_TAG;
use super::*;

/// Every label of three pairs.
fn labels() -> impl Iterator<Item = Label> {
    let pairs = [(0, 0), (1, 0), (4_095, 255)];
    pairs.into_iter().flat_map(|(tenant, provider)| {
        let pair = Label::of(Request::new(tenant, provider, 9));
        (0..16).map(move |counts| Label(pair.0 | counts << 20))
    })
}

#[test]
fn a_label_changes_by_one_unit_of_its_own_pair() {
    let mine = Label::of(Request::new(1, 0, 7));
    assert_eq!(mine.request(), Request::new(1, 0, ANY_TAG));
    for label in labels() {
        let (running, pending) = (label.running(), label.pending());
        let counts = |other: Option<Label>| other.map(|other| {
            assert!(other.is_of(label), "the pair stays");
            (other.running(), other.pending())
        });
        let of_mine = label.is_of(mine);
        assert_eq!(counts(label.taken(mine, true)), (of_mine && running > 0).then(|| (running - 1, pending)));
        assert_eq!(counts(label.taken(mine, false)), (of_mine && pending > 0).then(|| (running, pending - 1)));
        let trades = of_mine && running > 0 && pending < 3;
        assert_eq!(counts(label.traded(mine)), trades.then(|| (running - 1, pending + 1)));
        for kept in 0..=3 {
            let left = label.left(mine, kept);
            if of_mine {
                assert_eq!(counts(left), (running < 3).then(|| (running + 1, pending)));
            } else {
                let free = kept == 0 && running == 0 && pending == 0;
                assert_eq!(left, free.then_some(Label(mine.0 | Label::RUNNING)), "{label:?}");
            }
        }
    }
}

#[test]
fn a_round_ends_swept_and_only_with_nobody_who_keeps_it() {
    let lent = Mode(0);
    assert!(lent.lends() && !lent.is_covered() && lent.lent_again().is_none());
    assert_eq!(lent.looked_at_by_one(), None, "what lies about may");
    let one = lent.swept_by_one().unwrap();
    assert!(!one.lends() && !one.is_covered() && one.lent_again().is_none());
    let two = one.swept_by_one().unwrap();
    let covered = two.left_by_one(true);
    assert!(covered.is_covered() && !covered.is_swept(), "what the other one found is in its hands");
    assert_eq!((covered.swept_by_one(), covered.lent_again()), (None, None));
    let swept = covered.left_by_one(true);
    assert!(swept.is_swept());
    let late = swept.looked_at_by_one().unwrap();
    assert!(late.is_covered() && !late.is_swept() && late.left_by_one(false) == swept);
    assert_eq!(swept.kept().lent_again(), None);
    let again = swept.lent_again().unwrap();
    assert!(again.lends() && !again.is_covered() && again.round() == 1);
    assert_eq!(one.left_by_one(false).lent_again(), None, "one cell is not all");
    let none = Credits::none().mode();
    assert!(none.is_swept() && !none.lends(), "there is nothing to be swept");
    assert_eq!((none.lent_again(), none.round()), (None, 0));
}
