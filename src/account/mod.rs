//! Counting: who may hold how much. Nothing here waits.
//!
//! | file | holds |
//! | --- | --- |
//! | [`dimension`] | THE table: name, unit, default, ceiling and meaning of everything that is counted |
//! | [`limits`] | the structures an operator fills, one field per dimension |
//! | [`rules`] | the rules between limits, and the error that lists every broken one |

pub mod dimension;
pub mod limits;
pub mod rules;
