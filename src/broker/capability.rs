//! Capabilities: what a plan binds to a provider, and the operations that it consists of.
//!
//! A capability is a `static` of whoever defines the interface, and its identity is the address of that static. Nothing
//! is looked up by name on the way of a call, and two interfaces that happen to have the same name are two.

use std::fmt;

/// The most operations one capability has: one bit each in a binding's word.
pub const OPERATIONS_MAX: usize = 16;

/// The longest name of anything: capabilities, operations, tenants, publications, providers.
pub const NAME_MAX: usize = 256;

/// Whether `name` can be a name: 1 to 256 bytes of ASCII letters, digits and `- _ . : / @`.
pub(crate) const fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() > NAME_MAX {
        return false;
    }
    let mut at = 0;
    while at < bytes.len() {
        if !(bytes[at].is_ascii_alphanumeric()
            || matches!(bytes[at], b'-' | b'_' | b'.' | b':' | b'/' | b'@'))
        {
            return false;
        }
        at += 1;
    }
    true
}

/// An interface that providers offer and plans bind, such as "send a request".
///
/// ```
/// use latent_capabilities::broker::Capability;
///
/// pub static HTTP: Capability = Capability::new("latent:http/client", &["send", "open"]);
/// # assert_eq!(HTTP.find("open"), Some(HTTP.operation(1)));
/// ```
///
/// It is no `Clone`: the static is the capability. A `const` of this type would be another capability at every use.
pub struct Capability {
    name: &'static str,
    operations: &'static [&'static str],
}

impl Capability {
    /// A capability with these operations. In a `static`, what is wrong with them does not compile.
    ///
    /// # Panics
    ///
    /// If there are no operations or more than [`OPERATIONS_MAX`], or if something is no name: 1 to [`NAME_MAX`] bytes
    /// of ASCII letters, digits and `- _ . : / @`.
    #[must_use]
    pub const fn new(name: &'static str, operations: &'static [&'static str]) -> Self {
        assert!(is_name(name), "a capability needs a name");
        assert!(!operations.is_empty() && operations.len() <= OPERATIONS_MAX, "1 to 16 operations");
        let mut at = 0;
        while at < operations.len() {
            assert!(is_name(operations[at]), "an operation needs a name");
            at += 1;
        }
        Self { name, operations }
    }

    /// Its name, for people.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// How many operations it has: 1 to 16.
    #[must_use]
    pub const fn operation_count(&self) -> usize {
        self.operations.len()
    }

    /// The operation with this number, in the order in which they were given.
    ///
    /// # Panics
    ///
    /// If there is none; in a `const`, that does not compile.
    #[must_use]
    pub const fn operation(&'static self, index: u8) -> Operation {
        assert!((index as usize) < self.operations.len(), "no such operation");
        Operation { capability: self, index }
    }

    /// The operation with this name. Compares names one by one: for the control path.
    #[must_use]
    pub fn find(&'static self, name: &str) -> Option<Operation> {
        self.operations().find(|operation| operation.name() == name)
    }

    /// All its operations, in order.
    pub fn operations(&'static self) -> impl Iterator<Item = Operation> {
        (0_u8..).zip(self.operations).map(move |(index, _)| Operation { capability: self, index })
    }

    /// A bit for each operation.
    pub(crate) const fn all_bits(&self) -> u16 {
        (((1_u32 << self.operations.len()) - 1) & 0xffff) as u16
    }

    /// Whether both are the same static.
    #[inline]
    pub(crate) fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Capability({} {:?})", self.name, self.operations)
    }
}

/// One operation of a [`Capability`].
#[derive(Clone, Copy)]
pub struct Operation {
    capability: &'static Capability,
    index: u8,
}

impl Operation {
    /// The capability that it belongs to.
    #[must_use]
    pub const fn capability(self) -> &'static Capability {
        self.capability
    }

    /// Its number within the capability, below 16.
    #[must_use]
    pub const fn index(self) -> u8 {
        self.index
    }

    /// Its name, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.capability.operations[self.index as usize]
    }

    /// Its bit in a binding's word.
    pub(crate) const fn bit(self) -> u16 {
        1 << self.index
    }
}

impl PartialEq for Operation {
    fn eq(&self, other: &Self) -> bool {
        self.capability.is(other.capability) && self.index == other.index
    }
}

impl Eq for Operation {}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.capability.name, self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static ONE: Capability = Capability::new("test:one", &["send", "open"]);
    static OTHER: Capability = Capability::new("test:one", &["send", "open"]);

    #[test]
    fn identity_is_the_static_and_not_the_name() {
        assert_eq!(ONE.operation(0), ONE.find("send").expect("it has this operation"));
        assert_ne!(ONE.operation(0), OTHER.operation(0));
        assert_ne!(ONE.operation(0), ONE.operation(1));
        assert_eq!(ONE.find("close"), None);
    }

    #[test]
    fn operations_have_bits_from_zero() {
        assert_eq!(ONE.all_bits(), 0b11);
        assert_eq!(ONE.operation(1).bit(), 0b10);
        static SIXTEEN: Capability = Capability::new(
            "x",
            &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"],
        );
        assert_eq!(SIXTEEN.all_bits(), u16::MAX);
        assert_eq!(SIXTEEN.operations().map(Operation::bit).fold(0, |all, bit| all | bit), u16::MAX);
    }

    #[test]
    fn names_are_short_and_plain() {
        for good in ["a", "latent:http/client@0.2.0", "A-b_c.d", &"x".repeat(NAME_MAX)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "a b", "ä", "a\n", "a#b", &"x".repeat(NAME_MAX + 1)] {
            assert!(!is_name(bad), "{bad:?}");
        }
    }

    #[test]
    #[should_panic(expected = "no such operation")]
    fn an_operation_that_is_not_there_is_a_bug_of_the_caller() {
        let _ = ONE.operation(2);
    }
}
