//! Text that must not be seen: wiped when dropped, never printed.

use std::fmt;

use zeroize::Zeroizing;

/// A token or a credential. It has no `Display`, and its `Debug` says nothing.
pub(crate) struct Secret(Zeroizing<String>);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The text itself, for the few places that use it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_prints_nothing_of_itself() {
        let secret = Secret::new("hush-hush");
        assert_eq!(format!("{secret:?} {:?}", [&secret]), "Secret(..) [Secret(..)]");
        assert_eq!(secret.reveal(), "hush-hush");
    }
}
