//! Runs the comparison with what a user would pick instead:
//! `cargo run --release -p perf --features peers -- compare [--quick] [--json FILE] [--svg DIR]`.

#[cfg(feature = "peers")]
mod compare;

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        #[cfg(feature = "peers")]
        Some((word, options)) if word == "compare" => compare::run(options),
        _ => {
            eprintln!(
                "usage: cargo run --release -p perf --features peers -- compare [--quick] [--only WORD] [--json FILE] [--svg DIR]"
            );
            std::process::ExitCode::from(2)
        }
    }
}
