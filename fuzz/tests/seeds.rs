//! Every seed goes through its target, on the stable toolchain too.

use std::path::Path;

#[test]
fn every_seed_passes() {
    for (name, target) in latent_fuzz::TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(name);
        let mut seeds = 0;
        for seed in std::fs::read_dir(&folder).unwrap_or_else(|wrong| panic!("{}: {wrong}", folder.display()))
        {
            let path = seed.expect("a seed can be listed").path();
            target(&std::fs::read(&path).expect("a seed can be read"));
            seeds += 1;
        }
        assert!(seeds >= 2, "{name} has {seeds} seeds");
        println!("{name}: {seeds} seeds");
    }
}
