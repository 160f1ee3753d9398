//! A small gateway that carries HTTP for many tenants through `latent-capabilities`.
//!
//! | file | holds |
//! | --- | --- |
//! | `cli`, `main` | the command line, exit codes |
//! | `config/` | what an operator writes, checked as a whole |
//! | `check`, `resources` | every limit explained; what all limits come to |
//! | `demo`, `origin` | the node without a configuration, and something to call |
//! | `gateway`, `tokens` | the library put together for one configuration; whose token is whose |
//! | `door` | the way to one provider: its epoch, the plans for it, and how both are replaced |
//! | `admin/` | what operators can do: rotate, retire, look |
//! | `ingress/` | inbound HTTP/1.1: listeners, connections, the way of a request |
//! | `refusal`, `status` | what callers and operators are told |
//! | `serve` | the life of a node: listen, serve, drain, close |

mod admin;
mod check;
mod cli;
mod config;
mod demo;
mod door;
mod gateway;
mod ingress;
mod origin;
mod refusal;
mod resources;
mod serve;
mod status;
mod tokens;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use cli::{Cli, Command, LogFormat};
use config::Config;
use demo::Demo;
use gateway::Gateway;
use serve::{CannotListen, Listeners, Running};

/// The command line, a configuration or an address cannot be used.
const UNUSABLE: u8 = 2;
/// The node stopped, and something was left.
const LEFT: u8 = 1;

/// What is said on standard error before ending with [`UNUSABLE`].
struct Unusable(String);

fn main() -> ExitCode {
    let cli = Cli::parse();
    let logged = start_log(cli.log);
    let ended = logged.and_then(|()| match &cli.command {
        None => run_demo(cli.listen),
        Some(Command::Serve { config }) => run_serve(config),
        Some(Command::Check { config }) => run_check(config),
    });
    match ended {
        Ok(code) => code,
        Err(Unusable(text)) => {
            eprintln!("{text}");
            ExitCode::from(UNUSABLE)
        }
    }
}

/// Log lines go to standard error, those of level info and above unless `LATENT_LOG` says otherwise.
fn start_log(format: LogFormat) -> Result<(), Unusable> {
    let filter = EnvFilter::builder()
        .with_env_var("LATENT_LOG")
        .with_default_directive(LevelFilter::INFO.into())
        .from_env()
        .map_err(|error| {
            Unusable(format!("LATENT_LOG cannot be used: {error}; for example LATENT_LOG=debug"))
        })?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

fn run_demo(listen: SocketAddr) -> Result<ExitCode, Unusable> {
    runtime(None)?.block_on(async {
        let origin = origin::start()
            .await
            .map_err(|error| Unusable(format!("the embedded origin cannot listen on loopback: {error}")))?;
        let demo = Demo::new(listen, origin).map_err(Unusable)?;
        let listeners =
            Listeners::bind(&demo.config).await.map_err(|error| cannot_listen(&error, "--listen"))?;
        let address = listeners.address().map_err(|error| Unusable(error.to_string()))?;
        let welcome = demo.welcome(address);
        serve(demo.config, listeners, &welcome).await
    })
}

fn run_serve(file: &Path) -> Result<ExitCode, Unusable> {
    let config = load(file)?;
    let (runtime, close) = (runtime(config.node.workers)?, config.node.close);
    let ended = runtime.block_on(async {
        let listeners = Listeners::bind(&config).await.map_err(|error| cannot_listen(&error, "listen"))?;
        let address = listeners.address().map_err(|error| Unusable(error.to_string()))?;
        let mut hello = format!("latent-node {}: listening on http://{address}\n", env!("CARGO_PKG_VERSION"));
        if let Some(status) = listeners.status_address() {
            hello += &format!("status page on http://{status}/\n");
        }
        if let Some(admin) = listeners.admin_address() {
            hello += &format!("operators on http://{admin}/admin/\n");
        }
        serve(config, listeners, &hello).await
    });
    // A rotation may still read a file that does not answer.
    runtime.shutdown_timeout(close);
    ended
}

fn run_check(file: &Path) -> Result<ExitCode, Unusable> {
    let config = load(file)?;
    // Put the parts together as `serve` would, without listening: what the library or the adapter refuses shows here.
    runtime(Some(1))?
        .block_on(async { Gateway::build(&config).map(drop) })
        .map_err(|error| unusable(file, &error))?;
    say(&format!("{}: can be used\n\n{}", file.display(), check::explain(&config)));
    Ok(ExitCode::SUCCESS)
}

/// Reads a configuration and compares it with the machine.
fn load(file: &Path) -> Result<Config, Unusable> {
    let config = Config::load(file).map_err(|refused| Unusable(refused.to_string()))?;
    let warnings =
        resources::compare(&config).map_err(|text| Unusable(format!("{}: {text}", file.display())))?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(config)
}

async fn serve(config: Config, listeners: Listeners, hello: &str) -> Result<ExitCode, Unusable> {
    let running = Running::start(config, listeners).map_err(|error| Unusable(error.to_string()))?;
    say(hello);
    Ok(if running.run().await { ExitCode::SUCCESS } else { ExitCode::from(LEFT) })
}

/// A line on standard output. Who reads it may have read enough and gone (`| head`): that is no failure of this program.
fn say(text: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{text}").and_then(|()| out.flush()) {
        tracing::debug!(%error, "standard output is gone");
    }
}

/// Worker threads: as configured, or one for each core. A single one is the thread that the program began with: it has
/// nobody to share its work with, and wakes nobody for it.
fn runtime(workers: Option<usize>) -> Result<tokio::runtime::Runtime, Unusable> {
    let mut builder = match workers {
        Some(1) => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    if let Some(workers @ 2..) = workers {
        builder.worker_threads(workers);
    }
    builder
        .thread_name("latent-node")
        .enable_all()
        .build()
        .map_err(|error| Unusable(format!("cannot start threads: {error}")))
}

fn unusable(file: &Path, error: &dyn std::fmt::Display) -> Unusable {
    Unusable(format!("{}: {error}", file.display()))
}

fn cannot_listen(failed: &CannotListen, key: &str) -> Unusable {
    let CannotListen { address, error } = failed;
    let why = match error.kind() {
        std::io::ErrorKind::AddrInUse => "another program listens there already".to_owned(),
        _ => error.to_string(),
    };
    let other = SocketAddr::new(address.ip(), address.port().checked_add(1).unwrap_or(8_081));
    let hint = match key {
        "--listen" => format!("choose another: latent-node --listen {other}"),
        _ => format!("choose another in the configuration: {key} = \"{other}\""),
    };
    Unusable(format!("cannot listen on {address}: {why}; {hint}"))
}
