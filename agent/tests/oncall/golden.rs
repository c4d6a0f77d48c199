//! Outputs as they were once looked at.

use std::path::PathBuf;

/// A file of `tests/data/oncall`.
pub fn data(name: &str) -> PathBuf {
    PathBuf::from(format!("{}/tests/data/oncall/{name}", env!("CARGO_MANIFEST_DIR")))
}

/// Compares with `tests/data/oncall/NAME`; `ROLLRACE_BLESS=1` writes it.
pub fn golden(name: &str, text: &str) {
    let path = data(name);
    if std::env::var_os("ROLLRACE_BLESS").is_some() {
        std::fs::write(&path, text).expect("write the golden file");
    }
    let expected = std::fs::read_to_string(&path).expect("read the golden file");
    let path = path.display();
    assert_eq!(text, expected, "differs from {path}: ROLLRACE_BLESS=1 takes it over");
}
