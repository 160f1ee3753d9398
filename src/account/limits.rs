//! The limit structures: one per group of the table, with one public field per dimension.
//!
//! They hold what an operator configured, nothing derived. Counts are `u32`, bytes are `u64`, times are
//! [`Duration`]; by [`Dimension`] every value is a plain `u64` (milliseconds for times, rounded up).

use std::fmt;
use std::time::Duration;

use super::dimension::{Dimension, Group, dimensions};
use super::rules::{self, FixedCost, LimitsError};

/// A field of a limit structure as the table's `u64`, and back.
trait Value: Sized {
    fn units(&self) -> u64;
    /// `None`: the type cannot hold so much.
    fn from_units(units: u64) -> Option<Self>;
}

impl Value for u32 {
    fn units(&self) -> u64 {
        u64::from(*self)
    }

    fn from_units(units: u64) -> Option<u32> {
        u32::try_from(units).ok()
    }
}

impl Value for u64 {
    fn units(&self) -> u64 {
        *self
    }

    fn from_units(units: u64) -> Option<u64> {
        Some(units)
    }
}

impl Value for Duration {
    /// Rounded up, so that half a millisecond is not "none" and a hair above a ceiling is above it. What does
    /// not fit is far above every ceiling and stays so.
    fn units(&self) -> u64 {
        u64::try_from(self.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }

    fn from_units(units: u64) -> Option<Duration> {
        Some(Duration::from_millis(units))
    }
}

/// [`get`](IoLimits::get) or [`set`](IoLimits::set) named a dimension of another structure, or a value that the
/// field's type cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSuchLimit {
    /// The dimension belongs to another limit structure.
    OtherGroup(Dimension),
    /// A count above `u32::MAX`, which is far above every ceiling.
    TooLarge(Dimension, u64),
}

impl fmt::Display for NoSuchLimit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoSuchLimit::OtherGroup(dimension) => write!(out, "{dimension} is not a limit of this structure"),
            NoSuchLimit::TooLarge(dimension, value) => write!(
                out,
                "{dimension} cannot be {}: at most {}",
                dimension.show(*value),
                dimension.show(dimension.ceiling())
            ),
        }
    }
}

impl std::error::Error for NoSuchLimit {}

macro_rules! value_type {
    (Count) => {
        u32
    };
    (Bytes) => {
        u64
    };
    (Millis) => {
        Duration
    };
}

