//! Which tenant a token belongs to.
//!
//! The node keeps no token. It keeps a keyed hash of each one, under a key of this process that nobody else knows, in
//! an ordered table. A presented token is hashed, its place in the table found by the first bytes, and the whole
//! hash compared in constant time. What the search's timing could tell concerns hashes under an unknown key.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

type Keyed = Hmac<Sha256>;

type Digest = [u8; 32];

/// The keyed hashes of all tokens.
pub(crate) struct Tokens {
    /// The hash with the key in it already. It wipes itself.
    keyed: Keyed,
    /// Ordered by hash; the number is the tenant's place in the configuration.
    table: Box<[(Digest, usize)]>,
}

impl Tokens {
    /// For these tokens, each belonging to the tenant of its position.
    ///
    /// # Errors
    ///
    /// The system gives no randomness.
    pub(crate) fn new<'a>(tokens: impl Iterator<Item = &'a str>) -> Result<Self, getrandom::Error> {
        let mut key = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *key)?;
        let keyed = Keyed::new_from_slice(&*key).expect("HMAC takes a key of any length");
        let mut table: Vec<(Digest, usize)> =
            tokens.enumerate().map(|(tenant, token)| (digest(&keyed, token.as_bytes()), tenant)).collect();
        table.sort_unstable();
        Ok(Self { keyed, table: table.into() })
    }

    /// The tenant that this token belongs to. Takes the same time for every unknown token of a length.
    pub(crate) fn find(&self, token: &[u8]) -> Option<usize> {
        let presented = digest(&self.keyed, token);
        let place = self.table.partition_point(|(known, _)| known[..8] < presented[..8]);
        let (known, tenant) = self.table.get(place)?;
        bool::from(known.ct_eq(&presented)).then_some(*tenant)
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Tokens({})", self.table.len())
    }
}

fn digest(keyed: &Keyed, token: &[u8]) -> Digest {
    let mut mac = keyed.clone();
    mac.update(token);
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_finds_its_own_tenant_and_no_other() {
        let names: Vec<String> = (0..500).map(|number| format!("token-{number}")).collect();
        let tokens = Tokens::new(names.iter().map(String::as_str)).expect("randomness");
        for (tenant, name) in names.iter().enumerate() {
            assert_eq!(tokens.find(name.as_bytes()), Some(tenant));
        }
        for unknown in ["", "token-", "token-500", "Token-1", "token-1 "] {
            assert_eq!(tokens.find(unknown.as_bytes()), None);
        }
        assert_eq!(format!("{tokens:?}"), "Tokens(500)");
    }

    #[test]
    fn an_empty_table_knows_nobody() {
        let tokens = Tokens::new(std::iter::empty()).expect("randomness");
        assert_eq!(tokens.find(b"anything"), None);
    }
}
