//! Counting: who may hold how much. Nothing here waits.
//!
//! | file | holds |
//! | --- | --- |
//! | [`dimension`] | THE table: name, unit, default, ceiling and meaning of everything that is counted |
//! | [`limits`] | the structures an operator fills, one field per dimension |
//! | [`rules`] | the rules between limits, and the error that lists every broken one |
//! | [`scope`] | whose word it is, and why it does not let somebody pass |
//! | [`room`] | what all words share: rooms beside flags in one `u64`, taken and given in one step |
//! | [`node`] [`tenant`] [`provider`] [`client`] | the words that somebody may wait at |
//! | [`bytes`] [`shares`] [`jobs`] | the words that nobody waits at |
//! | [`gauge`] | used and limit in one word: bytes of metadata |
//! | [`budget`] | what is left of a budget, and what was spent of a permission |
//! | [`uses`] | how many uses are left of a permission that was given out by number |
//! | [`lower`] | limits of several words lowered together, or none of them |
//! | [`charge`] | an operation's charges over node, tenant and provider together |
//! | [`peaks`] | the most that was ever used of each field of a word |
//! | [`figures`] | what is counted only to be looked at: refusals, ages in the line |

pub mod budget;
pub mod bytes;
pub mod charge;
pub mod client;
pub mod dimension;
pub mod figures;
pub mod gauge;
pub mod jobs;
pub mod limits;
pub mod lower;
pub mod node;
pub mod peaks;
pub mod provider;
pub mod room;
pub mod rules;
pub mod scope;
pub mod shares;
pub mod tenant;
pub mod uses;