macro_rules! define_limits {
    ($(
        $(#[$group_doc:meta])*
        $group:ident $group_name:literal $limits:ident {$(
            $(#[doc = $about:literal])+
            $variant:ident $field:ident: $unit:ident = $default:expr, $range:expr, model $model:expr, $life:ident;
        )+}
    )+) => {$(
        $(#[$group_doc])*
        ///
        /// `docs/limits.md` lists the default and the ceiling of every field.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $limits {$(
            $(#[doc = $about])+
            pub $field: value_type!($unit),
        )+}

        impl Default for $limits {
            fn default() -> $limits {
                $limits::filled(Dimension::default_value)
            }
        }

        impl $limits {
            /// The sizes that models and the simulator use: small enough to enumerate, and valid.
            pub fn model() -> $limits {
                $limits::filled(Dimension::model_value)
            }

            /// Every limit at its ceiling.
            pub fn ceilings() -> $limits {
                $limits::filled(Dimension::ceiling)
            }

            fn filled(column: impl Fn(Dimension) -> u64) -> $limits {
                $limits {$(
                    $field: Value::from_units(column(Dimension::$variant))
                        .expect("a column of the table holds counts that fit u32: dimension.rs tests every row"),
                )+}
            }

            /// The dimensions of this structure, in the order of its fields.
            pub fn dimensions() -> impl Iterator<Item = Dimension> {
                Dimension::ALL.iter().copied().filter(|dimension| dimension.group() == Group::$group)
            }

            /// The value of one dimension; `None` if it belongs to another structure.
            pub fn get(&self, dimension: Dimension) -> Option<u64> {
                match dimension {
                    $(Dimension::$variant => Some(self.$field.units()),)+
                    _ => None,
                }
            }

            /// Sets the value of one dimension. Ranges and rules are left to [`validate`](Self::validate).
            ///
            /// # Errors
            ///
            /// The dimension belongs to another structure, or its type cannot hold the value.
            pub fn set(&mut self, dimension: Dimension, value: u64) -> Result<(), NoSuchLimit> {
                match dimension {
                    $(Dimension::$variant => {
                        self.$field = Value::from_units(value).ok_or(NoSuchLimit::TooLarge(dimension, value))?;
                    })+
                    _ => return Err(NoSuchLimit::OtherGroup(dimension)),
                }
                Ok(())
            }

            /// Checks every range and every rule between limits.
            ///
            /// # Errors
            ///
            /// Everything that is wrong, not only the first.
            pub fn validate(&self) -> Result<(), LimitsError> {
                self.validate_prepaid(&[])
            }

            /// [`validate`](Self::validate), and that the metadata limit holds what all slots cost together:
            /// fixed metadata is prepaid, so that no admission can fail for it.
            ///
            /// # Errors
            ///
            /// Everything that is wrong, not only the first.
            pub fn validate_prepaid(&self, costs: &[FixedCost]) -> Result<(), LimitsError> {
                rules::check(Group::$group, &|dimension| self.get(dimension), costs)
            }

            /// What all slots cost together in metadata: prepaid, so what is left of the metadata limit is for
            /// everything else. Of limits that [`validate_prepaid`](Self::validate_prepaid) has accepted.
            #[cfg(not(loom))]
            pub(crate) fn prepaid(&self, costs: &[FixedCost]) -> u64 {
                costs.iter().map(|cost| self.get(cost.dimension).unwrap_or(0) * cost.bytes).sum()
            }
        }
    )+};
}
dimensions!(define_limits);

impl IoLimits {
    /// The bytes one tenant may hold: [`tenant_bytes`](Self::tenant_bytes), or all of the node's where it is 0.
    pub fn bytes_per_tenant(&self) -> u64 {
        match self.tenant_bytes {
            0 => self.staged_bytes + self.result_bytes,
            bytes => bytes,
        }
    }
}

impl PoolLimits {
    /// As [`maximum_lifetime`](Self::maximum_lifetime): connections live as long as they work.
    pub const NO_MAXIMUM_LIFETIME: Duration = Duration::ZERO;

    /// How long a connection may live; `None`: as long as it works.
    pub fn lifetime(&self) -> Option<Duration> {
        (self.maximum_lifetime != Self::NO_MAXIMUM_LIFETIME).then_some(self.maximum_lifetime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_dimensions_are_the_same_numbers() {
        let mut limits = PoolLimits::default();
        assert_eq!(limits.queue_age, Duration::from_secs(5));
        assert_eq!(limits.get(Dimension::PoolsQueueAge), Some(5_000));
        limits.set(Dimension::PoolsQueueAge, 250).unwrap();
        limits.set(Dimension::PoolsRunning, 7).unwrap();
        assert_eq!((limits.queue_age, limits.running), (Duration::from_millis(250), 7));
        for dimension in PoolLimits::dimensions() {
            limits.set(dimension, dimension.ceiling()).unwrap();
            assert_eq!(limits.get(dimension), Some(dimension.ceiling()));
        }
        assert_eq!(limits, PoolLimits::ceilings());
    }

    #[test]
    fn a_dimension_of_another_structure_is_refused() {
        let mut limits = IoLimits::default();
        assert_eq!(limits.get(Dimension::PoolsRunning), None);
        let refused = limits.set(Dimension::PoolsRunning, 1);
        assert_eq!(refused, Err(NoSuchLimit::OtherGroup(Dimension::PoolsRunning)));
        let refused = limits.set(Dimension::IoRunning, 1 << 32);
        assert_eq!(refused, Err(NoSuchLimit::TooLarge(Dimension::IoRunning, 1 << 32)));
        assert_eq!(limits, IoLimits::default());
    }

    #[test]
    fn times_round_up() {
        let limits = PoolLimits { queue_age: Duration::from_nanos(1), ..PoolLimits::default() };
        assert_eq!(limits.get(Dimension::PoolsQueueAge), Some(1));
        let above = Duration::from_secs(60) + Duration::from_nanos(1);
        let limits = PoolLimits { queue_age: above, ..PoolLimits::default() };
        assert!(limits.validate().is_err());
    }

    #[test]
    fn a_tenant_may_hold_all_bytes_of_the_node_unless_configured() {
        let limits = IoLimits::default();
        assert_eq!(limits.bytes_per_tenant(), limits.staged_bytes + limits.result_bytes);
        let limits = IoLimits { tenant_bytes: 4_096, ..limits };
        assert_eq!(limits.bytes_per_tenant(), 4_096);
    }
}
