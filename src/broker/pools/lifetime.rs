//! How long a connection lives, where that is limited: up to a tenth less than the limit, so that connections that were made
//! together do not all end together.

/// Of `longest` nanoseconds, for the connection with this number of the client with that one: 90 % to 100 % of it, the same
/// for the same numbers on every run.
pub(super) fn of(longest: u64, client: u32, connection: u64) -> u64 {
    let hash = mixed((u64::from(client) << 40) ^ connection);
    // The upper half of a 64 x 64 product: a number below a tenth of `longest`, spread as evenly as the hash is.
    let less = (u128::from(longest / 10) * u128::from(hash)) >> 64;
    longest - less as u64
}

/// A bijection of 64 bits in which every input bit moves about half of the output bits: multiply, shift, twice.
const fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::of;

    const LONGEST: u64 = 1_800_000_000_000;

    #[test]
    fn lives_end_in_the_last_tenth_and_evenly_spread() {
        let mut by_tenth = [0_u32; 10];
        for client in 1..=10 {
            for connection in 0..1_000 {
                let lived = of(LONGEST, client, connection);
                assert_eq!(lived, of(LONGEST, client, connection), "the same on every run");
                assert!((LONGEST - LONGEST / 10..=LONGEST).contains(&lived));
                by_tenth[((LONGEST - lived) * 100 / LONGEST).min(9) as usize] += 1;
            }
        }
        assert!(by_tenth.iter().all(|count| (850..=1_150).contains(count)), "{by_tenth:?}");
    }

    #[test]
    fn the_shortest_life_is_no_shorter() {
        assert_eq!([of(1, 1, 1), of(9, 2, 3), of(0, 4, 5)], [1, 9, 0]);
    }
}
