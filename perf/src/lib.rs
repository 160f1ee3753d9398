//! Package of measurements.
