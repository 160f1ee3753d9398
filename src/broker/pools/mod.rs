//! Shared provider pools.
