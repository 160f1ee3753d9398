//! Planted bugs: a test of the tests.
//!
//! Built with `--cfg plant`, the library has wrong turns in it, each at the place that it is about and each by its name:
//! `planted!("check_then_add")`. The environment variable `LATENT_PLANT` says which one is taken, so one build serves for
//! all. `.ci/stage-plants.sh` lists them with the test or model that must fail, and runs them.
//!
//! In every other build the macro is `false`, and nothing of it is left. A build with `--cfg plant` and without debug
//! assertions is refused, except for the models, so that no release can have it.

#[cfg(all(plant, not(debug_assertions), not(loom)))]
compile_error!(
    "`--cfg plant` puts bugs into the library: it is for tests with debug assertions and for models only"
);

#[cfg(not(plant))]
macro_rules! planted {
    ($name:literal) => {
        false
    };
}

#[cfg(plant)]
macro_rules! planted {
    ($name:literal) => {
        $crate::plant::is($name)
    };
}

/// Whether the environment names this bug.
#[cfg(plant)]
pub(crate) fn is(name: &str) -> bool {
    static TAKEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    TAKEN.get_or_init(|| std::env::var("LATENT_PLANT").unwrap_or_default()) == name
}
