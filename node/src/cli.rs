//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

/// A small gateway that carries HTTP for many tenants: bounded, fair, nothing leaked.
///
/// Without a command it runs a demo on 127.0.0.1:8080 with two tenants and an origin of its own, and prints lines to
/// try.
#[derive(Debug, Parser)]
#[command(version, about, arg_required_else_help = false)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Where the demo listens.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// How log lines on standard error look. What is logged is chosen with LATENT_LOG, for example
    /// LATENT_LOG=debug.
    #[arg(long, value_name = "FORMAT", default_value = "text", global = true)]
    pub(crate) log: LogFormat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve with a configuration.
    Serve {
        /// The configuration (TOML); examples/node.toml shows one.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Check a configuration and explain every limit, without serving.
    Check {
        /// The configuration (TOML).
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One readable line each.
    Text,
    /// One JSON object each.
    Json,
}
